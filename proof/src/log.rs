//! The log as the model has it: what its lines add up to, by `git-fence-core`, and what they say of each push.

use git_fence_core::{Event, Evidence, FenceName, KnownSettings, Mark, Reject, Rules, State};
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// Whether the log says that push `p` was decided.
pub(crate) fn is_decided(log: &Log, p: usize) -> bool {
    log.said[p] & (ACCEPTED | REFUSED) != 0
}
