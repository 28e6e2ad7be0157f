//! `CLOCK_BOOTTIME`, without the offset of the time namespace.

use rustix::time::{ClockId, clock_gettime};
use std::{fs, sync::OnceLock};

/// Nanoseconds since boot. Negative if the offset is wrong.
pub(crate) fn since_boot_ns() -> i128 {
    let time = clock_gettime(ClockId::Boottime);
    let shown = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    shown - namespace_offset_ns()
}

/// The offset of boot-based times in the time namespace of this process.
pub(crate) fn namespace_offset_ns() -> i128 {
    static OFFSET: OnceLock<i128> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let shown = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        boottime_offset_ns(&shown).unwrap_or(0)
    })
}

/// The offset of the boot clock in a time namespace, in nanoseconds, parsed from `/proc/self/timens_offsets`. It is
/// subtracted from recorded times: two namespaces of a machine share its boot id, and would otherwise see each other's
/// times far in the past or in the future.
fn boottime_offset_ns(shown: &str) -> Option<i128> {
    let fields = |line: &str| -> Option<i128> {
        let mut fields = line.split_ascii_whitespace();
        let ("boottime", seconds, nanos) = (fields.next()?, fields.next()?, fields.next()?) else { return None };
        Some(i128::from(seconds.parse::<i64>().ok()?) * 1_000_000_000 + i128::from(nanos.parse::<i64>().ok()?))
    };
    shown.lines().find_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_a_time_namespace_is_parsed() {
        for (shown, offset) in [
            ("monotonic           5         6\nboottime        86400         0\n", Some(86_400_000_000_000)),
            ("boottime -3 250000000", Some(-2_750_000_000)),
            ("monotonic 1 2\nboottime 0 0\n", Some(0)),
            ("monotonic 1 2\n", None),
            ("boottime x 0", None),
            ("", None),
        ] {
            assert_eq!(boottime_offset_ns(shown), offset, "{shown}");
        }
    }
}
