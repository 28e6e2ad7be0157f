//! Settling pushes that git has not reported on, by inspecting their processes and refs.

use crate::{
    log::store::{Store, StoreError},
    push::slot::{self, FlightState, Viewpoint},
    repository::{Repository, refs::RefError},
};
use git_fence_core::{InFlight, PlannedRef, Settings, State, landed_so_far, settle};

/// Of a push of many refs that is still in flight, this many refs are read at each end of the list, every time.
const LOOK_AT: usize = 512;

/// Why a push cannot be settled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettlingError {
    #[error(transparent)]
    Refs(#[from] RefError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What settling has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what has landed is lost unless it is committed"]
pub(crate) enum Landings {
    /// Nothing that would not be found again.
    NothingNew,
    /// Refs of a push in flight have moved. They may be reset later, so this must be written.
    Landed,
}

/// Settles the pushes in flight that are over, and records what the others have moved so far.
///
/// Pushes for which `matter` is true are inspected closely. Of the others, only those that have visibly ended are
/// settled: so none accumulate, and no push reads refs that do not concern it.
pub(crate) fn settle_finished(
    store: &mut Store,
    repository: &Repository,
    settings: &Settings,
    viewpoint: Viewpoint<'_>,
    matter: impl Fn(&State, &InFlight) -> bool,
) -> Result<Landings, SettlingError> {
    let mut landings = Landings::NothingNew;
    for flight in store.state().in_flight.clone() {
        let bound = slot::bound_of(&flight, settings);
        if !matter(store.state(), &flight) && !slot::has_visibly_ended(&flight, viewpoint, bound) {
            continue;
        }
        let plan = store.plan_of(&flight)?;
        if let FlightState::Over(evidence) = slot::state_of(&flight, &plan, viewpoint, bound, repository)? {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name))?;
            store.settle(&flight, settle(&flight, &plan, &seen), plan.len(), evidence)?;
        } else if record_landed_refs(store, repository, &flight, &plan)? {
            landings = Landings::Landed;
        }
    }
    Ok(landings)
}

/// Appends what a push in flight has newly landed. Returns whether there was anything.
fn record_landed_refs(
    store: &mut Store,
    repository: &Repository,
    flight: &InFlight,
    plan: &[PlannedRef],
) -> Result<bool, SettlingError> {
    if flight.stakes.iter().all(|stake| flight.landed.spent.contains(&stake.fence)) {
        return Ok(false);
    }
    let ends =
        [&plan[..plan.len().min(LOOK_AT)], &plan[plan.len().saturating_sub(LOOK_AT).max(plan.len().min(LOOK_AT))..]];
    let sample: Vec<PlannedRef> = ends.concat();
    let seen = repository.ref_values(sample.iter().map(|planned| &planned.name))?;
    let Some(landed) = landed_so_far(flight, &sample, &seen) else { return Ok(false) };
    for event in landed.so_far(flight, store.state(), plan.len()) {
        store.append(event)?;
    }
    Ok(true)
}
