//! Fences that are halted: nobody works there, and somebody may have forgotten why.

use crate::{
    commands::{advice::quoted, doctor::finding::Finding},
    repository::Repository,
};
use git_fence_core::{Mode, Rules, Settings, Standing, State};

/// A note for each.
pub(super) fn check(repository: &Repository, state: &State, settings: &Settings) -> Vec<Finding> {
    let note = |rules: &Rules| {
        let fence = &rules.fence;
        let halt = state.fence(fence).lease.and_then(Standing::halt)?;
        let weaker = match rules.mode {
            Mode::Enforce => "",
            Mode::Observe | Mode::Off => ". It does not enforce: pushes that carry no lease are still admitted",
        };
        let sentence = format!("fence '{fence}' is {halt}. Nobody gets its lease until it is resumed{weaker}");
        let place = quoted(&repository.git_dir);
        let fix = format!("git-fence-hook resume --fence {fence} --reason 'it may go on' {place}");
        Some(Finding::note("halted", sentence, fix))
    };
    settings.fences.iter().filter_map(note).collect()
}
