//! Where the lease of a fence is kept: in the remote, or in a store, with the mark in the remote.

use crate::{
    client::Client,
    failure::Failure,
    lease::held::{HeldLease, HeldStore, Key},
    random,
    store::{
        engine::EngineLeases,
        program::StoreProgram,
        reading::{RemoteSight, StoredMark},
        remote::{Pushed, RemoteRefs, remembered_gate},
        sending::Sending,
    },
};
use git_fence_core::{
    Beat, Claimed, Code, Elsewhere, FenceEntry, Format, GateSays, JobName, Jobs, Lease, LeasePart, LeaseSnapshot,
    LeaseState, LeaseStore, Mark, MarkRecord, MarkState, Ownership, Purpose, Reason, Record, Secret, Stamp, StorePlace,
    StoredLease, Swap, Swapped, Token, Ttl, Version, may_be_in_store, text,
};
use std::{cell::RefCell, path::PathBuf, time::Duration};

/// A lease that is granted runs out while a gate lets its barrier wait.
pub(crate) const TAKEN_MEANWHILE: &str =
    "the lease was taken over while this run waited for the push in the gate's slot";

/// How often the mark is tried again after somebody else has moved it.
const MOST_TRIES: usize = 3;

/// Where the lease of one fence is kept.
#[derive(Debug)]
pub(crate) enum LeaseHome<'a> {
    Remote(RemoteRefs<'a>),
    Store(Box<StoreLeases<'a>>),
}

/// The lease in a store, and the mark in the remote.
#[derive(Debug)]
pub(crate) struct StoreLeases<'a> {
    client: &'a Client,
    program: &'a StoreProgram,
    pub(crate) engine: EngineLeases<'a>,
    pub(crate) remote: RemoteRefs<'a>,
    /// The mark as it was last seen.
    mark: RefCell<Option<StoredMark>>,
    /// The mark that a barrier has replaced.
    overtaken: RefCell<Option<MarkRecord>>,
}

impl<'a> LeaseHome<'a> {
    /// The lease of the client's fence. Records for the remote are written to `objects`; `gate` is what is known about the
    /// gate.
    pub(crate) fn open(client: &'a Client, objects: PathBuf, gate: bool) -> Result<LeaseHome<'a>, Failure> {
        match client.store.as_deref() {
            None => Ok(LeaseHome::Remote(RemoteRefs::open(client, objects, gate)?)),
            Some(program) => {
                let gate = gate || remembered_gate(client) == Some(true);
                let remote = RemoteRefs::open(client, objects, gate)?;
                let engine = EngineLeases::open(client, program)?;
                let (mark, overtaken) = (RefCell::default(), RefCell::default());
                let store = StoreLeases { client, program, engine, remote, mark, overtaken };
                Ok(LeaseHome::Store(Box::new(store)))
            }
        }
    }

    /// The same for a holder that proves itself with a push option.
    pub(crate) fn proving(self, proof: Option<String>) -> LeaseHome<'a> {
        match self {
            LeaseHome::Remote(remote) => LeaseHome::Remote(remote.proving(proof)),
            store => store,
        }
    }

    /// The same for a run of a scheduled job.
    pub(crate) fn wanted_for(self, job: Option<JobName>) -> LeaseHome<'a> {
        match self {
            LeaseHome::Remote(remote) => LeaseHome::Remote(remote.wanted_for(job)),
            store => store,
        }
    }

    /// The remote's refs.
    pub(crate) fn remote(&self) -> &RemoteRefs<'a> {
        match self {
            LeaseHome::Remote(remote) => remote,
            LeaseHome::Store(store) => &store.remote,
        }
    }

    /// Whether the remote has a gate, as last learned.
    pub(crate) fn gate(&self) -> bool {
        self.remote().gate()
    }

    /// Reads the lease in order to take it: checks that it is kept here, and sees how far its tokens have come.
    pub(crate) fn read_to_take(&self, owner: &str, purpose: Purpose) -> Result<LeaseSnapshot, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.read(),
            LeaseHome::Store(store) => store.read_to_take(owner, purpose),
        }
    }

    /// The mark that every new token must be above, as far as it is known here. A gate in the remote knows it itself.
    pub(crate) fn highest(&self) -> Result<Mark, Failure> {
        match self {
            LeaseHome::Remote(_) => Ok(Mark::default()),
            LeaseHome::Store(store) => {
                let written = store.mark.borrow().as_ref().map(|mark| mark.record.token);
                let granted = store.engine.last_seen()?.map(|entry| entry.counter());
                Ok(written.max(granted).unwrap_or_default())
            }
        }
    }

    /// Makes sure that the store's clock is known, where it has one: a command that has not read anything does not know it.
    pub(crate) fn learn_clock(&self) -> Result<(), Failure> {
        match self {
            LeaseHome::Store(store) if !store.program.knows_clock() => store.engine.entry().map(drop),
            LeaseHome::Store(_) | LeaseHome::Remote(_) => Ok(()),
        }
    }

    /// `now`, by the clock that judges what has expired, as far as it is known here.
    pub(crate) fn by_its_clock(&self, now: Stamp) -> Stamp {
        match self {
            LeaseHome::Remote(_) => now,
            LeaseHome::Store(store) => store.program.by_its_clock(now),
        }
    }

    /// What the holder keeps on disk besides the lease.
    pub(crate) fn to_keep(&self, first: Token) -> Option<HeldStore> {
        let LeaseHome::Store(store) = self else { return None };
        let mark = store.mark.borrow().clone()?;
        let url = store.program.url().to_owned();
        let hash = store.client.local.hash.to_string();
        let place = store.engine.place().clone();
        Some(HeldStore { url, place, hash, first, mark, touches: Vec::new(), used: false, pending: None })
    }

    /// Pushes what `along` adds together with the lease. A lease in a store moves alone.
    pub(crate) fn push(
        &self,
        swaps: &[Swap],
        for_gate: &[String],
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Pushed<'_>, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.push(swaps, for_gate, along),
            LeaseHome::Store(store) => Ok(Pushed { answer: store.engine.swap(swaps)?, refs: Vec::new(), sent: None }),
        }
    }
}

impl<'a> LeaseHome<'a> {
    /// What people are shown of the lease: the lease, with the newest `most` ownerships of its history.
    pub(crate) fn read_for_people(&self, most: usize) -> Result<(LeaseSnapshot, Vec<StoredLease>), Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.read_for_people(most),
            LeaseHome::Store(store) => {
                let entry = store.engine.entry()?;
                let history = entry.as_ref().map(FenceEntry::history).unwrap_or_default();
                let snapshot = entry.map(|entry| entry.snapshot()).unwrap_or_default();
                Ok((snapshot, history.into_iter().take(most).collect()))
            }
        }
    }

    /// Whether a holder was overtaken whose push may still be on its way.
    pub(crate) fn barrier_is_due(&self) -> Result<bool, Failure> {
        match self {
            LeaseHome::Remote(_) => Ok(false),
            LeaseHome::Store(store) => Ok(store.engine.last_seen()?.is_some_and(|entry| entry.barrier.is_some())),
        }
    }

    /// Whether the barrier that was put up has found that `lease` had written with its last token. Of a lease in the remote
    /// it is known without one: that token moves on with each write.
    pub(crate) fn has_written(&self, lease: &Lease) -> bool {
        let LeaseHome::Store(store) = self else { return false };
        let overtaken = store.overtaken.borrow();
        overtaken.as_ref().is_some_and(|mark| {
            mark.token == lease.token.into() && mark.by.as_ref().is_some_and(|by| by.lease == lease.id)
        })
    }

    /// The store, and the repository's name in it; none if the lease is in the remote.
    pub(crate) fn place(&self) -> Option<&StorePlace> {
        match self {
            LeaseHome::Remote(_) => None,
            LeaseHome::Store(store) => Some(store.engine.place()),
        }
    }
}

impl StoreLeases<'_> {
    fn read_to_take(&self, owner: &str, purpose: Purpose) -> Result<LeaseSnapshot, Failure> {
        let entry = self.engine.entry()?;
        let mark = match self.find_or_claim(entry.as_ref(), owner) {
            // A lease can be revoked or halted although the remote cannot be reached.
            Err(failure) if purpose != Purpose::Hold && failure.is_unreachable() && entry.is_some() => None,
            found => Some(found?),
        };
        *self.mark.borrow_mut() = mark;
        Ok(entry.map(|entry| entry.snapshot()).unwrap_or_default())
    }

    /// The mark. The first run that comes makes it, and a lease beside it that says where the leases are: both at once,
    /// so that nobody takes a lease in the remote meanwhile.
    fn find_or_claim(&self, entry: Option<&FenceEntry>, owner: &str) -> Result<StoredMark, Failure> {
        let was_marked = entry.is_some_and(|entry| entry.marked);
        let mut refused = None;
        for _ in 0..MOST_TRIES {
            let sight = self.remote.look()?;
            let record = sight.mark.as_ref().map(|mark| &mark.record);
            match may_be_in_store(sight.lease_state(), record, self.engine.place(), was_marked) {
                Err(at) => return Err(self.client.elsewhere(at)),
                Ok(Claimed::Already) => {
                    self.learn_of_gate(&sight, owner);
                    return sight.mark.ok_or_else(|| self.client.elsewhere(Elsewhere::MarkGone));
                }
                Ok(Claimed::NotYet) => {}
            }
            // Somebody else may be faster, also at the gate, and an answer may be lost: the next look tells.
            match self.claim(owner, Mark::default())? {
                Swapped::Refused(why) if why.denied => return Err(self.client.refused(&why)),
                Swapped::Refused(why) => refused = Some(why),
                Swapped::NotSent(failure) => return Err(failure),
                Swapped::Won | Swapped::Unknown { .. } => {}
            }
        }
        Err(match refused {
            Some(why) => self.client.refused(&why),
            None => self.client.busy("its mark keeps changing"),
        })
    }

    /// Asks once whether there is a gate: it needs the token as a push option, which another remote may not accept. Beside a
    /// lease the question cannot move anything, and a question without an answer is no reason to stop.
    fn learn_of_gate(&self, sight: &RemoteSight, owner: &str) {
        if sight.lease_state().is_some() && remembered_gate(self.client).is_none() {
            let _ = self.remote.ask_gate(owner);
        }
    }

    /// Makes mark and lease, where there are none.
    pub(crate) fn claim(&self, owner: &str, token: Mark) -> Result<Swapped<Failure>, Failure> {
        let place = self.engine.place().clone();
        let words = format!("kept in {}", place.store);
        let mark = MarkRecord::begins(token, Some(place), owner, random::nonce());
        let mark = self.remote.prepare_mark(mark, None, None)?;
        let lease = moved_lease(owner, &words, None, self.client.clock.now().unix_ms);
        let lease = self.remote.prepare(&Record::Lease { lease: &lease, parent: None, proof: None })?;
        let swaps = [(LeasePart::Mark, mark.at), (LeasePart::Lease, lease)];
        self.remote.swap(&swaps.map(|(part, to)| Swap { part, from: None, to }))
    }

    /// Raises the mark to `to` before anybody works under the lease of `by`: pushes of the holder before it that are on
    /// their way expect another mark, and later ones are below it.
    ///
    /// It is raised from the mark that was read before the grant. Who has moved it since then may only be a holder that was
    /// overtaken, with its last push, or somebody who settled a lost push by a touch. Between that holder and this one there may
    /// be a revocation, or runs that gave up before their barrier was up. Anybody else was granted the lease, too, by a store that
    /// has lost its memory, and was first.
    ///
    /// A gate that does not ask the store lets nobody raise its mark without a push. There a touch stops what is on its way.
    /// It starts from no mark but the one that was read before the grant: a touch looks like any other, so whoever made the
    /// mark that is there may have been granted the lease later.
    fn raise_mark(
        &self,
        to: Mark,
        by: &Ownership,
        held: &HeldLease,
        proof: Option<&Secret>,
    ) -> Result<StoredMark, Failure> {
        let gone = || self.client.elsewhere(Elsewhere::MarkGone);
        let known = match held.store.as_ref().map(|store| store.mark.clone()) {
            Some(known) => known,
            None => self.remote.look()?.mark.ok_or_else(gone)?,
        };
        let before = self.engine.last_seen()?.map(|entry| entry.before).unwrap_or_default();
        let may_have_moved = |mark: &MarkRecord| {
            let is_overtaken = |by: &Ownership| before.iter().any(|then| then.lease.id == by.lease);
            mark.by == known.record.by || mark.by.as_ref().is_some_and(is_overtaken)
        };
        let owner = &held.lease.owner;
        let (mut now, mut sent, mut may_raise, mut why) = (known.clone(), Vec::new(), true, String::new());
        for _ in 0..MOST_TRIES {
            if !may_raise && now.at != known.at {
                return Err(self.client.busy("somebody has moved its mark meanwhile"));
            }
            let nonce = random::nonce();
            let (next, proof) = match may_raise {
                true => (now.record.raised(to, Some(by.clone()), owner, nonce), proof),
                false => (now.record.touched(nonce), None),
            };
            let next = self.remote.prepare_mark(next, Some(&now.at), proof)?;
            let swap = Swap { part: LeasePart::Mark, from: Some(now.at.clone()), to: next.at.clone() };
            sent.push(next.at.clone());
            let mut refused_by_gate = None;
            match self.remote.swap(&[swap])? {
                Swapped::Won => {
                    *self.overtaken.borrow_mut() = Some(now.record);
                    return Ok(next);
                }
                Swapped::NotSent(failure) => return Err(failure),
                Swapped::Unknown { why: unknown } => why = unknown,
                Swapped::Refused(refused) => {
                    let code = refused.gate.as_ref().and_then(|gate| gate.code);
                    if code == Some(Code::LeaseLost) && self.is_taken_over(held) {
                        return Err(self.client.busy(TAKEN_MEANWHILE));
                    }
                    if refused.denied || !matches!(code, None | Some(Code::LeaseInvalid | Code::Busy)) {
                        return Err(self.client.refused(&refused));
                    }
                    why = refused.why.join("; ");
                    refused_by_gate = code.map(|code| (code, refused));
                }
            }
            let before = now.at;
            now = self.remote.look()?.mark.filter(|mark| mark.record.state == MarkState::Current).ok_or_else(gone)?;
            if sent.contains(&now.at) {
                return Ok(now);
            }
            if !may_have_moved(&now.record) || now.record.token > to {
                if self.is_taken_over(held) {
                    return Err(self.client.busy(TAKEN_MEANWHILE));
                }
                let who = text::in_quotes(&now.record.owner);
                let now = format!("{who} was granted it, too, and has moved its mark, to token {}", now.record.token);
                return Err(Failure::lost(&self.client.fence, now));
            }
            // A gate lets this wait until the push in the slot is over. If that has landed, its mark is the one to raise.
            match refused_by_gate.filter(|_| now.at == before) {
                // A gate that does not ask the store lets nobody raise its mark without a push. A new version of the mark
                // still stops what is on its way.
                Some((Code::LeaseInvalid, _)) if may_raise => may_raise = false,
                Some((_, refused)) => return Err(self.client.refused(&refused)),
                None => {}
            }
        }
        Err(self.client.busy(why))
    }

    /// Whether the store shows somebody else's lease by now.
    fn is_taken_over(&self, held: &HeldLease) -> bool {
        let now = self.engine.read().ok().and_then(|now| now.lease);
        now.is_some_and(|now| now.lease.id != held.lease.id)
    }

    /// Puts up the barrier that is due before anybody works under the lease in `held`. Returns the mark after that.
    pub(crate) fn put_up_barrier(&self, held: &HeldLease, beat_nonce: &str) -> Result<Option<StoredMark>, Failure> {
        let Some(barrier) = self.engine.last_seen()?.and_then(|entry| entry.barrier) else { return Ok(None) };
        // Not the proof of the lease: that one is for a push, and a mark can be read by everybody.
        let proof = held.key.proof(LeasePart::Beat, beat_nonce);
        let mark = self.raise_mark(barrier, &held.ownership(), held, proof.as_ref())?;
        let ours = held.lease.id.clone();
        let done = self.engine.amend(|entry| {
            let is_ours = entry.lease.as_ref().is_some_and(|now| now.lease.id == ours);
            (is_ours && entry.barrier.is_some()).then(|| FenceEntry {
                barrier: None,
                nonce: random::nonce(),
                ..entry.clone()
            })
        })?;
        match done {
            // A barrier that stays due is put up once more by the next holder.
            Swapped::Won | Swapped::Refused(_) | Swapped::Unknown { .. } => Ok(Some(mark)),
            Swapped::NotSent(failure) => Err(failure),
        }
    }

    /// Notes that a push of this lease may still be on its way when it is released: the next holder puts up a barrier.
    pub(crate) fn leave_barrier(&self, held: &HeldLease) -> Result<(), Failure> {
        let (ours, token) = (held.lease.id.clone(), held.lease.token);
        let left = self.engine.amend(|entry| {
            let is_ours = entry.lease.as_ref().is_some_and(|now| now.lease.id == ours);
            (is_ours && entry.barrier.is_none()).then(|| FenceEntry {
                barrier: Some(token.into()),
                nonce: random::nonce(),
                ..entry.clone()
            })
        })?;
        self.client.is_done(left)
    }
}

/// The lease that says that leases are kept elsewhere, after `before`.
pub(crate) fn moved_lease(owner: &str, words: &str, before: Option<&Lease>, unix_ms: u64) -> Lease {
    let (master, nonce) = (random::secret(), random::nonce());
    let holder = Key::Master(master).holder(LeasePart::Lease, &nonce);
    let since = Some(Beat::deadline_at(unix_ms));
    match before {
        Some(before) => {
            let holder = holder.unwrap_or_else(|| before.holder.clone());
            Lease { state: LeaseState::Moved, nonce, holder, ..before.clone() }
        }
        None => Lease {
            format: Format::OneUse,
            id: random::lease_id(),
            token: Token::FIRST,
            owner: owner.to_owned(),
            state: LeaseState::Moved,
            ttl: Ttl::SHORTEST,
            reason: Reason::First,
            words: Some(words.to_owned()),
            since,
            jobs: Jobs::default(),
            holder: holder.unwrap_or_else(|| random::secret().holder()),
            nonce,
        },
    }
}

impl LeaseStore for LeaseHome<'_> {
    type Error = Failure;

    fn read(&self) -> Result<LeaseSnapshot, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.read(),
            LeaseHome::Store(store) => store.engine.read(),
        }
    }

    fn prepare(&self, record: &Record<'_>) -> Result<Version, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.prepare(record),
            LeaseHome::Store(store) => store.engine.prepare(record),
        }
    }

    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<Failure>, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.swap(swaps),
            LeaseHome::Store(store) => store.engine.swap(swaps),
        }
    }

    fn ask_gate(&self, owner: &str) -> Result<GateSays, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.ask_gate(owner),
            LeaseHome::Store(store) => store.engine.ask_gate(owner),
        }
    }

    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, Failure> {
        match self {
            LeaseHome::Remote(remote) => remote.history(tip, token),
            LeaseHome::Store(store) => store.engine.history(tip, token),
        }
    }
}

impl LeaseHome<'_> {
    /// How long this machine has seen the beat at the same version.
    pub(crate) fn watched(&self, seen: &LeaseSnapshot, now: &Stamp) -> Duration {
        self.remote().watched(seen, now)
    }
}
