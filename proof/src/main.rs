//! `git-fence-proof model`: visits every state of the models, and reports the result.

use git_fence_proof::{
    PushStyle, TickRules,
    report::{self, CheckOutcome},
    scenarios,
    stored::{
        GateRules, Hole, StoreRules, StoredScenario, asking_scenarios, holes, needless, stored_scenarios,
        unasking_scenarios,
    },
};
use stateright::HasDiscoveries;
use std::{
    io::{self, Write as _},
    process::ExitCode,
    thread,
};

const USAGE: &str =
    "usage: git-fence-proof model [--naive | --without-companion | --hookless | --store | --ticks] [SCENARIO]\n";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let is_good = match args[..] {
        ["model"] => gate(""),
        ["model", "--naive"] => naive(),
        ["model", "--without-companion"] => without_companion(),
        ["model", "--hookless"] => hookless(),
        ["model", "--ticks"] => ticks(),
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

/// Schedules: each tick is started once, and the checker finds every omission.
fn ticks() -> bool {
    let mut is_good = true;
    for (what, rules) in TickRules::KEPT {
        let found = report::run_ticks(rules, HasDiscoveries::All);
        print(&format!("ticks, {what}\n  "), &found);
        is_good &= found.is_good();
    }
    for (what, hole) in TickRules::HOLES {
        let found = report::run_ticks(hole, HasDiscoveries::AnyFailures);
        print(&format!("{what}\n  "), &found);
        is_good &= !found.broken.is_empty();
    }
    is_good
}

/// Leases in a store: all promises must hold on each kind of remote, and each omission must show that matters alone.
fn stored(part: &str) -> bool {
    let remotes = [
        ("no gate", StoreRules::WHOLE, stored_scenarios()),
        ("a gate that asks the store", StoreRules::WHOLE.with(GateRules::ASKING), asking_scenarios()),
        ("a gate that does not", StoreRules::WHOLE.with(GateRules::UNASKING), unasking_scenarios()),
    ];
    let mut is_good = true;
    for (remote, rules, scenarios) in remotes {
        for scenario in scenarios {
            let name = format!("{}, {remote}", scenario.name);
            if name.contains(part) {
                is_good &= keeps_all(&name, scenario, rules);
            }
        }
    }
    for Hole { what, scenario, rules } in holes().into_iter().filter(|hole| hole.what.contains(part)) {
        // A single thread, so that the shortest trace is found.
        let found = report::run_stored(scenario, rules, 1, HasDiscoveries::AnyFailures);
        print(&format!("{what}\n  "), &found);
        is_good &= !found.broken.is_empty();
    }
    for Hole { what, scenario, rules } in needless().into_iter().filter(|hole| hole.what.contains(part)) {
        is_good &= keeps_all(what, scenario, rules);
    }
    is_good
}

fn keeps_all(what: &str, scenario: StoredScenario, rules: StoreRules) -> bool {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let about = scenario.about;
    let found = report::run_stored(scenario, rules, threads, HasDiscoveries::All);
    print(&format!("{what}: {about}\n  "), &found);
    found.is_good()
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
