//! The clocks: the one place that asks the time.

use jiff::Timestamp;
use std::time::{Duration, Instant};

/// Now, as the log writes it: RFC 3339, UTC, milliseconds.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// How far `time`, as the log writes it, is from now; in either direction, for clocks get set back.
pub(crate) fn distance_from_now(time: &str) -> Option<Duration> {
    let then: Timestamp = time.parse().ok()?;
    Some(Timestamp::now().duration_since(then).unsigned_abs())
}

/// Milliseconds since boot by the clock that counts suspend.
pub(crate) fn uptime_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// How long a push may wait, in all, whatever it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    since: Instant,
    most: Duration,
}

impl Patience {
    /// Patience that began at `since`.
    pub(crate) fn of(most: Duration, since: Instant) -> Patience {
        Patience { since, most }
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
