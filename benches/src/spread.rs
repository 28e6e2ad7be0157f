//! The middle of many samples, and how far they spread.

use serde::Serialize;

/// Median and quartiles: a few samples that something else on the machine has disturbed do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// A quarter of the samples is below this.
    pub(crate) low: f64,
    /// A quarter of the samples is above this.
    pub(crate) high: f64,
}

impl Spread {
    /// None if there are no samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| quantile(&sorted, part);
        Some(Spread { median: at(0.5)?, low: at(0.25)?, high: at(0.75)? })
    }
}

/// Between two samples, the value on the line between them.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = part * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (below_it, above_it) = (sorted[below], sorted[above]);
    Some(below_it + (above_it - below_it) * (place - place.floor()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_quartiles() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[2.0]), Some(Spread { median: 2.0, low: 2.0, high: 2.0 }));
        assert_eq!(Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some(Spread { median: 3.0, low: 2.0, high: 4.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0, 2.0]), Some(Spread { median: 2.5, low: 1.75, high: 3.25 }));
    }

    #[test]
    fn single_wild_sample_changes_nothing() {
        let calm = Spread::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(Spread::of(&[1.0, 2.0, 3.0, 4.0, 5000.0]), calm);
    }
}
