//! What a push requests for leases.

use crate::{
    host::surroundings::Environment,
    push::plan::{Guarded, LeaseCommand},
    repository::{
        Repository,
        objects::{ObjectError, Objects},
    },
};
use git_fence_core::{
    Beat, FenceName, Lease, LeaseAsk, LeasePart, MarkAsk, MarkAt, MarkRecord, ObjectId, Offer, Proposal, RecordError,
    Reject, Rules, Secret, Settings, StoppedPush, TickSkip,
};
use std::collections::BTreeMap;

/// Larger than any commit with a lease record, signed or not.
const MOST_BYTES: u64 = 64 * 1024;

/// What the push requests for each lease. `may_revoke` tells whether the pusher may revoke it.
pub(crate) fn requests(
    guarded: &Guarded,
    offer: &Offer,
    settings: &Settings,
    may_revoke: &dyn Fn(&Rules) -> bool,
    repository: &Repository,
    environment: &Environment,
) -> Result<BTreeMap<FenceName, LeaseAsk>, Reject> {
    let mut asks: BTreeMap<FenceName, LeaseAsk> = BTreeMap::new();
    for LeaseCommand { fence, part, now, new } in &guarded.leases {
        let objects = || Objects::open(repository, environment);
        let is_none = |e: &BadRecord| invalid(fence, format!("its new value {e}"));
        let ask = asks.entry(fence.clone()).or_insert_with(|| LeaseAsk {
            secret: offer.secret(fence).cloned(),
            may_revoke: settings.rules(fence).is_some_and(|rules| may_revoke(&rules)),
            ..LeaseAsk::default()
        });
        match (part, new) {
            (LeasePart::Ask, id) => {
                ask.only_asks = true;
                ask.stopped = id.as_ref().and_then(|id| stopped(id, objects()));
                ask.skip = id.as_ref().and_then(|id| skip(id, objects()));
            }
            (LeasePart::Lease, Some(id)) => ask.lease = Some(proposal(id, objects()).map_err(|e| is_none(&e))?),
            (LeasePart::Beat, Some(id)) => {
                let (next, proof) = beat(id, objects()).map_err(|e| is_none(&e))?;
                (ask.beat, ask.beat_proof) = (Some(next), proof);
                // Git moves the ref only from this value, so the proof must match this value. An unreadable beat requires no proof.
                ask.beat_now = now.as_ref().and_then(|id| beat(id, objects()).ok()).map(|(beat, _)| beat);
            }
            (LeasePart::Mark, Some(id)) => {
                ask.mark = Some(Box::new(proposed_mark(id, objects()).map_err(|e| is_none(&e))?));
            }
            (LeasePart::Lease | LeasePart::Beat | LeasePart::Mark, None) => {}
        }
    }
    Ok(asks)
}

pub(crate) fn invalid(fence: &FenceName, why: impl Into<String>) -> Reject {
    Reject::LeaseInvalid { fence: fence.clone(), why: why.into() }
}

/// Why an object is not a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRecord {
    #[error("is not a record: {0}")]
    Object(#[from] ObjectError),
    #[error("is not a record: in '{0}', {1}")]
    Message(ObjectId, RecordError),
}

pub(crate) fn proposal(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Result<Proposal, BadRecord> {
    let commit = objects?.commit(id, MOST_BYTES)?;
    let lease = Lease::read(&commit.message).map_err(|e| BadRecord::Message(id.clone(), e))?;
    let proof = Secret::shown_in(&commit.message);
    Ok(Proposal { commit: id.clone(), parents: commit.parents, lease, proof })
}

fn proposed_mark(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Result<MarkAsk, BadRecord> {
    let commit = objects?.commit(id, MOST_BYTES)?;
    let record = MarkRecord::read(&commit.message).map_err(|e| BadRecord::Message(id.clone(), e))?;
    let proof = Secret::shown_in(&commit.message);
    Ok(MarkAsk { commit: id.clone(), parents: commit.parents, record, proof, answer: None })
}

/// The mark in the commit `id`.
pub(crate) fn mark_at(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Result<MarkAt, BadRecord> {
    let MarkAsk { commit, record, .. } = proposed_mark(id, objects)?;
    Ok(MarkAt { commit, record })
}

/// The push that a question reports. A question that cannot be read is only a question.
fn stopped(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Option<StoppedPush> {
    StoppedPush::read(&objects.ok()?.commit(id, MOST_BYTES).ok()?.message)
}

/// The scheduled run that starts nothing, and asks to have that on record.
fn skip(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Option<TickSkip> {
    TickSkip::read(&objects.ok()?.commit(id, MOST_BYTES).ok()?.message)
}

fn beat(id: &ObjectId, objects: Result<Objects, ObjectError>) -> Result<(Beat, Option<Secret>), BadRecord> {
    let commit = objects?.commit(id, MOST_BYTES)?;
    let beat = Beat::read(&commit.message).map_err(|e| BadRecord::Message(id.clone(), e))?;
    Ok((beat, Secret::shown_in(&commit.message)))
}
