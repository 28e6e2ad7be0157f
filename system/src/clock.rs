//! The clocks: the one place that asks the time.
//!
//! The time since the boot counts suspend, is the same in every namespace of a machine, and is set by nobody. The wall
//! clock is what people set.
//!
//! Another Unix: on macOS `CLOCK_MONOTONIC`, which goes on while the machine is asleep (as `mach_continuous_time` does), on
//! FreeBSD `CLOCK_MONOTONIC`, too. Neither has time namespaces.

use crate::os;
use jiff::Timestamp;
use std::time::Duration;

/// Now, by the clock that people set.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// The time since the boot, suspend included, as the machine's first time namespace counts it.
pub fn since_boot() -> Duration {
    Duration::from_nanos(u64::try_from(os::clock::since_boot_ns()).unwrap_or(0))
}

/// The same in milliseconds.
pub fn uptime_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}
