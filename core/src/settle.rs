//! What became of a push that is over.

use crate::{Event, FenceName, InFlight, LeaseChange, LeasePart, ObjectId, PlannedRef, Stake, State};
use serde::{Deserialize, Serialize};

/// How a push is known to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Every planned ref shows its new value: nothing is left to move.
    RefsMoved,
    /// Its receive-pack is gone.
    ReceivePackGone,
    /// The machine it ran on has been booted since.
    Rebooted,
    /// It cannot be seen from here, and `fence.wait` has passed (the bounded form).
    TimePassed,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The fences of which a ref moved, in the order of the push's stakes.
    pub spent: Vec<FenceName>,
    /// How many refs moved.
    pub moved: usize,
    /// What became of leases.
    pub leases: Vec<LeaseChange>,
}

impl Settlement {
    /// The lines that say what became of `flight`; `state` is what was known before. A log that ends
    /// between them is put right by the next look at the lease's ref.
    pub fn on_record(self, flight: &InFlight, state: &State, count: usize, evidence: Evidence) -> Vec<Event> {
        let mut stakes = flight.stakes.iter().map(|stake| {
            let mark = state.fence(&stake.fence).mark;
            let spent = stake.token.filter(|_| self.spent.contains(&stake.fence));
            Stake { mark: spent.map_or(mark, |token| mark.after(token)), ..stake.clone() }
        });
        let first = stakes.next().expect("a push in flight has a stake in at least one fence");
        let also = stakes.collect();
        let Settlement { spent, moved, leases } = self;
        let settled = Event::PushSettled { push: flight.push, stake: first, also, spent, moved, count, evidence };
        let pusher = &flight.who.pusher;
        let leases = leases.iter().map(|change| change.on_record(Some(flight.push), pusher, state));
        std::iter::once(settled).chain(leases).collect()
    }
}

/// Compares what the refs were when the push was let through with what they are now (`seen`, in the
/// order of `plan`). A token is spent where one of its fence's refs differs, and only there.
///
/// Only for pushes that are over, and with the lock held: while the push is in its slot nobody else
/// moves these refs, so a difference is its doing. Heartbeats alone take no slot.
pub fn settle(flight: &InFlight, plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> Settlement {
    let moved: Vec<&PlannedRef> =
        plan.iter().zip(seen).filter(|(planned, now)| is_its_doing(planned, now)).map(|(planned, _)| planned).collect();
    let spent = |fence: &&FenceName| moved.iter().any(|planned| planned.fence == **fence);
    Settlement {
        spent: flight.stakes.iter().map(|stake| &stake.fence).filter(spent).cloned().collect(),
        moved: moved.len(),
        leases: flight.leases.iter().filter(|change| has_landed(change, plan, seen)).cloned().collect(),
    }
}

fn is_its_doing(planned: &PlannedRef, now: &Option<ObjectId>) -> bool {
    let is_beat = matches!(LeasePart::in_name(&planned.name), Some((_, LeasePart::Beat)));
    planned.old != *now && (!is_beat || planned.new == *now)
}

/// The lease's ref is not where it was. If it is not where the push was to move it either, somebody has
/// written to it on the server since; that is found by the next look, and the counter has not stood still.
fn has_landed(change: &LeaseChange, plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> bool {
    let name = LeasePart::Lease.of(&change.fence);
    plan.iter().zip(seen).any(|(planned, now)| planned.name == name && is_its_doing(planned, now))
}

/// Whether the refs alone say that the push is over: each shows its new value.
///
/// A ref that was at its new value from the start says nothing. It may have been named with a lie
/// about its old value, and the push that looks finished could still delete or create it later.
/// With such a ref in the plan only the end of the receive-pack counts.
///
/// `seen` is in the order of `plan`.
pub fn refs_say_over(plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> bool {
    plan.iter().zip(seen).all(|(planned, now)| planned.old != planned.new && planned.new == *now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::tests::*;

    fn values(fills: &str) -> Vec<Option<ObjectId>> {
        fills.chars().map(|fill| oid(&fill.to_string())).collect()
    }

    fn over(flight: &InFlight, fills: &str) -> bool {
        refs_say_over(&flight.plan.refs, &values(fills))
    }

    #[test]
    fn a_token_is_spent_when_a_ref_moved_and_only_then() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "c")]);
        for (seen, moved) in [("a0", 0), ("b0", 1), ("ac", 1), ("bc", 2)] {
            let settlement = settle(&flight, &flight.plan.refs, &values(seen));
            assert_eq!(settlement.moved, moved, "{seen}");
            assert_eq!(settlement.spent.is_empty(), moved == 0, "{seen}");
        }
    }

    /// The holder's heartbeat goes on while its push stalls. That is not the push's doing.
    #[test]
    fn a_beat_that_somebody_else_moved_spends_nothing() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/fence/repo/beat", "c", "d")]);
        for (seen, moved) in [("ac", 0), ("ae", 0), ("ad", 1), ("be", 1), ("bd", 2)] {
            assert_eq!(settle(&flight, &flight.plan.refs, &values(seen)).moved, moved, "{seen}");
        }
    }

    #[test]
    fn a_lease_has_moved_unless_its_ref_is_where_it_was() {
        let mut flight = in_flight(1, None, &[("refs/fence/repo/lease", "a", "b"), ("refs/fence/repo/beat", "c", "d")]);
        let now = crate::Stamp { boot: String::new(), uptime_ms: 0, unix_ms: 0 };
        let lease = crate::lease_record::tests::lease(1, 5, crate::LeaseState::Held);
        flight.leases.push(LeaseChange {
            fence: FenceName::repo(),
            change: crate::LeaseMove::Grant,
            standing: crate::Standing {
                commit: oid("b"),
                parent: None,
                lease,
                since: now.clone(),
                heard: now,
                progress: None,
            },
            raises_to: crate::Mark::at(4).unwrap(),
        });
        // "0" is no ref: somebody has removed it since, and the token was granted all the same.
        for (seen, landed) in
            [("ac", false), ("ae", false), ("ad", false), ("bd", true), ("be", true), ("0d", true), ("ed", true)]
        {
            assert_eq!(settle(&flight, &flight.plan.refs, &values(seen)).leases.len(), usize::from(landed), "{seen}");
        }
    }

    #[test]
    fn each_fence_is_spent_by_its_own_refs() {
        let deploy = FenceName::parse(b"deploy").unwrap();
        let mut flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/d", "a", "b")]);
        flight.plan.refs[1].fence = deploy.clone();
        flight.stakes.push(Stake { fence: deploy.clone(), ..flight.stakes[0].clone() });
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ab")).spent, [deploy]);
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ba")).spent, [FenceName::repo()]);
    }

    #[test]
    fn over_means_that_every_ref_shows_its_new_value() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "c", "0")]);
        assert!(over(&flight, "b0"));
        assert!(!over(&flight, "bc"));
        assert!(!over(&flight, "a0"));
        assert!(!over(&flight, "d0"));
    }

    /// `0 -> current tip`: were it called over, its slot would be free, the next push could delete
    /// the ref, and the liar, still alive, could then create it with the older token.
    #[test]
    fn a_ref_that_had_its_new_value_from_the_start_says_nothing() {
        let liar = in_flight(1, Some(5), &[("refs/heads/a", "a", "a")]);
        assert!(!over(&liar, "a"));
        let half = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "0")]);
        assert!(!over(&half, "b0"));
        assert_eq!(settle(&liar, &liar.plan.refs, &values("a")).moved, 0);
    }
}
