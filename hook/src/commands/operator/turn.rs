//! Waiting for a slot: an operator's command goes before every push that does not have the slot yet.

use crate::{
    commands::operator::{LOCK_TIMEOUT, Operator},
    failure::CommandError,
    host::{clock, process},
    log::{
        mutex::Turn,
        store::{Durability, Store},
    },
    push::slot::{self, FlightState, Viewpoint},
};
use git_fence_core::{Event, FenceName, InFlight, Place, PushId, Rules, Who};
use std::time::{Duration, Instant};

/// How often to check the slot.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// A push that an operator's command found in the slot.
pub(crate) struct Awaited {
    pub(crate) flight: InFlight,
    /// Whether its receive-pack was asked to exit.
    pub(crate) evicted: bool,
}

impl Operator {
    /// The log under the lock, with the slot of `fence` free. Waits for the push in the slot as long as a push would, and
    /// goes before every push that arrives meanwhile.
    pub(crate) fn lock_when_free(&self, fence: &FenceName) -> Result<Store, CommandError> {
        Ok(self.lock_after_pushes(fence, None)?.0)
    }

    /// The same, for a command that does not give up: a push that is still in the slot after the wait is evicted, for the
    /// reason given. Returns the pushes that it waited for, too.
    pub(crate) fn lock_after_eviction(
        &self,
        fence: &FenceName,
        reason: &str,
    ) -> Result<(Store, Vec<Awaited>), CommandError> {
        self.lock_after_pushes(fence, Some(reason))
    }

    fn lock_after_pushes(
        &self,
        fence: &FenceName,
        evict_for: Option<&str>,
    ) -> Result<(Store, Vec<Awaited>), CommandError> {
        let wait = self.settings.rules(fence).map_or_else(|| Rules::for_repo().wait, |rules| rules.wait);
        let mut end = Instant::now() + wait;
        let me = process::this();
        let mut is_announced = false;
        let mut watching: Option<(PushId, Instant)> = None;
        let mut awaited: Vec<Awaited> = Vec::new();
        loop {
            let mut store = self.lock()?;
            let Some(flight) = store.state().fence(fence).slot.first().map(|flight| (*flight).clone()) else {
                store.keep_turns(|turn| Some(turn.process) != me);
                return Ok((store, awaited));
            };
            if awaited.last().is_none_or(|last| last.flight.push != flight.push) {
                awaited.push(Awaited { flight: flight.clone(), evicted: false });
            }
            if watching.is_none_or(|(push, _)| push != flight.push) {
                watching = Some((flight.push, Instant::now()));
            }
            let watched = watching.map(|(push, since)| (push, since.elapsed()));
            let pidfd = self.pidfd_of(&store, &flight, Viewpoint { here: &self.here, watched })?;
            let was_evicted = awaited.last().is_some_and(|last| last.evicted);
            if Instant::now() >= end
                && !was_evicted
                && let (Some(reason), Some(pidfd)) = (evict_for, &pidfd)
                && process::terminate(pidfd).is_ok()
            {
                awaited.iter_mut().rev().take(1).for_each(|last| last.evicted = true);
                end = Instant::now() + LOCK_TIMEOUT;
                let who = Who { owner: None, pusher: self.name.clone(), address: None };
                self.commit(store, Event::PushEvicted { push: flight.push, reason: reason.to_owned(), who })?;
                slot::wait_for_exit(Some(pidfd), POLL_EVERY);
                continue;
            }
            if Instant::now() >= end {
                store.keep_turns(|turn| Some(turn.process) != me);
                store.commit(Durability::Lazy)?;
                return Err(still_in_flight(&flight, fence));
            }
            match me {
                Some(process) if !is_announced => {
                    let place = Place { uptime_ms: clock::uptime_ms(), ..self.here.clone() };
                    store.announce(Turn { fence: fence.clone(), place, process })?;
                    is_announced = true;
                }
                _ => drop(store),
            }
            slot::wait_for_exit(pidfd.as_ref(), POLL_EVERY);
        }
    }

    fn pidfd_of(
        &self,
        store: &Store,
        flight: &InFlight,
        viewpoint: Viewpoint<'_>,
    ) -> Result<Option<git_fence_system::process::ProcessHandle>, CommandError> {
        let plan = store.plan_of(flight)?;
        let bound = slot::bound_of(flight, &self.settings);
        let flight_state = slot::state_of(flight, &plan, viewpoint, bound, &self.repository);
        Ok(match flight_state {
            Ok(FlightState::Running(pidfd)) => pidfd,
            Ok(FlightState::Over(_)) | Err(_) => None,
        })
    }
}

fn still_in_flight(flight: &InFlight, fence: &FenceName) -> CommandError {
    CommandError::Other {
        what: format!(
            "a push has been in flight for longer than fence.wait, so nothing was changed: {}",
            slot::describe(flight, fence)
        ),
        hint: format!("end it first:  git-fence-hook evict --fence {fence} --reason …"),
    }
}
