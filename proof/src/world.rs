//! The state of the model: refs, the log, pushes, and what clients know.

use crate::{
    log::Log,
    numbers::{Object, Ref},
};
use git_fence_core::Reason;
use std::sync::Arc;

/// The progress of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has not connected yet.
    Idle,
    /// Its receive-pack runs the hook, which has not written anything.
    Hook,
    /// Its receive-pack is dead, but the hook continues.
    Orphan,
    /// The hook has written the acceptance, but not synced it. It still holds the lock.
    Written,
    /// The same, with its receive-pack dead.
    OrphanWritten,
    /// The hook has admitted it. The next of its refs to be updated; for an atomic push, all.
    Update(usize),
    /// No more refs will move, but its receive-pack has not reported to its client.
    Report,
    /// It has reported, and runs `post-receive` with the list of updated refs.
    Post,
    /// The same, with its receive-pack dead.
    OrphanPost,
    /// It was refused by the hook, but the client has not been told.
    Refused,
    /// Its receive-pack has ended.
    Gone,
}

impl Phase {
    /// Whether its receive-pack runs.
    pub fn has_receive_pack(self) -> bool {
        matches!(self, Phase::Hook | Phase::Written | Phase::Update(_) | Phase::Report | Phase::Post | Phase::Refused)
    }

    /// Whether its hook runs.
    pub fn has_hook(self) -> bool {
        matches!(
            self,
            Phase::Hook | Phase::Orphan | Phase::Written | Phase::OrphanWritten | Phase::Post | Phase::OrphanPost
        )
    }
}

/// The answer that the client has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// None yet.
    None,
    /// All refs have landed.
    Landed,
    /// Some ref has not.
    No,
    /// The client will never receive it.
    Lost,
}

/// The content of a lease commit, as far as it varies here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rec {
    /// The push that acquired it: the ownership, and its secret.
    pub grant: usize,
    /// Its token.
    pub token: u8,
    /// Whether it is released.
    pub released: bool,
    /// Why the owner could acquire it.
    pub reason: Why,
    /// The commit's parent.
    pub parent: Object,
}

/// [`Reason`], hashable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// There was no lease before.
    First,
    /// It was released.
    Released,
    /// It expired.
    Expired,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Reason {
        match why {
            Why::First => Reason::First,
            Why::Released => Reason::Released,
            Why::Expired => Reason::Expired,
        }
    }
}

/// A push that has connected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelPush {
    /// Its progress.
    pub phase: Phase,
    /// The old values that it claims for its refs.
    pub claimed: Vec<Object>,
    /// Its tokens.
    pub tokens: [Option<u8>; 2],
    /// The lease record that it requests, or whose heartbeat it is.
    pub rec: Option<Rec>,
    /// When it was admitted, by the server's clock, if it concerns a lease.
    pub judged: u8,
    /// Whether it is the second attempt, with another token.
    pub again: bool,
    /// Whether git refused to update one of its refs.
    pub declined: bool,
    /// The answer that its client has received.
    pub answer: Answer,
    /// What its client has concluded after a lost answer: whether it has landed.
    pub belief: Option<bool>,
    /// Whether git was killed within its transaction.
    pub torn: bool,
    /// Which of its refs git has updated, as bits.
    pub listed: u8,
    /// Whether git will never report them: something was killed, or the client was gone.
    pub unreported: bool,
}

impl ModelPush {
    /// A push that has not connected yet.
    pub fn idle() -> ModelPush {
        ModelPush {
            phase: Phase::Idle,
            claimed: Vec::new(),
            tokens: [None; 2],
            rec: None,
            judged: 0,
            again: false,
            declined: false,
            answer: Answer::None,
            belief: None,
            torn: false,
            listed: 0,
            unreported: false,
        }
    }
}

/// A lease as its owner knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Its record.
    pub rec: Rec,
    /// The commit that the lease's ref had last.
    pub commit: Object,
    /// The same for the beat.
    pub pulse: Object,
    /// The push whose answer was lost.
    pub pending: Option<usize>,
}

/// A move of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Move {
    /// The ref.
    pub on: Ref,
    /// The push.
    pub by: usize,
    /// The value before.
    pub before: Object,
}

/// The whole state at one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The values of the refs.
    pub refs: [Object; 5],
    /// The log: first its synced part, then with each line that is only written.
    pub log: Vec<Arc<Log>>,
    /// The pushes.
    pub pushes: Vec<ModelPush>,
    /// What each client holds.
    pub held: Vec<Option<Held>>,
    /// For each fence, the moves of its refs so far, in order.
    pub moves: [Vec<Move>; 2],
    /// Whether a power loss has lost moves.
    pub has_lost_moves: bool,
    /// How often a local writer has reset a ref.
    pub resets: u8,
    /// The pushes of which a ref was reset, as bits.
    pub reset_pushes: u8,
    /// Whether a case occurred that is not promised: git never reports on a push, and a local writer resets its refs before
    /// another push reads them.
    pub excused: bool,
    /// How often something was killed.
    pub crashes: u8,
    /// How many updates were declined.
    pub declines: u8,
    /// How many answers were lost.
    pub lost: u8,
    /// How often the machine was booted.
    pub boots: u8,
    /// How much time has passed.
    pub ticks: u8,
    /// How much time had passed at the last boot.
    pub booted_at: u8,
}

impl World {
    /// The log as all processes read it.
    pub fn now(&self) -> &Log {
        self.log.last().expect("a log is never without its synced part")
    }

    /// The log as far as it survives a machine crash.
    pub fn synced(&self) -> &Log {
        self.log.first().expect("a log is never without its synced part")
    }

    /// Whether push `p` has moved a ref for which `matters` is true.
    pub fn has_moved(&self, p: usize, matters: impl Fn(Ref) -> bool) -> bool {
        self.moves.iter().flatten().any(|moved| moved.by == p && matters(moved.on))
    }
}
