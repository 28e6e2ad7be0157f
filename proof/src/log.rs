//! The log in the model: the state that results from its lines, by `git-fence-core`, and what they record of each push.

use git_fence_core::{Event, Evidence, FenceName, KnownSettings, Mark, Reject, Rules, State};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Recorded of a push: it was accepted.
pub const ACCEPTED: u16 = 1;
/// It was refused.
pub const REFUSED: u16 = 2;
/// It was settled.
pub const SETTLED: u16 = 4;
/// It was settled because the machine was restarted.
pub const REBOOTED: u16 = 8;
/// It was settled because its refs had moved, whatever its receive-pack does.
pub const REFS_MOVED: u16 = 16;
/// It was refused because of its token.
pub const STALE: u16 = 32;
/// It was refused because another holder has the lease.
pub const LEASE_LOST: u16 = 64;
/// A line was written twice.
pub const TWICE: u16 = 128;
/// It was settled on git's report.
pub const REPORTED: u16 = 256;
/// What it has moved was recorded while it was in flight.
pub const LANDED: u16 = 512;

/// The log up to some line: the resulting state, and the lines about each push.
#[derive(Debug, Clone)]
pub struct Log {
    /// The fold of its lines, by `git-fence-core`.
    pub state: State,
    /// What is recorded of each push.
    pub recorded: Vec<u16>,
    /// Whether a lease ref was found to differ from the log.
    pub found: bool,
    digest: u64,
}

impl Log {
    /// A new log, in which only the mark of `repo` was raised, under the settings of this gate.
    pub fn begin(pushes: usize, raised: u8) -> Log {
        let mut state = State {
            settings: Some(KnownSettings::of(&serde_json::json!({ "fences": [Rules::for_repo()] }), None)),
            ..State::default()
        };
        state.marks.extend(Mark::at(raised.into()).filter(|_| raised > 0).map(|mark| (FenceName::repo(), mark)));
        Log::of(state, vec![0; pushes])
    }

    /// A log with this state.
    pub fn of(state: State, recorded: Vec<u16>) -> Log {
        Log { state, recorded, found: false, digest: 0 }.sealed()
    }

    /// Adds a line about push `p`.
    ///
    /// An acceptance has the number of its push here, not of its line: the result does not depend on how many refusals were
    /// written before.
    pub fn with(&self, event: &Event, p: usize) -> Log {
        let mut log = self.clone();
        let seq = match event {
            Event::PushAccepted { push, .. } => push.0,
            _ => 0,
        };
        log.state.apply(seq, "", event).expect("the gate appends only valid events");
        let mut note = |p: usize, bits: u16| {
            let twice = log.recorded[p] & bits & (ACCEPTED | REFUSED | SETTLED) != 0;
            log.recorded[p] |= bits | if twice { TWICE } else { 0 };
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

    /// Adds the line that refuses push `p`. It changes no fence.
    pub fn refusing(&self, p: usize, reject: &Reject) -> Log {
        let mut log = self.clone();
        let bit = match reject {
            Reject::Stale { .. } => STALE,
            Reject::LeaseLost { .. } => LEASE_LOST,
            _ => 0,
        };
        let twice = if log.recorded[p] & REFUSED != 0 { TWICE } else { 0 };
        log.recorded[p] |= REFUSED | bit | twice;
        log.sealed()
    }

    /// Removes what is recorded of push `p`: its second attempt counts as another push.
    pub fn forgetting(&self, p: usize) -> Log {
        let mut log = self.clone();
        log.recorded[p] = 0;
        log.sealed()
    }

    fn sealed(mut self) -> Log {
        let mut hasher = DefaultHasher::new();
        serde_json::to_vec(&self.state).expect("every state can be represented in JSON").hash(&mut hasher);
        (&self.recorded, self.found).hash(&mut hasher);
        self.digest = hasher.finish();
        self
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Log) -> bool {
        self.digest == other.digest
            && self.state == other.state
            && self.recorded == other.recorded
            && self.found == other.found
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

/// Whether the log has a decision on push `p`.
pub(crate) fn is_decided(log: &Log, p: usize) -> bool {
    log.recorded[p] & (ACCEPTED | REFUSED) != 0
}
