//! Attempts until the deadline, with pauses that keep clients out of step.
//!
//! To send the same swap again is safe. If the first one lands later, it finds another version; if it has landed, the second
//! one loses against a record with the body of both, and that is a win. If the second one loses against somebody else's, the
//! first may have landed and been replaced since: only whoever reads the record can tell, so that stays unknown.

use crate::{
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReading};
use std::{thread, time::Duration};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Reads a record.
pub(crate) fn read(engine: &mut dyn Engine, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
    while_unreachable(until, || engine.read(name, until))
}

/// Makes what the engine needs. To make it twice is to find it.
pub(crate) fn init(engine: &mut dyn Engine, until: &Deadline) -> Result<Vec<String>, StoreFault> {
    while_unreachable(until, || engine.init(until))
}

fn while_unreachable<T>(until: &Deadline, mut attempt: impl FnMut() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
    let mut pauses = Pauses::new(until);
    loop {
        match attempt() {
            Err(fault) if fault.kind == StoreFaultKind::Unreachable && pauses.pause() => {}
            outcome => return outcome,
        }
    }
}

/// Swaps a record, and finds out what became of attempts whose answer was lost.
pub(crate) fn swap(
    engine: &mut dyn Engine,
    swap: &RecordSwap<'_>,
    until: &Deadline,
) -> Result<SwapAttempt, StoreFault> {
    let mut pauses = Pauses::new(until);
    let mut lost_answer: Option<String> = None;
    loop {
        match (engine.swap(swap, until), lost_answer.clone()) {
            (Ok(SwapAttempt::Won { version, now_ms }), _) => return Ok(SwapAttempt::Won { version, now_ms }),
            (Ok(SwapAttempt::Lost(reading)), before) => return Ok(won_or_lost(swap, reading, before)),
            (Ok(SwapAttempt::Unknown { why }), _) => {
                lost_answer = Some(why.clone());
                if !pauses.pause() {
                    return Ok(SwapAttempt::Unknown { why });
                }
            }
            (Err(fault), _) if fault.kind == StoreFaultKind::Unreachable && pauses.pause() => {}
            // This attempt failed for good, and an earlier one may have landed.
            (Err(_), Some(why)) => return Ok(SwapAttempt::Unknown { why }),
            (Err(fault), None) => return Err(fault),
        }
    }
}

/// A swap that was lost but shows our own body was won: bodies have a nonce.
fn won_or_lost(swap: &RecordSwap<'_>, reading: StoreReading, lost_answer: Option<String>) -> SwapAttempt {
    match (&reading.record, lost_answer) {
        (Some(record), _) if record.body == swap.next => {
            SwapAttempt::Won { version: record.version.clone(), now_ms: reading.now_ms }
        }
        (_, Some(why)) => SwapAttempt::Unknown { why: format!("{why}; others have replaced the record since") },
        (_, None) => SwapAttempt::Lost(reading),
    }
}

/// Growing pauses with jitter.
struct Pauses<'a> {
    until: &'a Deadline,
    next: Duration,
}

impl<'a> Pauses<'a> {
    fn new(until: &'a Deadline) -> Pauses<'a> {
        Pauses { until, next: FIRST_PAUSE }
    }

    /// Pauses; returns whether there is time for another attempt.
    fn pause(&mut self) -> bool {
        let pause = self.next.mul_f64(0.5 + jitter());
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        if pause >= self.until.left() {
            return false;
        }
        thread::sleep(pause);
        self.until.time_for_an_attempt().is_ok()
    }
}

/// A number from 0 to 1.
fn jitter() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness pauses are merely in step.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::StoreRecord;
    use std::collections::VecDeque;

    /// Answers as it is told to.
    struct Told(VecDeque<Result<SwapAttempt, StoreFault>>);

    impl Engine for Told {
        fn read(&mut self, _: &str, _: &Deadline) -> Result<StoreReading, StoreFault> {
            unreachable!("a swap reads for itself")
        }

        fn swap(&mut self, _: &RecordSwap<'_>, _: &Deadline) -> Result<SwapAttempt, StoreFault> {
            self.0.pop_front().unwrap_or_else(|| Err(StoreFault::unreachable("gone")))
        }

        fn remove(&mut self, _: &str, _: &Deadline) -> Result<(), StoreFault> {
            Ok(())
        }

        fn clocks(&mut self, _: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
            Vec::new()
        }
    }

    fn outcome(answers: Vec<Result<SwapAttempt, StoreFault>>) -> Result<SwapAttempt, StoreFault> {
        let mut told = Told(answers.into());
        let wanted = RecordSwap { name: "n", expected: None, next: "ours", keep: false };
        swap(&mut told, &wanted, &Deadline::within(Duration::from_millis(400)))
    }

    fn showing(body: &str) -> SwapAttempt {
        let record = StoreRecord { version: "2".to_owned(), body: body.to_owned() };
        SwapAttempt::Lost(StoreReading { record: Some(record), now_ms: None })
    }

    fn unknown() -> SwapAttempt {
        SwapAttempt::Unknown { why: "cut".to_owned() }
    }

    #[test]
    fn lost_answer_is_settled_by_the_same_swap() {
        let won = SwapAttempt::Won { version: "2".to_owned(), now_ms: None };
        assert_eq!(outcome(vec![Ok(unknown()), Ok(showing("ours"))]), Ok(won.clone()), "the first had landed");
        assert_eq!(outcome(vec![Ok(unknown()), Ok(won.clone())]), Ok(won), "the first never lands now");
        assert_eq!(outcome(vec![Ok(showing("theirs"))]), Ok(showing("theirs")));
    }

    #[test]
    fn nothing_is_called_lost_that_may_have_landed() {
        let denied = || Err(StoreFault::denied("password changed", ""));
        assert_eq!(outcome(vec![Ok(unknown()), denied()]), Ok(unknown()));
        assert_eq!(outcome(vec![Ok(unknown())]), Ok(unknown()), "unreachable from then on");
        let replaced = outcome(vec![Ok(unknown()), Ok(showing("theirs"))]);
        assert!(
            matches!(replaced, Ok(SwapAttempt::Unknown { .. })),
            "landed and replaced, or never landed: {replaced:?}"
        );
        assert_eq!(outcome(vec![denied()]).unwrap_err().kind, StoreFaultKind::Denied);
        assert_eq!(outcome(vec![]).unwrap_err().kind, StoreFaultKind::Unreachable);
    }
}
