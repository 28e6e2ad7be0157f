//! Which fences a push touches, and which refs it will move.

use crate::{
    push::leases::invalid,
    repository::{
        Repository,
        refs::{self, RefError, Resolved},
    },
};
use git_fence_core::{
    FenceName, LeasePart, Mode, NoFence, ObjectId, PlannedRef, Push, RefName, RefUpdate, Reject, Rules, Settings, text,
};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
};

/// The part of a push that concerns fences.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Guarded {
    /// Every ref that a fence guards or keeps its lease in, with its current value.
    pub(crate) refs: Vec<PlannedRef>,
    /// The requested changes of lease refs.
    pub(crate) leases: Vec<LeaseCommand>,
    /// What is wrong with the push.
    pub(crate) flaw: Option<Reject>,
}

/// The requested change of one ref of a lease.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaseCommand {
    pub(crate) fence: FenceName,
    pub(crate) part: LeasePart,
    /// The current value of the ref.
    pub(crate) now: Option<ObjectId>,
    pub(crate) new: Option<ObjectId>,
}

impl Guarded {
    /// Resolves the refs that the push would move. Call it with the lock held if the values will be recorded.
    pub(crate) fn part_of(push: &Push, settings: &Settings, repository: &Repository) -> Result<Guarded, RefError> {
        Ok(Guarded::with(push, &[], settings, repository)?.0)
    }

    /// The same, and resolves `others` in the same read.
    pub(crate) fn with(
        push: &Push,
        others: &[RefName],
        settings: &Settings,
        repository: &Repository,
    ) -> Result<(Guarded, Vec<Resolved>), RefError> {
        // An invalid ref name cannot be resolved. Git will not move it either.
        let (possible, impossible): (Vec<&RefUpdate>, Vec<&RefUpdate>) =
            push.commands.iter().partition(|command| refs::is_valid_name(&command.name));
        let mut resolved = repository.resolve_refs(possible.iter().map(|command| &command.name).chain(others))?;
        let others = resolved.split_off(possible.len());
        let (mut refs, mut leases, mut no_lease) = (Vec::new(), Vec::new(), None);
        for (command, resolved) in possible.iter().zip(&resolved) {
            if !resolved.names.iter().any(RefName::is_lease) {
                refs.extend(planned(command, resolved, settings));
                continue;
            }
            match part_of_lease(command, resolved, settings) {
                Ok(Some((lease, planned))) => {
                    leases.push(lease);
                    refs.extend(planned);
                }
                Ok(None) => {}
                Err(reject) => no_lease = no_lease.or(Some(reject)),
            }
        }
        let matters = |name: &&RefName| name.is_lease() || settings.fence_of(name).is_some();
        let misnamed = impossible.iter().map(|command| &command.name).find(matters);
        let flaw = misnamed
            .map(|name| format!("{} is not a valid ref name", text::quoted(name.as_bytes())))
            .or_else(|| named_twice(&refs).map(|name| format!("the push names ref '{name}' twice")))
            .or_else(|| {
                per_worktree(&refs)
                    .map(|name| format!("'{name}' is a different ref in each worktree: no fence can guard it"))
            });
        let flaw = no_lease.or_else(|| flaw.map(Reject::malformed));
        Ok((Guarded { refs, leases, flaw }, others))
    }

    /// Whether it touches nothing that any fence guards.
    pub(crate) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.leases.is_empty()
    }

    /// Whether it concerns a lease. Such a push is always judged, whatever the fence's mode.
    pub(crate) fn concerns_leases(&self) -> bool {
        !self.leases.is_empty() || self.flaw.as_ref().is_some_and(Reject::is_about_the_lease)
    }

    /// Whether all it does is renew leases.
    pub(crate) fn is_heartbeat(&self) -> bool {
        let are_beats = self.leases.iter().all(|lease| lease.part == LeasePart::Beat);
        !self.leases.is_empty() && are_beats && self.guarded_refs().next().is_none()
    }

    /// The refs that fences guard.
    pub(crate) fn guarded_refs(&self) -> impl Iterator<Item = &PlannedRef> {
        self.refs.iter().filter(|planned| !planned.name.is_lease())
    }

    /// The fences that the push touches, in the order of the settings; members of a family by name.
    pub(crate) fn fences<'s>(&self, settings: &'s Settings) -> Vec<Cow<'s, Rules>> {
        let of_refs = self.refs.iter().map(|planned| &planned.fence);
        let touched: BTreeSet<&FenceName> = of_refs.chain(self.leases.iter().map(|lease| &lease.fence)).collect();
        let place = |fence: &&FenceName| {
            let configured = fence.configured();
            settings.fences.iter().position(|rules| rules.fence == configured)
        };
        let mut touched: Vec<&FenceName> = touched.into_iter().collect();
        touched.sort_by_cached_key(place);
        touched.into_iter().filter_map(|fence| settings.rules(fence)).collect()
    }

    /// Whether both would move the same refs of the same fences, regardless of the values.
    pub(crate) fn moves_same_refs_as(&self, other: &Guarded) -> bool {
        let names = |guarded: &Guarded| -> Vec<(RefName, FenceName)> {
            guarded.refs.iter().map(|planned| (planned.name.clone(), planned.fence.clone())).collect()
        };
        names(self) == names(other)
    }
}

/// What a command moves, once for each fence that it touches. Moving the target of a symbolic ref also changes the value
/// of the symbolic ref, so the fences of both apply.
fn planned(command: &RefUpdate, resolved: &Resolved, settings: &Settings) -> Vec<PlannedRef> {
    let mut fences: Vec<FenceName> = Vec::new();
    for (rules, fence) in resolved.names.iter().filter_map(|name| settings.named_fence_of(name)) {
        if rules.mode != Mode::Off && !fences.contains(&fence) {
            fences.push(fence);
        }
    }
    fences.iter().map(|fence| planned_for(fence, command, resolved)).collect()
}

fn planned_for(fence: &FenceName, command: &RefUpdate, resolved: &Resolved) -> PlannedRef {
    let holds_the_value = resolved.names.last().unwrap_or(&command.name);
    PlannedRef {
        name: holds_the_value.clone(),
        fence: fence.clone(),
        old: resolved.value.clone(),
        new: command.new.clone(),
        claimed: (command.claimed != resolved.value)
            .then(|| command.claimed.as_ref().map_or("none".to_owned(), ToString::to_string)),
        via: (command.name != *holds_the_value).then(|| command.name.clone()),
    }
}

/// What a command below `refs/fence/` would change of a lease: nothing if its fence is off.
fn part_of_lease(
    command: &RefUpdate,
    resolved: &Resolved,
    settings: &Settings,
) -> Result<Option<(LeaseCommand, Option<PlannedRef>)>, Reject> {
    let name = &command.name;
    let Some((fence, part)) = LeasePart::in_name(name).filter(|_| resolved.names.len() == 1) else {
        let why = match resolved.names.len() {
            1 => {
                "is not a lease ref: lease refs are refs/fence/<fence>/lease, refs/fence/<fence>/beat and refs/fence/<fence>/mark"
            }
            _ => "is a symbolic ref: push to the lease ref itself",
        };
        let named = LeasePart::in_name(name).map_or_else(FenceName::repo, |(fence, _)| fence);
        return Err(invalid(&named, format!("{} {why}", text::quoted(name.as_bytes()))));
    };
    match settings.fence_called(&fence).map(|rules| rules.mode) {
        Err(NoFence::Unknown(_)) => {
            let fences = settings.fences.iter().map(|rules| rules.fence.clone()).collect();
            return Err(Reject::NoSuchFence { fence, fences });
        }
        Err(no_fence) => return Err(invalid(&fence, no_fence.to_string())),
        Ok(Mode::Off) => return Ok(None),
        Ok(Mode::Enforce | Mode::Observe) => {}
    }
    if command.new.is_none() && part != LeasePart::Ask {
        return Err(invalid(&fence, format!("'{name}' must not be deleted: its counter would start over")));
    }
    let planned = (part != LeasePart::Ask).then(|| planned_for(&fence, command, resolved));
    let (now, new) = (resolved.value.clone(), command.new.clone());
    Ok(Some((LeaseCommand { fence, part, now, new }, planned)))
}

/// A ref that would be moved more than once: it could move there and back without leaving a trace.
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
        fix: "nothing was written. Ask the server's operator to check with  git fsck  and to fix the ref with  git update-ref"
            .to_owned(),
    }
}
