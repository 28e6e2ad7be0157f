//! Trying a store: whether its compare-and-swap and its clock are as they must be.

use crate::{
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    open, retrying,
    surroundings::Surroundings,
};
use git_fence_core::{StoreCheck, StoreCheckStep, StoreClock, StoreFault, StoreReading, StoreRecord, nonce_of};
use git_fence_system::clock;
use std::thread;

/// How many clients try at once.
const RIVALS: usize = 4;

/// Tries the store at `url`, with a record of its own, which is removed at the end.
pub(crate) fn try_out(url: &str, around: &Surroundings, until: &Deadline) -> Result<StoreCheck, StoreFault> {
    let mut engine = open(url, around)?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| StoreFault::unusable(e.to_string(), "report it"))?;
    let name = format!("git-fence-check/{}", nonce_of(random));
    let steps = try_record(&mut *engine, &name, url, around, until);
    let removed = engine.remove(&name, until);
    let mut steps = steps?;
    if let Err(fault) = removed {
        // Not needed for leases, which are never removed.
        steps.push(StoreCheckStep { claim: format!("the record '{name}' stays: {fault}"), but: None });
    }
    Ok(StoreCheck { steps, clocks: clocks(&mut *engine, until) })
}

fn try_record(
    engine: &mut dyn Engine,
    name: &str,
    url: &str,
    around: &Surroundings,
    until: &Deadline,
) -> Result<Vec<StoreCheckStep>, StoreFault> {
    let mut steps = Vec::new();
    let mut note = |claim: &str, holds: bool, seen: String| {
        steps.push(StoreCheckStep { claim: claim.to_owned(), but: (!holds).then_some(seen) });
    };
    let before = retrying::read(engine, name, until)?;
    note("it can be read", before.record.is_none(), format!("{:?}", before.record));
    let mut swap = |expected: Option<&StoreRecord>, next: &str| {
        retrying::swap(engine, &RecordSwap { name, expected, next, keep: false }, until)
    };
    let first = swap(None, "1")?;
    note("a record that is not there can be made", won(&first, "1").is_some(), format!("{first:?}"));
    let first = won(&first, "1").ok_or_else(|| no_record(&first))?;
    let twice = swap(None, "2")?;
    note("it can be made only once", lost_to(&twice, "1"), format!("{twice:?}"));
    let second = swap(Some(&first), "3")?;
    note("a record that is as expected can be replaced", won(&second, "3").is_some(), format!("{second:?}"));
    let second = won(&second, "3").ok_or_else(|| no_record(&second))?;
    let late = swap(Some(&first), "4")?;
    note("a record that is not as expected is not replaced", lost_to(&late, "3"), format!("{late:?}"));
    let seen = retrying::read(engine, name, until)?;
    note("what was written is read", body(&seen) == Some("3"), format!("{seen:?}"));
    let winners = race(name, &second, url, around, until)?;
    note(
        &format!("of {RIVALS} that replace it at the same time one wins"),
        winners.len() == 1,
        format!("{} won", winners.len()),
    );
    let after = retrying::read(engine, name, until)?;
    note(
        "and what the winner wrote is read",
        winners.iter().any(|won| body(&after) == Some(won)),
        format!("{after:?}"),
    );
    Ok(steps)
}

/// Replaces the same record from several connections. Returns what the winners wrote.
fn race(
    name: &str,
    from: &StoreRecord,
    url: &str,
    around: &Surroundings,
    until: &Deadline,
) -> Result<Vec<String>, StoreFault> {
    thread::scope(|scope| {
        let rival = |n: usize| {
            scope.spawn(move || -> Result<Option<String>, StoreFault> {
                let mut engine = open(url, around)?;
                let next = format!("rival {n}");
                let swap = RecordSwap { name, expected: Some(from), next: &next, keep: false };
                let answer = retrying::swap(&mut *engine, &swap, until)?;
                Ok(matches!(answer, SwapAttempt::Won { .. }).then_some(next))
            })
        };
        let all: Vec<_> = (0..RIVALS).map(rival).collect();
        let crashed = || Err(StoreFault::unusable("an attempt crashed", "report it"));
        all.into_iter().filter_map(|rival| rival.join().unwrap_or_else(|_| crashed()).transpose()).collect()
    })
}

fn clocks(engine: &mut dyn Engine, until: &Deadline) -> Vec<StoreClock> {
    let ours = || u64::try_from(clock::wall().as_millisecond()).unwrap_or(0);
    let ahead = |theirs: u64| i64::try_from(theirs).unwrap_or(i64::MAX) - i64::try_from(ours()).unwrap_or(0);
    let clock = |(endpoint, now): (String, Result<Option<u64>, StoreFault>)| StoreClock {
        endpoint,
        ahead_ms: now.ok().flatten().map(ahead),
    };
    engine.clocks(until).into_iter().map(clock).collect()
}

fn body(reading: &StoreReading) -> Option<&str> {
    reading.record.as_ref().map(|record| record.body.as_str())
}

/// The record after a swap that was won.
fn won(answer: &SwapAttempt, body: &str) -> Option<StoreRecord> {
    match answer {
        SwapAttempt::Won { version, .. } => Some(StoreRecord { version: version.clone(), body: body.to_owned() }),
        _ => None,
    }
}

fn lost_to(answer: &SwapAttempt, there: &str) -> bool {
    matches!(answer, SwapAttempt::Lost(reading) if body(reading) == Some(there))
}

fn no_record(answer: &SwapAttempt) -> StoreFault {
    match answer {
        SwapAttempt::Unknown { why } => StoreFault::unreachable(why),
        _ => StoreFault::unusable("it does not replace a record that is as expected", "it cannot keep leases"),
    }
}
