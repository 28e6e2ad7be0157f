//! From one holder to the next: when a lease is free, and what the previous holder may still do.

use super::{json, take_when_it_expires};
use crate::support::{
    Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    wait_until,
};
use std::fs;

#[test]
fn grant_fences_every_earlier_holder_at_once() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        lease.write(&anna, "main", 1, "first").assert_landed();
        let zombie = lease.advanced(&anna, 3, "first");
        take_when_it_expires(lease, &bob, 3).assert_landed();
        // Bob has written nothing yet.
        let main = world.server_ref("refs/heads/main");
        let write = |token: u64, lease_spec: &str| {
            Pushed::from(&lease.write_command(&anna, "main", token, lease_spec).output().unwrap())
        };
        write(2, &zombie).assert_refused("FENCE-STALE");
        // She was told a number, and tries the next one by hand, and then the right one without the lease.
        world.push_token("main", "2").assert_refused("FENCE-STALE");
        world.push_token("main", "3").assert_refused("FENCE-LEASE-REQUIRED");
        world.push_token("main", "4").assert_refused("FENCE-LEASE-REQUIRED");
        write(3, &zombie).assert_refused("FENCE-LEASE-LOST");
        // Bob's own next step, copied, but without his proof.
        let work = world.commit("stolen");
        let next = bob.lease(4, "held", "expired");
        let copy = |message: &str| {
            let step = lease.record("lease", message, &lease.parents_of(&lease.at().unwrap()));
            lease.push(&[format!("{work}:refs/heads/main"), step], &["fence-token=3".to_owned()])
        };
        copy(&next).assert_refused("FENCE-LEASE-REQUIRED");
        copy(&lease.proven(&anna, "lease", &next)).assert_refused("FENCE-LEASE-INVALID");
        // The same in a commit's trailer.
        let stamped = world.commit("work\n\nFencing-Token: 3\n");
        world.push(&[&format!("+{stamped}:refs/heads/main")], &[]).assert_refused("FENCE-LEASE-REQUIRED");
        world.push(&["+HEAD:refs/heads/main"], &[]).assert_refused("FENCE-LEASE-REQUIRED");
        assert_eq!(world.server_ref("refs/heads/main"), main);
        // With his own next step, bob is admitted.
        let stamped = [format!("{stamped}:refs/heads/main"), lease.advanced(&bob, 4, "expired")];
        lease.push(&stamped, &[]).assert_landed();
        lease.write(&bob, "main", 4, "expired").assert_landed();
        assert_eq!(lease.mark(), 4);
        world.assert_log_is_whole();
    }
}

/// The deadline in the beat is 2001, or 2999: neither counts.
#[test]
fn lease_expires_by_the_servers_clock() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    let held = lease.take(&bob, 2, "expired");
    held.assert_refused("FENCE-LEASE-HELD");
    let left = json(&held)["holder"]["expires_in_ms"].as_u64().unwrap();
    assert!(left > 300_000 && left <= 600_000, "{left}");
    assert_eq!(json(&held)["holder"]["owner"], "anna");
    lease.release(&anna, 1, "first").assert_landed();

    let brief = Agent::brief("carl");
    let later = brief.beat("").replace("2001-01-01", "2999-01-01");
    let take = [
        lease.record("lease", &brief.lease(2, "held", "released"), &lease.before()),
        lease.record("beat", &later, &[]),
    ];
    lease.push(&take, &[]).assert_landed();
    take_when_it_expires(lease, &bob, 3).assert_landed();
    lease.beat(&brief).assert_refused("FENCE-LEASE-LOST");
    let granted = world.events("lease.granted");
    let heard = |n: usize| granted[n]["heard"]["uptime_ms"].as_u64().unwrap();
    assert!(heard(2) - heard(1) >= 1000, "acquired before the expiry");
    // There was no heartbeat from carl after the grant: how long he really held it is not known.
    assert_eq!(granted[2]["held_ms"], 0);
}

#[test]
fn late_heartbeat_counts_until_the_lease_is_taken_over() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    // A client that acquires the lease has not held it yet: it cannot use the previous holder's token either.
    let hasty = [
        format!("{}:refs/heads/main", world.commit("hasty")),
        lease.record("lease", &bob.lease(2, "held", "expired"), &lease.before()),
        lease.record("beat", &bob.beat(""), &[]),
    ];
    lease.push(&hasty, &["fence-token=1".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
    lease.beat(&anna).assert_landed();
    lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
}

#[test]
fn question_is_answered_at_once_and_changes_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.configure("fence.wait", "10m");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let next = lease.advanced(&anna, 2, "first");
    let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
    world.pid_in("stalled");
    let asked = lease.ask();
    asked.assert_refused("FENCE-LEASE-HELD");
    assert_eq!(json(&asked)["holder"]["lease"].as_str(), Some(&*anna.id));
    assert_eq!(world.events("lease.refused").len(), 2, "a skip is recorded");
    // A deletion does not get it either.
    lease.push(&[format!(":{}", lease.name("lease/ask"))], &[]).assert_refused("FENCE-LEASE-HELD");
    world.go();
    slow.wait().assert_landed();
}

/// Makes the update hook stall when a lease is moved for the first time.
fn stall_lease(world: &World) {
    world.write_hook(
        "update",
        "case $1 in refs/fence/*/lease) [ -e stalled ] && exit 0\n\
         echo $PPID >stalled.new; mv stalled.new stalled\n\
         while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac",
    );
}

#[test]
fn takeover_and_renewal_cannot_both_win() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        wait_until("it has expired", || lease.status()["state"] == "expired");
        stall_lease(&world);
        let _go = world.go_in_the_end();
        // Admitted, and before its refs move, a heartbeat of the holder arrives.
        let takeover = Running::start(&mut lease.take_command(&bob, 2, "expired"));
        world.pid_in("stalled");
        lease.beat(&anna).assert_landed();
        world.go();
        assert!(!takeover.wait().ok, "git's compare-and-swap on the beat refuses it");
        assert_eq!(lease.status()["owner"], "anna");
        assert_eq!(lease.mark(), 0);
        fs::remove_file(world.hook("update")).unwrap();
        // The other way round.
        take_when_it_expires(lease, &bob, 2).assert_landed();
        lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
        assert_eq!(lease.status()["owner"], "bob");
        world.assert_log_is_whole();
    }
}

/// A takeover has no token of its own, and is newer than the holder that waits behind it.
#[test]
fn stalled_takeover_is_not_evicted_by_the_previous_holder() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    world.configure("fence.wait", "1s");
    world.configure("fence.evictAfter", "1ms");
    stall_lease(&world);
    let _go = world.go_in_the_end();
    let takeover = Running::start(&mut lease.take_command(&bob, 2, "expired"));
    world.pid_in("stalled");
    lease.write(&anna, "main", 1, "first").assert_refused("FENCE-BUSY");
    assert!(world.events("push.evicted").is_empty());
    world.go();
    takeover.wait().assert_landed();
    lease.write(&anna, "main", 1, "first").assert_refused("FENCE-STALE");
}

/// The holder's stalled push carries the lease on to the token that its successor asks for: equal, and still older.
#[test]
fn stalled_push_of_an_expired_holder_is_evicted_by_the_takeover() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.evictAfter", "1s");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        world.write_hook(
            "update",
            "case $1 in refs/heads/main) echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID;; esac",
        );
        let next = lease.advanced(&anna, 2, "first");
        let zombie = Running::start(&mut lease.write_command(&anna, "main", 1, &next));
        world.pid_in("stalled");
        take_when_it_expires(lease, &bob, 2).assert_landed();
        assert!(!zombie.wait().ok);
        assert_eq!(world.events("push.evicted").len(), 1);
        assert_eq!(world.server_ref("refs/heads/main"), None, "nothing of it has landed");
        assert_eq!(lease.status()["owner"], "bob");
        world.assert_log_is_whole();
    }
}

/// A holder that still renews its lease keeps its slot, whoever asks for the lease.
#[test]
fn stalled_push_of_a_live_holder_is_not_evicted_by_a_claim_to_its_next_token() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "1s");
    world.configure("fence.evictAfter", "1ms");
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    world.stall_update_of("main");
    let _go = world.go_in_the_end();
    let next = lease.advanced(&anna, 2, "first");
    let slow = Running::start(&mut lease.write_command(&anna, "main", 1, &next));
    world.pid_in("stalled");
    lease.take(&bob, 2, "expired").assert_refused("FENCE-BUSY");
    assert!(world.events("push.evicted").is_empty());
    world.go();
    slow.wait().assert_landed();
}

#[test]
fn one_of_eight_contenders_gets_the_lease() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let agents: Vec<Agent> = (0..8).map(|n| Agent::new(&format!("agent-{n}"))).collect();
        let tries: Vec<Running> =
            agents.iter().map(|agent| Running::start(&mut lease.take_command(agent, 1, "first"))).collect();
        let tries: Vec<Pushed> = tries.into_iter().map(Running::wait).collect();
        let winners: Vec<usize> = (0..8).filter(|n| tries[*n].ok).collect();
        let [winner] = winners[..] else { panic!("{winners:?} have it: {tries:#?}") };
        assert_eq!(lease.status()["owner"], agents[winner].name);
        for (n, tried) in tries.iter().enumerate().filter(|(n, _)| *n != winner) {
            assert!(tried.text.contains("FENCE-LEASE-HELD"), "{n}: {}", tried.text);
        }
        lease.write(&agents[winner], "main", 1, "first").assert_landed();
        assert_eq!(world.events("lease.granted").len(), 1);
        world.assert_log_is_whole();
    }
}
