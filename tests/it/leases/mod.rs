//! Leases at the gate, over the real wire. Each module tests one part of their life.

mod beats;
mod found;
mod halting;
mod revoking;
mod settings;
mod steps;
mod turns;

use crate::support::{
    Pushed, World,
    lease::{Agent, LeaseOf},
    sh, wait_until,
};

/// Tries until another agent's lease has expired by the server's clock.
fn take_when_it_expires(lease: LeaseOf<'_>, agent: &Agent, token: u64) -> Pushed {
    let mut last = None;
    wait_until("the lease has expired", || {
        let tried = lease.take(agent, token, "expired");
        let is_held = tried.text.contains("FENCE-LEASE-HELD");
        last = Some(tried);
        !is_held
    });
    last.unwrap()
}

fn json(pushed: &Pushed) -> serde_json::Value {
    let line = pushed.text.lines().find_map(|line| line.strip_prefix("fence: ")).unwrap_or_else(|| {
        panic!("no JSON line in:\n{}", pushed.text);
    });
    serde_json::from_str(line).unwrap()
}

fn under_strace(world: &World, what: &str) {
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    let trace = sh(world.path("trace"));
    world.write_hook("pre-receive", &format!("exec strace -f -qq -e trace={what} -o {trace} {gate} pre-receive"));
}

fn revoke(world: &World, args: &[&str]) -> std::process::Output {
    operator(world, "revoke", args)
}

fn operator(world: &World, command: &str, args: &[&str]) -> std::process::Output {
    world.hook_program().arg(command).args(args).arg(world.server()).output().unwrap()
}
