//! Samples of several subjects in one run: each round takes one of each, in another order, so that whatever else the
//! machine does meets all of them alike. Only ratios within a run mean something.

use crate::{Outcome, row::Ratio, spread::Spread};
use std::time::{Duration, Instant};

/// One that is measured. It returns how long the part that counts has taken.
pub(crate) type Subject<'a> = Box<dyn FnMut() -> Outcome<Duration> + 'a>;

/// Samples in milliseconds: of each subject, one for each round.
#[derive(Debug)]
pub(crate) struct Samples(Vec<Vec<f64>>);

/// Takes `rounds` samples of each subject, after `warm_up` rounds that do not count.
pub(crate) fn interleaved(rounds: usize, warm_up: usize, subjects: &mut [Subject<'_>]) -> Outcome<Samples> {
    let mut samples = vec![Vec::with_capacity(rounds); subjects.len()];
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    let mut shuffle = Shuffle(0x5eed);
    for round in 0..warm_up + rounds {
        shuffle.shuffle(&mut order);
        for &subject in &order {
            let took = subjects[subject]()?;
            if round >= warm_up {
                samples[subject].push(took.as_secs_f64() * 1000.0);
            }
        }
    }
    Ok(Samples(samples))
}

/// A subject all of whose work counts.
pub(crate) fn timed<'a>(mut work: impl FnMut() -> Outcome<()> + 'a) -> Subject<'a> {
    Box::new(move || {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed())
    })
}

impl Samples {
    /// Adds what is left of `subject` without `part`, round by round, as a subject of its own. Returns its number.
    pub(crate) fn without(&mut self, subject: usize, part: usize) -> usize {
        let pairs = self.0[subject].iter().zip(&self.0[part]);
        let left = pairs.map(|(all, part)| all - part).collect();
        self.0.push(left);
        self.0.len() - 1
    }

    /// The ratio of the medians, with the spread of the ratios of single rounds.
    pub(crate) fn ratio(&self, subject: usize, base: usize) -> Outcome<Ratio> {
        let (of, over) = (&self.0[subject], &self.0[base]);
        let rounds: Vec<f64> = of.iter().zip(over).map(|(of, over)| of / over).collect();
        let spread = |samples: &[f64]| Spread::of(samples).ok_or("there are no samples");
        let (of, over, rounds) = (spread(of)?, spread(over)?, spread(&rounds)?);
        Ok(Ratio { ratio: of.median / over.median, low: rounds.low, high: rounds.high, of_ms: of, over_ms: over })
    }
}

/// Numbers that need not be random, only without order.
struct Shuffle(u64);

impl Shuffle {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_round_has_every_subject_once_and_orders_differ() {
        let seen = RefCell::new(Vec::new());
        let subject = |n: usize| -> Subject<'_> {
            let seen = &seen;
            Box::new(move || {
                seen.borrow_mut().push(n);
                Ok(Duration::from_millis(n as u64))
            })
        };
        let samples = interleaved(20, 5, &mut [subject(0), subject(1), subject(2)]).unwrap();
        assert_eq!(samples.0.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 20], "warming up does not count");
        let seen = seen.into_inner();
        let mut orders: Vec<&[usize]> = seen.chunks(3).collect();
        assert_eq!(orders.len(), 25);
        assert!(orders.iter().all(|order| order.iter().sum::<usize>() == 3), "{orders:?}");
        orders.sort();
        orders.dedup();
        assert_eq!(orders.len(), 6, "every order comes");
    }

    #[test]
    fn ratio_is_that_of_the_medians() {
        let mut samples = Samples(vec![vec![3.0, 6.0, 9.0], vec![2.0, 2.0, 3.0], vec![1.0, 1.0, 1.0]]);
        let ratio = samples.ratio(0, 1).unwrap();
        assert_eq!((ratio.ratio, ratio.low, ratio.high), (3.0, 2.25, 3.0));
        assert_eq!((ratio.of_ms.median, ratio.over_ms.median), (6.0, 2.0));
        let rest = samples.without(0, 2);
        assert_eq!(samples.0[rest], [2.0, 5.0, 8.0]);
        assert!(Samples(vec![vec![], vec![]]).ratio(0, 1).is_err());
    }

    #[test]
    fn failure_of_a_subject_ends_the_run() {
        let failing: Subject<'_> = Box::new(|| Err("it failed".into()));
        assert_eq!(interleaved(1, 0, &mut [failing]).unwrap_err().to_string(), "it failed");
    }
}
