//! Checks the stores that keep the leases of fences: the gate must be able to ask them.

use crate::{
    commands::doctor::finding::{Finding, Severity},
    host::clock::{self, WaitBudget},
    push::store_question::{self, StoreAnswer},
};
use git_fence_core::{Mode, Rules, Settings, State, StoreUrl};
use std::time::{Duration, Instant};

/// How long a store may take to answer here.
const PATIENCE: Duration = Duration::from_secs(5);
/// A clock that is further off makes leases end at the wrong time.
const MOST_SKEW_MS: u64 = 10_000;

/// Asks the store of each fence. One that does not answer is asked once.
pub(super) fn check(state: &State, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut silent: Vec<&StoreUrl> = Vec::new();
    for rules in settings.fences.iter().filter(|rules| rules.mode != Mode::Off) {
        let Some(store) = rules.store.as_ref().filter(|store| !silent.contains(store)) else { continue };
        match store_question::ask(rules, &WaitBudget::of(PATIENCE, Instant::now())) {
            Some(Ok(answer)) => findings.extend(of_answer(&answer, state, rules, store)),
            Some(Err(fault)) => {
                silent.push(store);
                let sentence = format!(
                    "the gate cannot ask {store}, which keeps the leases of fence '{}': {}. Pushes under a lease are refused \
                     (FENCE-STORE): {}",
                    rules.fence, fault.why, fault.hint
                );
                findings.push(plain("store-unasked", Severity::Error, sentence));
            }
            None => {}
        }
    }
    findings
}

fn of_answer(answer: &StoreAnswer, state: &State, rules: &Rules, store: &StoreUrl) -> Vec<Finding> {
    let fence = state.fence(&rules.fence);
    let name = rules.store_place().map_or(String::new(), |place| place.name_of(&rules.fence));
    let mut findings = Vec::new();
    match &answer.entry {
        None => {
            let sentence = format!(
                "{store} has no record '{name}': nobody has taken a lease of fence '{}' there yet, or fence.resource is not \
                 the name that the clients use ('git fence status' shows it)",
                rules.fence
            );
            let has_been_used = fence.written.is_some_and(|standing| standing.last.is_some());
            let severity = if has_been_used { Severity::Error } else { Severity::Note };
            findings.push(plain("store-without-record", severity, sentence));
        }
        Some(entry) if entry.counter() < fence.mark => {
            let sentence = format!(
                "{store} has lost records: it has granted tokens up to {} for fence '{}', whose mark is {}. Leases from before \
                 are refused, and a new one gets a token above the mark",
                entry.counter(),
                rules.fence,
                fence.mark
            );
            findings.push(plain("store-behind", Severity::Warning, sentence));
        }
        Some(_) => {}
    }
    let ours = u64::try_from(clock::timestamp().as_millisecond()).unwrap_or(0);
    if let Some(off) = answer.now_ms.map(|now| now.abs_diff(ours)).filter(|off| *off > MOST_SKEW_MS) {
        let sentence = format!(
            "the clock of {store} and the clock of this machine differ by {} s: leases end earlier or later than they say",
            off / 1000
        );
        findings.push(plain("store-clock", Severity::Warning, sentence));
    }
    findings
}

/// A finding that no command here fixes.
fn plain(name: &'static str, severity: Severity, sentence: String) -> Finding {
    Finding { name, severity, sentence, fix: None }
}
