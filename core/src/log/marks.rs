//! The marks in the repository, as the log has them: where each mark's ref is, and whose write was the last that counts.
//!
//! The two are not the same. Git may move the mark's ref of a push and decline its other refs: then nothing was written,
//! and a mark that was not proven counts for nothing. Otherwise a pusher who may write nothing but this ref could lock all
//! others out with a huge token.

use crate::{FenceName, Mark, MarkLine, MarkRecord, ObjectId, Ownership, PushId, State, Token, TokenKind};
use serde::{Deserialize, Serialize};

/// The mark of a fence as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MarkStanding {
    /// Where its ref is; `None` if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MarkAt>,
    /// The ownership that wrote last, or overtook the one that did; `None` for tokens of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Ownership>,
}

/// What a mark's ref points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkAt {
    /// The commit.
    pub commit: ObjectId,
    /// Its record.
    pub record: MarkRecord,
}

/// An allowed move of a mark's ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkChange {
    /// The fence.
    pub fence: FenceName,
    /// Where the ref will be.
    #[serde(flatten)]
    pub at: MarkAt,
    /// The fence's mark is at least this when the ref has moved: above 0 only if the holder has proven itself to the store, or
    /// the pusher may raise marks.
    pub raises_to: Mark,
}

impl MarkStanding {
    /// Whether `by` may still write to a fence with this `mark`: it wrote last, or it began after the last write.
    pub fn is_current(&self, by: &Ownership, mark: Mark) -> bool {
        self.last.as_ref().is_some_and(|last| last.lease == by.lease) || by.first.get() > mark.get()
    }
}

impl State {
    /// A push has moved this mark's ref.
    pub(super) fn move_mark(&mut self, push: PushId, change: &MarkChange) {
        let standing = self.written.entry(change.fence.clone()).or_default();
        standing.at = Some(change.at.clone());
        if change.raises_to > Mark::default() {
            standing.last.clone_from(&change.at.record.by);
            self.raise_by(push, &change.fence, change.raises_to);
        }
    }

    /// A push has spent `token`; `change` is its move of the mark, if it had one. Returns the kind of token that it was.
    pub(super) fn wrote(&mut self, fence: &FenceName, change: Option<&MarkChange>) -> TokenKind {
        let by = change.and_then(|change| change.at.record.by.clone());
        if change.is_some() || self.written.contains_key(fence) {
            self.written.entry(fence.clone()).or_default().last = by;
        }
        match change {
            Some(change) if change.raises_to > Mark::default() => TokenKind::Lease,
            _ => TokenKind::Own,
        }
    }

    /// A mark's ref was found elsewhere than the log has it.
    pub(super) fn find_mark(&mut self, line: &MarkLine) {
        let before = self.fence(&line.fence).mark;
        let standing = self.written.entry(line.fence.clone()).or_default();
        standing.at.clone_from(&line.at);
        if let Some(MarkAt { record, .. }) = line.at.as_ref().filter(|at| at.record.token >= before) {
            standing.last.clone_from(&record.by);
        }
        self.raise(&line.fence, line.mark);
    }
}

impl State {
    /// The line that records where the mark's ref of `fence` was found, if the log has it elsewhere. From then on that
    /// counts: no token that the mark names is valid again.
    pub fn mark_found(&self, fence: &FenceName, found: Option<MarkAt>, pusher: &str) -> Option<MarkLine> {
        let known = self.written.get(fence).and_then(|standing| standing.at.as_ref());
        if known.map(|at| &at.commit) == found.as_ref().map(|at| &at.commit) {
            return None;
        }
        let token = found.as_ref().map_or(Mark::default(), |at| at.record.token);
        let mark = self.fence(fence).mark.max(token);
        Some(MarkLine { fence: fence.clone(), at: found, mark, pusher: pusher.to_owned() })
    }
}

/// The token of a mark; `None` before the first write.
pub(crate) fn token_of(mark: Mark) -> Option<Token> {
    Token::try_from(mark.get()).ok()
}
