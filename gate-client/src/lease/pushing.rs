//! Pushing under a lease, advancing and releasing it. [`Pushing`] decides, and this does the work.
//!
//! What moves with the user's refs is a [`Carried`]: the lease itself, if it is in the remote, or else the mark
//! ([`marking`](super::marking)). What is known of the push on the way is in [`facts`](super::facts).

use crate::{
    client::{Client, used_up},
    failure::Failure,
    lease::{
        facts::PushFacts,
        held::{HeldLease, LeaseDir, Pending},
    },
    random,
    run::watch::note,
    store::{answer::RefAnswer, home::LeaseHome, sending::Sending},
};
use git_fence_core::{
    HolderMove, Lease, LeasePart, LeaseSnapshot, LeaseState, LeaseStore, Note, Pushing, PushingAnswer, PushingEnd,
    PushingNext, PushingStep, Record, StoppedPush, Swap, SwapRefused, Token, Version, Whereabouts,
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
        let is_unsettled = self.settle_mark_or_leave_barrier(dir)?;
        let released = self.move_lease(dir, HolderMove::Release);
        // Who has taken over stops it only with a barrier, which may not be up yet.
        released.map_err(|lost| if is_unsettled { lost.after("a push of this run may still land;") } else { lost })
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
        let mut lease = does.next(&held.lease, nonce, holder).ok_or_else(used_up)?;
        if does == HolderMove::Release {
            lease.jobs = lease.jobs.ended(self.dir.ended());
        }
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
