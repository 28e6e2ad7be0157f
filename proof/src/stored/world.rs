//! The state of the model: the store, the mark's history, pushes on their way, and what the clients know.

use git_fence_core::{FenceEntry, MarkRecord, Pushing};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The run of a push that the liar makes.
pub(super) const LIAR: usize = 7;

/// A value of the core, shared by states, with its hash.
#[derive(Debug)]
pub struct Kept<T>(Arc<(u64, T)>);

/// A record of the store. Its version is its place in the list of all records.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreRecord {
    /// What the store keeps.
    pub entry: Kept<FenceEntry>,
    /// The ownership in it.
    pub owner: usize,
}

/// What a push does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carries {
    /// It moves the branch, and the mark with it.
    Refs,
    /// It raises the mark alone.
    Barrier,
    /// It touches the mark: to settle a push, or instead of a barrier.
    Touch,
}

/// A proof that a mark publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Of the lease that came with this record of the store.
    Lease(usize),
    /// Of the beat of this ownership.
    Beat(usize),
}

/// A version of the mark: one that is there, or one that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MarkVersion {
    /// Its record.
    pub record: Kept<MarkRecord>,
    /// The number of the push that makes it.
    pub push: usize,
    /// The run that pushes, or [`LIAR`].
    pub run: usize,
    /// The ownership under which it is made, unless by the liar.
    pub owner: Option<usize>,
    /// What the push does.
    pub carries: Carries,
    /// The proof that it publishes.
    pub proof: Option<Proof>,
}

/// How far a push has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It has arrived.
    Arrived,
    /// The gate has asked the store, and this record was there.
    Asked(Option<usize>),
    /// The gate has admitted it.
    InSlot,
}

/// A push that has arrived and has moved nothing yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flight {
    /// The version of the mark that it makes.
    pub makes: MarkVersion,
    /// The version that it expects.
    pub expects: usize,
    /// How far it has come.
    pub progress: Progress,
}

/// What a client does next, or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It begins with its next operation.
    Ready,
    /// To take or to revoke: it has read the store.
    ReadStore(Option<usize>),
    /// It has read the mark, too.
    ReadBoth(Option<usize>, usize),
    /// It is about to raise the mark from this version.
    RaiseFrom(usize),
    /// It waits for the reply to that push, which expects this version.
    Raising(usize),
    /// That push was refused, or its reply was lost. It reads the mark.
    LookAfterRaising {
        /// The version that the push expects.
        expected: usize,
        /// Whether it was refused.
        refused: bool,
    },
    /// It is about to clear the due barrier in the store.
    Clear,
    /// It is about to give its new lease back: its barrier is not up.
    GiveUp,
    /// It is about to swap the next token in.
    Advance,
    /// As first designed: it is about to read the mark before it pushes.
    ReadMark,
    /// It is about to push from this version.
    PushFrom(usize),
    /// It waits for the reply to its push.
    Pushing,
    /// It is about to touch the mark.
    Touch,
    /// It waits for the reply to its touch.
    Touching,
    /// It is about to read the mark after a refusal: of a touch, or of a push.
    Look {
        /// Whether a touch was refused.
        settles: bool,
    },
    /// Where lost replies are settled by looking: it is about to look.
    JustLook,
    /// It is about to make a barrier due before a release.
    LeaveBarrier,
    /// It is about to release the lease.
    Release,
}

/// A push whose reply has not been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unsettled {
    /// Its number.
    pub push: usize,
    /// The version of the mark that it expects.
    pub before: usize,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreHeld {
    /// The ownership.
    pub owner: usize,
    /// The record of the store with which it has put the lease there last.
    pub record: usize,
    /// The version of the mark that it read before its grant.
    pub read: usize,
    /// The version of the mark that it pushes from.
    pub known: usize,
    /// Whether a push was sent with its token.
    pub is_used: bool,
    /// The push whose reply it waits for or has lost.
    pub unsettled: Option<Unsettled>,
}

/// A run and its client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreRun {
    /// The operation that it is at.
    pub at: usize,
    /// What it does next.
    pub stage: Stage,
    /// The lease it holds.
    pub held: Option<StoreHeld>,
    /// The client's state machine, while it pushes.
    pub machine: Option<Pushing>,
    /// The number of the push it waits for.
    pub awaits: Option<usize>,
    /// How many pushes it has sent.
    pub sent: usize,
}

/// What has happened to an ownership. They are in the order of their grants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerFacts {
    /// Its first token.
    pub first: u64,
    /// The ownerships before it, as the store shows, as bits.
    pub overtakes: u16,
    /// Whether the run was told that it holds the lease, or has revoked it, or halted the fence.
    pub is_done: bool,
    /// Whether the run was told that the lease is lost.
    pub is_lost: bool,
    /// Whether it has moved the branch.
    pub wrote: bool,
    /// Whether a store that rolled back has made it current again.
    pub is_revived: bool,
    /// Whether it was granted after a rollback.
    pub after_rollback: bool,
    /// Whether it is a halt, and what has come of that.
    pub halt: Option<HaltFacts>,
    /// Whether it was granted after a halt had been resumed.
    pub after_halt: bool,
}

/// What has happened to a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HaltFacts {
    /// It stands.
    Stands,
    /// It was resumed.
    Resumed,
}

/// The whole state at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredWorld {
    /// All records that the store ever had.
    pub records: Vec<StoreRecord>,
    /// The one it shows.
    pub now: Option<usize>,
    /// The mark's history.
    pub marks: Vec<MarkVersion>,
    /// Pushes on their way.
    pub flights: Vec<Flight>,
    /// The runs.
    pub runs: Vec<StoreRun>,
    /// The ownerships.
    pub owners: Vec<OwnerFacts>,
    /// What clients have concluded about their pushes: whether they have landed.
    pub beliefs: Vec<(usize, bool)>,
    /// The promises that are broken, as bits.
    pub broken: u16,
    /// What has been seen, as bits.
    pub seen: u16,
    /// How many replies were lost.
    pub lost: u8,
    /// How often the store has forgotten or rolled back.
    pub rollbacks: u8,
    /// How often the liar has pushed.
    pub lies: u8,
}

impl StoredWorld {
    /// The place of the mark's current version.
    pub fn tip(&self) -> usize {
        self.marks.len() - 1
    }

    /// The mark.
    pub fn mark(&self) -> &MarkVersion {
        &self.marks[self.tip()]
    }

    /// Whether push number `push` has landed.
    pub fn has_landed(&self, push: usize) -> bool {
        self.marks.iter().any(|mark| mark.push == push)
    }

    /// Whether the mark is at a version that the holder of `held` has made.
    pub fn is_at_own(&self, held: StoreHeld) -> bool {
        self.mark().owner == Some(held.owner)
    }

    /// The entry at `record`.
    pub fn entry(&self, record: usize) -> &FenceEntry {
        self.records[record].entry.get()
    }
}

impl<T> Kept<T> {
    /// Keeps `value`, of which `key` has everything that varies.
    pub fn new(value: T, key: impl Hash) -> Kept<T> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Kept(Arc::new((hasher.finish(), value)))
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.0.1
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Kept<T> {
        Kept(Arc::clone(&self.0))
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    fn eq(&self, other: &Kept<T>) -> bool {
        self.0.0 == other.0.0 && self.0.1 == other.0.1
    }
}

impl<T: Eq> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.0.hash(hasher);
    }
}
