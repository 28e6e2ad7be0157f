//! Moments as the log writes them, and how long somebody may wait.

use git_fence_core::{Place, Stamp};
pub(crate) use git_fence_system::clock::{uptime_ms, wall as timestamp};
use jiff::Timestamp;
use std::{
    fs,
    time::{Duration, Instant},
};

/// Now, as the log writes it: RFC 3339, UTC, milliseconds.
pub(crate) fn now() -> String {
    format!("{:.3}", timestamp())
}

/// How long ago `time`, as the log writes it, is; nothing where it is not in the past.
pub(crate) fn time_since(time: &str) -> Duration {
    let then = time.parse::<Timestamp>().unwrap_or(Timestamp::MAX);
    timestamp().duration_since(then).try_into().unwrap_or_default()
}

/// Whether this machine was booted after `time`, as the log writes it. By a clock that people may set: not
/// where it says that `time` is still to come.
pub(crate) fn booted_after(time: &str) -> bool {
    let up = Duration::from_millis(uptime_ms());
    let is_after = |then: Timestamp| timestamp().checked_sub(up).is_ok_and(|booted| booted > then);
    time.parse().is_ok_and(is_after)
}

/// How long ago a file was last written; nothing where that is in the future.
pub(crate) fn age_of(file: &fs::Metadata) -> Duration {
    file.modified().ok().and_then(|then| then.elapsed().ok()).unwrap_or_default()
}

/// Now, by every clock, on the machine and since the boot that `here` is.
pub(crate) fn stamp(here: &Place) -> Stamp {
    let unix_ms = u64::try_from(timestamp().as_millisecond()).unwrap_or(0);
    Stamp { boot: here.boot.clone(), uptime_ms: uptime_ms(), unix_ms }
}

/// When `stamp` was, as the log writes it.
pub(crate) fn written(stamp: &Stamp) -> String {
    let time = i64::try_from(stamp.unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// How long a push may wait, in all, whatever it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitBudget {
    since: Instant,
    most: Duration,
}

impl WaitBudget {
    /// WaitBudget that began at `since`.
    pub(crate) fn of(most: Duration, since: Instant) -> WaitBudget {
        WaitBudget { since, most }
    }

    /// The same, but from now on with at least `grace`: for what takes a moment and must be done.
    pub(crate) fn with_grace(&self, grace: Duration) -> WaitBudget {
        WaitBudget { since: self.since, most: self.most.max(self.spent().saturating_add(grace)) }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.most.saturating_sub(self.spent())
    }

    /// How much is gone.
    pub(crate) fn spent(&self) -> Duration {
        self.since.elapsed()
    }
}
