//! Leases whose ref is not where the log says.

use crate::{Fence, LeaseLine, Mark, ObjectId, Proposal, Rules, Stamp, Standing};

/// What was found at a lease's ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundLease {
    /// No ref, although the log has a lease.
    Nothing,
    /// A record that is not the log's.
    Record(Box<Proposal>),
}

impl Fence<'_> {
    /// Whether the lease's ref is where the log says.
    pub fn lease_is_at(&self, commit: Option<&ObjectId>) -> bool {
        self.lease.and_then(|known| known.commit.as_ref()) == commit
    }

    /// The line that gives a new stamp to a lease whose last stamp is in the future: the clock was ahead then, and
    /// the machine has rebooted since. Without it the lease would be held until the clock catches up.
    pub fn lease_restamped(&self, rules: &Rules, now: &Stamp, pusher: &str) -> Option<LeaseLine> {
        let known = self.lease.filter(|known| known.is_held() && known.heard.is_ahead_of(now))?;
        let since = if known.since.is_ahead_of(now) { now } else { &known.since };
        Some(LeaseLine {
            fence: rules.fence.clone(),
            push: None,
            mark: self.mark,
            standing: Standing { since: since.clone(), heard: now.clone(), ..known.clone() },
            ticks: Vec::new(),
            held_ms: None,
            pusher: pusher.to_owned(),
        })
    }

    /// The line that records what was `found`; from then on it counts.
    ///
    /// For a lease that is older than the gate, this counts as its first heartbeat. A lease that was set back
    /// on the server makes no stale token valid again: the mark keeps how far the counter had come.
    pub fn lease_found(&self, rules: &Rules, found: FoundLease, now: &Stamp, pusher: &str) -> Option<LeaseLine> {
        let line = |standing, mark: Mark| LeaseLine {
            fence: rules.fence.clone(),
            push: None,
            mark: self.mark.max(mark),
            standing,
            ticks: Vec::new(),
            held_ms: None,
            pusher: pusher.to_owned(),
        };
        let Proposal { commit, parents, lease, .. } = match found {
            FoundLease::Nothing => {
                let known = self.lease?.clone();
                return Some(line(Standing { commit: None, ..known }, Mark::default()));
            }
            FoundLease::Record(proposal) => *proposal,
        };
        let is_back = |known: &&Standing| {
            let is_another = known.lease.id != lease.id;
            // A halt ends with its own token.
            let resumes = known.halt().is_some() && lease.is_revocation() && parents.first() == known.commit.as_ref();
            lease.token < known.lease.token || (lease.token == known.lease.token && is_another && !resumes)
        };
        let set_back = self.lease.filter(is_back);
        let came_to = set_back.map_or(Mark::default(), |known| known.lease.token.into());
        // Whoever set the ref back has not resumed the fence.
        let still_halted = set_back.filter(|known| known.halt().is_some()).map(|known| known.lease.clone());
        let lease = still_halted.unwrap_or(lease);
        let is_same = |known: &&Standing| known.lease.id == lease.id;
        let standing = Standing {
            commit: Some(commit),
            parent: parents.into_iter().next(),
            since: self.lease.filter(is_same).map_or_else(|| now.clone(), |known| known.since.clone()),
            heard: now.clone(),
            progress: None,
            beat: self.lease.filter(is_same).and_then(|known| known.beat.clone()),
            lease,
        };
        let mark = rules.accept.mark_before(standing.lease.token).max(came_to);
        Some(line(standing, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event, FenceName, Lease, LeaseState, Reason, State, lease::record::tests::lease, log::flight::tests::oid,
        next_token,
    };

    fn at(seconds: u64) -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: seconds * 1000 }
    }

    fn record(id: u8, token: u64) -> FoundLease {
        let lease = lease(id, token, LeaseState::Held);
        FoundLease::Record(Box::new(Proposal { commit: oid("c").unwrap(), parents: vec![], lease, proof: None }))
    }

    fn after(known: Option<(u8, u64)>, mark: u64, found: FoundLease) -> State {
        let repo = FenceName::repo();
        let mut state = State::default();
        state.marks.insert(repo.clone(), Mark::at(mark).unwrap());
        if let Some((id, token)) = known {
            let lease = lease(id, token, LeaseState::Held);
            let (since, heard) = (at(1), at(2));
            let standing = Standing { commit: oid("a"), parent: None, lease, since, heard, progress: None, beat: None };
            state.leases.insert(repo.clone(), standing);
        }
        let line = state.fence(&repo).lease_found(&Rules::for_repo(), found, &at(9), "anna");
        if let Some(line) = line {
            state.apply(1, "", &Event::LeaseFound(line)).unwrap();
        }
        state
    }

    #[test]
    fn counter_never_goes_back_whatever_is_found() {
        for (known, mark, found, marks, next) in [
            // The lease is older than the gate.
            (None, 0, record(1, 5), 4, 6),
            (None, 9, record(1, 5), 9, 10),
            // The log line of a change was lost in a crash.
            (Some((1, 5)), 4, record(1, 6), 5, 7),
            (Some((1, 5)), 4, record(2, 6), 5, 7),
            // The ref was set back on the server.
            (Some((2, 6)), 5, record(1, 5), 6, 7),
            (Some((2, 6)), 5, record(1, 6), 6, 7),
            (Some((2, 6)), 5, record(2, 5), 6, 7),
            // The ref was removed.
            (Some((2, 6)), 5, FoundLease::Nothing, 5, 7),
            (None, 5, FoundLease::Nothing, 5, 6),
        ] {
            let state = after(known, mark, found.clone());
            let fence = state.fence(&FenceName::repo());
            assert_eq!(fence.mark.get(), marks, "{known:?} {found:?}");
            let last = fence.lease.map(|lease| lease.lease.token);
            assert_eq!(next_token(last, fence.mark).unwrap().get(), next, "{known:?} {found:?}");
        }
    }

    #[test]
    fn halt_outlives_whoever_sets_its_ref_back_or_removes_it() {
        let repo = FenceName::repo();
        let is_halted = |known_halted: bool, found: FoundLease| {
            let mut state = after(Some((2, 6)), 5, FoundLease::Nothing);
            state.leases.get_mut(&repo).unwrap().commit = oid("a");
            if known_halted {
                state.leases.get_mut(&repo).unwrap().lease.state = LeaseState::Halted;
            }
            let line = state.fence(&repo).lease_found(&Rules::for_repo(), found, &at(9), "anna").unwrap();
            state.apply(2, "", &Event::LeaseFound(line)).unwrap();
            let fence = state.fence(&repo);
            (fence.lease.unwrap().halt().is_some(), fence.lease.unwrap().commit == oid("c"))
        };
        assert_eq!(is_halted(true, record(1, 5)), (true, true));
        assert_eq!(is_halted(true, record(1, 6)), (true, true));
        assert_eq!(is_halted(true, FoundLease::Nothing), (true, false));
        assert_eq!(is_halted(false, record(1, 5)), (false, true));
        // It was resumed, and the gate did not see it.
        let resumed = |parent: &str| {
            let lease = Lease { reason: Reason::Revoked, ..lease(4, 6, LeaseState::Released) };
            let (commit, parents) = (oid("c").unwrap(), oid(parent).into_iter().collect());
            FoundLease::Record(Box::new(Proposal { commit, parents, lease, proof: None }))
        };
        assert_eq!(is_halted(true, resumed("b")), (true, true), "of another halt");
        assert_eq!(is_halted(true, resumed("a")), (false, true));
        assert_eq!(is_halted(true, record(3, 8)), (false, true));
        let halt = FoundLease::Record(Box::new(Proposal {
            commit: oid("c").unwrap(),
            parents: vec![],
            lease: lease(3, 7, LeaseState::Halted),
            proof: None,
        }));
        assert_eq!(is_halted(false, halt), (true, true), "the log line of a halt was lost in a crash");
    }

    #[test]
    fn only_a_lease_from_the_future_gets_a_new_stamp() {
        let repo = FenceName::repo();
        let booted = |seconds: u64| Stamp { boot: "later".to_owned(), uptime_ms: 1, unix_ms: seconds * 1000 };
        let restamped = |state: &State, now: &Stamp| state.fence(&repo).lease_restamped(&Rules::for_repo(), now, "x");
        // Held since 1, last heartbeat at 2.
        let mut state = after(Some((1, 5)), 4, FoundLease::Nothing);
        for now in [booted(2), booted(9), at(2)] {
            assert_eq!(restamped(&state, &now), None, "{now:?}");
        }
        let line = restamped(&state, &booted(1)).unwrap();
        assert_eq!((&line.standing.since, &line.standing.heard), (&at(1), &booted(1)));
        let line = restamped(&state, &booted(0)).unwrap();
        assert_eq!((&line.standing.since, &line.standing.heard), (&booted(0), &booted(0)));
        state.apply(2, "", &Event::LeaseFound(line)).unwrap();
        let lease = state.fence(&repo).lease.unwrap();
        assert_eq!(lease.heard, booted(0), "a later stamp of a wrong clock no longer counts");
        assert_eq!((lease.lease.token.get(), state.fence(&repo).mark.get()), (5, 4));
        assert_eq!(restamped(&state, &booted(0)), None);
    }

    #[test]
    fn found_lease_is_renewed_now_and_a_known_owner_keeps_its_start() {
        let repo = FenceName::repo();
        for (known, since) in [(None, 9), (Some((2, 5)), 9), (Some((1, 5)), 1)] {
            let state = after(known, 0, record(1, 6));
            let lease = state.fence(&repo).lease.unwrap();
            assert_eq!((lease.since.clone(), lease.heard.clone()), (at(since), at(9)), "{known:?}");
            assert!(state.fence(&repo).lease_is_at(oid("c").as_ref()));
        }
        let gone = after(Some((2, 6)), 5, FoundLease::Nothing);
        assert_eq!(gone.fence(&repo).lease.unwrap().heard, at(2), "a missing ref is not a heartbeat");
        assert!(gone.fence(&repo).lease_is_at(None));
    }
}
