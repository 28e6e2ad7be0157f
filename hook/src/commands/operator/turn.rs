//! Waiting for a slot: an operator's command goes before every push that does not have the slot yet.

use crate::{
    commands::operator::Operator,
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
use git_fence_core::{FenceName, InFlight, Place, PlannedRef, Rules};
use git_fence_system::process::ProcessHandle;
use std::time::{Duration, Instant};

/// How often to check the slot.
const POLL_EVERY: Duration = Duration::from_millis(50);

impl Operator {
    /// The log under the lock, with the slot of `fence` free. Waits for the push in the slot as long as a push would, and
    /// goes before every push that arrives meanwhile.
    pub(crate) fn lock_when_free(&self, fence: &FenceName) -> Result<Store, CommandError> {
        let wait = self.settings.rules(fence).map_or_else(|| Rules::for_repo().wait, |rules| rules.wait);
        let start = Instant::now();
        let me = process::this();
        let mut is_announced = false;
        let mut watched: Option<Watched> = None;
        loop {
            let mut store = self.lock()?;
            let Some(flight) = store.state().fence(fence).slot.first().map(|flight| (*flight).clone()) else {
                store.keep_turns(|turn| Some(turn.process) != me);
                return Ok(store);
            };
            if start.elapsed() >= wait {
                store.keep_turns(|turn| Some(turn.process) != me);
                store.commit(Durability::Lazy)?;
                return Err(still_in_flight(&flight, fence));
            }
            let plan = store.plan_of(&flight)?;
            let watching = Watched::go_on(watched, flight.push, &plan, &self.repository);
            let receive_pack = self.receive_pack_of(&flight, &plan, &watching);
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
