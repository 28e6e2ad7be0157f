//! Lease refs and marks that differ from the log: they existed before the gate, were written on the server, or the line of their
//! last change was lost in a crash.

use crate::{
    host::{clock, surroundings::Environment},
    log::store::Store,
    push::{
        gate::Gate,
        leases,
        plan::{Guarded, unreadable},
    },
    repository::{
        Repository,
        objects::{ObjectError, Objects},
        refs::Resolved,
    },
};
use git_fence_core::{
    Claim, Event, Fence, FenceName, FoundLease, InFlight, LeaseLine, LeasePart, MarkLine, RefName, Reject, Rules,
    Stamp, State, Token, TokenKind,
};

impl Gate<'_> {
    /// Reads the refs again, now that nobody else may move them, and records leases whose refs differ from the log.
    /// `None` if the push has to wait: it reads them when it is its turn.
    pub(crate) fn reread_refs(&self, store: &mut Store) -> Result<Option<Guarded>, Reject> {
        let is_free = |claim: &Claim<'_>| {
            let asks = claim.lease.is_some_and(|asked| asked.only_asks);
            asks || !store.state().fence(&claim.rules.fence).is_occupied()
        };
        if !self.claims.iter().all(is_free) {
            return Ok(None);
        }
        let names: Vec<RefName> =
            [LeasePart::Lease, LeasePart::Mark].iter().flat_map(|part| self.refs_of(*part)).collect();
        let reread = Guarded::with(&self.arrival.push, &names, self.settings, &self.arrival.repository);
        let (guarded, seen) = reread.map_err(unreadable)?;
        let (leases, marks) = seen.split_at(self.claims.len());
        self.catch_up(store, leases)?;
        self.catch_up_marks(store, marks)?;
        Ok(Some(guarded))
    }

    /// The ref of this part for each claim.
    fn refs_of(&self, part: LeasePart) -> impl Iterator<Item = RefName> {
        self.claims.iter().map(move |claim| part.of(&claim.rules.fence))
    }

    /// The same for marks.
    fn catch_up_marks(&self, store: &mut Store, seen: &[Resolved]) -> Result<(), Reject> {
        for (rules, seen) in self.claims.iter().map(|claim| claim.rules).zip(seen) {
            let objects = || Objects::open(&self.arrival.repository, self.arrival.environment);
            if let Some(line) = mark_to_record(store.state(), rules, seen, objects, &self.recorder.who.pusher)? {
                store.append(Event::MarkFound(line)).map_err(|e| self.recorder.broken(&e))?;
            }
        }
        Ok(())
    }

    /// Records leases whose refs differ from the log. `seen` has the values of the lease refs, in the order of the
    /// claims.
    pub(crate) fn catch_up(&self, store: &mut Store, seen: &[Resolved]) -> Result<(), Reject> {
        let now = clock::stamp(&self.arrival.here);
        for (rules, seen) in self.claims.iter().map(|claim| claim.rules).zip(seen) {
            if is_in_flight(store.state(), &rules.fence) {
                continue;
            }
            let objects = || Objects::open(&self.arrival.repository, self.arrival.environment);
            let fence = store.state().fence(&rules.fence);
            if let Some(line) = line_to_record(&fence, rules, seen, objects, &now, &self.recorder.who.pusher)? {
                store.append(Event::LeaseFound(line)).map_err(|e| self.recorder.broken(&e))?;
            }
        }
        Ok(())
    }
}

/// Whether a push in flight may have moved the lease of `fence`: its ref is then not conclusive yet.
pub(crate) fn is_in_flight(state: &State, fence: &FenceName) -> bool {
    state.in_flight.iter().flat_map(|flight| &flight.leases).any(|change| change.fence == *fence)
}

/// The line to record if the lease's ref, as just `seen`, differs from the log, or if the lease's last renewal is in
/// the future.
///
/// Objects are opened only in that case: an unchanged lease ref costs a single read.
pub(crate) fn line_to_record(
    fence: &Fence<'_>,
    rules: &Rules,
    seen: &Resolved,
    objects: impl FnOnce() -> Result<Objects, ObjectError>,
    now: &Stamp,
    pusher: &str,
) -> Result<Option<LeaseLine>, Reject> {
    // This fence accepts no lease tokens, so the ref means nothing.
    if fence.kind(rules) == Some(TokenKind::Own) {
        return Ok(None);
    }
    let [name] = &seen.names[..] else {
        return Err(unusable(rules, "is a symbolic ref"));
    };
    debug_assert_eq!(*name, LeasePart::Lease.of(&rules.fence));
    if fence.lease_is_at(seen.value.as_ref()) {
        return Ok(fence.lease_restamped(rules, now, pusher));
    }
    let found = match &seen.value {
        None => FoundLease::Nothing,
        Some(id) => {
            let proposal = leases::proposal(id, objects()).map_err(|e| unusable(rules, &e.to_string()))?;
            // Once in the log, it would stay there and close the fence for good.
            if proposal.lease.token.is_at_the_end() {
                return Err(unusable(rules, &no_tokens_left(proposal.lease.token)));
            }
            FoundLease::Record(Box::new(proposal))
        }
    };
    Ok(fence.lease_found(rules, found, now, pusher))
}

/// The line to record if the mark's ref, as just `seen`, differs from the log. `None` while a push in flight may have moved
/// it.
pub(crate) fn mark_to_record(
    state: &State,
    rules: &Rules,
    seen: &Resolved,
    objects: impl FnOnce() -> Result<Objects, ObjectError>,
    pusher: &str,
) -> Result<Option<MarkLine>, Reject> {
    let is_moving = |flight: &InFlight| flight.marks.iter().any(|change| change.fence == rules.fence);
    if state.in_flight.iter().any(is_moving) {
        return Ok(None);
    }
    let unusable = |why: &str| unusable_ref(rules, LeasePart::Mark, why);
    if seen.names.len() != 1 {
        return Err(unusable("is a symbolic ref"));
    }
    let known = state.written.get(&rules.fence).and_then(|standing| standing.at.as_ref());
    if known.map(|at| &at.commit) == seen.value.as_ref() {
        return Ok(None);
    }
    let found = match &seen.value {
        None => None,
        Some(id) => {
            let found = leases::mark_at(id, objects()).map_err(|e| unusable(&e.to_string()))?;
            // Once in the log, it would stay there and close the fence for good.
            match Token::try_from(found.record.token.get()) {
                Ok(token) if token.is_at_the_end() => return Err(unusable(&no_tokens_left(token))),
                _ => Some(found),
            }
        }
    };
    Ok(state.mark_found(&rules.fence, found, pusher))
}

/// The same for a command, which has no push.
pub(crate) fn compare_mark_with_log(
    repository: &Repository,
    state: &State,
    rules: &Rules,
    pusher: &str,
) -> Result<Option<MarkLine>, Reject> {
    let seen = repository.resolve_refs(&[LeasePart::Mark.of(&rules.fence)]).map_err(unreadable)?;
    let objects = || Objects::open(repository, &Environment::default());
    match &seen[..] {
        [seen] => mark_to_record(state, rules, seen, objects, pusher),
        _ => Ok(None),
    }
}

/// The line for a lease, for a command, which has no push. `None` if the lease is in flight.
pub(crate) fn compare_with_log(
    repository: &Repository,
    state: &State,
    rules: &Rules,
    now: &Stamp,
    pusher: &str,
) -> Result<Option<LeaseLine>, Reject> {
    if is_in_flight(state, &rules.fence) {
        return Ok(None);
    }
    let seen = repository.resolve_refs(&[LeasePart::Lease.of(&rules.fence)]).map_err(unreadable)?;
    let objects = || Objects::open(repository, &Environment::default());
    match &seen[..] {
        [seen] => line_to_record(&state.fence(&rules.fence), rules, seen, objects, now, pusher),
        _ => Ok(None),
    }
}

/// The refusal if the ref is not a usable lease or mark. Removing the ref loses nothing: the log has the last token.
fn unusable(rules: &Rules, why: &str) -> Reject {
    unusable_ref(rules, LeasePart::Lease, why)
}

fn unusable_ref(rules: &Rules, part: LeasePart, why: &str) -> Reject {
    let name = part.of(&rules.fence);
    let removal = removal_arguments(&name);
    leases::invalid(&rules.fence, format!("'{name}' {why}; ask the server's operator to remove it:  git {removal}"))
}

/// What is wrong with a lease whose token is close to the maximum.
pub(crate) fn no_tokens_left(token: Token) -> String {
    format!("has granted token {token}, close to the largest one: no higher tokens would remain for the fence")
}

/// The git arguments that remove a lease's ref, symbolic or not.
pub(crate) fn removal_arguments(name: &RefName) -> String {
    format!("update-ref --no-deref -d {name}")
}
