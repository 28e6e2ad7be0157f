//! A push with a token of one's own: the mark in the remote moves with the user's refs, and no lease does.
//!
//! So a stale push is refused by git's own compare-and-swap also where no gate runs, and a lost answer can be settled.

use crate::{
    client::Client,
    failure::Failure,
    lease::pushing::{Carried, Moved, PushFacts, drive},
    random,
    store::{
        reading::{RemoteSight, StoredMark},
        remote::{RemoteRefs, remembered_gate},
        sending::Sending,
    },
};
use git_fence_core::{
    Code, Elsewhere, HolderMove, LeasePart, LeaseStore as _, Mark, MarkRecord, MarkState, Note, Pushing, PushingAnswer,
    PushingEnd, Swap, Token, Whereabouts, may_be_own,
};
use std::path::PathBuf;

impl Client {
    /// Pushes what `along` adds with `token`. `options` are push options for a gate; objects are written to `objects`.
    pub(crate) fn push_with_own_token(
        &self,
        token: Token,
        owner: &str,
        objects: PathBuf,
        options: &[String],
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        // Tokens of one's own are mostly used with a gate.
        let refs = RemoteRefs::open(self, objects, remembered_gate(self) != Some(false))?;
        let before = self.own_mark(refs.look()?)?;
        if let Some(mark) = before.as_ref().filter(|mark| !mark.record.admits(token, None)) {
            return Err(stale(self, token, mark.record.token));
        }
        let facts = PushFacts::default();
        let mut carried =
            OwnPush { client: self, refs: &refs, token, owner, options, before, sent: None, seen: None, facts };
        let end = drive(&mut carried, Pushing::start(HolderMove::Advance, None), along)?;
        carried.end(end)
    }

    /// The mark of a fence that takes tokens of one's own; none before the first of them.
    fn own_mark(&self, sight: RemoteSight) -> Result<Option<StoredMark>, Failure> {
        match may_be_own(sight.lease_state(), sight.mark.as_ref().map(|mark| &mark.record)) {
            // A gate knows which kind of tokens the fence takes now.
            Err(Elsewhere::InRemote) if remembered_gate(self) == Some(true) => {}
            Err(at) => return Err(self.elsewhere(at)),
            Ok(_) => {}
        }
        Ok(sight.mark)
    }
}

struct OwnPush<'a> {
    client: &'a Client,
    refs: &'a RemoteRefs<'a>,
    token: Token,
    owner: &'a str,
    options: &'a [String],
    /// The mark before the push.
    before: Option<StoredMark>,
    /// The mark of the push.
    sent: Option<StoredMark>,
    /// The mark that was read last.
    seen: Option<StoredMark>,
    facts: PushFacts<'a>,
}

impl OwnPush<'_> {
    /// What the next mark is made from.
    fn base(&self) -> MarkRecord {
        let nonce = random::nonce();
        match &self.before {
            Some(mark) if mark.record.state == MarkState::Current => mark.record.touched(nonce),
            _ => MarkRecord::begins(Mark::default(), None, self.owner, nonce),
        }
    }

    fn swap_to(&self, next: &StoredMark) -> Swap {
        Swap { part: LeasePart::Mark, from: self.before.as_ref().map(|mark| mark.at.clone()), to: next.at.clone() }
    }

    fn prepare(&self, record: MarkRecord) -> Result<StoredMark, Failure> {
        self.refs.prepare_mark(record, self.before.as_ref().map(|mark| &mark.at), None)
    }

    fn follows_ours(&self) -> Result<bool, Failure> {
        let (Some(now), Some(ours)) = (&self.seen, &self.sent) else { return Ok(false) };
        self.refs.mark_follows(now, &ours.at, self.token)
    }

    fn end(self, end: PushingEnd) -> Result<Moved, Failure> {
        let OwnPush { client, token, seen, facts, .. } = self;
        // That others have written since takes nothing from this push.
        let end = if end == PushingEnd::LandedThenLost { PushingEnd::Landed } else { end };
        facts.end(client, end, token, |_, _| {
            let now = seen.map_or(Mark::default(), |mark| mark.record.token);
            stale(client, token, now)
        })
    }
}

impl<'a> Carried<'a> for OwnPush<'a> {
    /// Nothing is held, so nothing is kept.
    fn write_down(&mut self, _note: Note) -> Result<(), Failure> {
        Ok(())
    }

    fn send(&mut self, along: &mut dyn FnMut(&mut Sending<'_>)) -> Result<PushingAnswer, Failure> {
        let next = self.prepare(self.base().written(self.token, None, self.owner, random::nonce()))?;
        let swap = self.swap_to(&next);
        self.sent = Some(next);
        let pushed = self.refs.push(&[swap], self.options, along)?;
        Ok(self.facts.heard(pushed))
    }

    fn settle(&mut self) -> Result<PushingAnswer, Failure> {
        let touched = self.prepare(self.base())?;
        let answer = self.refs.swap(&[self.swap_to(&touched)])?;
        Ok(self.facts.heard_of_settling(answer))
    }

    fn read(&mut self) -> Result<PushingAnswer, Failure> {
        self.seen = self.refs.look()?.mark;
        let at = |mark: &Option<StoredMark>| mark.as_ref().map(|mark| mark.at.clone());
        let is_overtaken = |mark: &StoredMark| !mark.record.admits(self.token, None);
        let place = match &self.seen {
            now if at(now) == at(&self.before) => Whereabouts::BeforePush,
            now if at(now) == at(&self.sent) => Whereabouts::AfterPush,
            Some(now) if is_overtaken(now) => Whereabouts::NotOurs,
            _ => Whereabouts::Elsewhere,
        };
        Ok(PushingAnswer::At(place))
    }

    fn read_history(&mut self) -> Result<PushingAnswer, Failure> {
        Ok(PushingAnswer::InHistory(self.follows_ours()?))
    }

    fn facts(&mut self) -> &mut PushFacts<'a> {
        &mut self.facts
    }
}

/// As a gate says it.
fn stale(client: &Client, token: Token, mark: Mark) -> Failure {
    let why = format!("{} token {token} is not above {mark}, the mark of fence '{}'", Code::Stale, client.fence);
    Failure::Refused { why, code: Some(Code::Stale), said: crate::denied::Said::default() }
}
