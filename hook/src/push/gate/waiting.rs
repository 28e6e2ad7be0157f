//! Waiting for the push in the slot: which push it is, for how long, and what ends the wait.

use crate::{
    host::{
        clock,
        process::{self, Liveness},
    },
    log::{
        mutex::Turn,
        store::{Durability, Store},
    },
    push::{
        gate::Gate,
        messages,
        plan::unreadable,
        recorder::GRACE,
        settling::Landings,
        slot::{self, FlightState, Viewpoint},
        verdict::{Admission, Objection},
        watched::Watched,
    },
};
use git_fence_core::{
    Decision, Event, FenceName, Ground, InFlight, Mark, Place, PlannedRef, PushId, Reject, State, Token, View,
    moved_marks,
};
use git_fence_system::{process::ProcessHandle, watch::Woken};
use std::{thread, time::Duration};

/// The first check of the slot comes soon, later ones at this interval.
const FIRST_INTERVAL: Duration = Duration::from_millis(2);
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);
/// Shorter waits are not reported.
const REPORTED_AFTER: Duration = Duration::from_millis(500);

/// A waiting push: what it remembers from one attempt to the next.
pub(crate) struct Waiting {
    /// How long to wait before the next attempt.
    interval: Duration,
    /// Whether the pusher was told about the wait.
    pub(super) has_notified: bool,
    /// The push whose receive-pack was asked to exit.
    evicted: Option<PushId>,
    /// The push that it waits for.
    watched: Option<Watched>,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { interval: FIRST_INTERVAL, has_notified: false, evicted: None, watched: None }
    }
}

impl Waiting {
    pub(super) fn viewpoint<'a>(&self, here: &'a Place) -> Viewpoint<'a> {
        Viewpoint { here, watched: self.watched.as_ref().map(Watched::for_how_long) }
    }

    /// Waits for something else than a push.
    pub(super) fn pause(&mut self, most: Duration) {
        thread::sleep(self.interval.min(most));
        self.lengthen();
    }

    /// Waits for the watched push, at most for the current interval and `most`.
    fn wait(&mut self, receive_pack: Option<&ProcessHandle>, most: Duration) {
        let interval = self.interval.min(most);
        match self.watched.as_ref().map(|watched| watched.wait(receive_pack, interval)) {
            // Its other refs may follow at once.
            Some(Woken::ByFile) => self.interval = FIRST_INTERVAL,
            Some(Woken::ByProcess | Woken::ByTime) | None => self.lengthen(),
        }
    }

    fn lengthen(&mut self) {
        self.interval = (self.interval * 2).min(LONGEST_INTERVAL);
    }
}

/// The push that blocks this one.
struct Blocker {
    push: PushId,
    /// The refs that it moves.
    plan: Vec<PlannedRef>,
    fence: FenceName,
    holder: String,
    /// To wait for its receive-pack to exit.
    pidfd: Option<ProcessHandle>,
    /// Its receive-pack is an ancestor of this hook: how many receive-packs up.
    ancestor: Option<usize>,
    /// It is older than this push.
    is_older: bool,
    /// How long it has been in the slot.
    age: Duration,
    /// Set if its process is not visible: how much longer it must be watched until it counts as over.
    unwatched: Option<Duration>,
}

impl Gate<'_> {
    /// Releases the lock and waits briefly for the push in the slot of `fence`, unless the time to wait is over.
    pub(super) fn wait_for(
        &self,
        fence: &FenceName,
        store: Store,
        landings: Landings,
        viewpoint: Viewpoint<'_>,
        waiting: &mut Waiting,
    ) -> Result<Option<Admission>, Objection> {
        let Some(blocker) = self.find_blocker(&store, fence, viewpoint)? else {
            // It ended in the meantime.
            return Ok(None);
        };
        waiting.watched =
            Some(Watched::go_on(waiting.watched.take(), blocker.push, &blocker.plan, &self.arrival.repository));
        if let Some(reject) = self.why_stop_waiting(&blocker) {
            return match self.recorder.enforcement.after_waiting(fence, reject) {
                Decision::Admit { overruled, leases } => self.enter(store, overruled, leases, None).map(Some),
                Decision::Refuse(reject) => Err(self.object(store, reject)),
                Decision::Wait(_) => Ok(None),
            };
        }
        self.release_lock(store, landings, &blocker, waiting)?;
        let budget = &self.recorder.budget;
        if !waiting.has_notified && budget.spent() >= REPORTED_AFTER {
            messages::waiting(&blocker.holder, budget.left());
            waiting.has_notified = true;
        }
        waiting.wait(blocker.pidfd.as_ref(), budget.left().max(FIRST_INTERVAL));
        Ok(None)
    }

    /// A waiting push writes only what has landed, and that it has evicted another push. Anything else will be found
    /// again.
    fn release_lock(
        &self,
        store: Store,
        landings: Landings,
        blocker: &Blocker,
        waiting: &mut Waiting,
    ) -> Result<(), Objection> {
        if waiting.evicted != Some(blocker.push) && self.may_evict(blocker) {
            waiting.evicted = Some(blocker.push);
            return self.evict(store, blocker);
        }
        match landings {
            Landings::Landed => self.recorder.commit_appended(store, Durability::Synced).map_err(Objection::off_record),
            Landings::NothingNew => Ok(()),
        }
    }

    /// The push in the slot of `fence`, unless it has ended by now.
    fn find_blocker(
        &self,
        store: &Store,
        fence: &FenceName,
        viewpoint: Viewpoint<'_>,
    ) -> Result<Option<Blocker>, Objection> {
        let occupied = store.state().fence(fence);
        let Some(flight) = occupied.slot.first() else { return Ok(None) };
        let plan = store.plan_of(flight).map_err(|e| self.broken(&e))?;
        let bound = slot::bound_of(flight, self.settings);
        let flight_state = slot::state_of(flight, &plan, viewpoint, bound, &self.arrival.repository);
        let FlightState::Running(pidfd) = flight_state.map_err(|e| Objection::off_record(unreadable(e)))? else {
            return Ok(None);
        };
        let age = slot::age_of(flight, viewpoint);
        let is_bounded = slot::is_bounded(flight, &self.arrival.here);
        let theirs = flight.receive_pack.filter(|_| !is_bounded);
        Ok(Some(Blocker {
            push: flight.push,
            plan,
            fence: fence.clone(),
            holder: slot::describe(flight, fence),
            pidfd,
            ancestor: theirs.and_then(|theirs| process::receive_pack_ancestors().position(|above| above == theirs)),
            is_older: self.is_newer_than(flight, fence, store.state()),
            age,
            unwatched: is_bounded.then(|| bound.saturating_sub(age)),
        }))
    }

    /// Whether this push has a newer token than `flight`, takes over the lease that `flight` was pushed under, or raises the
    /// mark so far that the token of `flight` would be stale.
    fn is_newer_than(&self, flight: &InFlight, fence: &FenceName, state: &State) -> bool {
        let own = self.token_for(fence).or_else(|| self.token_asked_for(fence));
        let asked = self.claims.iter().find(|claim| claim.rules.fence == *fence).and_then(|claim| claim.lease);
        let takes_over =
            state.leases.get(fence).zip(asked).is_some_and(|(standing, asked)| {
                flight.is_succeeded(standing, asked, &clock::stamp(&self.arrival.here))
            });
        newest_of(flight, fence) < own || takes_over || self.raises_mark_above(flight, fence, state)
    }

    /// Whether this push is the barrier of a lease in a store that has overtaken the one that `flight` was pushed under.
    fn raises_mark_above(&self, flight: &InFlight, fence: &FenceName, state: &State) -> bool {
        let newest = newest_of(flight, fence).map(Mark::from);
        let moved = moved_marks(state, &self.claims, &clock::stamp(&self.arrival.here));
        let mut raised = moved.iter().filter(|change| change.fence == *fence).map(|change| change.raises_to);
        raised.any(|raised| raised > Mark::default() && newest.is_none_or(|newest| newest <= raised))
    }

    /// Why this push stops waiting: it would wait for its own parent, or its time is up.
    fn why_stop_waiting(&self, blocker: &Blocker) -> Option<Reject> {
        let fence = blocker.fence.clone();
        if let Some(depth) = blocker.ancestor {
            return Some(Reject::Nested { fence, twice: depth == 0 });
        }
        let budget = &self.recorder.budget;
        let holder = blocker.holder.clone();
        // A push whose age no clock can tell is over when some push has watched it for the whole bound. A push that has
        // almost done so stays until then; otherwise each one would start over, and none would see the end.
        let is_nearly_over = blocker.unwatched.is_some_and(|rest| rest <= GRACE);
        let gives_up = budget.left().is_zero() && !is_nearly_over;
        gives_up.then(|| Reject::Busy { fence: Some(fence), holder, waited: budget.spent() })
    }

    /// A fence that only observes evicts nothing.
    fn may_evict(&self, blocker: &Blocker) -> bool {
        let enforces = self.recorder.enforcement.upholds(Ground::Refs(&blocker.fence));
        let after = self.rules_of(&blocker.fence).filter(|_| enforces).and_then(|rules| rules.evict_after);
        blocker.is_older && after.is_some_and(|after| blocker.age >= after)
    }

    /// Asks the receive-pack in the slot to exit. The next attempt sees whether it did.
    fn evict(&self, store: Store, blocker: &Blocker) -> Result<(), Objection> {
        let Some(pidfd) = &blocker.pidfd else { return Ok(()) };
        let reason = match process::terminate(pidfd) {
            Ok(()) => "it blocked a newer push for longer than fence.evictAfter".to_owned(),
            Err(e) => {
                format!("it has blocked a newer push for longer than fence.evictAfter, but could not be ended: {e}")
            }
        };
        let event = Event::PushEvicted { push: blocker.push, reason, who: self.recorder.who.clone() };
        self.recorder.commit(store, event, Durability::Lazy).map_err(Objection::off_record)
    }
}

/// Whether a live process waits for the slot of one of the `fences`. Waiters that are not visible from here do not
/// count, and those that have exited are removed.
pub(super) fn operator_is_waiting(store: &mut Store, here: &Place, fences: &[&FenceName]) -> bool {
    if store.turns().is_empty() {
        return false;
    }
    let is_alive = |turn: &Turn| {
        here.view_of(&turn.place, false) == View::Clear
            && matches!(process::liveness_of(&turn.process), Liveness::Alive(_))
    };
    store.keep_turns(is_alive);
    store.turns().iter().any(|turn| fences.contains(&&turn.fence))
}

/// The newest token of `flight`: a takeover carries none, but its lease's token, or the mark that it raises, is newer than that of
/// the previous holder.
fn newest_of(flight: &InFlight, fence: &FenceName) -> Option<Token> {
    let leases = flight.leases.iter().filter(|change| change.fence == *fence);
    let marks = flight.marks.iter().filter(|change| change.fence == *fence);
    let of_marks = marks.filter_map(|change| Token::try_from(change.raises_to.get()).ok());
    leases.map(|change| change.standing.lease.token).chain(of_marks).chain(flight.token_for(fence)).max()
}
