//! The mark in the remote: the ref of a fence whose lease is kept in a store, or whose tokens come from elsewhere.
//!
//! A push must move something of its fence in the transaction that moves the user's refs. Otherwise a remote without a gate
//! is not fenced, and a lost reply cannot be settled. Where the lease is not in the remote, that is this ref: a commit with
//! the record below, whose parent is the mark before it. So git's own compare-and-swap stops a stale push.

use crate::lease::trailers::{RecordError, RecordTrailers};
use crate::{FenceName, LEASE_FORMAT, LeaseId, Mark, Secret, Token, lease::trailers::PROOF, owner_name, text};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The longest name of a store or a resource.
const LONGEST_PLACE: usize = 300;

/// One ownership, as far as writing goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ownership {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The token with which it began.
    pub first: Token,
}

/// A store, and the name of the repository in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StorePlace {
    /// The store's name, made from its URL: without user and password, and the same however the URL is spelled.
    pub store: String,
    /// The name of the repository in the store.
    pub resource: String,
}

impl StorePlace {
    /// The place, with both names as records keep them. `None` if nothing of one of them can be shown.
    pub fn new(store: &str, resource: &str) -> Option<StorePlace> {
        let name = |name: &str| {
            let line = text::one_line(name.as_bytes(), LONGEST_PLACE).trim().to_owned();
            (!line.is_empty()).then_some(line)
        };
        Some(StorePlace { store: name(store)?, resource: name(resource)? })
    }

    /// The name of the record of `fence`.
    pub fn name_of(&self, fence: &FenceName) -> String {
        format!("{}/{}", self.resource, fence.component())
    }
}

/// Whether leases and tokens still go by this mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkState {
    /// They do.
    Current,
    /// The leases have moved back into the remote.
    Moved,
}

/// The last write to a fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// The token that has written; 0 before the first write.
    pub token: Mark,
    /// Who wrote with it; `None` for tokens of one's own, and before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Ownership>,
    /// The name that the writer gave.
    pub owner: String,
    /// Where the leases are kept; `None` for tokens of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<StorePlace>,
    /// Whether it still counts.
    pub state: MarkState,
    /// Fresh in every commit.
    pub nonce: String,
}

impl MarkRecord {
    /// The mark of a fence to which nobody has written, or which `token` has reached elsewhere.
    pub fn begins(token: Mark, place: Option<StorePlace>, owner: &str, nonce: String) -> MarkRecord {
        MarkRecord { token, by: None, owner: owner.to_owned(), place, state: MarkState::Current, nonce }
    }

    /// Whether a push with `token` counts: its token is above the mark, and its ownership either wrote last or began
    /// after the last write.
    ///
    /// The second half is for stores that lose their memory: an old holder that such a store has made current again must
    /// not continue above its successor, and of two holders of the same number only one may write.
    pub fn admits(&self, token: Token, by: Option<&Ownership>) -> bool {
        let began_after = |by: &Ownership| by.first.get() > self.token.get();
        let wrote_last = |by: &Ownership| self.by.as_ref().is_some_and(|last| last.lease == by.lease);
        token.get() > self.token.get() && by.is_none_or(|by| wrote_last(by) || began_after(by))
    }

    /// The mark after a write with `token`.
    #[must_use]
    pub fn written(&self, token: Token, by: Option<Ownership>, owner: &str, nonce: String) -> MarkRecord {
        MarkRecord { token: token.into(), by, owner: owner.to_owned(), nonce, ..self.clone() }
    }

    /// The same mark at another version: it spends nothing, and every push that expects this version is refused.
    #[must_use]
    pub fn touched(&self, nonce: String) -> MarkRecord {
        MarkRecord { nonce, ..self.clone() }
    }

    /// The mark below which nobody writes any more, without a write: before a new holder begins, or after a revocation.
    #[must_use]
    pub fn raised(&self, to: Mark, by: Option<Ownership>, owner: &str, nonce: String) -> MarkRecord {
        MarkRecord { token: self.token.max(to), by, owner: owner.to_owned(), nonce, ..self.clone() }
    }

    /// The commit message with this record for `fence`, carrying `proof`.
    pub fn message(&self, fence: &FenceName, proof: Option<&Secret>) -> String {
        let MarkRecord { token, by, owner, place, state, nonce } = self;
        let what = match (state, token.get()) {
            (MarkState::Moved, _) => "leases are kept in the remote again".to_owned(),
            (MarkState::Current, 0) => "nothing written yet".to_owned(),
            (MarkState::Current, token) => format!("token {token}, {owner}"),
        };
        let mut message = format!("{fence}: {what}\n\nFence-Format: {LEASE_FORMAT}\nFence-Mark: {token}\n");
        if let Some(Ownership { lease, first }) = by {
            let _ = write!(message, "Fence-Lease: {lease}\nFence-First: {first}\n");
        }
        let _ = writeln!(message, "Fence-Owner: {owner}");
        if let Some(StorePlace { store, resource }) = place {
            let _ = write!(message, "Fence-Store: {store}\nFence-Resource: {resource}\n");
        }
        if *state == MarkState::Moved {
            message.push_str("Fence-State: moved\n");
        }
        let _ = writeln!(message, "Fence-Nonce: {nonce}");
        if let Some(proof) = proof {
            let _ = writeln!(message, "{PROOF}: {}", proof.reveal());
        }
        message
    }

    /// Reads the message of a commit.
    pub fn read(message: &[u8]) -> Result<MarkRecord, RecordError> {
        let trailers = RecordTrailers::read_without_jobs(message)?;
        trailers.proof()?;
        let token = |value: &str| match value {
            "0" => Some(Mark::default()),
            value => Token::parse(value.as_bytes()).ok().map(Mark::from),
        };
        let first = |value: &str| Token::parse(value.as_bytes()).ok();
        let by = match trailers.find("Fence-Lease") {
            Some(_) => Some(Ownership { lease: trailers.lease()?, first: trailers.parse("Fence-First", first)? }),
            None => None,
        };
        let place = match trailers.find("Fence-Store") {
            Some(store) => {
                let read = |resource: &str| StorePlace::new(store, resource).filter(|place| place.resource == resource);
                Some(trailers.parse("Fence-Resource", read)?)
            }
            None => None,
        };
        let state = match trailers.find("Fence-State") {
            None => MarkState::Current,
            Some(_) => trailers.parse("Fence-State", |value| (value == "moved").then_some(MarkState::Moved))?,
        };
        let owner = trailers.parse("Fence-Owner", owner_name)?;
        Ok(MarkRecord {
            token: trailers.parse("Fence-Mark", token)?,
            by,
            owner,
            place,
            state,
            nonce: trailers.nonce()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::nonce_of;

    fn token(n: u64) -> Token {
        n.try_into().unwrap()
    }

    fn ownership(id: u8, first: u64) -> Ownership {
        Ownership { lease: LeaseId::of([id; 16]), first: token(first) }
    }

    fn mark(at: u64, by: Option<Ownership>) -> MarkRecord {
        let place = StorePlace::new("etcd://host:2379", "git.example.com/app");
        let begun = MarkRecord::begins(Mark::at(at).unwrap(), place, "agent", nonce_of([1; 16]));
        MarkRecord { by, ..begun }
    }

    #[test]
    fn push_counts_above_the_mark_and_from_an_ownership_that_nobody_has_overtaken() {
        for (at, last, pushed, by, counts) in [
            (0, None, 1, Some((1, 1)), true),
            (4, Some((1, 3)), 5, Some((1, 3)), true),
            (4, Some((1, 3)), 4, Some((1, 3)), false),
            // A new holder.
            (4, Some((1, 3)), 5, Some((2, 5)), true),
            // The store has lost its memory, and the holder before continues: its number is above, its beginning is not.
            (7, Some((2, 7)), 8, Some((1, 5)), false),
            // Two holders of the same number: the second one is refused, also with the next number.
            (5, Some((1, 5)), 5, Some((2, 5)), false),
            (5, Some((1, 5)), 6, Some((2, 5)), false),
            // Tokens of one's own.
            (5, None, 6, None, true),
            (5, None, 5, None, false),
            (5, Some((1, 5)), 6, None, true),
            (5, None, 6, Some((2, 6)), true),
            (5, None, 6, Some((2, 5)), false),
        ] {
            let of = |pair: Option<(u8, u64)>| pair.map(|(id, first)| ownership(id, first));
            let admitted = mark(at, of(last)).admits(token(pushed), of(by).as_ref());
            assert_eq!(admitted, counts, "mark {at} by {last:?}, token {pushed} by {by:?}");
        }
    }

    #[test]
    fn record_is_read_back() {
        let moved = MarkRecord { state: MarkState::Moved, ..mark(7, None) };
        let own = MarkRecord { place: None, ..mark(0, None) };
        for record in [mark(7, Some(ownership(1, 5))), moved, own] {
            let message = record.message(&FenceName::repo(), Some(&Secret::of([3; 32])));
            assert_eq!(MarkRecord::read(message.as_bytes()), Ok(record), "{message}");
            assert_eq!(Secret::shown_in(message.as_bytes()), Some(Secret::of([3; 32])));
        }
    }

    #[test]
    fn other_messages_are_no_records() {
        let good = mark(7, Some(ownership(1, 5))).message(&FenceName::repo(), None);
        for (from, to) in [
            ("Fence-Format: 2", "Fence-Format: 3"),
            ("Fence-Mark: 7", "Fence-Mark: 07"),
            ("Fence-Mark: 7", "Fence-Mark: -1"),
            ("Fence-Mark: 7", "Fence-Mark: 9223372036854775808"),
            ("Fence-First: 5", "Fence-First: 0"),
            ("Fence-First: 5\n", ""),
            ("Fence-Resource: git.example.com/app\n", ""),
            ("Fence-Nonce: 01", "Fence-Nonce: x1"),
            ("Fence-Nonce", "Fence-State: gone\nFence-Nonce"),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(MarkRecord::read(good.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn mark_never_goes_down() {
        let at = mark(7, Some(ownership(1, 5)));
        assert_eq!(at.raised(Mark::at(5).unwrap(), None, "b", nonce_of([2; 16])).token.get(), 7);
        assert_eq!(at.raised(Mark::at(9).unwrap(), None, "b", nonce_of([2; 16])).token.get(), 9);
        let touched = at.touched(nonce_of([2; 16]));
        assert_eq!((touched.token, &touched.by), (at.token, &at.by));
        assert_ne!(touched, at);
    }
}
