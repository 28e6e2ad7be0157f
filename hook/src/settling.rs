//! Settling: looking at the refs of pushes that are over, and taking down what became of them.

use crate::{
    refs::RefError,
    repository::Repository,
    slot::{self, Fate, Lookout},
    store::{Store, StoreError},
};
use git_fence_core::{InFlight, Settings, State, settle};

/// Why a push cannot be settled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettlingError {
    #[error(transparent)]
    Refs(#[from] RefError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Settles those of the pushes in flight that `matter` and are over.
pub(crate) fn settle_what_is_over(
    store: &mut Store,
    repository: &Repository,
    settings: &Settings,
    lookout: Lookout<'_>,
    matter: impl Fn(&State, &InFlight) -> bool,
) -> Result<(), SettlingError> {
    let state = store.state();
    let flights: Vec<InFlight> = state.in_flight.iter().filter(|flight| matter(state, flight)).cloned().collect();
    for flight in flights {
        let plan = store.plan_of(&flight)?;
        let bound = slot::bound_of(&flight, settings);
        if let Fate::Over(evidence) = slot::fate_of(&flight, &plan, lookout, bound, repository)? {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name))?;
            let settlement = settle(&flight, &plan, &seen);
            for event in settlement.on_record(&flight, store.state(), plan.len(), evidence) {
                store.append(event)?;
            }
            store.forget_plan_of(&flight);
        }
    }
    Ok(())
}
