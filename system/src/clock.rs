//! The clocks. All reads of the time are here.
//!
//! The time since boot includes suspend, is the same in every namespace of a machine, and cannot be set. The wall clock
//! can be set by people.
//!
//! Another Unix: on macOS `CLOCK_MONOTONIC`, which continues while the machine sleeps (like `mach_continuous_time`), on
//! FreeBSD also `CLOCK_MONOTONIC`. Neither has time namespaces.

use crate::os;
use jiff::Timestamp;
use std::time::Duration;

/// The current time by the wall clock.
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// The time since boot, including suspend, as counted in the machine's first time namespace.
pub fn since_boot() -> Duration {
    Duration::from_nanos(u64::try_from(os::clock::since_boot_ns()).unwrap_or(0))
}

/// The same in milliseconds.
pub fn uptime_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}
