//! A lease as it stands, what a push asks of it, and what becomes of it.

use crate::{Accept, Beat, FenceName, Holder, Lease, LeaseState, Mark, ObjectId, Secret, Stamp, Token};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A lease as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The commit that its ref is at; none where somebody has removed the ref on the server. The
    /// counter goes on all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<ObjectId>,
    /// The commit of the ownership before.
    pub parent: Option<ObjectId>,
    /// The record.
    #[serde(flatten)]
    pub lease: Lease,
    /// When this ownership began.
    pub since: Stamp,
    /// When the holder was last heard of.
    pub heard: Stamp,
    /// What it said of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The hash of what its next heartbeat must show, by the last that was heard. Where the beat's ref shows one of
    /// this ownership, that one counts: the last may not have landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Holder>,
}

impl Standing {
    /// Whether its record says that somebody has it, alive or not.
    pub fn is_held(&self) -> bool {
        self.lease.state == LeaseState::Held
    }

    /// How much longer the lease is its owner's at `now`; nothing where it is released or expired.
    pub fn left_at(&self, now: &Stamp) -> Option<Duration> {
        let left = self.lease.ttl.duration().checked_sub(self.heard.age_at(now))?;
        (self.is_held() && !left.is_zero()).then_some(left)
    }
}

/// The record that a push wants the lease's ref to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its commit.
    pub commit: ObjectId,
    /// That commit's parents.
    pub parents: Vec<ObjectId>,
    /// The record.
    pub lease: Lease,
    /// The proof that it shows.
    pub proof: Option<Secret>,
}

impl Proposal {
    /// Whether its parents are this one alone, or none.
    pub(super) fn continues(&self, parent: Option<&ObjectId>) -> bool {
        self.parents.iter().eq(parent)
    }
}

/// What a push asks of one fence's lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseAsk {
    /// What the lease's ref is to show.
    pub lease: Option<Proposal>,
    /// What the beat's ref is to show.
    pub beat: Option<Beat>,
    /// The proof that it shows.
    pub beat_proof: Option<Secret>,
    /// What the beat's ref shows now. Git moves it from there and from nowhere else.
    pub beat_now: Option<Beat>,
    /// Whether it only asks if the lease is free.
    pub only_asks: bool,
    /// The secret in a push option: the proof of a holder in [`Format::OneSecret`].
    pub secret: Option<Secret>,
    /// Whether the pusher may take a lease away from its holder.
    pub may_revoke: bool,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseMove {
    /// It goes to a new owner.
    Grant,
    /// Its owner goes on to the next token.
    Advance,
    /// Its owner gives it back.
    Release,
    /// It is taken away from its owner.
    Revoke,
    /// Its owner is alive.
    Renew,
}

/// A move that was allowed, and how the lease stands after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseChange {
    /// The fence.
    pub fence: FenceName,
    /// The move.
    pub change: LeaseMove,
    /// How the lease stands when it has landed.
    #[serde(flatten)]
    pub standing: Standing,
    /// The fence's mark is at least this when it has landed.
    pub raises_to: Mark,
}

impl Accept {
    /// The mark that leaves `token` to its holder and keeps everybody before it out.
    pub fn mark_before(self, token: Token) -> Mark {
        match self {
            Accept::AtOrAbove => token.into(),
            Accept::Above => Mark::at(token.get() - 1).unwrap_or_default(),
        }
    }
}

/// The token of the next grant: above every one that was granted and every one that has written.
pub fn next_token(last: Option<Token>, mark: Mark) -> Option<Token> {
    Token::try_from(last.map_or(0, Token::get).max(mark.get()).checked_add(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_keeps_everybody_before_it_out_and_its_holder_in() {
        let token = |n: u64| Token::try_from(n).unwrap();
        assert_eq!(Accept::Above.mark_before(token(5)).get(), 4);
        assert_eq!(Accept::Above.mark_before(token(1)).get(), 0);
        assert_eq!(Accept::AtOrAbove.mark_before(token(5)).get(), 5);
        assert_eq!(next_token(None, Mark::default()), Some(token(1)));
        assert_eq!(next_token(Some(token(7)), Mark::from(token(9))), Some(token(10)));
        assert_eq!(next_token(Some(Token::MAX), Mark::default()), None);
    }
}
