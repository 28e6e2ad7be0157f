//! The seam where lease stores differ.
//!
//! A store reads, and swaps one version of a record for another. It knows no rule of leases: who may take one, when it
//! has expired and what a lost answer means is decided by [`Taking`](crate::Taking) and [`Pushing`](crate::Pushing), for
//! every store alike.

use crate::{Beat, Code, HeldBy, Lease, LeasePart, LeaseSnapshot, Mark, Secret, StoredLease, Token, Version};
use serde::Deserialize;

/// Where the lease of one fence is kept.
///
/// Reads are linearizable, and a swap is a compare-and-swap: a store that has no such operation cannot keep leases.
/// Every record carries a fresh nonce, so that no two records are the same version.
pub trait LeaseStore {
    /// Why the store could not do its work.
    type Error;

    /// What the store shows now.
    fn read(&self) -> Result<LeaseSnapshot, Self::Error>;

    /// Makes a record that can be swapped in, and returns the version it will have. Nobody else sees it yet.
    fn prepare(&self, record: &Record<'_>) -> Result<Version, Self::Error>;

    /// Puts prepared records in place: all or none, and only if each part is still at the version that is expected.
    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<Self::Error>, Self::Error>;

    /// Asks the gate who holds the lease. A store without a gate has none to ask.
    fn ask_gate(&self, owner: &str) -> Result<GateSays, Self::Error>;

    /// The ownerships that led to `tip`, the newest first, back to one whose token is below `token`.
    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, Self::Error>;
}

/// A record to be prepared.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// A lease, with the ownership before it and the proof that its predecessor asks for.
    Lease {
        /// The record.
        lease: &'a Lease,
        /// The ownership before it.
        parent: Option<&'a Version>,
        /// What shows that the holder moves it.
        proof: Option<&'a Secret>,
    },
    /// A beat.
    Beat {
        /// The record.
        beat: &'a Beat,
        /// Whose it is.
        owner: &'a str,
        /// What shows that the holder moves it.
        proof: Option<&'a Secret>,
    },
}

/// One part of a lease that is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Which part.
    pub part: LeasePart,
    /// The version that must be there; none for one that must not exist.
    pub from: Option<Version>,
    /// The prepared version.
    pub to: Version,
}

/// What came of a swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped<E> {
    /// Everything moved. Whether a gate let it through.
    Won {
        /// Whether a gate answered.
        gate: bool,
    },
    /// Nothing moved, and nothing will.
    Refused(SwapRefused),
    /// Nobody answered: it may have landed, or may land yet.
    Unknown {
        /// What is known of the cause.
        why: String,
    },
    /// It was not sent: nothing can have landed.
    NotSent(E),
}

/// Who refused a swap, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwapRefused {
    /// What the gate said; none where the store itself refused.
    pub gate: Option<GateAnswer>,
    /// The store's own words.
    pub why: Vec<String>,
    /// Whether others were moving the same record at that moment.
    pub crowded: bool,
    /// Whether the store's words can mean that the record is at another version.
    pub lease_may_have_moved: bool,
}

/// What a gate says, in its line for programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GateAnswer {
    /// `granted`, `rejected` or `observed`.
    pub verdict: String,
    /// The code of a refusal.
    pub code: Option<Code>,
    /// The mark that the token was compared with.
    pub mark: Option<Mark>,
    /// Who holds the lease.
    pub holder: Option<HeldBy>,
    /// The same for people, from the line before.
    #[serde(skip)]
    pub sentence: Option<String>,
}

/// What a gate says when it is asked who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateSays {
    /// Somebody does.
    Held(HeldBy),
    /// Nobody does.
    Free,
    /// There is no gate.
    NoGate,
}
