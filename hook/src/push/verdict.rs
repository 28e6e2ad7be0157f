//! What the gate says to a push, and what speaks against one before that is said.

use crate::log::store::Store;
use git_fence_core::{FenceName, Ground, Mark, Reject, Source, Token};
use std::time::Duration;

/// What the gate says to a push.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It may go on.
    Admitted(Admission),
    /// It may not.
    Refused(Refusal),
    /// It may go on, because its fences only observe. This is what they would have said.
    Observed(Refusal),
}

/// What a push is told that has been let through.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// What fences that only observe would have said.
    pub(crate) overruled: Option<Refusal>,
    /// The leases that it was granted: fence, token, and the fence's mark.
    pub(crate) granted: Vec<(FenceName, Token, Mark)>,
    /// How long it has waited, if it was told that it waits.
    pub(crate) waited: Option<Duration>,
}

/// A refusal, with what is known about the push.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reject: Reject,
    pub(crate) fence: Option<FenceName>,
    pub(crate) token: Option<Token>,
    pub(crate) mark: Option<Mark>,
}

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Refusal {
        Refusal { fence: reject.fence().cloned(), reject, token: None, mark: None }
    }
}

/// What an enforcing gate would refuse a push for. Whether it is a refusal is said at the end, by
/// [`Recorder::verdict_on`](super::recorder::Recorder::verdict_on).
pub(crate) struct Objection {
    pub(crate) reject: Reject,
    pub(crate) ground: Ground<'static>,
    /// What is known of the push's token, and where it stood.
    pub(crate) token: Option<Token>,
    pub(crate) source: Option<Source>,
    pub(crate) log: LogFor,
}

/// The log that an objection goes into.
pub(crate) enum LogFor {
    /// It is open, and its lock is held.
    Open(Box<Store>),
    /// Nobody has opened it yet.
    Closed,
    /// It cannot be used: that is the objection, or comes with it.
    Unusable,
}

impl Objection {
    /// One that is raised under the lock.
    pub(crate) fn under_lock(store: Store, reject: Reject, token: Option<Token>, source: Source) -> Objection {
        let (ground, source) = (Ground::Push, Some(source));
        Objection { reject, ground, token, source, log: LogFor::Open(Box::new(store)) }
    }

    /// One that cannot be put on record.
    pub(crate) fn off_record(reject: Reject) -> Objection {
        Objection { reject, ground: Ground::Push, token: None, source: None, log: LogFor::Unusable }
    }
}

/// Before the lock is taken, and whatever its tokens are.
impl From<Reject> for Objection {
    fn from(reject: Reject) -> Objection {
        let ground = if reject.is_about_the_lease() { Ground::Lease } else { Ground::Push };
        Objection { reject, ground, token: None, source: None, log: LogFor::Closed }
    }
}
