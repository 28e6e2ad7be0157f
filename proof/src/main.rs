//! `git-fence-proof model`: visits every state of the models, and reports the result.

use git_fence_proof::{
    PushStyle,
    report::{self, CheckOutcome},
    scenarios,
    stored::{BarrierRule, GateRules, StoreRules, StoredScenario, asking_scenarios, smallest, stored_scenarios},
};
use stateright::HasDiscoveries;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    thread,
};

const USAGE: &str = "usage: git-fence-proof model [--naive | --without-companion | --hookless | --store] [SCENARIO]\n";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let is_good = match args[..] {
        ["model"] => gate(""),
        ["model", "--naive"] => naive(),
        ["model", "--without-companion"] => without_companion(),
        ["model", "--hookless"] => hookless(),
        ["model", "--store"] => stored(""),
        ["model", "--store", scenario] => stored(scenario),
        ["model", scenario] if !scenario.starts_with('-') => gate(scenario),
        _ => {
            let _ = io::stderr().write_all(USAGE.as_bytes());
            return ExitCode::from(2);
        }
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every scenario whose name contains `part`: all promises must hold.
fn gate(part: &str) -> bool {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut is_good = true;
    for scenario in scenarios().into_iter().filter(|scenario| scenario.name.contains(part)) {
        let (name, about) = (scenario.name, scenario.about);
        let (pushes, crashes) = (scenario.pushes.len(), scenario.crashes);
        let found = report::run(scenario, threads);
        is_good &= found.is_good();
        print(&format!("{name}: {about}\n  {pushes} pushes, {crashes} crashes; "), &found);
    }
    is_good
}

/// The gate as everyone writes it first: the checker must find its faults.
fn naive() -> bool {
    // A single thread, so that the shortest trace is found.
    let found = report::run(scenarios::naive(), 1);
    print("the gate as everyone writes it first\n  ", &found);
    !found.broken.is_empty()
}

/// Without the companion, a spent token becomes valid again: the checker must find this.
fn without_companion() -> bool {
    let found = report::run(scenarios::without_companion(), 1);
    print("without the companion\n  ", &found);
    !found.broken.is_empty()
}

/// Without a hook: the promises hold for git-fence's pushes, and the checker finds every omission.
fn hookless() -> bool {
    let whole = report::run_hookless(PushStyle::WHOLE, HasDiscoveries::All);
    print("without a hook, pushes as git-fence sends them\n  ", &whole);
    let mut is_good = whole.is_good();
    for (what, hole) in PushStyle::HOLES {
        let found = report::run_hookless(hole, HasDiscoveries::AnyFailures);
        print(&format!("{what}\n  "), &found);
        is_good &= !found.broken.is_empty();
    }
    is_good
}

/// Leases in a store: the promises that hold, without a gate and with one, and each omission.
fn stored(part: &str) -> bool {
    let mut is_good = true;
    for (how, rules) in StoreRules::WHOLE {
        for scenario in stored_scenarios() {
            is_good &= is_as_known(part, &scenario, how, rules);
        }
        for scenario in asking_scenarios() {
            is_good &= is_as_known(part, &scenario, &format!("{how}, and a gate"), rules.with(GateRules::WHOLE));
        }
    }
    let holes = StoreRules::HOLES.into_iter().chain(GateRules::HOLES);
    for (what, hole) in holes.filter(|_| part.is_empty()) {
        // A single thread, so that the shortest trace is found.
        let found = report::run_stored(smallest(hole.gate.is_some()), hole, 1, HasDiscoveries::AnyFailures);
        print(&format!("{what}\n  "), &found);
        is_good &= !found.broken.is_empty();
    }
    is_good
}

/// Whether a scenario whose name contains `part` breaks what is known to break, and nothing else.
fn is_as_known(part: &str, scenario: &StoredScenario, how: &str, rules: StoreRules) -> bool {
    if !scenario.name.contains(part) {
        return true;
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let found = report::run_stored(scenario.clone(), rules, threads, HasDiscoveries::All);
    print(&format!("{}, {how}: {}\n  ", scenario.name, scenario.about), &found);
    let broken: Vec<&str> = found.broken.iter().map(|(promise, _)| *promise).collect();
    let known = if rules.barrier == BarrierRule::WhenDue { &*scenario.breaks } else { &[] };
    broken == known && found.unseen.is_empty()
}

fn print(what: &str, found: &CheckOutcome) {
    let CheckOutcome { states, depth, took, broken, unseen } = found;
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{what}{states} states, {depth} steps deep, {:.1} s", took.as_secs_f64());
    for (promise, way) in broken {
        let _ = writeln!(out, "  broken: {promise}\n{way}");
    }
    if broken.is_empty() && !unseen.is_empty() {
        let _ = writeln!(out, "  never reached: {}", unseen.join(", "));
    }
    if found.is_good() {
        let _ = writeln!(out, "  all promises hold");
    }
}
