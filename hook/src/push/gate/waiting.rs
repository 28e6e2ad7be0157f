//! Waiting for the push in the slot: who it is, for how long, and what ends it.

use crate::{
    host::process::{self, Liveness},
    log::{
        mutex::Turn,
        store::{Durability, Store},
    },
    push::{
        gate::Gate,
        plan::unreadable,
        recorder::GRACE,
        settling::Landings,
        slot::{self, Fate, Lookout},
        verdict::{Admission, Objection},
        voice,
    },
};
use git_fence_core::{Decision, Event, FenceName, Ground, InFlight, Place, PushId, Reject, Token, View};
use git_fence_system::process::ProcessHandle;
use std::time::{Duration, Instant};

/// The first look at the slot comes soon, later ones this far apart.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Waits shorter than this are not talked about.
const WORTH_SAYING: Duration = Duration::from_millis(500);

/// A push that waits: what it remembers from one look at the log to the next.
pub(super) struct Waiting {
    /// For how long it waits before it looks again.
    moment: Duration,
    /// Whether the pusher was told.
    pub(super) has_spoken: bool,
    /// Whose receive-pack was asked to end.
    evicted: Option<PushId>,
    /// Whom it has been waiting for, and since when.
    watching: Option<(PushId, Instant)>,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { moment: FIRST_LOOK, has_spoken: false, evicted: None, watching: None }
    }
}

impl Waiting {
    pub(super) fn lookout<'a>(&self, here: &'a Place) -> Lookout<'a> {
        Lookout { here, watched: self.watching.map(|(push, since)| (push, since.elapsed())) }
    }

    fn watch(&mut self, push: PushId) {
        if self.watching.is_none_or(|(watched, _)| watched != push) {
            self.watching = Some((push, Instant::now()));
        }
    }

    /// Waits a moment, at most `most`, or until the process ends. The next moment is longer.
    pub(super) fn pass_a_moment(&mut self, pidfd: Option<&ProcessHandle>, most: Duration) {
        slot::wait_a_moment(pidfd, self.moment.min(most));
        self.moment = (self.moment * 2).min(LOOK_EVERY);
    }
}

/// What holds a push up.
struct InTheWay {
    push: PushId,
    fence: FenceName,
    holder: String,
    /// To wait for the end of its receive-pack.
    pidfd: Option<ProcessHandle>,
    /// Its receive-pack is an ancestor of this hook, and so many receive-packs away.
    ancestor: Option<usize>,
    /// Its token is older than this push's.
    is_older: bool,
    /// For how long it has been there.
    age: Duration,
    /// It cannot be seen, and has been watched for all but this of the time it may take.
    unwatched: Option<Duration>,
}

impl Gate<'_> {
    /// Lets the lock go and waits a moment for the push in the slot of `fence`, unless the time for that is over.
    pub(super) fn wait_for(
        &self,
        fence: &FenceName,
        store: Store,
        landings: Landings,
        lookout: Lookout<'_>,
        waiting: &mut Waiting,
    ) -> Result<Option<Admission>, Objection> {
        let Some(in_the_way) = self.who_is_in_the_way(&store, fence, lookout)? else {
            // It ended between the two looks.
            return Ok(None);
        };
        waiting.watch(in_the_way.push);
        if let Some(reject) = self.end_of_waiting(&in_the_way) {
            return match self.recorder.enforcement.after_waiting(fence, reject) {
                Decision::Admit { overruled, leases } => self.enter(store, overruled, leases, None).map(Some),
                Decision::Refuse(reject) => Err(self.object(store, reject)),
                Decision::Wait(_) => Ok(None),
            };
        }
        self.let_the_lock_go(store, landings, &in_the_way, waiting)?;
        let patience = &self.recorder.patience;
        if !waiting.has_spoken && patience.spent() >= WORTH_SAYING {
            voice::waiting(&in_the_way.holder, patience.left());
            waiting.has_spoken = true;
        }
        waiting.pass_a_moment(in_the_way.pidfd.as_ref(), patience.left().max(FIRST_LOOK));
        Ok(None)
    }

    /// Whoever only waits writes nothing but what has landed, and that somebody was asked to end. What else it found
    /// out is found again.
    fn let_the_lock_go(
        &self,
        store: Store,
        landings: Landings,
        in_the_way: &InTheWay,
        waiting: &mut Waiting,
    ) -> Result<(), Objection> {
        if waiting.evicted != Some(in_the_way.push) && self.may_evict(in_the_way) {
            waiting.evicted = Some(in_the_way.push);
            return self.evict(store, in_the_way);
        }
        match landings {
            Landings::Landed => self.recorder.commit_appended(store, Durability::Synced).map_err(Objection::off_record),
            Landings::NothingNew => Ok(()),
        }
    }

    /// Who is in the slot of `fence`, unless they are gone by now.
    fn who_is_in_the_way(
        &self,
        store: &Store,
        fence: &FenceName,
        lookout: Lookout<'_>,
    ) -> Result<Option<InTheWay>, Objection> {
        let occupied = store.state().fence(fence);
        let Some(flight) = occupied.slot.first() else { return Ok(None) };
        let plan = store.plan_of(flight).map_err(|e| self.broken(&e))?;
        let bound = slot::bound_of(flight, self.settings);
        let fate = slot::fate_of(flight, &plan, lookout, bound, &self.arrival.repository);
        let Fate::Running(pidfd) = fate.map_err(|e| Objection::off_record(unreadable(e)))? else { return Ok(None) };
        let age = slot::age_of(flight, lookout);
        let is_bounded = slot::is_bounded(flight, &self.arrival.here);
        let theirs = flight.receive_pack.filter(|_| !is_bounded);
        Ok(Some(InTheWay {
            push: flight.push,
            fence: fence.clone(),
            holder: slot::describe(flight, fence),
            pidfd,
            ancestor: theirs.and_then(|theirs| process::receive_packs_above().position(|above| above == theirs)),
            is_older: newest_of(flight, fence) < self.token_for(fence).or_else(|| self.token_asked_for(fence)),
            age,
            unwatched: is_bounded.then(|| bound.saturating_sub(age)),
        }))
    }

    /// Why this push waits no longer: it would wait for its own parent, or its time is up.
    fn end_of_waiting(&self, in_the_way: &InTheWay) -> Option<Reject> {
        let fence = in_the_way.fence.clone();
        if let Some(depth) = in_the_way.ancestor {
            return Some(Reject::Nested { fence, twice: depth == 0 });
        }
        let patience = &self.recorder.patience;
        let holder = in_the_way.holder.clone();
        // What no clock can tell the age of is over when somebody has watched it for its whole time. Whoever did
        // nearly that stays for the rest, or each would begin anew and nobody ever see its end.
        let is_nearly_over = in_the_way.unwatched.is_some_and(|rest| rest <= GRACE);
        let gives_up = patience.left().is_zero() && !is_nearly_over;
        gives_up.then(|| Reject::Busy { fence: Some(fence), holder, waited: patience.spent() })
    }

    /// A fence that only observes ends nobody's push.
    fn may_evict(&self, in_the_way: &InTheWay) -> bool {
        let enforces = self.recorder.enforcement.upholds(Ground::Refs(&in_the_way.fence));
        let after = self.rules_of(&in_the_way.fence).filter(|_| enforces).and_then(|rules| rules.evict_after);
        in_the_way.is_older && after.is_some_and(|after| in_the_way.age >= after)
    }

    /// Asks the receive-pack in the slot to end. Whether it does is seen by the next look.
    fn evict(&self, store: Store, in_the_way: &InTheWay) -> Result<(), Objection> {
        let Some(pidfd) = &in_the_way.pidfd else { return Ok(()) };
        let reason = match process::ask_to_end(pidfd) {
            Ok(()) => "it was in the way of a newer push, for longer than fence.evictAfter".to_owned(),
            Err(e) => {
                format!("it is in the way of a newer push, for longer than fence.evictAfter, but cannot be ended: {e}")
            }
        };
        let event = Event::PushEvicted { push: in_the_way.push, reason, who: self.recorder.who.clone() };
        self.recorder.commit(store, event, Durability::Lazy).map_err(Objection::off_record)
    }
}

/// Whether somebody who lives waits for the slot of one of the `fences`. Whoever cannot be seen from here is not
/// waited for, and whoever is gone is forgotten.
pub(super) fn somebody_waits(store: &mut Store, here: &Place, fences: &[&FenceName]) -> bool {
    if store.turns().is_empty() {
        return false;
    }
    let lives = |turn: &Turn| {
        here.view_of(&turn.place, false) == View::Clear && matches!(process::look_at(&turn.process), Liveness::Alive(_))
    };
    store.keep_turns(lives);
    store.turns().iter().any(|turn| fences.contains(&&turn.fence))
}

/// The newest token that `flight` speaks of: a takeover carries none, but is newer than whoever it takes from.
fn newest_of(flight: &InFlight, fence: &FenceName) -> Option<Token> {
    let leases = flight.leases.iter().filter(|change| change.fence == *fence);
    leases.map(|change| change.standing.lease.token).chain(flight.token_for(fence)).max()
}
