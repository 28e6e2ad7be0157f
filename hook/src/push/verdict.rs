//! The verdict on a push, and the objections from which it is made.

use crate::log::store::Store;
use git_fence_core::{FenceName, Ground, Mark, Reject, Source, Token};
use std::time::Duration;

/// The gate's verdict on a push.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The push is admitted.
    Admitted(Admission),
    /// The push is refused.
    Refused(Refusal),
    /// The push is admitted because its fences only observe. This is what they would have refused it for.
    Observed(Refusal),
}

/// What an admitted push is told.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// What fences that only observe would have refused it for.
    pub(crate) overruled: Option<Refusal>,
    /// The granted leases: fence, token, and the fence's mark.
    pub(crate) granted: Vec<(FenceName, Token, Mark)>,
    /// How long it waited, if the pusher was told about the wait.
    pub(crate) waited: Option<Duration>,
}

/// A refusal, with the known facts about the push.
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

/// Why an enforcing gate would refuse a push. Whether the push is refused is decided at the end, by
/// [`Recorder::verdict_on`](super::recorder::Recorder::verdict_on).
pub(crate) struct Objection {
    pub(crate) reject: Reject,
    pub(crate) ground: Ground<'static>,
    /// The push's token, if known, and where it came from.
    pub(crate) token: Option<Token>,
    pub(crate) source: Option<Source>,
    pub(crate) log: LogFor,
}

/// The log in which to record an objection.
pub(crate) enum LogFor {
    /// Open, with its lock held.
    Open(Box<Store>),
    /// Not opened yet.
    Closed,
    /// Unusable: that is the objection, or accompanies it.
    Unusable,
}

impl Objection {
    /// An objection raised under the lock.
    pub(crate) fn under_lock(store: Store, reject: Reject, token: Option<Token>, source: Source) -> Objection {
        let (ground, source) = (Ground::Push, Some(source));
        Objection { reject, ground, token, source, log: LogFor::Open(Box::new(store)) }
    }

    /// An objection that cannot be recorded.
    pub(crate) fn off_record(reject: Reject) -> Objection {
        Objection { reject, ground: Ground::Push, token: None, source: None, log: LogFor::Unusable }
    }
}

/// An objection raised before the lock is taken, regardless of the tokens.
impl From<Reject> for Objection {
    fn from(reject: Reject) -> Objection {
        let ground = if reject.is_about_the_lease() { Ground::Lease } else { Ground::Push };
        Objection { reject, ground, token: None, source: None, log: LogFor::Closed }
    }
}
