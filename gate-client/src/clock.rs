//! The clocks: the one place that asks the time.

use crate::surroundings::Environment;
use git_fence_core::{Stamp, boottime_offset_ns};
use std::{fs, sync::OnceLock, time::Duration};

/// A clock of this machine. Tests set it wrong on purpose.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    boot: String,
    offset_ms: i64,
}

impl Clock {
    /// `GIT_FENCE_CLOCK_OFFSET` (seconds) moves the clock that people set, to test what a wrong one
    /// does. The clock that counts since the boot is not touched: deadlines of our own go by that.
    pub(crate) fn of(environment: &Environment) -> Clock {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let offset = environment.text("GIT_FENCE_CLOCK_OFFSET").and_then(|seconds| seconds.parse::<i64>().ok());
        Clock { boot, offset_ms: offset.unwrap_or(0).saturating_mul(1000) }
    }

    /// Now, by every clock.
    pub(crate) fn now(&self) -> Stamp {
        let unix_ms = jiff::Timestamp::now().as_millisecond().saturating_add(self.offset_ms);
        Stamp { boot: self.boot.clone(), uptime_ms: uptime_ms(), unix_ms: u64::try_from(unix_ms).unwrap_or(0) }
    }
}

/// Milliseconds since boot by the clock that counts suspend, the same in every time namespace.
fn uptime_ms() -> u64 {
    static OFFSET: OnceLock<i128> = OnceLock::new();
    let offset = OFFSET.get_or_init(|| {
        let shown = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        boottime_offset_ns(&shown).unwrap_or(0)
    });
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let shown = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from((shown - offset) / 1_000_000).unwrap_or(0)
}

/// The moment `later` after `stamp`.
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
