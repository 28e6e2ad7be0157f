//! Which fences a push touches, and which refs it will move.

use crate::{
    refs::{self, RefError, Resolved},
    repository::Repository,
};
use git_fence_core::{Command, FenceName, Mode, PlannedRef, Push, RefName, Reject, Rules, Settings, text};
use std::collections::HashSet;

/// The part of a push that fences care about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Guarded {
    /// Every guarded ref with the value it has right now.
    pub(crate) refs: Vec<PlannedRef>,
    /// What is wrong with them.
    pub(crate) flaw: Option<Reject>,
}

impl Guarded {
    /// Looks up what the push would move. Call it with the lock held to record the values.
    pub(crate) fn part_of(push: &Push, settings: &Settings, repository: &Repository) -> Result<Guarded, RefError> {
        // A name that git cannot have for a ref cannot be looked up. It cannot move either.
        let (possible, impossible): (Vec<&Command>, Vec<&Command>) =
            push.commands.iter().partition(|command| refs::is_possible(&command.name));
        let resolved = repository.resolve_refs(possible.iter().map(|command| &command.name))?;
        let refs: Vec<PlannedRef> = possible
            .iter()
            .zip(&resolved)
            .flat_map(|(command, resolved)| planned(command, resolved, settings))
            .collect();
        let misnamed = impossible.iter().map(|command| &command.name).find(|name| settings.fence_of(name).is_some());
        let flaw = misnamed
            .map(|name| format!("{} is not a name that git allows for a ref", text::quoted(name.as_bytes())))
            .or_else(|| named_twice(&refs).map(|name| format!("the push names ref '{name}' twice")))
            .or_else(|| {
                per_worktree(&refs)
                    .map(|name| format!("'{name}' is another ref in each worktree: no fence can guard it"))
            });
        Ok(Guarded { refs, flaw: flaw.map(Reject::malformed) })
    }

    /// The fences that the push touches, in the order of the settings.
    pub(crate) fn fences<'s>(&self, settings: &'s Settings) -> Vec<&'s Rules> {
        let touched: HashSet<&FenceName> = self.refs.iter().map(|planned| &planned.fence).collect();
        settings.fences.iter().filter(|rules| touched.contains(&rules.fence)).collect()
    }

    /// Whether both would move the same refs of the same fences, whatever their values.
    pub(crate) fn moves_the_same_as(&self, other: &Guarded) -> bool {
        let names = |guarded: &Guarded| -> Vec<(RefName, FenceName)> {
            guarded.refs.iter().map(|planned| (planned.name.clone(), planned.fence.clone())).collect()
        };
        names(self) == names(other)
    }
}

/// What a command moves, once for each fence that it touches. Moving the target of a symbolic ref
/// also changes what that symbolic ref shows, so the fences of both have a say.
fn planned(command: &Command, resolved: &Resolved, settings: &Settings) -> Vec<PlannedRef> {
    let mut fences: Vec<&Rules> = Vec::new();
    for rules in resolved.names.iter().filter_map(|name| settings.fence_of(name)) {
        if rules.mode != Mode::Off && !fences.iter().any(|known| known.fence == rules.fence) {
            fences.push(rules);
        }
    }
    let (Some(first), Some(last)) = (resolved.names.first(), resolved.names.last()) else { return Vec::new() };
    let planned = |rules: &Rules| PlannedRef {
        name: last.clone(),
        fence: rules.fence.clone(),
        old: resolved.value.clone(),
        new: command.new.clone(),
        claimed: (command.claimed != resolved.value)
            .then(|| command.claimed.as_ref().map_or("none".to_owned(), ToString::to_string)),
        via: (first != last).then(|| first.clone()),
    };
    fences.into_iter().map(planned).collect()
}

/// A ref that would be moved more than once: it could go there and back unseen.
fn named_twice(refs: &[PlannedRef]) -> Option<&RefName> {
    let mut seen = HashSet::new();
    refs.iter().find(|planned| !seen.insert((&planned.name, &planned.fence))).map(|planned| &planned.name)
}

fn per_worktree(refs: &[PlannedRef]) -> Option<&RefName> {
    refs.iter().map(|planned| &planned.name).find(|name| name.is_per_worktree())
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(crate) fn unreadable(error: RefError) -> Reject {
    Reject::Broken {
        what: error.to_string(),
        mend: "nothing was written. The server's operator looks with  git fsck  and mends the ref with  git update-ref"
            .to_owned(),
    }
}
