//! Leases that move to a store, and back: one place for each fence.

use super::{MARK, marked, push, token, work, written};
use crate::support::{
    Pushed, World,
    engine::{Holder, RESOURCE, begins, fresh, mark_now},
    gits,
    lease::{Agent, LeaseOf},
};
use git_fence_core::{Mark, MarkRecord, MarkState};

/// The refspec that moves the lease ref to this state.
fn lease_to(lease: &LeaseOf<'_>, agent: &Agent, at: u64, state: &str, proven: bool) -> String {
    let message = agent.lease(at, state, "released");
    let message = if proven { lease.proven(agent, "lease", &message) } else { message };
    lease.record("lease", &message, &lease.before())
}

#[test]
fn lease_moves_to_a_store_only_with_the_mark_and_nothing_is_granted_here_then() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, mover) = (Agent::new("anna"), Agent::new("mover"));
        lease.take(&anna, 1, "first").assert_landed();
        lease.write(&anna, "main", 1, "first").assert_landed();
        let begin = || marked(&world, &begins("etcd://host"), None);
        let to_store = |proven| lease_to(&lease, &anna, 2, "moved", proven);
        // Without the setting, the gate could not tell any more who holds a lease.
        push(&world, &[begin(), to_store(true)], None).assert_refused("FENCE-LEASE-INVALID");
        world.configure("fence.store", "etcd://host");
        world.configure("fence.resource", RESOURCE);
        push(&world, &[to_store(true)], None).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[begin(), lease_to(&lease, &mover, 2, "moved", false)], None).assert_refused("FENCE-LEASE-HELD");
        push(&world, &[begin(), lease_to(&lease, &mover, 1, "moved", true)], None)
            .assert_refused("FENCE-LEASE-INVALID");
        assert_eq!(world.server_ref(MARK), None);
        push(&world, &[begin(), to_store(true)], None).assert_landed();
        assert_eq!(world.mark(), 2, "no token that was granted here writes any more");
        assert_eq!(lease.status()["state"], "moved");
        let refused = lease.take(&Agent::new("bob"), 3, "released");
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("the leases of this fence are kept in 'etcd://host'"), "{}", refused.text);
        for asked in [lease.ask(), lease.beat(&anna)] {
            assert!(!asked.ok && asked.text.contains("kept"), "{}", asked.text);
        }
        assert!(!lease.write(&anna, "main", 2, "first").ok);
        world.assert_log_is_whole();
    }
}

#[test]
fn fresh_repository_and_one_that_moves_back() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (mover, anna) = (Agent::new("mover"), Holder::new("anna", 3));
        let begin = marked(&world, &begins("etcd://host"), None);
        push(&world, &[begin, lease_to(&lease, &mover, 1, "moved", false)], None).assert_landed();
        assert_eq!(world.status()["fences"][0]["kind"], serde_json::Value::Null, "nothing has been written yet");
        push(&world, &[work(&world), marked(&world, &written(&world, &anna, 3), None)], Some(3)).assert_landed();
        // Another store is another place.
        let other = MarkRecord { place: begins("redis://other").place, ..written(&world, &anna, 4) };
        let refused = push(&world, &[work(&world), marked(&world, &other, None)], Some(4));
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("are kept in 'etcd://host'"), "{}", refused.text);
        // Back, only together.
        let back = || MarkRecord { state: MarkState::Moved, ..mark_now(&world).unwrap().touched(fresh()) };
        let released = |at| lease_to(&lease, &mover, at, "released", false);
        push(&world, &[marked(&world, &back(), None)], None).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[released(4)], None).assert_refused("FENCE-LEASE-INVALID");
        let raised = MarkRecord { token: Mark::at(4).unwrap(), ..back() };
        push(&world, &[marked(&world, &raised, None), released(4)], None).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[marked(&world, &back(), None), released(4)], None).assert_landed();
        let late = MarkRecord { state: MarkState::Current, ..written(&world, &anna, 4) };
        let refused: Pushed = push(&world, &[work(&world), marked(&world, &late, None)], Some(4));
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("kept in the remote again"), "{}", refused.text);
        let own = MarkRecord { state: MarkState::Current, place: None, by: None, token: token(5).into(), ..late };
        push(&world, &[work(&world), marked(&world, &own, None)], Some(5)).assert_landed();
        world.assert_log_is_whole();
    }
}
