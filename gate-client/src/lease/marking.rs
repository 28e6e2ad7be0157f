//! Pushing under a lease in a store: the mark in the remote moves with the user's refs.
//!
//! The next token is taken in the store first; a number that goes unused does no harm. Then the push moves the mark by
//! git's compare-and-swap, and a lost answer is settled by a touch: the same mark at another version.
//!
//! A push starts from the mark that was read before the grant, or from one that this lease has made since, and never from
//! one that is read again: a store that has lost its memory may have made an old holder current, and its numbers may be higher
//! than those of its successor.

use crate::{
    client::Client,
    failure::Failure,
    lease::{
        facts::PushFacts,
        held::{HeldLease, HeldStore, LeaseDir},
        pushing::{Carried, Moved, drive, options_for_gate},
    },
    random,
    store::{
        home::{LeaseHome, StoreLeases},
        reading::StoredMark,
        sending::Sending,
    },
};
use git_fence_core::{
    Elsewhere, HolderMove, LeasePart, LeaseStore as _, MarkState, Note, Pushing, PushingAnswer, PushingEnd, Swap,
    Token, Whereabouts, text,
};

impl Client {
    /// Pushes with the mark. The caller has the lease's lock.
    pub(super) fn push_with_mark(
        &self,
        dir: &LeaseDir,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        let held = dir.held()?;
        let home = self.store_of(dir, &held)?;
        let mut carried = CarriedMark::new(self, dir, &home, held)?;
        let lost = carried.kept()?.pending.is_some().then_some(HolderMove::Advance);
        let end = drive(&mut carried, Pushing::start(HolderMove::Advance, lost), along)?;
        carried.end(end)
    }

    /// Finds out what became of a push whose answer was lost. The caller has the lease's lock.
    pub(super) fn settle_mark(&self, dir: &LeaseDir) -> Result<(), Failure> {
        let held = dir.held()?;
        if held.store.as_ref().is_none_or(|store| store.pending.is_none()) {
            return Ok(());
        }
        let home = self.store_of(dir, &held)?;
        let mut carried = CarriedMark { only_settles: true, ..CarriedMark::new(self, dir, &home, held)? };
        let start = Pushing::start(HolderMove::Advance, Some(HolderMove::Advance));
        let end = drive(&mut carried, start, &mut |_| {})?;
        match carried.end(end) {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The same before a release. A lease that was lost is only given back; a push that may still be on its way, or whose mark
    /// is gone, is left to the barrier of the next holder. Returns whether there is one.
    pub(super) fn settle_mark_or_leave_barrier(&self, dir: &LeaseDir) -> Result<bool, Failure> {
        match self.settle_mark(dir) {
            Ok(()) | Err(Failure::Lost { .. }) => Ok(false),
            Err(failure)
                if failure.is_unreachable()
                    || matches!(
                        failure,
                        Failure::Unknown { .. }
                            | Failure::Busy { .. }
                            | Failure::Elsewhere { at: Elsewhere::MarkGone, .. }
                    ) =>
            {
                let held = dir.held()?;
                if let LeaseHome::Store(store) = self.store_of(dir, &held)? {
                    store.leave_barrier(&held)?;
                }
                Ok(true)
            }
            Err(other) => Err(other),
        }
    }
}

/// The mark of a fence whose lease is in a store.
struct CarriedMark<'a> {
    client: &'a Client,
    dir: &'a LeaseDir,
    store: &'a StoreLeases<'a>,
    /// The lease as it is on disk.
    held: HeldLease,
    /// The token that the push was sent with.
    token: Token,
    /// The mark of the settling touch.
    settled_at: Option<StoredMark>,
    /// The mark that was read last.
    seen: Option<StoredMark>,
    /// Whether nothing is to be sent after an earlier push is settled.
    only_settles: bool,
    facts: PushFacts<'a>,
}

impl<'a> CarriedMark<'a> {
    fn new(
        client: &'a Client,
        dir: &'a LeaseDir,
        home: &'a LeaseHome<'a>,
        held: HeldLease,
    ) -> Result<CarriedMark<'a>, Failure> {
        let LeaseHome::Store(store) = home else { return Err(not_in_a_store()) };
        let token = held.lease.token;
        let facts = PushFacts::default();
        Ok(CarriedMark { client, dir, store, held, token, settled_at: None, seen: None, only_settles: false, facts })
    }

    fn kept(&self) -> Result<&HeldStore, Failure> {
        self.held.store.as_ref().ok_or_else(not_in_a_store)
    }

    fn keep(&mut self, change: impl FnOnce(&mut HeldStore)) -> Result<(), Failure> {
        change(self.held.store.as_mut().ok_or_else(not_in_a_store)?);
        self.held.gate = self.store.remote.gate();
        self.dir.set_held(&self.held)
    }

    /// Takes a token that no push has carried. One that was sent may have been spent, whatever came of it.
    fn take_fresh_token(&mut self) -> Result<(), Failure> {
        if self.kept()?.used || self.held.pending.is_some() {
            let advanced = self.client.move_lease(self.dir, HolderMove::Advance)?;
            self.held = self.dir.held()?;
            if let Moved::Refused(refused) = advanced {
                return Err(self.client.refused(&refused));
            }
        }
        self.token = self.held.lease.token;
        Ok(())
    }

    /// Who holds the lease instead, if the store shows somebody else.
    fn held_by_another(&self) -> Option<Failure> {
        let snapshot = self.store.engine.read().ok()?;
        let of_another = snapshot.lease.as_ref().is_some_and(|now| now.lease.id != self.held.lease.id);
        of_another.then(|| self.client.lost(&snapshot))
    }

    /// The failure of a push that does not count any more.
    fn overtaken(&self, mark: Option<&StoredMark>) -> Failure {
        // The store knows who holds the lease, unless it has lost its memory.
        if let Some(lost) = self.held_by_another() {
            return lost;
        }
        let now = match mark {
            Some(mark) if mark.record.by.as_ref() == Some(&self.held.ownership()) => {
                "its mark was moved, although nobody has taken over".to_owned()
            }
            Some(mark) => {
                let owner = text::in_quotes(&mark.record.owner);
                format!("{owner} has moved its mark since, to token {}", mark.record.token)
            }
            None => "its mark no longer exists in the remote".to_owned(),
        };
        Failure::lost(&self.client.fence, now)
    }

    fn end(self, end: PushingEnd) -> Result<Moved, Failure> {
        let is_late = end == PushingEnd::Refused && self.facts.is_refused_as_late();
        if is_late && let Some(lost) = self.held_by_another() {
            return Err(lost);
        }
        let lost = self.needs_a_reason(end).then(|| self.overtaken(self.seen.as_ref()));
        let CarriedMark { client, token, facts, .. } = self;
        facts.end(client, end, token, |_, _| lost.unwrap_or_else(|| Failure::lost(&client.fence, "it was taken over")))
    }

    fn needs_a_reason(&self, end: PushingEnd) -> bool {
        matches!(end, PushingEnd::Lost { .. } | PushingEnd::LandedThenLost | PushingEnd::LostOnTheWay)
    }

    /// Where the mark is. Only we move it from where we know it: where anybody else has, the lease is lost, even if that
    /// was only a touch. A run that the store has forgotten would otherwise write after its successor.
    fn whereabouts(&self, now: &StoredMark) -> Result<Whereabouts, Failure> {
        let HeldStore { mark, pending, touches, .. } = self.kept()?;
        Ok(match &now.at {
            at if *at == mark.at => Whereabouts::BeforePush,
            at if pending.as_ref().is_some_and(|pending| pending.at == *at) => Whereabouts::AfterPush,
            at if touches.contains(at) => Whereabouts::Elsewhere,
            _ => Whereabouts::NotOurs,
        })
    }
}

impl<'a> Carried<'a> for CarriedMark<'a> {
    fn write_down(&mut self, note: Note) -> Result<(), Failure> {
        let moved_to = match note {
            Note::Nothing => return Ok(()),
            Note::Unmoved => None,
            Note::MovedByPush => self.kept()?.pending.clone(),
            Note::MovedBySettling => self.settled_at.take(),
            Note::MovedToSeen => self.seen.clone(),
        };
        self.keep(|store| {
            store.mark = moved_to.unwrap_or_else(|| store.mark.clone());
            store.pending = None;
            store.touches.clear();
        })
    }

    fn send(&mut self, along: &mut dyn FnMut(&mut Sending<'_>)) -> Result<PushingAnswer, Failure> {
        if self.only_settles {
            return Ok(PushingAnswer::Landed);
        }
        self.take_fresh_token()?;
        let before = self.kept()?.mark.clone();
        let by = self.held.ownership();
        if !before.record.admits(self.token, Some(&by)) {
            return Err(self.overtaken(Some(&before)));
        }
        let record = before.record.written(self.token, Some(by), &self.held.lease.owner, random::nonce());
        let next = self.store.remote.prepare_mark(record, Some(&before.at), self.held.proof().as_ref())?;
        let swap = Swap { part: LeasePart::Mark, from: Some(before.at), to: next.at.clone() };
        self.keep(|store| {
            store.pending = Some(next);
            store.used = true;
        })?;
        let options = options_for_gate(self.client, &self.held, self.token);
        let pushed = self.store.remote.push(&[swap], &options, along)?;
        Ok(self.facts.heard(pushed))
    }

    fn settle(&mut self) -> Result<PushingAnswer, Failure> {
        let before = self.kept()?.mark.clone();
        let touched = before.record.touched(random::nonce());
        let next = self.store.remote.prepare_mark(touched, Some(&before.at), None)?;
        let swap = Swap { part: LeasePart::Mark, from: Some(before.at), to: next.at.clone() };
        // Written before it is sent: if its answer is lost, we know it again.
        self.keep(|store| store.touches.push(next.at.clone()))?;
        self.settled_at = Some(next);
        let answer = self.store.remote.swap(&[swap])?;
        Ok(self.facts.heard_of_settling(answer))
    }

    fn read(&mut self) -> Result<PushingAnswer, Failure> {
        let sight = self.store.remote.look()?;
        let now = sight.mark.filter(|mark| mark.record.state == MarkState::Current);
        let now = now.ok_or_else(|| self.client.elsewhere(Elsewhere::MarkGone))?;
        let at = self.whereabouts(&now)?;
        self.seen = Some(now);
        Ok(PushingAnswer::At(at))
    }

    fn read_history(&mut self) -> Result<PushingAnswer, Failure> {
        let (Some(pending), Some(seen)) = (&self.kept()?.pending, &self.seen) else {
            return Ok(PushingAnswer::InHistory(false));
        };
        Ok(PushingAnswer::InHistory(self.store.remote.mark_follows(seen, &pending.at, self.token)?))
    }

    fn facts(&mut self) -> &mut PushFacts<'a> {
        &mut self.facts
    }
}

fn not_in_a_store() -> Failure {
    Failure::broken(
        "the local state of the lease does not say which mark it saw",
        "release the lease, and take it again",
    )
}
