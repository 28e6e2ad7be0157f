//! A lease in a store: the rules of core over a [`LeaseStore`], as the client runs them, without its files and its remote.
//!
//! The same requests go to the helper in the same order as the client sends them: acquire reads and swaps, renew and
//! release swap.

use super::{
    helper::{Helper, WITHIN_MS},
    random,
};
use crate::Outcome;
use git_fence_core::{
    Beat, FenceEntry, Format, GateSays, HolderMove, Lease, LeaseId, LeasePart, LeaseSnapshot, LeaseStore, Mark,
    PreparedPart, Purpose, Pushing, PushingAnswer, PushingEnd, PushingNext, Record, Secret, Sight, Stamp, StoreReading,
    StoreRecord, StoreReply, StoreRequest, StoredLease, Swap, Swapped, Taking, TakingAnswer, TakingEnd, TakingNext,
    Token, Ttl, Version, next_token,
};
use git_fence_stores::{
    Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
};
use std::{cell::RefCell, collections::HashMap, error::Error, time::Duration};

const TTL_SECONDS: u64 = 90;
const SKEW: Duration = Duration::from_secs(10);

/// Whoever carries requests to an engine.
pub(super) trait Records {
    fn read(&mut self, name: &str) -> Outcome<StoreReading>;
    /// The version of the new record; an error if it was not won.
    fn swap(&mut self, name: &str, expected: Option<&StoreRecord>, next: &str, keep: bool) -> Outcome<String>;
}

impl Records for Helper {
    fn read(&mut self, name: &str) -> Outcome<StoreReading> {
        match self.ask(&StoreRequest::Read { name: name.to_owned(), within_ms: WITHIN_MS })? {
            StoreReply::Found(reading) => Ok(reading),
            other => Err(format!("the store did not read: {other:?}").into()),
        }
    }

    fn swap(&mut self, name: &str, expected: Option<&StoreRecord>, next: &str, keep: bool) -> Outcome<String> {
        let (name, expected, next) = (name.to_owned(), expected.cloned(), next.to_owned());
        match self.ask(&StoreRequest::Swap { name, expected, next, keep, within_ms: WITHIN_MS })? {
            StoreReply::Won { version, .. } => Ok(version),
            other => Err(format!("the store did not swap: {other:?}").into()),
        }
    }
}

/// An engine in this process: what a lease costs without the helper.
pub(super) struct Inside(pub(super) Box<dyn Engine + Send>);

impl Records for Inside {
    fn read(&mut self, name: &str) -> Outcome<StoreReading> {
        Ok(self.0.read(name, &within())?)
    }

    fn swap(&mut self, name: &str, expected: Option<&StoreRecord>, next: &str, keep: bool) -> Outcome<String> {
        match self.0.swap(&RecordSwap { name, expected, next, keep }, &within())? {
            SwapAttempt::Won { version, .. } => Ok(version),
            other => Err(format!("the engine did not swap: {other:?}").into()),
        }
    }
}

fn within() -> Deadline {
    Deadline::within(Duration::from_millis(WITHIN_MS))
}

/// The lease of one fence.
pub(super) struct FenceLease<R> {
    records: RefCell<R>,
    name: String,
    /// The record as it was last seen, with what it says, and the engine's clock then.
    seen: RefCell<Option<(StoreRecord, FenceEntry)>>,
    now_ms: RefCell<u64>,
    prepared: RefCell<HashMap<Version, PreparedPart>>,
    held: Option<Held>,
}

struct Held {
    master: Secret,
    lease: Lease,
    beat_at: Version,
}

impl<R: Records> LeaseStore for FenceLease<R> {
    type Error = Box<dyn Error>;

    fn read(&self) -> Outcome<LeaseSnapshot> {
        let StoreReading { record, now_ms } = self.records.borrow_mut().read(&self.name)?;
        *self.now_ms.borrow_mut() = now_ms.ok_or("the engine has no clock")?;
        let parsed = |record: StoreRecord| FenceEntry::read(&record.body, &self.name).map(|entry| (record, entry));
        *self.seen.borrow_mut() = record.map(parsed).transpose()?;
        Ok(self.entry().snapshot())
    }

    fn prepare(&self, record: &Record<'_>) -> Outcome<Version> {
        let part = match *record {
            Record::Lease { lease, parent, .. } => {
                let (at, time) = (Version::new(&*lease.nonce), Beat::deadline_at(*self.now_ms.borrow()));
                PreparedPart::Lease(StoredLease { at, parent: parent.cloned(), lease: lease.clone(), time })
            }
            Record::Beat { beat, .. } => PreparedPart::Beat(beat.clone()),
        };
        let version = part.version();
        self.prepared.borrow_mut().insert(version.clone(), part);
        Ok(version)
    }

    fn swap(&self, swaps: &[Swap]) -> Outcome<Swapped<Box<dyn Error>>> {
        let fresh = FenceEntry::new(self.name.clone(), random::nonce());
        let mut prepared = self.prepared.borrow_mut();
        let part = |swap: &Swap| Some((swap.from.clone(), prepared.remove(&swap.to)?));
        let parts: Option<Vec<_>> = swaps.iter().map(part).collect();
        let mut seen = self.seen.borrow_mut();
        let before = seen.as_ref().map_or(&fresh, |(_, entry)| entry);
        let next = parts.and_then(|parts| before.with(&parts, random::nonce())).ok_or("the record has changed")?;
        let next = FenceEntry { marked: true, ..next };
        let body = next.body();
        let keep = swaps.iter().any(|swap| swap.part == LeasePart::Lease);
        let version =
            self.records.borrow_mut().swap(&self.name, seen.as_ref().map(|(record, _)| record), &body, keep)?;
        *seen = Some((StoreRecord { version, body }, next));
        Ok(Swapped::Won)
    }

    fn ask_gate(&self, _owner: &str) -> Outcome<GateSays> {
        Ok(GateSays::NoGate)
    }

    fn history(&self, _tip: Option<&StoredLease>, _token: Token) -> Outcome<Vec<StoredLease>> {
        Ok(self.entry().history())
    }
}

impl<R: Records> FenceLease<R> {
    pub(super) fn new(records: R, name: &str) -> FenceLease<R> {
        FenceLease {
            records: RefCell::new(records),
            name: name.to_owned(),
            seen: RefCell::default(),
            now_ms: RefCell::default(),
            prepared: RefCell::default(),
            held: None,
        }
    }

    /// Acquires, renews and releases.
    pub(super) fn cycle(&mut self) -> Outcome<()> {
        self.acquire()?;
        self.renew()?;
        self.release()
    }

    pub(super) fn acquire(&mut self) -> Outcome<()> {
        let mut seen = LeaseSnapshot::default();
        let (mut taking, mut next) = Taking::start(Purpose::Hold);
        loop {
            let answer = match next {
                TakingNext::Read => {
                    seen = self.read()?;
                    let unix_ms = *self.now_ms.borrow();
                    let now = Stamp { boot: String::new(), uptime_ms: 0, unix_ms };
                    TakingAnswer::Seen(Sight::of(&seen, None, &now, SKEW, Duration::ZERO))
                }
                TakingNext::Propose => self.propose(&seen)?,
                TakingNext::End(TakingEnd::Ours) => return Ok(()),
                other => return Err(format!("nobody else is here, and the lease is not free: {other:?}").into()),
            };
            (taking, next) = taking.step(answer);
        }
    }

    fn propose(&mut self, seen: &LeaseSnapshot) -> Outcome<TakingAnswer> {
        let before = seen.lease.as_ref();
        let (reason, state) = Purpose::Hold.begins(before.map(|before| &before.lease));
        let (master, nonce) = (random::secret(), random::nonce());
        let token = next_token(before.map(|before| before.lease.token), Mark::default()).ok_or("no tokens left")?;
        let lease = Lease {
            format: Format::OneUse,
            id: random::lease_id(),
            token,
            owner: "build-agent-07".to_owned(),
            state,
            ttl: Ttl::of_seconds(TTL_SECONDS).ok_or("the TTL is wrong")?,
            reason,
            words: None,
            since: Some(Beat::deadline_at(*self.now_ms.borrow())),
            jobs: git_fence_core::Jobs::default(),
            holder: master.of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        };
        let parent = before.map(|before| before.at.clone());
        let at = self.prepare(&Record::Lease { lease: &lease, parent: parent.as_ref(), proof: None })?;
        let beat_at = self.beat(&lease.id, &lease.owner, &master)?;
        let swaps = [
            Swap { part: LeasePart::Lease, from: parent, to: at },
            Swap { part: LeasePart::Beat, from: seen.beat_at.clone(), to: beat_at.clone() },
        ];
        self.swap(&swaps)?;
        self.held = Some(Held { master, lease, beat_at });
        Ok(TakingAnswer::Won)
    }

    fn beat(&self, id: &LeaseId, owner: &str, master: &Secret) -> Outcome<Version> {
        let nonce = random::nonce();
        let beat = Beat {
            lease: id.clone(),
            deadline: Beat::deadline_at(*self.now_ms.borrow() + TTL_SECONDS * 1000),
            progress: None,
            gate: false,
            holder: Some(master.of_record(LeasePart::Beat, &nonce).holder()),
            nonce,
        };
        self.prepare(&Record::Beat { beat: &beat, owner, proof: None })
    }

    pub(super) fn renew(&mut self) -> Outcome<()> {
        let held = self.held.as_ref().ok_or("nothing is held")?;
        let to = self.beat(&held.lease.id, &held.lease.owner, &held.master)?;
        self.swap(&[Swap { part: LeasePart::Beat, from: Some(held.beat_at.clone()), to: to.clone() }])?;
        self.held.as_mut().ok_or("nothing is held")?.beat_at = to;
        Ok(())
    }

    pub(super) fn release(&mut self) -> Outcome<()> {
        let Held { master, lease, .. } = self.held.take().ok_or("nothing is held")?;
        let (mut pushing, _, mut next) = Pushing::start(HolderMove::Release, None);
        loop {
            let answer = match next {
                PushingNext::Send => self.send_release(&master, &lease)?,
                PushingNext::End(PushingEnd::Landed) => return Ok(()),
                other => return Err(format!("the lease was not released: {other:?}").into()),
            };
            (pushing, _, next) = pushing.step(answer);
        }
    }

    fn send_release(&self, master: &Secret, lease: &Lease) -> Outcome<PushingAnswer> {
        let nonce = random::nonce();
        let holder = master.of_record(LeasePart::Lease, &nonce).holder();
        let next = HolderMove::Release.next(lease, nonce, holder).ok_or("no tokens left")?;
        let from = Version::new(&*lease.nonce);
        let to = self.prepare(&Record::Lease { lease: &next, parent: None, proof: None })?;
        self.swap(&[Swap { part: LeasePart::Lease, from: Some(from), to }])?;
        Ok(PushingAnswer::Landed)
    }

    /// The record as it is now.
    pub(super) fn body(&self) -> String {
        self.seen.borrow().as_ref().map_or_else(String::new, |(record, _)| record.body.clone())
    }

    /// The record of a fence that was held once.
    pub(super) fn body_of_first(records: R, name: &str) -> Outcome<String> {
        let mut lease = FenceLease::new(records, name);
        lease.cycle()?;
        Ok(lease.body())
    }

    fn entry(&self) -> FenceEntry {
        let fresh = || FenceEntry::new(self.name.clone(), random::nonce());
        self.seen.borrow().as_ref().map_or_else(fresh, |(_, entry)| entry.clone())
    }
}
