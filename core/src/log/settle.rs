//! Settling: what a push moved.
//!
//! Git's own report comes first: after a push it lists the refs that it updated. Refs are compared only for pushes
//! without a report (the client was gone, a process was killed), because a ref that is moved back in between looks as
//! if it had never moved.

use crate::{
    Event, FenceName, InFlight, Landed, LeaseChange, LeasePart, MarkChange, ObjectId, PlannedRef, Push, PushId, Stake,
    State,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Why a push counts as over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Git has listed the refs that it updated.
    Reported,
    /// Every planned ref has its new value: nothing is left to move.
    RefsMoved,
    /// Its receive-pack has exited.
    ReceivePackGone,
    /// The machine it ran on has rebooted since.
    Rebooted,
    /// It cannot be inspected from here, and `fence.wait` has passed (the bounded form).
    TimePassed,
}

/// What a push moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The fences with a ref that moved, in the order of the push's stakes.
    pub spent: Vec<FenceName>,
    /// How many refs moved.
    pub moved: usize,
    /// The changes of leases that landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseChange>,
    /// The changes of marks that landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkChange>,
}

impl Settlement {
    /// The lines that settle `flight`; `state` is the state before. If the log ends between them, the next push
    /// records the rest when it reads the lease's ref.
    pub fn on_record(self, flight: &InFlight, state: &State, count: usize, evidence: Evidence) -> Vec<Event> {
        let (stake, also) = self.stakes_after(flight, state);
        let Settlement { spent, moved, leases, marks } = self;
        let marks = marks.into_iter().map(|change| change.fence).collect();
        let settled = Event::PushSettled { push: flight.push, stake, also, spent, moved, count, marks, evidence };
        followed_by(settled, &leases, flight, state)
    }

    /// The lines that record what `flight`, which is still in flight, has moved so far.
    pub fn so_far(self, flight: &InFlight, state: &State, count: usize) -> Vec<Event> {
        let (stake, also) = self.stakes_after(flight, state);
        let Settlement { spent, moved, leases, .. } = self;
        let landed = Event::PushLanded { push: flight.push, stake, also, spent, moved, count, settled_as: None };
        followed_by(landed, &leases, flight, state)
    }

    /// The line that records that `flight` moved more than `known`, as which it was settled; `None` if it did not.
    /// The next push finds the changes of its leases in their refs; the marks keep how far they came.
    pub fn after_all(mut self, flight: &InFlight, known: &Landed, state: &State, count: usize) -> Option<Event> {
        self.spent.retain(|fence| !known.spent.contains(fence));
        if self.spent.is_empty() && self.moved <= known.moved {
            return None;
        }
        let (stake, also) = self.stakes_after(flight, state);
        let Settlement { spent, moved, .. } = self;
        let settled_as = Some(known.moved);
        Some(Event::PushLanded { push: flight.push, stake, also, spent, moved, count, settled_as })
    }

    /// The first stake of the push and the others, each with its fence's mark after this.
    fn stakes_after(&self, flight: &InFlight, state: &State) -> (Stake, Vec<Stake>) {
        let mut stakes = flight.stakes.iter().map(|stake| {
            let raised = self.leases.iter().filter(|change| change.fence == stake.fence).map(|change| change.raises_to);
            let marks = self.marks.iter().filter(|change| change.fence == stake.fence).map(|change| change.raises_to);
            let mark = raised.chain(marks).fold(state.fence(&stake.fence).mark, Ord::max);
            let spent = stake.token.filter(|_| self.spent.contains(&stake.fence));
            Stake { mark: spent.map_or(mark, |token| mark.after(token)), ..stake.clone() }
        });
        let first = stakes.next().expect("a push in flight has a stake in at least one fence");
        (first, stakes.collect())
    }
}

impl State {
    /// The push in flight that has this id.
    pub fn flight(&self, push: PushId) -> Option<&InFlight> {
        self.in_flight.iter().find(|flight| flight.push == push)
    }

    /// Applies the settlement of `flight` without writing its lines: for readers of the log.
    pub fn settle(&mut self, flight: &InFlight, settlement: Settlement, count: usize, evidence: Evidence) {
        for event in settlement.on_record(flight, self, count, evidence) {
            let applied = self.apply(0, &flight.time, &event);
            debug_assert!(applied.is_ok(), "a push in flight can be settled");
        }
    }
}

fn followed_by(event: Event, leases: &[LeaseChange], flight: &InFlight, state: &State) -> Vec<Event> {
    let leases = leases.iter().map(|change| change.on_record(Some(flight.push), &flight.who.pusher, state));
    std::iter::once(event).chain(leases).collect()
}

/// Settles a push by git's report: `reported` is the list of refs that git updated.
///
/// A ref counts as moved if it is listed and did not have its new value from the start: git also lists refs that do
/// not change. Moving it back afterwards makes no difference.
pub fn settle_as_reported(flight: &InFlight, plan: &[PlannedRef], reported: &Push) -> Settlement {
    let listed: HashSet<_> = reported.commands.iter().map(|command| (&command.name, &command.new)).collect();
    of_those(flight, plan, |_, planned| {
        planned.old != planned.new && listed.contains(&(planned.via.as_ref().unwrap_or(&planned.name), &planned.new))
    })
}

/// Settles a push by comparing the values of its refs when it was admitted with those now (`seen`, in the
/// order of `plan`). A token is spent only if a ref of its fence differs.
///
/// Only for pushes that are over, and with the lock held: while the push is in its slot nobody else moves
/// these refs, so it caused any difference. Only heartbeats take no slot.
pub fn settle(flight: &InFlight, plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> Settlement {
    of_those(flight, plan, |at, planned| seen.get(at).is_some_and(|now| was_moved_by_push(planned, now)))
}

/// What a push that is still in flight has moved so far, if that is more than is known.
///
/// Git may update refs one by one, with hooks in between. Without this, a ref that moved and is moved back while the
/// push stalls at the next one would be missed.
pub fn landed_so_far(flight: &InFlight, plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> Option<Settlement> {
    let shows = |at: usize, planned: &PlannedRef| planned.old != planned.new && seen.get(at) == Some(&planned.new);
    let landed = of_those(flight, plan, shows);
    (landed.spent.len() > flight.landed.spent.len() || !landed.leases.is_empty()).then_some(landed)
}

/// The settlement for the planned refs for which `has_moved` holds, added to what is known to have moved.
fn of_those(flight: &InFlight, plan: &[PlannedRef], has_moved: impl Fn(usize, &PlannedRef) -> bool) -> Settlement {
    let moved = plan.iter().enumerate().filter(|(at, planned)| has_moved(*at, planned)).map(|(_, planned)| planned);
    let moved: Vec<&PlannedRef> = moved.collect();
    // The mark goes with a write and is none: a token is spent by it only if its move was proven, which the change itself says.
    let writes = moved.iter().filter(|planned| part_in(planned) != Some(LeasePart::Mark));
    let fences: HashSet<&FenceName> = writes.map(|planned| &planned.fence).chain(&flight.landed.spent).collect();
    let has_moved = |part: LeasePart, fence: &FenceName| {
        let name = part.of(fence);
        moved.iter().any(|planned| planned.name == name)
    };
    Settlement {
        spent: flight.stakes.iter().map(|stake| &stake.fence).filter(|fence| fences.contains(fence)).cloned().collect(),
        moved: moved.len().max(flight.landed.moved),
        leases: flight.leases.iter().filter(|change| has_moved(LeasePart::Lease, &change.fence)).cloned().collect(),
        marks: flight.marks.iter().filter(|change| has_moved(LeasePart::Mark, &change.fence)).cloned().collect(),
    }
}

/// Whether the push moved this ref. A lease's ref that has neither its old nor its new value was written on the server
/// since: it counts as moved, and the next push records what it finds there.
fn was_moved_by_push(planned: &PlannedRef, now: &Option<ObjectId>) -> bool {
    let is_beat = part_in(planned) == Some(LeasePart::Beat);
    planned.old != *now && (!is_beat || planned.new == *now)
}

fn part_in(planned: &PlannedRef) -> Option<LeasePart> {
    LeasePart::in_name(&planned.name).map(|(_, part)| part)
}

/// Whether the refs alone show that the push is over: each has its new value.
///
/// A ref that had its new value from the start shows nothing. The pusher may have lied about its old value, and
/// the push that looks finished could still delete or create it later. With such a ref in the plan, the push is
/// over only when its receive-pack has exited.
///
/// `seen` is in the order of `plan`.
pub fn refs_say_over(plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> bool {
    plan.iter().zip(seen).all(|(planned, now)| planned.old != planned.new && planned.new == *now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::flight::tests::*;

    fn values(fills: &str) -> Vec<Option<ObjectId>> {
        fills.chars().map(|fill| oid(&fill.to_string())).collect()
    }

    fn over(flight: &InFlight, fills: &str) -> bool {
        refs_say_over(&flight.plan.refs, &values(fills))
    }

    #[test]
    fn token_is_spent_only_if_a_ref_moved() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "c")]);
        for (seen, moved) in [("a0", 0), ("b0", 1), ("ac", 1), ("bc", 2)] {
            let settlement = settle(&flight, &flight.plan.refs, &values(seen));
            assert_eq!(settlement.moved, moved, "{seen}");
            assert_eq!(settlement.spent.is_empty(), moved == 0, "{seen}");
        }
    }

    /// Git may move it and decline the rest. Only a proven one raises the mark.
    #[test]
    fn mark_that_moved_without_the_refs_of_its_push_spends_nothing() {
        let mut flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/fence/repo/mark", "c", "d")]);
        let (commit, mark) = (oid("d").unwrap(), crate::Mark::at(5).unwrap());
        let record = crate::MarkRecord::begins(mark, None, "anna", crate::nonce_of([1; 16]));
        let at = crate::MarkAt { commit, record };
        for (raises_to, after) in [(crate::Mark::default(), 0), (mark, 5)] {
            flight.marks = vec![MarkChange { fence: FenceName::repo(), at: at.clone(), raises_to }];
            for (seen, marks, is_spent) in [("ac", 0, false), ("ad", after, false), ("bc", 5, true), ("bd", 5, true)] {
                let settlement = settle(&flight, &flight.plan.refs, &values(seen));
                assert_eq!(!settlement.spent.is_empty(), is_spent, "{seen}");
                let mut state = State { in_flight: vec![flight.clone()], ..State::default() };
                state.settle(&flight, settlement, 2, Evidence::ReceivePackGone);
                assert_eq!(state.fence(&FenceName::repo()).mark.get(), marks, "{seen}");
                let is_there = state.written.get(&FenceName::repo()).is_some_and(|standing| standing.at.is_some());
                assert_eq!(is_there, seen.ends_with('d'), "{seen}");
            }
        }
    }

    /// The holder's heartbeat continues while its push stalls. The push did not cause that.
    #[test]
    fn beat_that_moved_otherwise_spends_nothing() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/fence/repo/beat", "c", "d")]);
        for (seen, moved) in [("ac", 0), ("ae", 0), ("ad", 1), ("be", 1), ("bd", 2)] {
            assert_eq!(settle(&flight, &flight.plan.refs, &values(seen)).moved, moved, "{seen}");
        }
    }

    #[test]
    fn lease_has_moved_unless_its_ref_has_the_old_value() {
        let mut flight = in_flight(1, None, &[("refs/fence/repo/lease", "a", "b"), ("refs/fence/repo/beat", "c", "d")]);
        let now = crate::Stamp { boot: String::new(), uptime_ms: 0, unix_ms: 0 };
        let lease = crate::lease::record::tests::lease(1, 5, crate::LeaseState::Held);
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
                beat: None,
            },
            raises_to: crate::Mark::at(4).unwrap(),
        });
        // "0" is no ref: it was removed since, and the token was granted anyway.
        for (seen, landed) in
            [("ac", false), ("ae", false), ("ad", false), ("bd", true), ("be", true), ("0d", true), ("ed", true)]
        {
            assert_eq!(settle(&flight, &flight.plan.refs, &values(seen)).leases.len(), usize::from(landed), "{seen}");
        }
    }

    #[test]
    fn token_of_a_fence_is_spent_only_by_refs_of_that_fence() {
        let deploy = FenceName::parse(b"deploy").unwrap();
        let mut flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/d", "a", "b")]);
        flight.plan.refs[1].fence = deploy.clone();
        flight.stakes.push(Stake { fence: deploy.clone(), ..flight.stakes[0].clone() });
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ab")).spent, [deploy]);
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ba")).spent, [FenceName::repo()]);
    }

    #[test]
    fn push_is_over_if_every_ref_has_its_new_value() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "c", "0")]);
        assert!(over(&flight, "b0"));
        assert!(!over(&flight, "bc"));
        assert!(!over(&flight, "a0"));
        assert!(!over(&flight, "d0"));
    }

    /// `0 -> current tip`: if that counted as over, the slot would be free, the next push could delete the ref, and
    /// the first push, still alive, could then create it with the older token.
    #[test]
    fn ref_that_had_its_new_value_from_the_start_does_not_show_that_a_push_is_over() {
        let false_claim = in_flight(1, Some(5), &[("refs/heads/a", "a", "a")]);
        assert!(!over(&false_claim, "a"));
        let half = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "0")]);
        assert!(!over(&half, "b0"));
        assert_eq!(settle(&false_claim, &false_claim.plan.refs, &values("a")).moved, 0);
    }

    fn reported(lines: &[(&str, &str)]) -> Push {
        let command = |(name, fill): &(&str, &str)| crate::RefUpdate {
            name: crate::RefName::new(*name),
            claimed: None,
            new: oid(fill),
        };
        Push { commands: lines.iter().map(command).collect() }
    }

    #[test]
    fn only_reported_refs_that_changed_count_as_moved() {
        let mut flight = in_flight(
            1,
            Some(5),
            &[("refs/heads/a", "a", "b"), ("refs/heads/b", "c", "c"), ("refs/heads/d", "e", "0")],
        );
        flight.plan.refs[2].via = Some(crate::RefName::new("refs/heads/link"));
        for (lines, moved) in [
            (&[][..], 0),
            (&[("refs/heads/a", "b")], 1),
            (&[("refs/heads/a", "b"), ("refs/heads/b", "c"), ("refs/heads/link", "0")], 2),
            (&[("refs/heads/b", "c")], 0),
            (&[("refs/heads/a", "9"), ("refs/heads/x", "b")], 0),
            (&[("refs/heads/d", "0")], 0),
        ] {
            let settlement = settle_as_reported(&flight, &flight.plan.refs, &reported(lines));
            assert_eq!(settlement.moved, moved, "{lines:?}");
            assert_eq!(settlement.spent.is_empty(), moved == 0, "{lines:?}");
        }
    }

    /// One ref has moved, and the push stalls at the next. Moving the first back meanwhile changes nothing.
    #[test]
    fn landed_ref_stays_landed() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "c")]);
        assert_eq!(landed_so_far(&flight, &flight.plan.refs, &values("a0")), None);
        assert_eq!(landed_so_far(&flight, &flight.plan.refs, &values("e0")), None, "another push's value");
        let landed = landed_so_far(&flight, &flight.plan.refs, &values("b0")).unwrap();
        assert_eq!((landed.moved, landed.spent.len()), (1, 1));

        let mut state = State { in_flight: vec![flight.clone()], ..State::default() };
        for event in landed.so_far(&flight, &state.clone(), 2) {
            state.apply(2, "", &event).unwrap();
        }
        assert_eq!(state.fence(&FenceName::repo()).mark.get(), 5, "the token is spent although the push is in flight");
        let flight = state.in_flight[0].clone();
        assert_eq!(landed_so_far(&flight, &flight.plan.refs, &values("b0")), None, "already known");
        for settlement in [
            settle(&flight, &flight.plan.refs, &values("a0")),
            settle_as_reported(&flight, &flight.plan.refs, &reported(&[])),
        ] {
            assert_eq!((settlement.moved, &settlement.spent[..]), (1, &[FenceName::repo()][..]));
        }
    }

    /// Settled as unmoved, then git reports that it landed: the mark rises, and that is recorded once.
    #[test]
    fn push_that_was_settled_too_early_is_corrected() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b")]);
        let mut state = State::default();
        let landed = || settle_as_reported(&flight, &flight.plan.refs, &reported(&[("refs/heads/a", "b")]));
        let event = landed().after_all(&flight, &Landed::default(), &state, 1).unwrap();
        state.apply(3, "", &event).unwrap();
        assert_eq!(state.fence(&FenceName::repo()).mark.get(), 5);
        let known = Landed { spent: vec![FenceName::repo()], moved: 1 };
        assert_eq!(landed().after_all(&flight, &known, &state, 1), None);
    }
}
