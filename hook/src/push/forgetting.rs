//! Forgetting members of families, so that branches of long ago cost nothing.
//!
//! It happens after a push that creates a ref of a family: only such pushes let it grow, so others need not look. First the
//! lease's refs are removed, all at once and only from their recorded values, and then a line is written that forgets the
//! members. If it ends in between, the log still knows how far their tokens came.

use crate::{
    host::clock,
    log::store::{Durability, Store},
    push::plan::unreadable,
    repository::{Repository, git, settings},
};
use git_fence_core::{
    FenceName, InFlight, LeasePart, Line, ObjectId, Place, PlannedRef, RefName, Reject, Rules, Settings, State,
};
use std::collections::{BTreeSet, HashSet};

/// The most members that are looked at and forgotten after one push: more than a push usually creates.
const AT_ONCE: usize = 32;

/// The families of which the push in flight that `is_it` creates a ref.
pub(crate) fn families_that_grow(state: &State, is_it: impl Fn(&InFlight) -> bool) -> BTreeSet<FenceName> {
    let planned = state.in_flight.iter().filter(|flight| is_it(flight)).flat_map(|flight| &flight.plan.refs);
    let is_new = |planned: &&PlannedRef| planned.old.is_none() && planned.fence.is_member();
    planned.filter(is_new).map(|planned| planned.fence.configured()).collect()
}

/// Forgets members of `families` whose refs are gone and that nobody has held for long. Takes the lock for each.
pub(crate) fn forget(
    lock: impl Fn() -> Option<Store>,
    families: &BTreeSet<FenceName>,
    repository: &Repository,
    here: &Place,
) -> Option<Vec<Line>> {
    let settings = settings::read(&repository.config).ok()?;
    let mut lines = Vec::new();
    for rules in families.iter().filter_map(|family| settings.rules(family)) {
        let mut store = lock()?;
        let old = store.state().forgettable(&rules, &clock::stamp(here), usize::MAX);
        let looked_at = some_of(old, store.next_push().0);
        let gone = without_refs(looked_at, &rules, &settings, repository).ok()?;
        let members = without_lease_refs(gone, store.state(), repository);
        if members.is_empty() {
            continue;
        }
        let event = store.state().forgetting(&rules, members);
        store.append(event).ok()?;
        lines.extend(store.commit(Durability::Synced).ok()?);
    }
    Some(lines)
}

/// A part of `old` that begins elsewhere each time: the refs of the first ones may stay for ever.
fn some_of(mut old: Vec<FenceName>, turn: u64) -> Vec<FenceName> {
    if old.len() > AT_ONCE {
        let parts = old.len().div_ceil(AT_ONCE) as u64;
        let begin = usize::try_from(turn % parts).unwrap_or_default() * AT_ONCE;
        old.rotate_left(begin);
        old.truncate(AT_ONCE);
    }
    old
}

/// Those of `members` whose ref does not exist.
fn without_refs(
    members: Vec<FenceName>,
    rules: &Rules,
    settings: &Settings,
    repository: &Repository,
) -> Result<Vec<FenceName>, Reject> {
    // Of a long name only the hash is known: it is compared with those of all refs.
    let (known, cut): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.matched().is_some());
    let names: Vec<RefName> = known.iter().filter_map(|member| rules.ref_of(member)).collect();
    let values = repository.ref_values(&names).map_err(unreadable)?;
    let mut gone: Vec<FenceName> =
        known.into_iter().zip(values).filter(|(_, at)| at.is_none()).map(|(it, _)| it).collect();
    if !cut.is_empty() {
        let refs = git::refs(repository).map_err(|e| Reject::malformed(e.to_string()))?;
        let there: HashSet<FenceName> = refs.keys().filter_map(|name| settings.fence_name_of(name)).collect();
        gone.extend(cut.into_iter().filter(|member| !there.contains(member)));
    }
    Ok(gone)
}

/// Removes the refs of these leases; returns the members that have none any more. A lease whose ref is not where the log has it
/// stays: the next push to it records what it is.
fn without_lease_refs(members: Vec<FenceName>, state: &State, repository: &Repository) -> Vec<FenceName> {
    let mut forgotten = Vec::new();
    let mut input = String::from("start\n");
    for member in members {
        let names = [LeasePart::Lease, LeasePart::Beat].map(|part| part.of(&member));
        let Ok(seen) = repository.resolve_refs(&names) else { continue };
        let [lease, beat] = &seen[..] else { continue };
        let known = state.leases.get(&member).and_then(|standing| standing.commit.as_ref());
        if lease.value.as_ref() != known || seen.iter().any(|it| it.names.len() != 1) {
            continue;
        }
        let removal = |name: &RefName, at: &ObjectId| format!("option no-deref\ndelete {name} {at}\n");
        for (name, at) in names.iter().zip([&lease.value, &beat.value]) {
            input.extend(at.as_ref().map(|at| removal(name, at)));
        }
        forgotten.push(member);
    }
    if forgotten.is_empty() {
        return forgotten;
    }
    input.push_str("prepare\ncommit\n");
    match git::write(repository, &["update-ref", "--stdin"], &input, "git-fence") {
        Ok(_) => forgotten,
        Err(_) => Vec::new(),
    }
}
