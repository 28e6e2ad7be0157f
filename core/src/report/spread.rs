//! The distribution of many durations, in little memory.

use std::iter;

/// Each doubling is divided into this many steps, so quantiles are exact to one part in 32.
const STEPS: u64 = 32;

/// Counts of durations in microseconds, in buckets of growing width. A quantile is never too small and at
/// most 1/32 (3.2 %) too large; count, sum and maximum are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// Grows to at most 1920 as longer durations come.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Spread {
    /// Adds a duration.
    pub fn add(&mut self, us: u64) {
        let bucket = bucket_of(us);
        if self.buckets.len() <= bucket {
            self.buckets.extend(iter::repeat_n(0, bucket + 1 - self.buckets.len()));
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(us);
        self.max = self.max.max(us);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The longest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The duration that `percent` of all do not exceed; `None` if there are none.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.count.saturating_mul(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(last_of(bucket).min(self.max))
    }
}

/// Below 32, each duration has its own bucket; above, the six leading bits select it.
fn bucket_of(us: u64) -> usize {
    let shift = us.checked_ilog2().map_or(0, |log| log.saturating_sub(STEPS.ilog2()));
    let bucket = u64::from(shift) * STEPS + (us >> shift);
    usize::try_from(bucket).expect("there are at most 1920 buckets")
}

/// The longest duration in the bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    let leading = bucket - shift * STEPS;
    // The last bucket ends at the largest number.
    u64::try_from(((u128::from(leading) + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_ends_at_or_slightly_above_its_durations() {
        let mut edges: Vec<u64> = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect();
        edges.extend([3, 31, 32, 33, 63, 64, 65, 100, 1_000, 30_000_000, 123_456_789, u64::MAX - 1, u64::MAX]);
        for us in edges {
            let last = last_of(bucket_of(us));
            assert!(last >= us && last - us <= us / STEPS, "{us} is reported as {last}");
        }
        assert_eq!(bucket_of(u64::MAX), 1919);
        assert!((1..100_000).all(|us| bucket_of(us) >= bucket_of(us - 1)));
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        assert_eq!(Spread::default().percentile(50), None);
        let mut spread = Spread::default();
        spread.add(7);
        assert_eq!((spread.percentile(50), spread.percentile(95), spread.max()), (Some(7), Some(7), 7));
        let mut spread = Spread::default();
        (1..=1000u64).rev().for_each(|n| spread.add(n * 1000));
        for (percent, exact) in [(0, 1_000), (50, 500_000), (95, 950_000), (100, 1_000_000)] {
            let shown = spread.percentile(percent).unwrap();
            assert!(shown >= exact && shown - exact <= exact / STEPS, "{percent}: {shown}");
        }
        assert_eq!((spread.count(), spread.sum(), spread.max()), (1000, 500_500_000, 1_000_000));
        assert_eq!(spread.percentile(100), Some(1_000_000), "the maximum is exact");
    }
}
