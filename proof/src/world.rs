//! What there is: refs, a log, pushes under way, and what clients know.

use git_fence_core::{Event, Evidence, FenceName, KnownSettings, Mark, Reason, Reject, Rules, State};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The number of a ref.
pub type Ref = usize;
/// A branch of fence `repo`.
pub const MAIN: Ref = 0;
/// Another branch of fence `repo`.
pub const DEV: Ref = 1;
/// The branch of fence `deploy`.
pub const SITE: Ref = 2;
/// The lease of fence `repo`.
pub const LEASE: Ref = 3;
/// Its heartbeat.
pub const BEAT: Ref = 4;
/// How they are called.
pub const NAMES: [&str; 5] =
    ["refs/heads/main", "refs/heads/dev", "refs/heads/deploy/site", "refs/fence/repo/lease", "refs/fence/repo/beat"];

/// The number of a fence.
pub type Fence = usize;
/// The fence that every repository has.
pub const REPO: Fence = 0;
/// A named one.
pub const DEPLOY: Fence = 1;

/// The fence that a ref counts for.
pub fn fence_of(on: Ref) -> Fence {
    if on == SITE { DEPLOY } else { REPO }
}

/// Whether it is a branch, and not part of a lease.
pub fn is_branch(on: Ref) -> bool {
    on <= SITE
}

/// The number of an object.
pub type Object = u8;
/// No object.
pub const NONE: Object = 0;
/// What the branches are at in the beginning.
pub const START: Object = 1;
/// An object that nobody has.
pub const NOWHERE: Object = 2;

/// What push `p` makes of a ref.
pub fn made_by(p: usize, on: Ref, again: bool) -> Object {
    let kind = match on {
        LEASE if again => 3,
        LEASE => 1,
        BEAT => 2,
        _ => 0,
    };
    8 + 4 * u8::try_from(p).unwrap_or(u8::MAX) + kind
}

/// The push that made an object of a lease.
pub fn maker_of(object: Object) -> usize {
    usize::from(object - 8) / 4
}

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
pub struct Pushing {
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

impl Pushing {
    /// One that has not come yet.
    pub fn idle() -> Pushing {
        Pushing {
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

/// What the log says of a push: that it was accepted.
pub const ACCEPTED: u16 = 1;
/// That it was refused.
pub const REFUSED: u16 = 2;
/// That it was settled.
pub const SETTLED: u16 = 4;
/// Settled because the machine was restarted.
pub const REBOOTED: u16 = 8;
/// Settled because its refs had moved, whatever its receive-pack does.
pub const REFS_MOVED: u16 = 16;
/// Refused because of its token.
pub const STALE: u16 = 32;
/// Refused because the lease is another's.
pub const LEASE_LOST: u16 = 64;
/// A line was written twice.
pub const TWICE: u16 = 128;
/// Settled on git's word.
pub const REPORTED: u16 = 256;
/// What it has moved was written down while it was under way.
pub const LANDED: u16 = 512;

/// The log up to some line: what it adds up to, and which lines there are about pushes.
#[derive(Debug, Clone)]
pub struct Log {
    /// The fold of its lines, by `git-fence-core`.
    pub state: State,
    /// What it says of each push.
    pub said: Vec<u16>,
    /// Whether a lease was found elsewhere than the log had it.
    pub found: bool,
    digest: u64,
}

impl Log {
    /// One in which nothing has happened but that the mark of `repo` was raised, under the settings of this gate.
    pub fn begin(pushes: usize, raised: u8) -> Log {
        let mut state = State {
            settings: Some(KnownSettings::of(&serde_json::json!({ "fences": [Rules::for_repo()] }), None)),
            ..State::default()
        };
        state.marks.extend(Mark::at(raised.into()).filter(|_| raised > 0).map(|mark| (FenceName::repo(), mark)));
        Log::of(state, vec![0; pushes])
    }

    /// One that adds up to this.
    pub fn of(state: State, said: Vec<u16>) -> Log {
        Log { state, said, found: false, digest: 0 }.sealed()
    }

    /// With one more line, which is about push `p`.
    ///
    /// The number of an acceptance is its push's here, and not its line's: what comes of it does not
    /// depend on how many refusals were written before.
    pub fn with(&self, event: &Event, p: usize) -> Log {
        let mut log = self.clone();
        let seq = match event {
            Event::PushAccepted { push, .. } => push.0,
            _ => 0,
        };
        log.state.apply(seq, "", event).expect("the gate appends what follows");
        let mut note = |p: usize, bits: u16| {
            let twice = log.said[p] & bits & (ACCEPTED | REFUSED | SETTLED) != 0;
            log.said[p] |= bits | if twice { TWICE } else { 0 };
        };
        match event {
            Event::PushAccepted { .. } => note(p, ACCEPTED),
            Event::PushSettled { push, evidence, .. } => {
                let bit = match evidence {
                    Evidence::Rebooted => REBOOTED,
                    Evidence::RefsMoved => REFS_MOVED,
                    Evidence::Reported => REPORTED,
                    _ => 0,
                };
                note(push_of(push.0), SETTLED | bit);
            }
            Event::PushLanded { push, .. } => note(push_of(push.0), LANDED),
            Event::LeaseRenewed(_) | Event::MarkRaised { .. } => note(p, ACCEPTED),
            Event::LeaseFound(_) => log.found = true,
            _ => {}
        }
        log.sealed()
    }

    /// With the line that refuses push `p`. It changes no fence.
    pub fn refusing(&self, p: usize, reject: &Reject) -> Log {
        let mut log = self.clone();
        let bit = match reject {
            Reject::Stale { .. } => STALE,
            Reject::LeaseLost { .. } => LEASE_LOST,
            _ => 0,
        };
        let twice = if log.said[p] & REFUSED != 0 { TWICE } else { 0 };
        log.said[p] |= REFUSED | bit | twice;
        log.sealed()
    }

    /// A new try of push `p` is another push as far as the record goes.
    pub fn forgetting(&self, p: usize) -> Log {
        let mut log = self.clone();
        log.said[p] = 0;
        log.sealed()
    }

    fn sealed(mut self) -> Log {
        let mut hasher = DefaultHasher::new();
        serde_json::to_vec(&self.state).expect("a state has no value that JSON lacks").hash(&mut hasher);
        (&self.said, self.found).hash(&mut hasher);
        self.digest = hasher.finish();
        self
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Log) -> bool {
        self.digest == other.digest && self.state == other.state && self.said == other.said && self.found == other.found
    }
}

impl Eq for Log {}

impl Hash for Log {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

/// The id of push `p` in the log.
pub fn id_of(p: usize) -> u64 {
    p as u64 + 1
}

/// The push with that id.
pub fn push_of(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX) - 1
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// What the refs are at.
    pub refs: [Object; 5],
    /// The log: first as it is synced, then with each line that is only written.
    pub log: Vec<Arc<Log>>,
    /// The pushes.
    pub pushes: Vec<Pushing>,
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
