//! Waiting for a slot: an operator's command goes before every push that does not have the slot yet.

use crate::{
    commands::operator::Operator,
    failure::CommandError,
    host::{clock, process},
    log::{
        mutex::Turn,
        store::{Durability, Store},
    },
    push::slot::{self, FlightState, Viewpoint},
};
use git_fence_core::{FenceName, InFlight, Place, PushId, Rules};
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
        let mut watching: Option<(PushId, Instant)> = None;
        loop {
            let mut store = self.lock()?;
            let Some(flight) = store.state().fence(fence).slot.first().map(|flight| (*flight).clone()) else {
                store.keep_turns(|turn| Some(turn.process) != me);
                return Ok(store);
            };
            if watching.is_none_or(|(push, _)| push != flight.push) {
                watching = Some((flight.push, Instant::now()));
            }
            if start.elapsed() >= wait {
                store.keep_turns(|turn| Some(turn.process) != me);
                store.commit(Durability::Lazy)?;
                return Err(still_in_flight(&flight, fence));
            }
            let watched = watching.map(|(push, since)| (push, since.elapsed()));
            let pidfd = self.pidfd_of(&store, &flight, Viewpoint { here: &self.here, watched })?;
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
