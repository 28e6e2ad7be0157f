//! The command line of `git fence run`: what is a flag, what is the command, and what is found out before the remote
//! is asked.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, wait_until, write_script,
};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// The lease's token at the remote, and nothing if it was never taken.
fn lease(world: &World) -> Option<String> {
    world.server_ref("refs/fence/repo/lease")
}

/// `git fence run <args>`, which must end with `code` and touch no lease.
fn refused(agent: &Agent<'_>, args: &[&str], code: i32) -> String {
    let before = lease(agent.world);
    let (got, said) = code_of(&agent.fence(&["run"]).args(args).output().unwrap());
    assert_eq!(got, code, "run {args:?}: {said}");
    assert_eq!(lease(agent.world), before, "run {args:?} has touched the lease");
    said
}

/// Every claim below holds for a lease that is free and for one that another clone holds.
fn free_and_held(claim: impl Fn(&Agent<'_>)) {
    for held in [false, true] {
        let world = Remote::Bare.world(&any_git());
        let (agent, other) = (world.agent("a"), world.agent("b"));
        if held {
            other.ok(&["acquire", "--ttl", "1h"]);
        }
        claim(&agent);
    }
}

#[test]
fn unknown_flag_of_run_is_wrong_usage_and_never_the_command() {
    free_and_held(|agent| {
        let said = refused(agent, &["--tll", "5s", "--", "true"], 2);
        assert!(said.contains("--tll") && said.contains("'--ttl'"), "{said}");
        for args in [&["--no-such-flag", "--", "true"][..], &["--no-such-flag", "true"], &["-x", "--", "true"]] {
            assert!(refused(agent, args, 2).contains(args[0]), "{args:?}");
        }
    });
}

#[test]
fn command_that_is_not_found_is_told_before_the_lease_is_asked_for() {
    free_and_held(|agent| {
        for program in [agent.path("missing").to_str().unwrap(), "./missing", "git-fence-no-such-command", ""] {
            let said = refused(agent, &["--", program], 127);
            assert!(said.contains("not found") && said.contains("hint: "), "{said}");
        }
        assert!(refused(agent, &["--json", "--", "git-fence-no-such-command"], 127).contains("not-started"));
    });
}

#[test]
fn command_that_cannot_be_executed_is_told_before_the_lease_is_asked_for() {
    free_and_held(|agent| {
        let plain = agent.path("plain");
        fs::write(&plain, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
        let lost = agent.path("lost");
        write_script(&lost, "");
        fs::write(&lost, "#!/no/such/interpreter -x\n").unwrap();
        for program in [plain.to_str().unwrap(), "./plain", "./lost", "."] {
            let said = refused(agent, &["--", program], 126);
            assert!(said.contains("cannot run") && said.contains("hint: "), "{said}");
        }
    });
}

#[test]
fn command_begins_at_the_first_word_that_is_no_flag_and_keeps_its_own_flags() {
    let world = Remote::Bare.world(&any_git());
    let agent = world.agent("a");
    for args in [
        &["--ttl", "90s", "echo", "--ttl", "-E", "--", "x"][..],
        &["--ttl", "90s", "--", "echo", "--ttl", "-E", "--", "x"],
        &["--ttl=90s", "-E7", "echo", "--ttl", "-E", "--", "x"],
    ] {
        let (code, said) = code_of(&agent.fence(&["run"]).args(args).output().unwrap());
        assert_eq!((code, said.as_str()), (0, "--ttl -E -- x\n"), "{args:?}");
    }
    // After `--` even a program whose name looks like a flag.
    let bin = agent.path("bin");
    fs::create_dir(&bin).unwrap();
    write_script(&bin.join("--ttl"), "echo \"$@\" >ran");
    let mut run = agent.fence(&["run", "--", "--ttl", "x"]);
    let path = run.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap().to_owned();
    run.env("PATH", [bin.as_os_str(), ":".as_ref(), &path].into_iter().collect::<std::ffi::OsString>());
    assert_eq!(code_of(&run.output().unwrap()).0, 0);
    wait_until("it ran", || fs::read_to_string(agent.path("ran")).is_ok_and(|text| text == "x\n"));
}
