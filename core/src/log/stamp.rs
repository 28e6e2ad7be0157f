//! When something was recorded, by every clock that may be needed later.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A moment on the machine that recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The kernel's boot id.
    pub boot: String,
    /// Milliseconds since boot, including suspend, in the machine's initial time namespace.
    pub uptime_ms: u64,
    /// Milliseconds since 1970, by a clock that can be set.
    pub unix_ms: u64,
}

impl Stamp {
    /// The time from this stamp to `now`; zero if the stamp is in the future. Within one boot it uses the clock
    /// that cannot be set.
    pub fn age_at(&self, now: &Stamp) -> Duration {
        Duration::from_millis(if self.boot == now.boot {
            now.uptime_ms.saturating_sub(self.uptime_ms)
        } else {
            now.unix_ms.saturating_sub(self.unix_ms)
        })
    }

    /// Whether this stamp is in the future at `now`: the clock was ahead when it was recorded, or is behind now.
    pub fn is_ahead_of(&self, now: &Stamp) -> bool {
        if self.boot == now.boot { self.uptime_ms > now.uptime_ms } else { self.unix_ms > now.unix_ms }
    }

    /// The time by the clock that can be set, in the format of the log: RFC 3339, UTC, milliseconds.
    pub fn written(&self) -> String {
        let time = i64::try_from(self.unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        format!("{:.3}", time.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// The later of two stamps.
    pub fn or_later(self, other: &Stamp) -> Stamp {
        if self.age_at(other).is_zero() { self } else { other.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_one_boot_the_monotonic_clock_counts() {
        let at = |boot: &str, uptime_ms, unix_ms| Stamp { boot: boot.to_owned(), uptime_ms, unix_ms };
        let then = at("a", 1_000, 1_000_000);
        assert_eq!(then.age_at(&at("a", 5_000, 900_000)), Duration::from_secs(4));
        assert_eq!(then.age_at(&at("b", 10, 1_007_000)), Duration::from_secs(7));
        assert_eq!(then.age_at(&at("b", 10, 900_000)), Duration::ZERO);
        for (now, is_ahead) in [
            (at("a", 999, 9_000_000), true),
            (at("a", 1_000, 0), false),
            (at("b", 9_000, 999_999), true),
            (at("b", 0, 1_000_000), false),
        ] {
            assert_eq!(then.is_ahead_of(&now), is_ahead, "{now:?}");
        }
        assert_eq!(then.clone().or_later(&at("a", 5_000, 0)).uptime_ms, 5_000);
        assert_eq!(then.or_later(&at("a", 500, 0)).uptime_ms, 1_000);
    }
}
