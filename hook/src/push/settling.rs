//! Settling pushes of which git has not given word: by looking at their processes and refs.

use crate::{
    log::store::{Store, StoreError},
    push::slot::{self, Fate, Lookout},
    repository::{Repository, refs::RefError},
};
use git_fence_core::{InFlight, PlannedRef, Settings, State, landed_so_far, settle};

/// Of a push of very many refs that is still under way, so many are looked at from either end, again and again.
const LOOK_AT: usize = 512;

/// Why a push cannot be settled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettlingError {
    #[error(transparent)]
    Refs(#[from] RefError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what has landed is only remembered if it is written"]
pub(crate) enum Landings {
    /// Nothing that would not be found again.
    NothingNew,
    /// Refs of a push that is under way have moved. They may be put back, so this must be written.
    Landed,
}

/// Settles the pushes in flight that are over, and takes into account what those that are not have moved so far.
///
/// Those that `matter` are looked at closely. Of the others only those are settled whose end is plain to see, so that
/// none piles up and nobody reads refs that are not in its way.
pub(crate) fn settle_what_is_over(
    store: &mut Store,
    repository: &Repository,
    settings: &Settings,
    lookout: Lookout<'_>,
    matter: impl Fn(&State, &InFlight) -> bool,
) -> Result<Landings, SettlingError> {
    let mut found = Landings::NothingNew;
    for flight in store.state().in_flight.clone() {
        let bound = slot::bound_of(&flight, settings);
        if !matter(store.state(), &flight) && !slot::has_plainly_ended(&flight, lookout, bound) {
            continue;
        }
        let plan = store.plan_of(&flight)?;
        if let Fate::Over(evidence) = slot::fate_of(&flight, &plan, lookout, bound, repository)? {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name))?;
            store.settle(&flight, settle(&flight, &plan, &seen), plan.len(), evidence)?;
        } else if note_what_has_landed(store, repository, &flight, &plan)? {
            found = Landings::Landed;
        }
    }
    Ok(found)
}

/// Whether something of a push that is under way has landed that was not known.
fn note_what_has_landed(
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
    let looked: Vec<PlannedRef> = ends.concat();
    let seen = repository.ref_values(looked.iter().map(|planned| &planned.name))?;
    let Some(landed) = landed_so_far(flight, &looked, &seen) else { return Ok(false) };
    for event in landed.so_far(flight, store.state(), plan.len()) {
        store.append(event)?;
    }
    Ok(true)
}
