//! How long healthy runs take, and the TTL that follows from it.

use crate::Ttl;
use std::time::Duration;

/// The fewest runs from which to suggest anything.
const ENOUGH_RUNS: u64 = 5;
/// Nobody needs a TTL that is shorter: a heartbeat over the network takes its time.
const SHORTEST: u64 = 30;
/// What people call round, in seconds; the roundest first.
const ROUND: [u64; 12] = [86_400, 21_600, 3600, 1800, 900, 600, 300, 60, 30, 10, 5, 1];

/// The runs that ended well: whose owner released the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthyRuns {
    /// How many.
    pub count: u64,
    /// How long the longest held the lease.
    pub longest: Duration,
}

impl HealthyRuns {
    pub(crate) fn add(&mut self, held: Duration) {
        self.count += 1;
        self.longest = self.longest.max(held);
    }

    /// A TTL of one and a half times to twice the longest run, as round as possible: such a run ends before its lease does, even
    /// if none of its heartbeats arrives. None of fewer than five runs, or if no TTL is that long.
    pub fn suggested_ttl(&self) -> Option<Ttl> {
        let longest = self.longest.as_millis();
        let least = u64::try_from((longest * 3).div_ceil(2 * 1000)).ok()?.max(SHORTEST);
        let most = u64::try_from(longest * 2 / 1000).ok()?.max(SHORTEST);
        let in_steps_of = |step: u64| Some(least.div_ceil(step) * step).filter(|seconds| *seconds <= most);
        let seconds = ROUND.into_iter().find_map(in_steps_of).filter(|_| self.count >= ENOUGH_RUNS)?;
        Ttl::of_seconds(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_round_and_between_one_and_a_half_times_and_twice_the_longest_run() {
        for (longest, suggested) in [
            (Duration::ZERO, 30),
            (Duration::from_millis(1), 30),
            (Duration::from_secs(19), 30),
            (Duration::from_secs(21), 40),
            (Duration::from_secs(60), 120),
            (Duration::from_secs(45 * 60), 90 * 60),
            (Duration::from_secs(50 * 60), 90 * 60),
            (Duration::from_secs(3600), 7200),
            (Duration::from_secs(4 * 86_400), 6 * 86_400),
        ] {
            let runs = HealthyRuns { count: 5, longest };
            assert_eq!(runs.suggested_ttl().map(u64::from), Some(suggested), "{longest:?}");
        }
        for ms in (20_000..3_000_000).step_by(777) {
            let longest = Duration::from_millis(ms);
            let ttl = HealthyRuns { count: 5, longest }.suggested_ttl().unwrap().duration();
            assert!(ttl * 2 >= longest * 3 && (ttl <= longest * 2 || ttl.as_secs() == SHORTEST), "{longest:?} {ttl:?}");
        }
    }

    #[test]
    fn nothing_is_suggested_from_few_runs_or_beyond_the_longest_ttl() {
        let of = |count, days: u64| HealthyRuns { count, longest: Duration::from_secs(days * 86_400) }.suggested_ttl();
        assert_eq!((of(4, 1), of(5, 6), of(5, u64::MAX / 86_400)), (None, None, None));
        assert!(of(5, 1).is_some());
        let mut runs = HealthyRuns::default();
        [3, 9, 5].into_iter().for_each(|seconds| runs.add(Duration::from_secs(seconds)));
        assert_eq!(runs, HealthyRuns { count: 3, longest: Duration::from_secs(9) });
    }
}
