//! A lease as read from its store at one moment, and whether it can be taken.
//!
//! The same for every store: a store returns records and versions, and this module interprets them.

use crate::{Beat, Halt, HeldBy, Jobs, Lease, LeaseState, Stamp};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// One version of a lease or of its beat, as its store names it: a commit in a remote, the record's nonce elsewhere.
/// Equal versions have equal records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(String);

impl Version {
    /// The version with this name.
    pub fn new(name: impl Into<String>) -> Version {
        Version(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fence's lease as read from its store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// The lease; `None` if the fence never had one.
    pub lease: Option<StoredLease>,
    /// The version of its beat.
    pub beat_at: Option<Version>,
    /// The beat, if it can be read.
    pub beat: Option<Beat>,
    /// Jobs that came from another place, where the fence never had a lease.
    pub moved_in: Jobs,
}

/// A lease in its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// Its version.
    pub at: Version,
    /// The version of the previous ownership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Version>,
    /// The record.
    pub lease: Lease,
    /// When the record was made by its owner's clock.
    pub time: String,
}

/// Whether a lease is held, by what this machine can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// It does not exist, was released, or is halted.
    Free,
    /// Its deadline is in the future.
    Alive,
    /// Its deadline has passed by this machine's clock, but by less than the allowed skew.
    AliveOrLate,
    /// It was not renewed in time.
    Expired,
}

/// A beat whose deadline is further ahead than its TTL allows: its holder's clock is ahead, and only watching the beat
/// can tell when the lease has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The version to watch.
    pub beat: Version,
    /// How far ahead the clock is, at least.
    pub by: Duration,
    /// If the beat does not change for this much longer, the lease has expired.
    pub left: Duration,
}

impl LeaseSnapshot {
    /// Whether the lease can be taken at `now`, allowing for `skew` between the clocks. `watched` is how long this
    /// machine has seen the beat at the same version.
    pub fn life(&self, now: &Stamp, skew: Duration, watched: Duration) -> Life {
        let Some(StoredLease { lease, .. }) = &self.lease else { return Life::Free };
        if lease.state != LeaseState::Held {
            return Life::Free;
        }
        // A lease whose beat belongs to another ownership is not being renewed.
        let Some(beat) = self.beat.as_ref().filter(|beat| beat.lease == lease.id) else { return Life::Expired };
        let skew_ms = u64::try_from(skew.as_millis()).unwrap_or(u64::MAX);
        if watched >= lease.ttl.duration().saturating_add(skew) {
            return Life::Expired;
        }
        match now.unix_ms {
            now if now < beat.deadline_ms() => Life::Alive,
            now if now < beat.deadline_ms().saturating_add(skew_ms) => Life::AliveOrLate,
            _ => Life::Expired,
        }
    }

    /// Whether the holder's clock is ahead by more than `skew`.
    pub fn ahead(&self, now: &Stamp, skew: Duration, watched: Duration) -> Option<Ahead> {
        let lease = &self.lease.as_ref().filter(|seen| seen.lease.state == LeaseState::Held)?.lease;
        let beat = self.beat.as_ref().filter(|beat| beat.lease == lease.id)?;
        let lasts = Duration::from_millis(beat.deadline_ms().saturating_sub(now.unix_ms));
        let by = lasts.saturating_sub(lease.ttl.duration());
        let left = lease.ttl.duration().saturating_add(skew).saturating_sub(watched);
        (by > skew).then_some(Ahead { beat: self.beat_at.clone()?, by, left })
    }

    /// Who holds the lease, and for how long by its deadline. `None` if it was released.
    pub fn held_by(&self, now: &Stamp) -> Option<HeldBy> {
        self.last_holder(now).filter(|_| self.is_held())
    }

    /// Who held the lease last, whether it was released or not.
    pub fn last_holder(&self, now: &Stamp) -> Option<HeldBy> {
        let StoredLease { lease, .. } = self.lease.as_ref()?;
        let beat = self.beat.as_ref().filter(|beat| beat.lease == lease.id);
        let deadline = beat.map_or(0, Beat::deadline_ms);
        // No beat lasts longer than the TTL: anything beyond that is clock skew.
        let ttl_ms = u64::try_from(lease.ttl.duration().as_millis()).unwrap_or(u64::MAX);
        Some(HeldBy {
            owner: lease.owner.clone(),
            lease: lease.id.clone(),
            token: lease.token,
            since: lease.since.clone(),
            expires_in_ms: deadline.saturating_sub(now.unix_ms).min(ttl_ms),
            progress: beat.and_then(|beat| beat.progress.clone()),
        })
    }

    /// The scheduled jobs of the fence.
    pub fn jobs(&self) -> &Jobs {
        self.lease.as_ref().map_or(&self.moved_in, |stored| &stored.lease.jobs)
    }

    /// Whether the lease was taken and not released. It may have expired.
    pub fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(|seen| seen.lease.state == LeaseState::Held)
    }

    /// The halt, if the fence is halted.
    pub fn halt(&self) -> Option<Halt> {
        self.lease.as_ref()?.lease.halt()
    }

    /// The versions of the lease and of its beat.
    pub fn versions(&self) -> [Option<Version>; 2] {
        [self.lease.as_ref().map(|lease| lease.at.clone()), self.beat_at.clone()]
    }

    /// Whether the holder has seen a gate, which then decides what has expired.
    pub fn gate(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.gate)
    }
}
