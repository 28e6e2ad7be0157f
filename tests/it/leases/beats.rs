//! Heartbeats: they wait for no push, and they are not attributed to another push.

use super::under_strace;
use crate::support::{
    Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    needs::{Need, lacks},
};
use std::fs;

#[test]
fn heartbeat_takes_no_slot_waits_for_none_and_is_not_synced() {
    if lacks(&[Need::Strace]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        world.configure("fence.wait", "10m");
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let next = lease.advanced(&anna, 2, "first");
        let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
        world.pid_in("stalled");
        under_strace(&world, "process,desc");
        let beat = Pushed::from(&lease.beat_command(&anna, "Fence-Progress: page 3\n").output().unwrap());
        beat.assert_landed();
        assert_eq!(beat.remote, "");
        let trace = fs::read_to_string(world.path("trace")).unwrap();
        let count = |word: &str| trace.lines().filter(|line| line.contains(word)).count();
        assert_eq!((count("execve("), count("fdatasync(") + count("fsync(")), (1, 0), "{trace}");
        assert!(count("write(") > 0, "{trace}");
        world.go();
        slow.wait().assert_landed();
        let status = lease.status();
        assert_eq!((&status["progress"], &status["token"]), (&"page 3".into(), &2.into()));
        let renewed = &world.events("lease.renewed")[0];
        assert_eq!((&renewed["token"], &renewed["lease"]), (&1.into(), &(*anna.id).into()));
        world.assert_log_is_whole();
        // A beat in a push with other refs takes its turn like any other.
        lease.beat(&anna).assert_landed();
        assert_eq!(world.events("push.accepted").len(), 2);
    }
}

/// If refs move one by one, the lease is ahead of the log until the others have moved.
#[test]
fn heartbeat_during_a_push_in_flight_counts() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let refspecs = [format!("+{}", lease.advanced(&anna, 2, "first")), "HEAD:refs/heads/slow".to_owned()];
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        let slow = Running::start(&mut world.push_command(&refspecs, &["fence-token=1"]));
        world.pid_in("stalled");
        lease.beat(&anna).assert_landed();
        world.go();
        slow.wait().assert_landed();
        lease.write(&anna, "main", 2, "first").assert_landed();
        lease.ask().assert_refused("FENCE-LEASE-HELD");
        assert!(world.events("lease.found").is_empty(), "only the gate has moved it");
        assert_eq!(world.events("lease.advanced").len(), 2);
        world.assert_log_is_whole();
    }
}

/// A blocked push is told apart from one that has moved: a stalled push of the holder that carries a
/// beat has moved nothing, although the beat's ref has moved meanwhile.
#[test]
fn heartbeat_beside_a_stalled_push_does_not_spend_its_token() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.write_hook("update", "case $1 in refs/heads/main) echo $PPID >stalled.new; mv stalled.new stalled; while ! [ -e go ]; do sleep 0.02; done; exit 1;; esac");
    let _go = world.go_in_the_end();
    let work = world.commit("work");
    let refspecs = [
        format!("{work}:refs/heads/main"),
        lease.advanced(&anna, 2, "first"),
        lease.record("beat", &anna.beat(""), &[]),
    ];
    let slow = Running::start(&mut lease.push_command(&refspecs, &["fence-token=1".to_owned()]));
    world.pid_in("stalled");
    lease.beat(&anna).assert_landed();
    world.go();
    assert!(!slow.wait().ok);
    fs::remove_file(world.hook("update")).unwrap();
    lease.write(&anna, "main", 1, "first").assert_landed();
    let settled = &world.events("push.settled")[1];
    assert_eq!((&settled["moved"], &settled["spent"]), (&0.into(), &serde_json::json!([])));
}
