//! Pushing under a lease, advancing and releasing it. [`Pushing`] decides, and this does the work.

use crate::{
    client::{Client, used_up},
    failure::Failure,
    lease::held::{HeldLease, LeaseDir, Pending},
    random,
    store::{
        answer::RefAnswer,
        remote::{Pushed, RemoteRefs},
        sending::{RefsNow, Sending},
    },
};
use git_fence_core::{
    HolderMove, Lease, LeasePart, LeaseSnapshot, LeaseState, LeaseStore, Note, Pushing, PushingAnswer, PushingEnd,
    PushingNext, Record, StoppedPush, Swap, SwapRefused, Swapped, Token, Version, Whereabouts,
};

/// The result of a push under the lease.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It landed with this token; what became of each ref, where the answer was heard.
    Landed { token: Token, refs: Vec<RefAnswer> },
    /// It did not, and the lease is still ours.
    Refused(Box<SwapRefused>),
}

impl Client {
    /// Advances to the next token.
    pub(crate) fn advance(&self, dir: &LeaseDir) -> Result<Token, Failure> {
        match self.push_held(dir, HolderMove::Advance, &mut |_| {})? {
            Moved::Landed { .. } => Ok(dir.held()?.lease.token),
            Moved::Refused(refused) => Err(self.refused(&refused)),
        }
    }

    /// Releases the lease. Fails, and changes nothing, if it has been taken over.
    pub(crate) fn release(&self, dir: &LeaseDir) -> Result<(), Failure> {
        match self.push_held(dir, HolderMove::Release, &mut |_| {}) {
            Ok(Moved::Landed { .. }) => {
                dir.remove();
                Ok(())
            }
            Ok(Moved::Refused(refused)) => Err(self.refused(&refused)),
            Err(lost @ Failure::Lost { .. }) => {
                dir.remove();
                Err(lost)
            }
            Err(other) => Err(other),
        }
    }

    /// Pushes what `along` adds together with the lease, which advances or is released: all or nothing. Uses one
    /// connection, unless the answer is lost or the push is refused.
    pub(crate) fn push_held(
        &self,
        dir: &LeaseDir,
        wanted: HolderMove,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        let _lock = dir.lock_lease(&self.how())?;
        let held = dir.held()?;
        let store = self.store_of(dir, &held)?;
        let mut push = HeldPush::new(self, dir, &store, held, wanted);
        if push.held.pending.is_none() && push.held.lease.state == LeaseState::Released {
            return push.end(PushingEnd::ReleasedBefore);
        }
        let lost = push.held.pending.as_ref().map(|pending| HolderMove::of(&pending.lease));
        let (mut pushing, mut note, mut next) = Pushing::start(wanted, lost);
        loop {
            push.write_down(note)?;
            let answer = match next {
                PushingNext::Send => push.send(along),
                PushingNext::Settle => push.settle(),
                PushingNext::Read => push.read(),
                PushingNext::ReadHistory => push.read_history(),
                PushingNext::ReadRefs => push.read_refs(),
                PushingNext::End(end) => return push.end(end),
            };
            (pushing, note, next) = pushing.step(answer.map_err(|failed| push.or_unknown(failed))?);
        }
    }

    pub(super) fn store_of(&self, dir: &LeaseDir, held: &HeldLease) -> Result<RemoteRefs<'_>, Failure> {
        Ok(RemoteRefs::open(self, dir.objects(), held.gate)?.proving(held.option()))
    }
}

/// The state of the loop around [`Pushing`].
struct HeldPush<'a> {
    client: &'a Client,
    dir: &'a LeaseDir,
    store: &'a RemoteRefs<'a>,
    wanted: HolderMove,
    /// The lease as it is on disk.
    held: HeldLease,
    /// The token that the push was sent with.
    token: Token,
    /// The push, once sent, and its refs as far as they are known.
    sent: Option<Sending<'a>>,
    refs: Vec<RefAnswer>,
    undone: Vec<String>,
    /// The record of the settling swap.
    settled_at: Option<(Lease, Version)>,
    /// What was read last.
    seen: LeaseSnapshot,
    refused: SwapRefused,
    /// Why the answer to the push was lost.
    lost_why: Option<String>,
    /// Why the settling swap failed.
    why: String,
    failure: Option<Failure>,
}

impl<'a> HeldPush<'a> {
    fn new(
        client: &'a Client,
        dir: &'a LeaseDir,
        store: &'a RemoteRefs<'a>,
        held: HeldLease,
        wanted: HolderMove,
    ) -> HeldPush<'a> {
        HeldPush {
            client,
            dir,
            store,
            wanted,
            token: held.lease.token,
            held,
            sent: None,
            refs: Vec::new(),
            undone: Vec::new(),
            settled_at: None,
            seen: LeaseSnapshot::default(),
            refused: SwapRefused::default(),
            lost_why: None,
            why: String::new(),
            failure: None,
        }
    }

    /// Writes what is known to disk, before the next step.
    fn write_down(&mut self, note: Note) -> Result<(), Failure> {
        let pending = self.held.pending.clone();
        let moved_to = match note {
            Note::Nothing => return Ok(()),
            Note::Unmoved => None,
            Note::MovedByPush => pending.map(|pending| (pending.lease, pending.at)),
            Note::MovedBySettling => self.settled_at.take(),
            Note::MovedToSeen => self.seen.lease.clone().map(|now| (now.lease, now.at)),
        };
        self.held = match moved_to {
            Some((lease, at)) => self.held.moved_to(lease, at),
            None => self.held.unmoved(),
        };
        self.held.gate = self.store.gate();
        self.dir.set_held(&self.held)
    }

    /// The pending record stays on disk until the result is known, so that a run that dies can find out later.
    fn send(&mut self, along: &mut dyn FnMut(&mut Sending<'_>)) -> Result<PushingAnswer, Failure> {
        self.token = self.held.lease.token;
        let (lease, at) = self.next_record(self.wanted)?;
        let swap = Swap { part: LeasePart::Lease, from: Some(self.held.at.clone()), to: at.clone() };
        self.held.pending = Some(Pending { lease, at });
        self.dir.set_held(&self.held)?;
        let Pushed { answer, refs, sent } = self.store.push(&[swap], &self.options_for_gate(), along)?;
        (self.refs, self.sent) = (refs, Some(sent));
        Ok(match answer {
            Swapped::Won => PushingAnswer::Landed,
            Swapped::Refused(refused) => {
                self.refused = *refused;
                PushingAnswer::from(&self.refused)
            }
            Swapped::Unknown { why } => {
                self.lost_why = Some(why);
                PushingAnswer::Unknown
            }
            Swapped::NotSent(failure) => {
                self.failure = Some(failure);
                PushingAnswer::NotSent
            }
        })
    }

    /// Advances the lease alone, without the user's refs.
    fn settle(&mut self) -> Result<PushingAnswer, Failure> {
        let (lease, at) = self.next_record(HolderMove::Advance)?;
        let swap = Swap { part: LeasePart::Lease, from: Some(self.held.at.clone()), to: at.clone() };
        self.settled_at = Some((lease, at));
        Ok(match self.store.swap(&[swap])? {
            Swapped::Won => PushingAnswer::Landed,
            Swapped::Refused(refused) => {
                self.why = refused.why.join("; ");
                PushingAnswer::Refused { may_be_lost: true, by_gate: refused.gate.is_some() }
            }
            Swapped::Unknown { why } => {
                self.why = why;
                PushingAnswer::Unknown
            }
            Swapped::NotSent(failure) => {
                self.why = failure.in_one_line();
                self.failure = Some(failure);
                PushingAnswer::NotSent
            }
        })
    }

    fn read(&mut self) -> Result<PushingAnswer, Failure> {
        self.seen = self.store.read()?;
        let after = self.held.pending.as_ref().map(|pending| &pending.at);
        let at = Whereabouts::of(self.seen.lease.as_ref(), &self.held.lease.id, &self.held.at, after);
        Ok(PushingAnswer::At(at))
    }

    fn read_history(&mut self) -> Result<PushingAnswer, Failure> {
        let Some(pending) = &self.held.pending else { return Ok(PushingAnswer::InHistory(false)) };
        // Tokens only grow: older records cannot be the push.
        let history = self.store.history(self.seen.lease.as_ref(), pending.lease.token)?;
        Ok(PushingAnswer::InHistory(history.iter().any(|then| then.at == pending.at)))
    }

    fn read_refs(&mut self) -> Result<PushingAnswer, Failure> {
        // The refs of an earlier push are not known.
        let Some(sent) = &self.sent else { return Ok(PushingAnswer::Unknown) };
        match sent.read_refs() {
            Ok(RefsNow { there, undone }) => {
                (self.refs, self.undone) = (there, undone);
                Ok(PushingAnswer::AllThere(self.undone.is_empty()))
            }
            Err(Failure::Unreachable { why, .. }) => {
                self.lost_why = Some(why);
                Ok(PushingAnswer::Unknown)
            }
            Err(other) => Err(other),
        }
    }

    /// After a lost answer, an unreachable remote leaves the result unknown.
    fn or_unknown(&self, failed: Failure) -> Failure {
        match (&self.lost_why, failed) {
            (Some(why), Failure::Unreachable { .. }) => Failure::Unknown { why: why.clone() },
            (_, failed) => failed,
        }
    }

    fn end(self, end: PushingEnd) -> Result<Moved, Failure> {
        let (client, token) = (self.client, self.token);
        let why = || self.lost_why.clone().unwrap_or_else(|| self.refused.why.join("; "));
        match end {
            PushingEnd::Landed => Ok(Moved::Landed { token, refs: self.refs }),
            PushingEnd::Refused => Ok(Moved::Refused(Box::new(self.refused))),
            PushingEnd::ReleasedBefore if self.wanted == HolderMove::Release => {
                Ok(Moved::Landed { token: self.held.lease.token, refs: Vec::new() })
            }
            PushingEnd::ReleasedBefore => Err(Failure::lost(&client.fence, "it has been released")),
            PushingEnd::DidNotLand => Err(Failure::DidNotLand { why: why() }),
            PushingEnd::Outdated => {
                let why = "the lease has advanced without this push, and the local state was outdated";
                Err(Failure::DidNotLand { why: why.to_owned() })
            }
            PushingEnd::InPart => {
                Err(Failure::InPart { why: format!("the lease moved: {}", why()), refs: self.undone })
            }
            PushingEnd::MovedOn => {
                let (names, why) = (self.undone.join(", "), why());
                Err(Failure::Unknown {
                    why: format!("others have held the lease since, and {names} moved again: {why}"),
                })
            }
            PushingEnd::Unknown => Err(Failure::Unknown { why: why() }),
            PushingEnd::NotSent | PushingEnd::EarlierUnknown => {
                Err(self.failure.unwrap_or_else(|| client.unreachable(self.why)))
            }
            PushingEnd::Lost { gate_is_unaware } => {
                if gate_is_unaware {
                    self.tell_gate();
                }
                Err(client.lost(&self.seen))
            }
            PushingEnd::LandedThenLost => Err(client.lost(&self.seen).after("the push landed; since then")),
            PushingEnd::LostOnTheWay => Err(client
                .lost(&self.seen)
                .after("the lease moved with the push, but its refs may not all have moved; since then")),
        }
    }

    /// Tells the gate about a push that git has stopped, so that it stands in the log: once, with its refs. Nobody waits
    /// for the answer to be good: the lease is lost either way.
    fn tell_gate(&self) {
        let refs = self.refs.iter().map(|answer| answer.name.as_str());
        let stopped = StoppedPush::of(&self.held.lease.id, self.token, refs);
        if let Some(stopped) = stopped.filter(|_| self.store.gate()) {
            let _ = self.store.tell_gate(&self.held.lease.owner, &stopped, &self.options_for_gate());
        }
    }

    /// The push options for a gate.
    fn options_for_gate(&self) -> Vec<String> {
        let token = crate::token_option(&self.client.fence, self.token);
        vec![token, format!("fence-owner={}", self.held.lease.owner)]
    }

    fn next_record(&self, does: HolderMove) -> Result<(Lease, Version), Failure> {
        let held = &self.held;
        let nonce = random::nonce();
        let holder = held.key.holder(LeasePart::Lease, &nonce).unwrap_or_else(|| held.lease.holder.clone());
        let lease = does.next(&held.lease, nonce, holder).ok_or_else(used_up)?;
        let (parent, proof) = (held.parent.as_ref(), held.proof());
        let at = self.store.prepare(&Record::Lease { lease: &lease, parent, proof: proof.as_ref() })?;
        Ok((lease, at))
    }
}
