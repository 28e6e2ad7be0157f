//! The entry of a fence in a store: its lease, the beat and a short history, as one record that is compared and swapped
//! as a whole.
//!
//! A store has no rule: what may change is decided by [`Taking`](crate::Taking) and [`Pushing`](crate::Pushing), which swap
//! lease and beat as if each had a record of its own. [`FenceEntry::with`] makes one entry of that. The version of a part is
//! its nonce.

use crate::{
    Accept, Beat, Elsewhere, Jobs, LeaseId, LeaseSnapshot, LeaseState, Mark, StorePlace, StoredLease, Token, Version,
    text,
};
use serde::{Deserialize, Serialize};

/// The version of the entry that this code writes.
const ENTRY_FORMAT: u32 = 1;
/// The version of an entry with jobs: whoever does not know them would drop them, and refuses this version instead.
const JOBS_ENTRY_FORMAT: u32 = 2;
/// How many past ownerships are kept.
const LONGEST_HISTORY: usize = 16;

/// What a store keeps of a fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FenceEntry {
    /// The version of the record. [`FenceEntry::body`] sets it.
    pub format: u32,
    /// The name under which it is kept: another record must not pass for it.
    pub name: String,
    /// The lease; `None` before the first grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<StoredLease>,
    /// The token with which the current ownership began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Token>,
    /// Its beat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Beat>,
    /// The ownerships before, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<StoredLease>,
    /// The counter is at least here, whatever the lease says: it came from another place.
    #[serde(default)]
    pub counter: Mark,
    /// The mark in the remote must be at least this before anybody works under the lease: a holder was overtaken, and its
    /// push may still be on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Mark>,
    /// Whether the remote has a mark. One that is gone was removed, and old tokens would count again.
    #[serde(default)]
    pub marked: bool,
    /// Where the leases of this fence are kept since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<MovedTo>,
    /// The jobs that came from another place, until the first lease here carries them on.
    #[serde(default, skip_serializing_if = "Jobs::is_empty")]
    pub jobs: Jobs,
    /// Fresh in every entry: equal entries would have equal bodies.
    pub nonce: String,
}

/// Where leases have moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MovedTo {
    /// Into the remote itself.
    Remote,
    /// Into this store.
    Store(StorePlace),
}

impl MovedTo {
    /// The place, for people.
    pub fn in_words(&self) -> String {
        match self {
            MovedTo::Remote => "the remote".to_owned(),
            MovedTo::Store(place) => text::in_quotes(&place.store),
        }
    }
}

impl From<&MovedTo> for Elsewhere {
    fn from(to: &MovedTo) -> Elsewhere {
        match to {
            MovedTo::Remote => Elsewhere::InRemote,
            MovedTo::Store(place) => Elsewhere::InStore(place.clone()),
        }
    }
}

/// Why a record in a store is not the entry of a fence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not written by git-fence, or damaged.
    #[error("it is not a record of git-fence: {0}")]
    NoEntry(String),
    /// Written by another version.
    #[error("it has format {0}, and this git-fence supports formats {ENTRY_FORMAT} and {JOBS_ENTRY_FORMAT}")]
    Format(u64),
    /// The entry of another fence.
    #[error("it is the record of '{0}'")]
    Another(String),
}

/// A part of a lease that is ready to be swapped in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedPart {
    /// The lease.
    Lease(StoredLease),
    /// The beat.
    Beat(Beat),
}

impl PreparedPart {
    /// The version that it will have.
    pub fn version(&self) -> Version {
        match self {
            PreparedPart::Lease(stored) => stored.at.clone(),
            PreparedPart::Beat(beat) => Version::new(&*beat.nonce),
        }
    }
}

impl FenceEntry {
    /// The entry of a fence that nobody has held.
    pub fn new(name: String, nonce: String) -> FenceEntry {
        FenceEntry {
            format: ENTRY_FORMAT,
            name,
            lease: None,
            first: None,
            beat: None,
            before: Vec::new(),
            counter: Mark::default(),
            barrier: None,
            marked: false,
            moved_to: None,
            jobs: Jobs::default(),
            nonce,
        }
    }

    /// Reads the record that a store has under `name`.
    pub fn read(body: &str, name: &str) -> Result<FenceEntry, EntryError> {
        #[derive(Deserialize)]
        struct Any {
            format: Option<u64>,
        }
        let damaged = |e: serde_json::Error| EntryError::NoEntry(text::one_line(e.to_string().as_bytes(), 100));
        let entry: Result<FenceEntry, _> = serde_json::from_str(body);
        // A later format may change everything else, so what cannot be read may be no damage.
        let format = match &entry {
            Ok(entry) => Some(u64::from(entry.format)),
            Err(_) => serde_json::from_str::<Any>(body).map_err(damaged)?.format,
        };
        let known = [ENTRY_FORMAT, JOBS_ENTRY_FORMAT].map(u64::from);
        if let Some(other) = format.filter(|format| !known.contains(format)) {
            return Err(EntryError::Format(other));
        }
        let entry = entry.map_err(damaged)?;
        if entry.name != name {
            return Err(EntryError::Another(text::one_line(entry.name.as_bytes(), 200)));
        }
        Ok(entry)
    }

    /// The record for a store.
    pub fn body(&self) -> String {
        let format = if self.jobs().is_empty() { ENTRY_FORMAT } else { JOBS_ENTRY_FORMAT };
        let written = match format == self.format {
            true => serde_json::to_string(self),
            false => serde_json::to_string(&FenceEntry { format, ..self.clone() }),
        };
        written.unwrap_or_default()
    }

    /// The scheduled jobs of the fence.
    pub fn jobs(&self) -> &Jobs {
        self.lease.as_ref().map_or(&self.jobs, |stored| &stored.lease.jobs)
    }

    /// The lease, as every store shows it.
    pub fn snapshot(&self) -> LeaseSnapshot {
        let beat_at = self.beat.as_ref().map(|beat| Version::new(&*beat.nonce));
        LeaseSnapshot { lease: self.lease.clone(), beat_at, beat: self.beat.clone(), moved_in: self.jobs.clone() }
    }

    /// The highest token that was granted, here or where the leases were kept before.
    pub fn counter(&self) -> Mark {
        self.lease.as_ref().map_or(self.counter, |lease| self.counter.after(lease.lease.token))
    }

    /// The version of a part.
    fn version(&self, prepared: &PreparedPart) -> Option<Version> {
        match prepared {
            PreparedPart::Lease(_) => self.lease.as_ref().map(|lease| lease.at.clone()),
            PreparedPart::Beat(_) => self.beat.as_ref().map(|beat| Version::new(&*beat.nonce)),
        }
    }

    /// The entry with these parts swapped in, each of which must be at the expected version; `None` if one is not.
    pub fn with(&self, swaps: &[(Option<Version>, PreparedPart)], nonce: String) -> Option<FenceEntry> {
        if swaps.iter().any(|(from, prepared)| self.version(prepared) != *from) {
            return None;
        }
        let mut next = FenceEntry { nonce, ..self.clone() };
        for (_, prepared) in swaps {
            match prepared {
                PreparedPart::Lease(stored) => next.replace_lease(stored),
                PreparedPart::Beat(beat) => next.beat = Some(beat.clone()),
            }
        }
        Some(next)
    }

    fn replace_lease(&mut self, next: &StoredLease) {
        let before = self.lease.replace(next.clone());
        if before.as_ref().is_some_and(|before| before.lease.id == next.lease.id) {
            return;
        }
        self.first = Some(next.lease.token);
        let overtaken = before.as_ref().is_some_and(|before| before.lease.state == LeaseState::Held);
        // A barrier that is due stays due, whoever comes next.
        if overtaken || self.barrier.is_some() {
            self.barrier = Some(barrier_of(next));
        }
        // The lease carries the jobs; a history of them would only make the record long.
        self.jobs = Jobs::default();
        if let Some(mut before) = before {
            before.lease.jobs = Jobs::default();
            self.before.insert(0, before);
            self.before.truncate(LONGEST_HISTORY);
        }
    }

    /// The entry after its leases have moved elsewhere. Nobody holds a lease here from then on.
    #[must_use]
    pub fn moved_away(&self, to: MovedTo, nonce: String) -> FenceEntry {
        let mut next = FenceEntry { moved_to: Some(to), nonce, ..self.clone() };
        if let Some(stored) = &mut next.lease {
            stored.lease.state = LeaseState::Released;
        }
        next
    }

    /// The entry after leases have moved here, with their counter and their jobs. Nobody holds one yet.
    #[must_use]
    pub fn moved_in(&self, counter: Mark, jobs: Jobs, nonce: String) -> FenceEntry {
        let counter = self.counter().max(counter);
        let mut next = FenceEntry { counter, moved_to: None, marked: true, nonce, ..self.clone() };
        // A lease that is there from before has the jobs of that time.
        match &mut next.lease {
            Some(stored) => stored.lease.jobs = jobs,
            None => next.jobs = jobs,
        }
        next
    }

    /// The ownerships that led to the current one, newest first.
    pub fn history(&self) -> Vec<StoredLease> {
        self.lease.iter().chain(&self.before).cloned().collect()
    }

    /// Whether this is the lease `id`, held, with this token.
    pub fn is_held_by(&self, id: &LeaseId, token: Token) -> bool {
        let is_it = |lease: &StoredLease| {
            lease.lease.id == *id && lease.lease.token == token && lease.lease.state == LeaseState::Held
        };
        self.moved_to.is_none() && self.lease.as_ref().is_some_and(is_it)
    }
}

/// Where the mark must be before anybody works under a lease that has overtaken another: below its own token; and at its
/// own token if it is a revocation, which nobody works under.
fn barrier_of(next: &StoredLease) -> Mark {
    match next.lease.state {
        LeaseState::Held => Accept::Above.mark_before(next.lease.token),
        LeaseState::Released | LeaseState::Halted | LeaseState::Moved => next.lease.token.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Lease, Reason, TickState,
        lease::{
            record::tests::{beat, lease},
            ticks::{job::tests::job, jobs::tests::jobs},
        },
    };

    fn stored(lease: Lease) -> StoredLease {
        let at = Version::new(&*lease.nonce);
        StoredLease { at, parent: None, lease, time: "2026-01-01T00:00:00Z".to_owned() }
    }

    fn empty() -> FenceEntry {
        FenceEntry::new("host/app/repo".to_owned(), "n0".to_owned())
    }

    fn taken(entry: &FenceEntry, lease: Lease) -> FenceEntry {
        let from = entry.lease.as_ref().map(|lease| lease.at.clone());
        entry.with(&[(from, PreparedPart::Lease(stored(lease)))], "n".to_owned()).unwrap()
    }

    #[test]
    fn parts_are_swapped_only_from_the_expected_version() {
        let granted = taken(&empty(), lease(1, 5, LeaseState::Held));
        let first_beat = PreparedPart::Beat(beat(1));
        assert_eq!(granted.with(&[(Some(Version::new("x")), first_beat.clone())], "n".to_owned()), None);
        let beating = granted.with(&[(None, first_beat.clone())], "n".to_owned()).unwrap();
        assert_eq!(beating.with(&[(None, first_beat.clone())], "n".to_owned()), None, "it is there");
        let advance = PreparedPart::Lease(stored(lease(1, 6, LeaseState::Held)));
        let stale = (Some(Version::new("x")), advance.clone());
        let from = beating.lease.as_ref().map(|lease| lease.at.clone());
        let next_beat = (Some(first_beat.version()), PreparedPart::Beat(Beat { nonce: "b2".to_owned(), ..beat(1) }));
        assert_eq!(beating.with(&[next_beat.clone(), stale], "n".to_owned()), None, "all or nothing");
        let both = beating.with(&[next_beat, (from, advance)], "n".to_owned()).unwrap();
        assert_eq!(both.beat.as_ref().map(|beat| &*beat.nonce), Some("b2"));
        assert_eq!((both.first.map(Token::get), both.counter().get()), (Some(5), 6));
        assert_eq!(both.history().len(), 1, "an advance is not a new ownership");
    }

    #[test]
    fn barrier_is_due_when_a_holder_was_overtaken_and_stays_due() {
        let held = taken(&empty(), lease(1, 5, LeaseState::Held));
        assert_eq!(held.barrier, None);
        let overtaken = taken(&held, lease(2, 6, LeaseState::Held));
        assert_eq!(overtaken.barrier.map(Mark::get), Some(5));
        let released = taken(&overtaken, Lease { state: LeaseState::Released, ..lease(2, 6, LeaseState::Released) });
        assert_eq!(released.barrier.map(Mark::get), Some(5), "its holder never put the barrier up");
        let next = taken(&released, lease(3, 7, LeaseState::Held));
        assert_eq!(next.barrier.map(Mark::get), Some(6));
        let revoked = Lease { reason: Reason::Revoked, ..lease(4, 8, LeaseState::Released) };
        assert_eq!(taken(&next, revoked).barrier.map(Mark::get), Some(8));
        let given_back = taken(&held, lease(1, 5, LeaseState::Released));
        assert_eq!(taken(&given_back, lease(2, 6, LeaseState::Held)).barrier, None);
    }

    #[test]
    fn entry_with_jobs_has_a_format_of_its_own() {
        let jobs = jobs([("a", job(60, TickState::Done, 4))]);
        let came = empty().moved_in(Mark::default(), jobs.clone(), "n".to_owned());
        let taken = taken(&came, Lease { jobs: jobs.clone(), ..lease(1, 5, LeaseState::Held) });
        assert_eq!((taken.jobs(), taken.jobs.is_empty()), (&jobs, true));
        let old = taken.moved_in(Mark::default(), Jobs::default(), "n".to_owned());
        assert!(old.jobs().is_empty(), "jobs of an earlier time do not come back");
        for entry in [came, taken] {
            let body = entry.body();
            assert!(body.contains("\"format\":2"), "an older version drops what it does not know: {body}");
            assert_eq!(FenceEntry::read(&body, "host/app/repo").map(|read| read.jobs().clone()), Ok(jobs.clone()));
        }
    }

    #[test]
    fn history_is_short_and_newest_first() {
        let mut entry = empty();
        for n in 1..=20 {
            entry = taken(&entry, lease(n, u64::from(n), LeaseState::Held));
        }
        let tokens: Vec<u64> = entry.history().iter().map(|lease| lease.lease.token.get()).collect();
        assert_eq!(tokens, (4..=20).rev().collect::<Vec<u64>>());
    }

    #[test]
    fn record_is_read_back_and_others_are_refused() {
        let entry = taken(&empty(), lease(1, 5, LeaseState::Held));
        let entry = entry.with(&[(None, PreparedPart::Beat(beat(1)))], "n".to_owned()).unwrap();
        let body = entry.body();
        assert_eq!(FenceEntry::read(&body, "host/app/repo"), Ok(entry));
        assert!(
            matches!(FenceEntry::read(&body, "host/other/repo"), Err(EntryError::Another(name)) if name == "host/app/repo")
        );
        let newer = body.replacen("\"format\":1", "\"format\":3", 1);
        assert_eq!(FenceEntry::read(&newer, "host/app/repo"), Err(EntryError::Format(3)));
        let unknown = body.replacen("\"format\":1", "\"format\":1,\"surprise\":1", 1);
        for damaged in ["", "x", "{}", "[]", "{\"format\":1}", &unknown, &body[..body.len() - 2]] {
            assert!(matches!(FenceEntry::read(damaged, "host/app/repo"), Err(EntryError::NoEntry(_))), "{damaged}");
        }
    }
}
