//! Waiting for a slot: an operator's command goes before every push that does not have the slot yet.

use crate::{
    commands::operator::{LOCK_TIMEOUT, Operator},
    failure::CommandError,
    host::{clock, process},
    log::{
        mutex::Turn,
        store::{Durability, Store},
    },
    push::{
        slot::{self, FlightState, Viewpoint},
        watched::Watched,
    },
};
use git_fence_core::{Event, FenceName, InFlight, Place, PlannedRef, Rules, Who};
use git_fence_system::process::ProcessHandle;
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
        let mut watched: Option<Watched> = None;
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
            let plan = store.plan_of(&flight)?;
            let watching = Watched::go_on(watched, flight.push, &plan, &self.repository);
            let receive_pack = self.receive_pack_of(&flight, &plan, &watching);
            let is_late = Instant::now() >= end;
            if is_late
                && let Some(last) = awaited.last_mut().filter(|last| !last.evicted)
                && let (Some(reason), Some(receive_pack)) = (evict_for, &receive_pack)
                && process::terminate(receive_pack).is_ok()
            {
                last.evicted = true;
                end = Instant::now() + LOCK_TIMEOUT;
                let who = Who { owner: None, pusher: self.name.clone(), address: None };
                self.commit(store, Event::PushEvicted { push: flight.push, reason: reason.to_owned(), who })?;
                watching.wait(Some(receive_pack), POLL_EVERY);
                watched = Some(watching);
                continue;
            }
            if is_late {
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
            watching.wait(receive_pack.as_ref(), POLL_EVERY);
            watched = Some(watching);
        }
    }

    /// To wait for the process that moves the refs, if it is visible and still runs.
    fn receive_pack_of(&self, flight: &InFlight, plan: &[PlannedRef], watching: &Watched) -> Option<ProcessHandle> {
        let viewpoint = Viewpoint { here: &self.here, watched: Some(watching.for_how_long()) };
        let bound = slot::bound_of(flight, &self.settings);
        match slot::state_of(flight, plan, viewpoint, bound, &self.repository) {
            Ok(FlightState::Running(receive_pack)) => receive_pack,
            Ok(FlightState::Over(_)) | Err(_) => None,
        }
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
