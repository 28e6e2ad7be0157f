//! Who held a lease last, by its record and those before it.

use crate::{
    host::surroundings::Environment,
    push::leases::proposal,
    repository::{Repository, objects::Objects},
};
use git_fence_core::{LastHolder, Lease, LeaseState, ObjectId, Reason, Stamp, Standing};
use std::iter;

/// How far back to look for who held a lease last.
const MOST_LOOKED_AT: usize = 16;

/// Who held a lease that is free. Whoever revoked, halted or resumed it has never held it: its holder is the owner of a
/// record before. None if nobody ever held it.
pub(crate) fn last_holder(standing: &Standing, repository: &Repository) -> Option<LastHolder> {
    let Lease { owner, token, ttl, words, .. } = standing.lease.clone();
    let (time, by) = (standing.heard.written(), None);
    if standing.is_held() {
        let lasted = u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX);
        let ended = Stamp { unix_ms: standing.heard.unix_ms.saturating_add(lasted), ..standing.heard.clone() };
        return Some(LastHolder { owner, token, time: ended.written(), reason: Reason::Expired, by, words: None });
    }
    let is_ownership = |lease: &Lease| !lease.is_revocation() && lease.state != LeaseState::Halted;
    if is_ownership(&standing.lease) {
        return Some(LastHolder { owner, token, time, reason: Reason::Released, by, words: None });
    }
    let before = |commit: &ObjectId| proposal(commit, Objects::open(repository, &Environment::default())).ok();
    let first = standing.parent.as_ref().and_then(before);
    let Some(first) = first else {
        let owner = "somebody".to_owned();
        let is_known = standing.lease.reason != Reason::First && standing.parent.is_some();
        return is_known.then_some(LastHolder { owner, token, time, reason: Reason::Revoked, by, words });
    };
    if is_ownership(&first.lease) && first.lease.state == LeaseState::Held {
        let Lease { owner: held, token: last, .. } = first.lease;
        return Some(LastHolder { owner: held, token: last, time, reason: Reason::Revoked, by: Some(owner), words });
    }
    // The end of a halt, or a halt of what was free.
    let older = iter::successors(Some(first), |then| before(then.parents.first()?)).take(MOST_LOOKED_AT);
    let held = older.map(|then| then.lease).find(is_ownership)?;
    let Lease { owner, token, .. } = held;
    let reason = if held.state == LeaseState::Held { Reason::Revoked } else { Reason::Released };
    Some(LastHolder { owner, token, time, reason, by: None, words: None })
}
