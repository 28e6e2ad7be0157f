//! The clock of this client, and deadlines.

use crate::surroundings::Environment;
use git_fence_core::Stamp;
use git_fence_system::{
    clock::{uptime_ms, wall},
    env, place,
};
use std::time::Duration;

/// The clock of this machine. Tests set it wrong on purpose.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    boot: String,
    offset_ms: i64,
}

impl Clock {
    /// `GIT_FENCE_CLOCK_OFFSET` (in seconds) moves the clock that can be set, to test the effect of a wrong one. The
    /// clock since boot is not moved: our own deadlines use that.
    pub(crate) fn of(environment: &Environment) -> Clock {
        let boot = place::boot_id().unwrap_or_default();
        let offset = environment.text(env::GIT_FENCE_CLOCK_OFFSET).and_then(|seconds| seconds.parse::<i64>().ok());
        Clock { boot, offset_ms: offset.unwrap_or(0).saturating_mul(1000) }
    }

    /// The current time, by every clock.
    pub(crate) fn now(&self) -> Stamp {
        let unix_ms = wall().as_millisecond().saturating_add(self.offset_ms);
        Stamp { boot: self.boot.clone(), uptime_ms: uptime_ms(), unix_ms: u64::try_from(unix_ms).unwrap_or(0) }
    }
}

/// The time `later` after `stamp`.
pub(crate) fn after(stamp: &Stamp, later: Duration) -> Stamp {
    let later = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
    Stamp {
        boot: stamp.boot.clone(),
        uptime_ms: stamp.uptime_ms.saturating_add(later),
        unix_ms: stamp.unix_ms.saturating_add(later),
    }
}

/// How much time is left until `end`.
pub(crate) fn left_until(end: &Stamp, now: &Stamp) -> Duration {
    now.age_at(end)
}
