//! The lease in a store: one record for each fence, which is compared and swapped as a whole.
//!
//! Lease and beat are swapped as if each had a record of its own: if the other part has changed meanwhile, the swap is tried
//! again on the record that is there now.

use crate::{
    client::Client,
    failure::Failure,
    random,
    store::program::{RecordSwapped, StoreProgram},
};
use git_fence_core::{
    Beat, FenceEntry, GateSays, LeaseSnapshot, LeaseStore, PreparedPart, Record, StorePlace, StoreRecord, StoredLease,
    Swap, SwapRefused, Swapped, Token, Version,
};
use std::{cell::RefCell, collections::HashMap};

/// How often a swap is tried again because the other part of the record has changed. Only our own heartbeat and our own
/// push do that.
const MOST_TRIES: usize = 20;

/// The record of one fence.
#[derive(Debug)]
pub(crate) struct EngineLeases<'a> {
    client: &'a Client,
    program: &'a StoreProgram,
    place: StorePlace,
    name: String,
    prepared: RefCell<HashMap<Version, PreparedPart>>,
    /// The record as it was last seen.
    seen: RefCell<Option<Seen>>,
    /// Whether leases that have moved elsewhere may move back.
    takes_back: bool,
}

impl<'a> EngineLeases<'a> {
    pub(crate) fn open(client: &'a Client, program: &'a StoreProgram) -> Result<EngineLeases<'a>, Failure> {
        let place = program.place()?;
        let name = place.name_of(&client.fence);
        Ok(EngineLeases {
            client,
            program,
            place,
            name,
            prepared: RefCell::default(),
            seen: RefCell::default(),
            takes_back: false,
        })
    }

    /// The same, in order to move leases to this store, whether or not they were moved away from it before.
    pub(crate) fn taking_back(self) -> EngineLeases<'a> {
        EngineLeases { takes_back: true, ..self }
    }

    /// The store, and the repository's name in it.
    pub(crate) fn place(&self) -> &StorePlace {
        &self.place
    }

    /// Reads the entry; `None` if the store has no record of this fence.
    pub(crate) fn entry(&self) -> Result<Option<FenceEntry>, Failure> {
        let record = self.program.read(&self.name, &self.client.how(), &self.client.clock)?;
        self.see(record)?;
        self.last_seen()
    }

    /// The entry as it was last seen.
    pub(crate) fn last_seen(&self) -> Result<Option<FenceEntry>, Failure> {
        match &*self.seen.borrow() {
            Some(Seen { entry: FenceEntry { moved_to: Some(to), .. }, .. }) if !self.takes_back => {
                Err(self.client.elsewhere(to.into()))
            }
            seen => Ok(seen.as_ref().map(|seen| seen.entry.clone())),
        }
    }

    /// Changes the entry, whatever else changes meanwhile; `change` returns none where nothing is left to do.
    pub(crate) fn amend(
        &self,
        change: impl Fn(&FenceEntry) -> Option<FenceEntry>,
    ) -> Result<Swapped<Failure>, Failure> {
        for _ in 0..MOST_TRIES {
            let current = match self.last_seen()? {
                Some(seen) => Some(seen),
                None => self.entry()?,
            };
            let fresh = || FenceEntry::new(self.name.clone(), random::nonce());
            let Some(next) = change(&current.unwrap_or_else(fresh)) else { return Ok(Swapped::Won) };
            match self.replace(&next)? {
                Replaced::Won => return Ok(Swapped::Won),
                Replaced::Changed => {}
                Replaced::Unknown(why) => return Ok(Swapped::Unknown { why }),
                Replaced::NotSent(failure) => return Ok(Swapped::NotSent(failure)),
            }
        }
        Ok(refused("others are changing the same record", true))
    }

    /// Replaces the record that was last seen.
    fn replace(&self, next: &FenceEntry) -> Result<Replaced, Failure> {
        let expected = self.seen.borrow().as_ref().map(|seen| seen.record.clone());
        let keep = self.seen.borrow().as_ref().is_none_or(|before| before.entry.lease != next.lease);
        let (how, clock) = (self.client.how(), &self.client.clock);
        match self.program.swap(&self.name, expected.as_ref(), &next.body(), keep, &how, clock) {
            RecordSwapped::Won(record) => {
                *self.seen.borrow_mut() = Some(Seen { record, entry: next.clone() });
                Ok(Replaced::Won)
            }
            RecordSwapped::Lost(now) => {
                self.see(now)?;
                Ok(Replaced::Changed)
            }
            RecordSwapped::NotSent(failure) => Ok(Replaced::NotSent(failure)),
            RecordSwapped::Unknown(why) => {
                let now = self.program.read(&self.name, &self.client.how(), &self.client.clock);
                match now {
                    Ok(now) if now != expected => {
                        // Somebody has replaced the expected record, so the swap is not on its way any more.
                        let is_ours = now.as_ref().is_some_and(|now| now.body == next.body());
                        self.see(now)?;
                        Ok(if is_ours { Replaced::Won } else { Replaced::Changed })
                    }
                    _ => Ok(Replaced::Unknown(why)),
                }
            }
        }
    }

    /// Keeps what was seen. What cannot be read is not kept: whoever asks for it reads it again.
    fn see(&self, record: Option<StoreRecord>) -> Result<(), Failure> {
        *self.seen.borrow_mut() = None;
        let Some(record) = record else { return Ok(()) };
        let StorePlace { store, .. } = &self.place;
        let entry = FenceEntry::read(&record.body, &self.name).map_err(|e| {
            Failure::broken(
                format!("the record '{}' of the store {store} cannot be used: {e}", self.name),
                "nothing was written. A newer git-fence may read it; otherwise look at it, and remove it only if no lease was ever kept there",
            )
        })?;
        *self.seen.borrow_mut() = Some(Seen { record, entry });
        Ok(())
    }

    /// The entry with prepared parts swapped in, and whether they may be.
    fn with(&self, entry: &FenceEntry, swaps: &[Swap]) -> Option<FenceEntry> {
        let prepared = self.prepared.borrow();
        let part = |swap: &Swap| Some((swap.from.clone(), prepared.get(&swap.to)?.clone()));
        let parts: Option<Vec<_>> = swaps.iter().map(part).collect();
        entry.with(&parts?, random::nonce()).map(|next| FenceEntry { marked: true, ..next })
    }
}

/// A record, and what it says: it is parsed once.
#[derive(Debug)]
struct Seen {
    record: StoreRecord,
    entry: FenceEntry,
}

/// What came of replacing a record.
enum Replaced {
    Won,
    /// It was not as expected, and our record is not on its way.
    Changed,
    Unknown(String),
    NotSent(Failure),
}

/// Whether the entry shows that these swaps were made, even if others have replaced the lease since.
fn shows(entry: Option<&FenceEntry>, swaps: &[Swap], prepared: &HashMap<Version, PreparedPart>) -> bool {
    let Some(entry) = entry else { return false };
    swaps.iter().all(|swap| match prepared.get(&swap.to) {
        Some(PreparedPart::Lease(_)) => entry.history().iter().any(|then| then.at == swap.to),
        Some(PreparedPart::Beat(_)) => true,
        None => false,
    }) && swaps.iter().any(|swap| matches!(prepared.get(&swap.to), Some(PreparedPart::Lease(_))))
        || swaps.iter().all(|swap| entry.snapshot().versions().contains(&Some(swap.to.clone())))
}

fn refused(why: &str, crowded: bool) -> Swapped<Failure> {
    let refused =
        SwapRefused { why: vec![why.to_owned()], crowded, lease_may_have_moved: true, ..SwapRefused::default() };
    Swapped::Refused(Box::new(refused))
}

impl LeaseStore for EngineLeases<'_> {
    type Error = Failure;

    fn read(&self) -> Result<LeaseSnapshot, Failure> {
        Ok(self.entry()?.map(|entry| entry.snapshot()).unwrap_or_default())
    }

    fn prepare(&self, record: &Record<'_>) -> Result<Version, Failure> {
        let part = match *record {
            Record::Lease { lease, parent, .. } => {
                let time = Beat::deadline_at(self.program.by_its_clock(self.client.clock.now()).unix_ms);
                let at = Version::new(&*lease.nonce);
                PreparedPart::Lease(StoredLease { at, parent: parent.cloned(), lease: lease.clone(), time })
            }
            Record::Beat { beat, .. } => PreparedPart::Beat(beat.clone()),
        };
        let version = part.version();
        self.prepared.borrow_mut().insert(version.clone(), part);
        Ok(version)
    }

    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<Failure>, Failure> {
        let mut was_sent = false;
        for _ in 0..MOST_TRIES {
            let current = match self.last_seen()? {
                Some(seen) => Some(seen),
                None => self.entry()?,
            };
            if was_sent && shows(current.as_ref(), swaps, &self.prepared.borrow()) {
                return Ok(Swapped::Won);
            }
            let fresh = || FenceEntry::new(self.name.clone(), random::nonce());
            let Some(next) = self.with(&current.unwrap_or_else(fresh), swaps) else {
                return Ok(refused("the record in the store has changed", false));
            };
            was_sent = true;
            match self.replace(&next)? {
                Replaced::Won => return Ok(Swapped::Won),
                Replaced::Changed => {}
                Replaced::Unknown(why) => return Ok(Swapped::Unknown { why }),
                Replaced::NotSent(failure) => return Ok(Swapped::NotSent(failure)),
            }
        }
        Ok(refused("others are changing the same record", true))
    }

    /// Expiry is judged by the store's clock.
    fn ask_gate(&self, _owner: &str) -> Result<GateSays, Failure> {
        Ok(GateSays::NoGate)
    }

    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, Failure> {
        let all = self.last_seen()?.map(|entry| entry.history()).unwrap_or_default();
        let from = all.iter().position(|then| Some(&then.at) == tip.map(|tip| &tip.at)).unwrap_or(all.len());
        let until = all.iter().position(|then| then.lease.token < token).map_or(all.len(), |at| at + 1);
        Ok(all.into_iter().take(until).skip(from).collect())
    }
}
