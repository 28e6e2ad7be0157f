//! Times in the format of the log, and how long a caller may wait.

use git_fence_core::{Place, Stamp};
pub(crate) use git_fence_system::clock::{uptime_ms, wall as timestamp};
use jiff::Timestamp;
use std::{
    fs,
    time::{Duration, Instant},
};

/// The current time in the format of the log: RFC 3339, UTC, milliseconds.
pub(crate) fn now() -> String {
    format!("{:.3}", timestamp())
}

/// The time since `time`, which has the format of the log; zero if it is not in the past.
pub(crate) fn time_since(time: &str) -> Duration {
    let then = time.parse::<Timestamp>().unwrap_or(Timestamp::MAX);
    timestamp().duration_since(then).try_into().unwrap_or_default()
}

/// Whether this machine was booted after `time`, which has the format of the log. This uses a clock that people can set:
/// false if `time` is in the future.
pub(crate) fn booted_after(time: &str) -> bool {
    let up = Duration::from_millis(uptime_ms());
    let is_after = |then: Timestamp| timestamp().checked_sub(up).is_ok_and(|booted| booted > then);
    time.parse().is_ok_and(is_after)
}

/// The time since a file was last written; zero if that is in the future.
pub(crate) fn age_of(file: &fs::Metadata) -> Duration {
    file.modified().ok().and_then(|then| then.elapsed().ok()).unwrap_or_default()
}

/// The current time by every clock, on this machine and in the boot of `here`.
pub(crate) fn stamp(here: &Place) -> Stamp {
    let unix_ms = u64::try_from(timestamp().as_millisecond()).unwrap_or(0);
    Stamp { boot: here.boot.clone(), uptime_ms: uptime_ms(), unix_ms }
}

/// How long a caller may wait in total, whatever it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitBudget {
    since: Instant,
    most: Duration,
}

impl WaitBudget {
    /// A budget that started at `since`.
    pub(crate) fn of(most: Duration, since: Instant) -> WaitBudget {
        WaitBudget { since, most }
    }

    /// The same, but with at least `grace` from now on: for short operations that must be done.
    pub(crate) fn with_grace(&self, grace: Duration) -> WaitBudget {
        WaitBudget { since: self.since, most: self.most.max(self.spent().saturating_add(grace)) }
    }

    /// The remaining time.
    pub(crate) fn left(&self) -> Duration {
        self.most.saturating_sub(self.spent())
    }

    /// The elapsed time.
    pub(crate) fn spent(&self) -> Duration {
        self.since.elapsed()
    }
}
