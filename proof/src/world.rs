//! What there is: refs, a log, pushes under way, and what clients know.

use crate::{
    log::Log,
    numbers::{Object, Ref},
};
use git_fence_core::Reason;
use std::sync::Arc;

/// How far a push is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has not come yet.
    Idle,
    /// Its receive-pack runs the hook, which has not written anything.
    Hook,
    /// Its receive-pack is dead, and the hook goes on.
    Orphan,
    /// The hook has written the acceptance and has not synced it. It still has the lock.
    Written,
    /// The same, with its receive-pack dead.
    OrphanWritten,
    /// The hook has let it through. The next of its refs to be updated; for an atomic push, all.
    Update(usize),
    /// Nothing moves any more, and its receive-pack has not told its client.
    Report,
    /// It has, and runs `post-receive` with the list of what it has updated.
    Post,
    /// The same, with its receive-pack dead.
    OrphanPost,
    /// It was refused by the hook, and the client has not heard of it.
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

/// What the client has heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing yet.
    None,
    /// All has landed.
    Landed,
    /// Something has not.
    No,
    /// It will never hear.
    Lost,
}

/// What stands in a lease's commit, as far as it differs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rec {
    /// The push that took it: the ownership, and its secret.
    pub grant: usize,
    /// Its token.
    pub token: u8,
    /// Whether it is given back.
    pub released: bool,
    /// Why it came to this owner.
    pub reason: Why,
    /// The commit's parent.
    pub parent: Object,
}

/// [`Reason`], hashable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// There was none before.
    First,
    /// It was given back.
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

/// A push, from the moment when it has connected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelPush {
    /// How far it is.
    pub phase: Phase,
    /// What it says its refs are at.
    pub said: Vec<Object>,
    /// Its tokens.
    pub tokens: [Option<u8>; 2],
    /// What it would make of the lease, or whose heartbeat it is.
    pub rec: Option<Rec>,
    /// When it was let through, by the server's clock, if it comes to a lease.
    pub judged: u8,
    /// Whether it is the second try with another token.
    pub again: bool,
    /// Whether git refused to update one of its refs.
    pub declined: bool,
    /// What its client has heard.
    pub answer: Answer,
    /// What its client has found out after a lost answer: whether it has landed.
    pub belief: Option<bool>,
    /// Whether git was killed in the midst of its transaction.
    pub torn: bool,
    /// Which of its refs git has updated, as bits.
    pub listed: u8,
    /// Whether git will never say so: something was killed, or the client was gone.
    pub wordless: bool,
}

impl ModelPush {
    /// One that has not come yet.
    pub fn idle() -> ModelPush {
        ModelPush {
            phase: Phase::Idle,
            said: Vec::new(),
            tokens: [None; 2],
            rec: None,
            judged: 0,
            again: false,
            declined: false,
            answer: Answer::None,
            belief: None,
            torn: false,
            listed: 0,
            wordless: false,
        }
    }
}

/// A lease as its owner knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Its record.
    pub rec: Rec,
    /// The commit that the lease's ref was left at.
    pub commit: Object,
    /// The same for the beat.
    pub pulse: Object,
    /// The push whose answer was lost.
    pub pending: Option<usize>,
}

/// A ref has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Move {
    /// Which.
    pub on: Ref,
    /// By which push.
    pub by: usize,
    /// Where it was before.
    pub before: Object,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// What the refs are at.
    pub refs: [Object; 5],
    /// The log: first as it is synced, then with each line that is only written.
    pub log: Vec<Arc<Log>>,
    /// The pushes.
    pub pushes: Vec<ModelPush>,
    /// What each client holds.
    pub held: Vec<Option<Held>>,
    /// For each fence, which of its refs have moved so far, in order.
    pub moves: [Vec<Move>; 2],
    /// Whether a power loss has taken something of what moved.
    pub has_lost_moves: bool,
    /// How often a local writer has put a ref back.
    pub undone: u8,
    /// The pushes of which a ref was put back, as bits.
    pub put_back: u8,
    /// Whether what is not promised has come together: a push of which git never gives word, and a local writer who puts
    /// its refs back before anybody has looked.
    pub excused: bool,
    /// How often something was killed.
    pub crashes: u8,
    /// How many refs were declined.
    pub declines: u8,
    /// How many answers were lost.
    pub lost: u8,
    /// How often the machine was booted.
    pub boots: u8,
    /// How much time has passed.
    pub ticks: u8,
    /// And had at the last boot.
    pub booted_at: u8,
}

impl World {
    /// The log as everybody reads it.
    pub fn now(&self) -> &Log {
        self.log.last().expect("a log is never without its synced part")
    }

    /// The log as far as it survives the machine.
    pub fn synced(&self) -> &Log {
        self.log.first().expect("a log is never without its synced part")
    }

    /// Whether push `p` has moved a branch.
    pub fn has_moved(&self, p: usize, matters: impl Fn(Ref) -> bool) -> bool {
        self.moves.iter().flatten().any(|moved| moved.by == p && matters(moved.on))
    }
}
