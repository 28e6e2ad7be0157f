//! What the next push will find and record, without recording it: the status shows the same.

use crate::{
    failure::CommandError,
    log::{files::FenceDir, store::read_plan},
    push::{
        catch_up,
        slot::{self, FlightState, Viewpoint},
    },
    repository::{Repository, refs::RefError},
};
use git_fence_core::{Event, Place, Rules, Settings, Stamp, State, settle};
use std::borrow::Cow;

/// The next push settles pushes that are over. This applies the same changes, without recording them.
pub(super) fn as_settled(
    repository: &Repository,
    settings: &Settings,
    here: &Place,
    mut state: State,
) -> Result<State, CommandError> {
    let dir = FenceDir::at(repository.fence_dir());
    let viewpoint = Viewpoint { here, watched: None };
    for flight in state.in_flight.clone() {
        let plan = read_plan(&dir, &flight)?;
        let bound = slot::bound_of(&flight, settings);
        if let FlightState::Over(evidence) =
            slot::state_of(&flight, &plan, viewpoint, bound, repository).map_err(unreadable)?
        {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name)).map_err(unreadable)?;
            state.settle(&flight, settle(&flight, &plan, &seen), plan.len(), evidence);
        }
    }
    Ok(state)
}

/// The next push records lease refs that differ from the log. This applies the same changes, without recording them.
pub(super) fn as_next_push_sees(
    repository: &Repository,
    shown: &[Cow<'_, Rules>],
    now: &Stamp,
    mut state: State,
) -> State {
    for rules in shown {
        // Unreadable leases are reported by doctor.
        if let Ok(Some(line)) = catch_up::compare_with_log(repository, &state, rules, now, "") {
            let applied = state.apply(0, "", &Event::LeaseFound(line));
            debug_assert!(applied.is_ok(), "a lease can be found at any time");
        }
        if let Ok(Some(line)) = catch_up::compare_mark_with_log(repository, &state, rules, "") {
            let applied = state.apply(0, "", &Event::MarkFound(line));
            debug_assert!(applied.is_ok(), "a mark can be found at any time");
        }
    }
    state
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreadable(error: RefError) -> CommandError {
    CommandError::Other { what: error.to_string(), hint: "check the repository:  git fsck".to_owned() }
}
