//! Leases that are not where the log has them: they were there before the gate, somebody has written to their
//! refs on the server, or the line of their last step was lost with the machine.

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
    Claim, Event, Fence, FenceName, FoundLease, LeaseLine, LeasePart, RefName, Reject, Rules, Stamp, State, Token,
    TokenKind,
};

impl Gate<'_> {
    /// Looks at the refs again, now that nobody else may move them, and takes down leases that are not
    /// where the log has them. Nothing where the push has to wait: it looks when its turn has come.
    pub(crate) fn look_again(&self, store: &mut Store) -> Result<Option<Guarded>, Reject> {
        let is_free = |claim: &Claim<'_>| {
            let asks = claim.lease.is_some_and(|asked| asked.only_asks);
            asks || !store.state().fence(&claim.rules.fence).is_occupied()
        };
        if !self.claims.iter().all(is_free) {
            return Ok(None);
        }
        let leases: Vec<RefName> = self.claims.iter().map(|claim| LeasePart::Lease.of(&claim.rules.fence)).collect();
        let looked = Guarded::with(&self.arrival.push, &leases, self.settings, &self.arrival.repository);
        let (guarded, leases) = looked.map_err(unreadable)?;
        self.catch_up(store, &leases)?;
        Ok(Some(guarded))
    }

    /// Takes down leases that are not where the log has them; `seen` is what their refs are at, in the
    /// order of the claims.
    pub(crate) fn catch_up(&self, store: &mut Store, seen: &[Resolved]) -> Result<(), Reject> {
        let now = clock::stamp(&self.arrival.here);
        for (rules, seen) in self.claims.iter().map(|claim| claim.rules).zip(seen) {
            if is_under_way(store.state(), &rules.fence) {
                continue;
            }
            let objects = || Objects::open(&self.arrival.repository, self.arrival.environment);
            let fence = store.state().fence(&rules.fence);
            if let Some(line) = found(&fence, rules, seen, objects, &now, &self.recorder.who.pusher)? {
                store.append(Event::LeaseFound(line)).map_err(|e| self.recorder.broken(&e))?;
            }
        }
        Ok(())
    }
}

/// Whether a push in flight may have moved the lease of `fence`, so that its ref says nothing yet.
pub(crate) fn is_under_way(state: &State, fence: &FenceName) -> bool {
    state.in_flight.iter().flat_map(|flight| &flight.leases).any(|change| change.fence == *fence)
}

/// What there is to take down where the lease's ref, `seen` just now, is not where the log has it, or where
/// the lease was last heard of in the future.
///
/// Objects are opened only for that: the ref of a lease that nobody touches costs one look.
pub(crate) fn found(
    fence: &Fence<'_>,
    rules: &Rules,
    seen: &Resolved,
    objects: impl FnOnce() -> Result<Objects, ObjectError>,
    now: &Stamp,
    pusher: &str,
) -> Result<Option<LeaseLine>, Reject> {
    // What nobody may write with is nobody's, whatever stands there.
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
            // Once in the log it would stay there, and close the fence for good.
            if proposal.lease.token.is_at_the_end() {
                return Err(unusable(rules, &no_tokens_left(proposal.lease.token)));
            }
            FoundLease::Record(proposal)
        }
    };
    Ok(fence.lease_found(rules, found, now, pusher))
}

/// The same for a command, which has no push to look with. Nothing is said of a lease that is under way.
pub(crate) fn look(
    repository: &Repository,
    state: &State,
    rules: &Rules,
    now: &Stamp,
    pusher: &str,
) -> Result<Option<LeaseLine>, Reject> {
    if is_under_way(state, &rules.fence) {
        return Ok(None);
    }
    let seen = repository.resolve_refs(&[LeasePart::Lease.of(&rules.fence)]).map_err(unreadable)?;
    let objects = || Objects::open(repository, &Environment::default());
    match &seen[..] {
        [seen] => found(&state.fence(&rules.fence), rules, seen, objects, now, pusher),
        _ => Ok(None),
    }
}

/// The refusal of whatever cannot be read as the lease that it ought to be. Removing it loses nothing: the
/// log remembers how far its counter had come.
fn unusable(rules: &Rules, why: &str) -> Reject {
    let name = LeasePart::Lease.of(&rules.fence);
    let mend = mend(&name);
    leases::invalid(&rules.fence, format!("'{name}' {why}. The server's operator removes it with  git {mend}"))
}

/// What is wrong with a lease whose counter is at its end.
pub(crate) fn no_tokens_left(token: Token) -> String {
    format!("has granted token {token}, and soon after it there are none left: its fence would be closed for good")
}

/// The arguments for git that remove a lease's ref, symbolic or not.
pub(crate) fn mend(name: &RefName) -> String {
    format!("update-ref --no-deref -d {name}")
}
