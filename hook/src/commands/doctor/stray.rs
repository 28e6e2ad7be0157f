//! Refs that moved without the gate: the evidence that pushes do not come to it, whatever the files look like.

use crate::{
    commands::{
        advice::install,
        doctor::finding::{Finding, Severity},
    },
    failure::CommandError,
    log::{files::FenceDir, known_refs},
    repository::{Repository, git},
};
use git_fence_core::{Line, Mode, ObjectId, RefName, RefWatch, Settings};
use std::collections::HashMap;

/// How many refs a sentence names.
const NAMED: usize = 3;

/// Compares the refs, as they are before the log is read, with the log.
pub(crate) struct StrayRefs {
    now: HashMap<RefName, ObjectId>,
    watch: RefWatch,
}

impl StrayRefs {
    /// Reads the refs.
    pub(crate) fn of(repository: &Repository, dir: &FenceDir) -> Result<StrayRefs, CommandError> {
        let now = git::refs(repository)?;
        let watch = RefWatch::new(&now, known_refs::read(dir).as_ref());
        Ok(StrayRefs { now, watch })
    }

    /// Takes the next line of the log.
    pub(crate) fn line(&mut self, line: &Line) {
        self.watch.line(line);
    }

    /// The guarded refs that moved without the gate. One that moves just now is not judged: its line may not have been read.
    pub(crate) fn found(self, repository: &Repository, settings: &Settings) -> Result<Vec<RefName>, CommandError> {
        let is_guarded = |name: &RefName| settings.fence_of(name).is_some_and(|rules| rules.mode != Mode::Off);
        let mut stray: Vec<RefName> = self.watch.moved_past_the_gate().into_iter().filter(is_guarded).collect();
        if !stray.is_empty() {
            let again = git::refs(repository)?;
            stray.retain(|name| again.get(name) == self.now.get(name));
        }
        Ok(stray)
    }
}

/// `refs/heads/a, refs/heads/b and 7 more`.
pub(crate) fn listed(refs: &[RefName]) -> String {
    let names: Vec<String> = refs.iter().take(NAMED).map(|name| format!("'{name}'")).collect();
    match refs.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more refs", names.join(", ")),
    }
}

pub(crate) fn finding(stray: &[RefName], repository: &Repository) -> Option<Finding> {
    if stray.is_empty() {
        return None;
    }
    let sentence = format!(
        "{} moved without the gate: no push in the log accounts for it. Causes: a local writer (git update-ref, a commit in \
         this repository), another core.hooksPath (of the host or of a user), a hook that was switched off, a power failure \
         before git's refs were on disk. Check that a push without a token to a branch that nobody needs is refused. The \
         command takes the refs as they are now",
        listed(stray)
    );
    let is_bare = repository.config.boolean("core.bare").ok().flatten() != Some(false);
    // With a work tree, commits are made here.
    let severity = if is_bare { Severity::Warning } else { Severity::Note };
    Some(Finding { severity, ..Finding::warning("moved-without-gate", sentence, install(repository)) })
}
