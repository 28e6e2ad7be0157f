//! The current state of a lease, what a push asks of it, and how it changes.

use crate::{
    Accept, Beat, FenceEntry, FenceName, Halt, Holder, Lease, LeaseState, Mark, MarkRecord, ObjectId, Secret, Stamp,
    StoppedPush, StoreFault, TickSkip, Token,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The current state of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The commit that its ref is at; `None` if the ref was removed on the server. The counter continues
    /// anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<ObjectId>,
    /// The commit of the previous ownership.
    pub parent: Option<ObjectId>,
    /// The record.
    #[serde(flatten)]
    pub lease: Lease,
    /// When this ownership began.
    pub since: Stamp,
    /// The last heartbeat.
    pub heard: Stamp,
    /// The holder's last progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The hash of the proof that the next heartbeat must carry, by the last recorded one. If the beat's ref has a
    /// beat of this ownership, that one counts instead: the last recorded may not have landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Holder>,
}

impl Standing {
    /// Whether its record says held. It may have expired.
    pub fn is_held(&self) -> bool {
        self.lease.state == LeaseState::Held
    }

    /// The halt, if the fence is halted.
    pub fn halt(&self) -> Option<Halt> {
        Some(Halt { since: Some(self.since.written()), ..self.lease.halt()? })
    }

    /// How long the lease is still held at `now`; `None` if released or expired.
    pub fn left_at(&self, now: &Stamp) -> Option<Duration> {
        let left = self.lease.ttl.duration().checked_sub(self.heard.age_at(now))?;
        (self.is_held() && !left.is_zero()).then_some(left)
    }
}

/// The record to which a push would move the lease's ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its commit.
    pub commit: ObjectId,
    /// That commit's parents.
    pub parents: Vec<ObjectId>,
    /// The record.
    pub lease: Lease,
    /// The proof that the record carries.
    pub proof: Option<Secret>,
}

impl Proposal {
    /// Whether its only parent is this commit; for `None`, whether it has no parent.
    pub(super) fn continues(&self, parent: Option<&ObjectId>) -> bool {
        self.parents.iter().eq(parent)
    }
}

/// What a push asks of one fence's lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseAsk {
    /// The new record of the lease's ref.
    pub lease: Option<Proposal>,
    /// The new record of the beat's ref.
    pub beat: Option<Beat>,
    /// The proof that the new beat carries.
    pub beat_proof: Option<Secret>,
    /// The current record of the beat's ref. Git moves the ref only from there.
    pub beat_now: Option<Beat>,
    /// The new record of the mark's ref.
    pub mark: Option<Box<MarkAsk>>,
    /// Whether the push only asks if the lease is free.
    pub only_asks: bool,
    /// The push that it reports, if it asks because git stopped one.
    pub stopped: Option<StoppedPush>,
    /// The scheduled run that starts nothing, if it asks for that.
    pub skip: Option<TickSkip>,
    /// The secret in a push option: the proof of a holder in [`Format::OneSecret`](crate::Format::OneSecret).
    pub secret: Option<Secret>,
    /// Whether the pusher may revoke, halt and resume a lease.
    pub may_revoke: bool,
}

/// The record to which a push would move the mark's ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkAsk {
    /// Its commit.
    pub commit: ObjectId,
    /// That commit's parents.
    pub parents: Vec<ObjectId>,
    /// The record.
    pub record: MarkRecord,
    /// The proof that the record carries.
    pub proof: Option<Secret>,
    /// What the store has of the fence, if it was asked.
    pub answer: Option<Result<Option<FenceEntry>, StoreFault>>,
}

/// How a lease changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseMove {
    /// A new owner gets it.
    Grant,
    /// Its owner advances to the next token.
    Advance,
    /// Its owner releases it.
    Release,
    /// It is taken from its owner.
    Revoke,
    /// Nobody gets it until it is resumed.
    Halt,
    /// Whoever wants it gets it again.
    Resume,
    /// Its owner renews it.
    Renew,
}

/// An allowed change, and the lease after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseChange {
    /// The fence.
    pub fence: FenceName,
    /// The change.
    pub change: LeaseMove,
    /// The lease after the push has landed.
    #[serde(flatten)]
    pub standing: Standing,
    /// The fence's mark is at least this after the push has landed.
    pub raises_to: Mark,
}

impl Accept {
    /// The mark that admits `token` and refuses every earlier one.
    pub fn mark_before(self, token: Token) -> Mark {
        match self {
            Accept::AtOrAbove => token.into(),
            Accept::Above => Mark::at(token.get() - 1).unwrap_or_default(),
        }
    }
}

/// The token of the next grant: above every token that was granted or has written.
pub fn next_token(last: Option<Token>, mark: Mark) -> Option<Token> {
    Token::try_from(last.map_or(0, Token::get).max(mark.get()).checked_add(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_of_a_grant_admits_its_holder_and_refuses_earlier_tokens() {
        let token = |n: u64| Token::try_from(n).unwrap();
        assert_eq!(Accept::Above.mark_before(token(5)).get(), 4);
        assert_eq!(Accept::Above.mark_before(token(1)).get(), 0);
        assert_eq!(Accept::AtOrAbove.mark_before(token(5)).get(), 5);
        assert_eq!(next_token(None, Mark::default()), Some(token(1)));
        assert_eq!(next_token(Some(token(7)), Mark::from(token(9))), Some(token(10)));
        assert_eq!(next_token(Some(Token::MAX), Mark::default()), None);
    }
}
