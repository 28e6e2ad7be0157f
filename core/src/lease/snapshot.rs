//! What a store shows of a lease at one moment, and whether the lease can be taken.
//!
//! The same for every store: a store says what is there and at which version, and this says what that means.

use crate::{Beat, HeldBy, Lease, LeaseState, Stamp};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// One version of a lease or of its beat, as its store names it: a commit in a remote, the nonce of the record
/// elsewhere. Two versions are equal only if the records are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(String);

impl Version {
    /// The version of this name.
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

/// What a store shows of a fence's lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// The lease; none where the fence has never had one.
    pub lease: Option<StoredLease>,
    /// The version of its beat.
    pub beat_at: Option<Version>,
    /// The beat, where it can be read.
    pub beat: Option<Beat>,
}

/// A lease as its store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLease {
    /// Its version.
    pub at: Version,
    /// The ownership before it.
    pub parent: Option<Version>,
    /// The record.
    pub lease: Lease,
    /// When the record was made, by its owner's clock.
    pub time: String,
}

/// Whether a lease is held, as far as this machine can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// There is none, or it was released.
    Free,
    /// Its deadline lies ahead.
    Alive,
    /// Its deadline has passed by this machine's clock, but by less than the allowance for skew.
    AliveOrLate,
    /// It was not renewed in time.
    Expired,
}

/// A beat whose deadline lies further ahead than its TTL allows: its holder's clock is ahead, and only watching tells
/// when the lease has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The version that is watched.
    pub beat: Version,
    /// How far ahead the clock is, at least.
    pub by: Duration,
    /// The lease has expired if its beat does not move for this much longer.
    pub left: Duration,
}

impl LeaseSnapshot {
    /// Whether the lease can be taken at `now`, with an allowance for `skew` between the clocks. `watched` is how
    /// long this machine has seen the beat at the same version.
    pub fn life(&self, now: &Stamp, skew: Duration, watched: Duration) -> Life {
        let Some(StoredLease { lease, .. }) = &self.lease else { return Life::Free };
        if lease.state == LeaseState::Released {
            return Life::Free;
        }
        // Nobody renews a lease whose beat belongs to another.
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

    /// Who holds the lease, and for how long by its deadline. None where it was released.
    pub fn held_by(&self, now: &Stamp) -> Option<HeldBy> {
        self.last_holder(now).filter(|_| self.is_held())
    }

    /// Who held the lease last, whether it was released or not.
    pub fn last_holder(&self, now: &Stamp) -> Option<HeldBy> {
        let StoredLease { lease, .. } = self.lease.as_ref()?;
        let deadline = self.beat.as_ref().map_or(0, Beat::deadline_ms);
        // No beat lasts longer than the TTL: what its deadline says beyond that is clock skew.
        let ttl_ms = u64::try_from(lease.ttl.duration().as_millis()).unwrap_or(u64::MAX);
        let left_ms = deadline.saturating_sub(now.unix_ms).min(ttl_ms);
        Some(HeldBy { owner: lease.owner.clone(), lease: lease.id.clone(), token: lease.token, left_ms })
    }

    /// Whether the lease was taken and not released, expired or not.
    pub fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(|seen| seen.lease.state == LeaseState::Held)
    }

    /// The versions of the lease and of its beat.
    pub fn versions(&self) -> [Option<Version>; 2] {
        [self.lease.as_ref().map(|lease| lease.at.clone()), self.beat_at.clone()]
    }

    /// Whether the holder has seen a gate there, which then judges what has expired.
    pub fn gate(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.gate)
    }
}
