//! The interface of lease stores.
//!
//! A store reads records and swaps one version for another. It knows no rule of leases: [`Taking`](crate::Taking) and
//! [`Pushing`](crate::Pushing) decide, for every store alike, who may take a lease, when it has expired and what a lost
//! reply means.

use crate::{
    Beat, Code, FenceName, Halt, HeldBy, Lease, LeasePart, LeaseSnapshot, Mark, Secret, StoredLease, Tick, Token,
    Version,
};
use serde::Deserialize;

/// Where the lease of one fence is kept.
///
/// Reads are linearizable, and a swap is a compare-and-swap: a store without these operations cannot keep leases.
/// Every record has a fresh nonce, so no two records have the same version.
pub trait LeaseStore {
    /// Why an operation of the store failed.
    type Error;

    /// Reads the lease and its beat.
    fn read(&self) -> Result<LeaseSnapshot, Self::Error>;

    /// Prepares a record to be swapped in, and returns the version it will have. Others do not see it yet.
    fn prepare(&self, record: &Record<'_>) -> Result<Version, Self::Error>;

    /// Swaps prepared records in: all or none, and only if each part is still at the expected version.
    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<Self::Error>, Self::Error>;

    /// Asks the gate who holds the lease. A store without a gate returns [`GateSays::NoGate`].
    fn ask_gate(&self, owner: &str) -> Result<GateSays, Self::Error>;

    /// The ownerships that led to `tip`, newest first, back to one whose token is below `token`.
    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, Self::Error>;
}

/// A record to prepare.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// A lease, with the previous ownership and the proof that the previous record asks for.
    Lease {
        /// The record.
        lease: &'a Lease,
        /// The previous ownership.
        parent: Option<&'a Version>,
        /// The proof that it comes from the holder.
        proof: Option<&'a Secret>,
    },
    /// A beat.
    Beat {
        /// The record.
        beat: &'a Beat,
        /// The owner's name.
        owner: &'a str,
        /// The proof that it comes from the holder.
        proof: Option<&'a Secret>,
    },
}

/// The change of one part of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// Which part.
    pub part: LeasePart,
    /// The expected version; `None` if the part must not exist yet.
    pub from: Option<Version>,
    /// The prepared version.
    pub to: Version,
}

/// The result of a swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped<E> {
    /// All records moved.
    Won,
    /// Nothing moved, and nothing will move later.
    Refused(Box<SwapRefused>),
    /// There was no reply: it may have landed, or may still land.
    Unknown {
        /// What is known about the cause.
        why: String,
    },
    /// It was not sent, so it cannot land.
    NotSent(E),
}

/// Who refused a swap, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwapRefused {
    /// The gate's answer; `None` if the store itself refused, before the gate or after it.
    pub gate: Option<GateAnswer>,
    /// The store's own messages.
    pub why: Vec<String>,
    /// Whether others were changing the same record at that moment.
    pub crowded: bool,
    /// Whether the messages can mean that the record is at another version.
    pub lease_may_have_moved: bool,
    /// Whether we have no right to write there, whoever holds the lease.
    pub denied: bool,
    /// Everything that the store printed, line by line.
    pub said: Vec<String>,
    /// What moved nevertheless. A store that cannot refuse the whole of it does not protect what it moves.
    pub moved: Vec<String>,
}

/// A gate's answer, from its line for programs.
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
    /// Who halted the fence.
    pub halt: Option<Halt>,
    /// The fences that there are, if the push named none of them.
    pub fences: Option<Vec<FenceName>>,
    /// The gate's clock, if it refused a tick that is in the future.
    pub now: Option<Tick>,
    /// The message for people, from the line before.
    #[serde(skip)]
    pub sentence: Option<String>,
}

impl GateAnswer {
    /// Whether the gate itself has refused. What it granted can still be refused behind it.
    pub fn is_refusal(&self) -> bool {
        self.verdict == "rejected"
    }
}

/// A gate's answer to who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateSays {
    /// This holder.
    Held(HeldBy),
    /// Nobody, and nobody gets it: it is halted.
    Halted(Halt),
    /// Nobody.
    Free,
    /// There is no gate.
    NoGate,
}
