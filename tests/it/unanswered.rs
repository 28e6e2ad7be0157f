//! Remotes that accept a connection and never answer.

use crate::support::{
    Running, World,
    agents::Agent,
    any_git,
    needs::{Need, lacks},
    sh, signal, wait_until, write_script,
};
use std::{
    fs,
    time::{Duration, Instant},
};

/// An ssh that runs its command on this machine, and no longer once the file `frozen` exists.
fn freezable(agent: &Agent<'_>) {
    let (ssh, frozen) = (agent.world.path("ssh"), agent.world.path("frozen"));
    write_script(
        &ssh,
        &format!("while [ -e {} ]; do sleep 0.1; done\nfor last; do :; done\nexec sh -c \"$last\"", sh(frozen)),
    );
    agent.moves_to(&format!("ssh://server{}", agent.world.server().display()));
    agent.world.ok(agent.git().args(["config", "core.sshCommand", &sh(&ssh)]));
    agent.world.ok(agent.git().args(["config", "ssh.variant", "simple"]));
}

#[test]
fn host_that_never_answers_is_named_while_it_is_waited_for() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = World::new(&any_git());
    let (web, a) = (world.web("silent"), world.agent("a"));
    a.moves_to(&web.url);
    for mut command in [a.run(&[], "true"), a.fence(&["acquire"]), a.fence(&["status"])] {
        let running = Running::start(&mut command);
        wait_until("it says that it waits", || {
            running.has_said("waiting for the remote 'origin' to answer, for another ")
        });
        signal(running.pid(), "TERM");
        running.wait();
    }
}

/// The command ends, and the server has stopped answering: `run` ends soon after, within what is left of the lease.
#[test]
fn run_does_not_outlast_its_lease_for_a_server_that_stopped_answering() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    freezable(&a);
    let frozen = world.path("frozen");
    // The end of the command is when this file was made.
    let running = Running::start(&mut a.run(&["--ttl", "8s"], &format!("touch {}", sh(&frozen))));
    wait_until("the command has ended", || frozen.exists());
    let since = Instant::now();
    let ended = running.wait();
    // With a wide margin: 8 s are left at most. Without a bound by the lease it takes 40 s.
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}: {}", since.elapsed(), ended.text);
    assert!(ended.ok, "{}", ended.text);
    assert!(ended.text.contains("could not release the lease"), "{}", ended.text);
    assert_eq!(a.status()["outcome"], "ran");
    fs::remove_file(frozen).unwrap();
}
