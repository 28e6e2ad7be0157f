//! Pushing under a lease, advancing and releasing it. [`Pushing`] decides, and this does the work.
//!
//! What moves with the user's refs is a [`Carried`]: the lease itself, if it is in the remote, or else the mark
//! ([`marking`](super::marking)).

use crate::{
    client::{Client, used_up},
    failure::Failure,
    lease::held::{HeldLease, LeaseDir, Pending},
    random,
    run::watch::note,
    store::{
        answer::RefAnswer,
        home::LeaseHome,
        remote::Pushed,
        sending::{RefsNow, Sending},
    },
};
use git_fence_core::{
    Code, HolderMove, Lease, LeasePart, LeaseSnapshot, LeaseState, LeaseStore, Note, Pushing, PushingAnswer,
    PushingEnd, PushingNext, PushingStep, Record, StoppedPush, Swap, SwapRefused, Swapped, Token, Version, Whereabouts,
};

/// The result of a push under the lease.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It landed with this token; what became of each ref, where the answer was heard.
    Landed { token: Token, refs: Vec<RefAnswer> },
    /// Every ref was where the push wanted it, so nothing moved and no token was spent.
    NothingNew { refs: Vec<RefAnswer> },
    /// It did not, and the lease is still ours.
    Refused(Box<SwapRefused>),
}

impl Client {
    /// Advances to the next token.
    pub(crate) fn advance(&self, dir: &LeaseDir) -> Result<Token, Failure> {
        let client = self.with_store_of(&dir.held()?);
        client.advance_here(dir)
    }

    fn advance_here(&self, dir: &LeaseDir) -> Result<Token, Failure> {
        let _lock = dir.lock_lease(&self.how())?;
        self.settle_mark(dir)?;
        match self.move_lease(dir, HolderMove::Advance)? {
            Moved::Landed { .. } | Moved::NothingNew { .. } => Ok(dir.held()?.lease.token),
            Moved::Refused(refused) => Err(self.refused(&refused)),
        }
    }

    /// Releases the lease. Fails, and changes nothing, if it has been taken over.
    pub(crate) fn release(&self, dir: &LeaseDir) -> Result<(), Failure> {
        let client = self.with_store_of(&dir.held()?);
        match client.give_back(dir) {
            Ok(Moved::Landed { .. } | Moved::NothingNew { .. }) => {
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

    fn give_back(&self, dir: &LeaseDir) -> Result<Moved, Failure> {
        let _lock = dir.lock_lease(&self.how())?;
        self.settle_mark_or_leave_barrier(dir)?;
        self.move_lease(dir, HolderMove::Release)
    }

    /// Pushes what `along` adds together with the lease, which advances or is released: all or nothing. Uses one
    /// connection, unless the answer is lost or the push is refused. If the lease is in a store, the push moves the mark, and
    /// the lease moves before or after it.
    pub(crate) fn push_held(
        &self,
        dir: &LeaseDir,
        wanted: HolderMove,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        self.with_store_of(&dir.held()?).push_held_here(dir, wanted, along)
    }

    fn push_held_here(
        &self,
        dir: &LeaseDir,
        wanted: HolderMove,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        let _lock = dir.lock_lease(&self.how())?;
        if self.store.is_none() {
            return self.carry_lease(dir, wanted, along);
        }
        let pushed = self.push_with_mark(dir, along)?;
        if let (HolderMove::Release, Moved::Landed { .. } | Moved::NothingNew { .. }) = (wanted, &pushed) {
            match self.move_lease(dir, HolderMove::Release) {
                Ok(_) => {}
                Err(lost @ Failure::Lost { .. }) => return Err(lost.after("the push landed; since then")),
                Err(failure) => {
                    let why = failure.in_one_line();
                    note(&format!(
                        "the push landed, but the lease could not be given back: it expires by itself ({why})"
                    ));
                }
            }
        }
        Ok(pushed)
    }

    /// Moves the lease and nothing else. The caller has its lock.
    pub(super) fn move_lease(&self, dir: &LeaseDir, wanted: HolderMove) -> Result<Moved, Failure> {
        let moved = self.carry_lease(dir, wanted, &mut |_| {})?;
        // The new token is fresh.
        let held = dir.held();
        if let (Moved::Landed { .. }, Ok(mut held)) = (&moved, held)
            && let Some(store) = &mut held.store
            && store.used
        {
            store.used = false;
            dir.set_held(&held)?;
        }
        Ok(moved)
    }

    fn carry_lease(
        &self,
        dir: &LeaseDir,
        wanted: HolderMove,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        let held = dir.held()?;
        let store = self.store_of(dir, &held)?;
        let mut carried = CarriedLease::new(self, dir, &store, held, wanted);
        if carried.held.pending.is_none() && carried.held.lease.state == LeaseState::Released {
            return carried.end(PushingEnd::ReleasedBefore);
        }
        let lost = carried.held.pending.as_ref().map(|pending| HolderMove::of(&pending.lease));
        let end = drive(&mut carried, Pushing::start(wanted, lost), along)?;
        carried.end(end)
    }

    pub(super) fn store_of(&self, dir: &LeaseDir, held: &HeldLease) -> Result<LeaseHome<'_>, Failure> {
        Ok(LeaseHome::open(self, dir.objects(), held.gate)?.proving(held.option()))
    }
}

/// What moves in one transaction with the user's refs.
pub(super) trait Carried<'a> {
    /// Writes what is known to disk, before the next step.
    fn write_down(&mut self, note: Note) -> Result<(), Failure>;

    /// Sends the push. What is pending stays on disk until the result is known, so that a run that dies can find out later.
    fn send(&mut self, along: &mut dyn FnMut(&mut Sending<'_>)) -> Result<PushingAnswer, Failure>;

    /// Moves it alone, without the user's refs, from where it was before the lost push.
    fn settle(&mut self) -> Result<PushingAnswer, Failure>;

    /// Reads where it is.
    fn read(&mut self) -> Result<PushingAnswer, Failure>;

    /// Reads whether the lost push is in its history.
    fn read_history(&mut self) -> Result<PushingAnswer, Failure>;

    /// What is known about the push itself.
    fn facts(&mut self) -> &mut PushFacts<'a>;
}

/// Does what [`Pushing`] says until it has ended.
pub(super) fn drive<'a>(
    carried: &mut impl Carried<'a>,
    first: PushingStep,
    along: &mut dyn FnMut(&mut Sending<'_>),
) -> Result<PushingEnd, Failure> {
    let (mut pushing, mut note, mut next) = first;
    loop {
        carried.write_down(note)?;
        let answer = match next {
            PushingNext::Send => carried.send(along),
            PushingNext::Settle => carried.settle(),
            PushingNext::Read => carried.read(),
            PushingNext::ReadHistory => carried.read_history(),
            PushingNext::ReadRefs => carried.facts().read_refs(),
            PushingNext::End(end) => return Ok(end),
        };
        (pushing, note, next) = pushing.step(answer.map_err(|failed| carried.facts().or_unknown(failed))?);
    }
}

/// What is known about a push.
#[derive(Default)]
pub(super) struct PushFacts<'a> {
    /// The push, once sent, and its refs as far as they are known.
    sent: Option<Sending<'a>>,
    pub(super) refs: Vec<RefAnswer>,
    undone: Vec<String>,
    refused: SwapRefused,
    /// Why the answer to the push was lost.
    lost_why: Option<String>,
    /// Why the settling swap failed.
    why: String,
    failure: Option<Failure>,
    /// Whether nothing but what is carried was pushed.
    is_alone: bool,
    /// Whether nothing but what is carried was new, and it was refused for that.
    nothing_new: bool,
}

impl<'a> PushFacts<'a> {
    /// The answer to the push.
    pub(super) fn heard(&mut self, pushed: Pushed<'a>) -> PushingAnswer {
        self.is_alone = pushed.sent.is_none();
        (self.refs, self.sent) = (pushed.refs, pushed.sent);
        match pushed.answer {
            Swapped::Won => PushingAnswer::Landed,
            // A gate lets nobody raise a mark without moving a ref.
            Swapped::Refused(refused) if refused.gate.is_some() && is_nothing_new(&self.refs) => {
                self.nothing_new = true;
                PushingAnswer::NotSent
            }
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
        }
    }

    /// The answer to the swap that settles a lost push.
    pub(super) fn heard_of_settling(&mut self, answer: Swapped<Failure>) -> PushingAnswer {
        match answer {
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
        }
    }

    /// Whether a gate has refused it because another has the lease, or has written since.
    pub(super) fn is_refused_as_late(&self) -> bool {
        let code = self.refused.gate.as_ref().and_then(|gate| gate.code);
        matches!(code, Some(Code::LeaseLost | Code::Stale | Code::LeaseRequired))
    }

    fn read_refs(&mut self) -> Result<PushingAnswer, Failure> {
        if self.is_alone {
            return Ok(PushingAnswer::AllThere(true));
        }
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
        match &self.lost_why {
            Some(why) if failed.is_unreachable() => Failure::Unknown { why: why.clone() },
            _ => failed,
        }
    }

    /// What the end means for a push with `token`. `lost` says who has the lease instead.
    pub(super) fn end(
        self,
        client: &Client,
        end: PushingEnd,
        token: Token,
        lost: impl FnOnce(&PushFacts<'_>, bool) -> Failure,
    ) -> Result<Moved, Failure> {
        let why = || self.lost_why.clone().unwrap_or_else(|| self.refused.why.join("; "));
        match end {
            PushingEnd::Landed => Ok(Moved::Landed { token, refs: self.refs }),
            PushingEnd::Refused => Ok(Moved::Refused(Box::new(self.refused))),
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
            PushingEnd::NotSent if self.nothing_new => Ok(Moved::NothingNew { refs: self.refs }),
            PushingEnd::NotSent | PushingEnd::EarlierUnknown => {
                Err(self.failure.unwrap_or_else(|| client.unreachable(self.why)))
            }
            PushingEnd::Lost { gate_is_unaware } => Err(lost(&self, gate_is_unaware)),
            PushingEnd::LandedThenLost => Err(lost(&self, false).after("the push landed; since then")),
            PushingEnd::LostOnTheWay => Err(lost(&self, false)
                .after("the lease moved with the push, but its refs may not all have moved; since then")),
        }
    }
}

/// Whether all of the user's refs, of which there are some, were where the push wanted them.
fn is_nothing_new(refs: &[RefAnswer]) -> bool {
    let mut users = refs.iter().filter(|answer| !answer.name.starts_with("refs/fence/")).peekable();
    users.peek().is_some() && users.all(|answer| answer.up_to_date)
}

/// The lease itself, in the remote or in a store.
struct CarriedLease<'a> {
    client: &'a Client,
    dir: &'a LeaseDir,
    store: &'a LeaseHome<'a>,
    wanted: HolderMove,
    /// The lease as it is on disk.
    held: HeldLease,
    /// The token that the push was sent with.
    token: Token,
    /// The record of the settling swap.
    settled_at: Option<(Lease, Version)>,
    /// What was read last.
    seen: LeaseSnapshot,
    facts: PushFacts<'a>,
}

impl<'a> CarriedLease<'a> {
    fn new(
        client: &'a Client,
        dir: &'a LeaseDir,
        store: &'a LeaseHome<'a>,
        held: HeldLease,
        wanted: HolderMove,
    ) -> CarriedLease<'a> {
        let (token, seen, facts) = (held.lease.token, LeaseSnapshot::default(), PushFacts::default());
        CarriedLease { client, dir, store, wanted, token, held, settled_at: None, seen, facts }
    }

    fn end(self, end: PushingEnd) -> Result<Moved, Failure> {
        if end == PushingEnd::ReleasedBefore && self.wanted == HolderMove::Release {
            return Ok(Moved::Landed { token: self.held.lease.token, refs: Vec::new() });
        }
        let CarriedLease { client, store, held, token, seen, facts, .. } = self;
        facts.end(client, end, token, |facts, gate_is_unaware| {
            if gate_is_unaware {
                tell_gate(client, store, &held, token, &facts.refs);
            }
            client.lost(&seen)
        })
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

impl<'a> Carried<'a> for CarriedLease<'a> {
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

    fn send(&mut self, along: &mut dyn FnMut(&mut Sending<'_>)) -> Result<PushingAnswer, Failure> {
        self.token = self.held.lease.token;
        let (lease, at) = self.next_record(self.wanted)?;
        let swap = Swap { part: LeasePart::Lease, from: Some(self.held.at.clone()), to: at.clone() };
        self.held.pending = Some(Pending { lease, at });
        self.dir.set_held(&self.held)?;
        let options = options_for_gate(self.client, &self.held, self.token);
        let pushed = self.store.push(&[swap], &options, along)?;
        Ok(self.facts.heard(pushed))
    }

    fn settle(&mut self) -> Result<PushingAnswer, Failure> {
        let (lease, at) = self.next_record(HolderMove::Advance)?;
        let swap = Swap { part: LeasePart::Lease, from: Some(self.held.at.clone()), to: at.clone() };
        self.settled_at = Some((lease, at));
        let answer = self.store.swap(&[swap])?;
        Ok(self.facts.heard_of_settling(answer))
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

    fn facts(&mut self) -> &mut PushFacts<'a> {
        &mut self.facts
    }
}

/// Tells the gate about a push that git has stopped, so that it stands in the log: once, with its refs. Nobody waits
/// for the answer to be good: the lease is lost either way.
fn tell_gate(client: &Client, store: &LeaseHome<'_>, held: &HeldLease, token: Token, refs: &[RefAnswer]) {
    let LeaseHome::Remote(remote) = store else { return };
    let stopped = StoppedPush::of(&held.lease.id, token, refs.iter().map(|answer| answer.name.as_str()));
    if let Some(stopped) = stopped.filter(|_| remote.gate()) {
        let _ = remote.tell_gate(&held.lease.owner, &stopped, &options_for_gate(client, held, token));
    }
}

/// The push options for a gate.
pub(super) fn options_for_gate(client: &Client, held: &HeldLease, token: Token) -> Vec<String> {
    let token = crate::token_option(&client.fence, token);
    vec![token, format!("fence-owner={}", held.lease.owner)]
}
