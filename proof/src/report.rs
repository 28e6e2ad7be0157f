//! Runs a model and reports the result.

use crate::{
    hookless::{self, Hookless, PushStyle},
    numbers::{NAMES, NONE, START},
    protocol::Protocol,
    scenarios::{Kind, Scenario},
    steps::ModelStep,
    stored::{self, StoreRules, Stored, StoredScenario},
    ticks::{self, TickRules, Ticks},
    world::World,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Remembers violations, so that the first trace is kept and not the last.
#[derive(Debug, Default)]
pub struct Latches([AtomicBool; 16]);

impl Latches {
    /// Whether `holds` is true, or was false before.
    pub fn first(&self, n: usize, holds: impl FnOnce() -> bool) -> bool {
        self.0[n].load(Ordering::Relaxed) || holds() || {
            self.0[n].store(true, Ordering::Relaxed);
            false
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct CheckOutcome {
    /// The number of different states.
    pub states: usize,
    /// The maximum number of steps to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The broken promises, each with the shortest trace.
    pub broken: Vec<(&'static str, String)>,
    /// What should have been reachable and was not.
    pub unseen: Vec<&'static str>,
}

impl CheckOutcome {
    /// Whether all promises hold, and not vacuously.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.unseen.is_empty()
    }
}

/// Visits every state of a model, breadth first; `show` formats a trace.
pub fn explore<M>(
    model: M,
    threads: usize,
    until: HasDiscoveries,
    show: impl Fn(&M, Vec<(M::State, Option<M::Action>)>) -> String,
) -> CheckOutcome
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + Send + Sync + std::fmt::Debug + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let start = Instant::now();
    let checker = model.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let mut found = checker.discoveries();
    let (mut broken, mut unseen) = (Vec::new(), Vec::new());
    for property in checker.model().properties() {
        match (property.expectation, found.remove(property.name)) {
            (Expectation::Sometimes, None) => unseen.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => broken.push((property.name, show(checker.model(), path.into_vec()))),
        }
    }
    CheckOutcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: start.elapsed(),
        broken,
        unseen,
    }
}

/// Visits every state of a scenario.
pub fn run(scenario: Scenario, threads: usize) -> CheckOutcome {
    explore(Protocol::of(scenario), threads, HasDiscoveries::All, |model, path| {
        let mut text = String::new();
        for (n, (world, step)) in path.iter().enumerate() {
            let Some(step) = step else { break };
            let after = path.get(n + 1).map_or(world, |(after, _)| after);
            let _ = writeln!(text, "{:>4}. {}", n + 1, line(model, world, step, after));
        }
        text
    })
}

/// Visits every state of a remote without a hook.
pub fn run_hookless(how: PushStyle, until: HasDiscoveries) -> CheckOutcome {
    explore(Hookless { how, latches: Latches::default() }, 1, until, |_, path| {
        let steps = path.into_iter().filter_map(|(_, step)| step).enumerate();
        steps.map(|(n, step)| format!("{:>4}. {}\n", n + 1, hookless::line(step))).collect()
    })
}

/// Visits every state of the memory of schedules.
pub fn run_ticks(rules: TickRules, until: HasDiscoveries) -> CheckOutcome {
    explore(Ticks::new(rules), 1, until, |_, path| {
        let steps = path.into_iter().filter_map(|(_, step)| step).enumerate();
        steps.map(|(n, step)| format!("{:>4}. {}\n", n + 1, ticks::line(step))).collect()
    })
}

/// Visits every state of a remote whose leases are in a store.
pub fn run_stored(scenario: StoredScenario, rules: StoreRules, threads: usize, until: HasDiscoveries) -> CheckOutcome {
    explore(Stored::of(scenario, rules), threads, until, |model, path| {
        let mut text = String::new();
        for (n, (world, step)) in path.iter().enumerate() {
            let Some(step) = step else { break };
            let after = path.get(n + 1).map_or(world, |(after, _)| after);
            let _ = writeln!(text, "{:>4}. {}", n + 1, stored::line(model, world, *step, after).trim_end());
        }
        text
    })
}

fn line(model: &Protocol, before: &World, step: &ModelStep, after: &World) -> String {
    let who = |p: usize| format!("{:<10}", name_of(model, after, p));
    let marks = || {
        let state = &after.now().state;
        let marks: Vec<String> = state.marks.iter().map(|(fence, mark)| format!("{fence} {mark}")).collect();
        if marks.is_empty() { "no mark".to_owned() } else { format!("mark: {}", marks.join(", ")) }
    };
    let moved = || {
        let moved = (0..NAMES.len()).filter(|on| before.refs[*on] != after.refs[*on]).map(|on| {
            let to = match after.refs[on] {
                NONE => "is deleted".to_owned(),
                START => "is reset to its initial value".to_owned(),
                _ => "moves".to_owned(),
            };
            format!("{} {to}", NAMES[on])
        });
        let moved: Vec<String> = moved.collect();
        if moved.is_empty() { "nothing moves".to_owned() } else { moved.join(", ") }
    };
    match *step {
        ModelStep::Connect(p) => format!("{} connects", who(p)),
        ModelStep::Judge(p) => {
            let is_refused = after.pushes[p].declined;
            format!("{} pre-receive: {} ({})", who(p), if is_refused { "refused" } else { "admitted" }, marks())
        }
        ModelStep::GiveUp(p) => format!("{} has waited long enough: FENCE-BUSY", who(p)),
        ModelStep::Sync(p) => format!("{} the log is synced, the hook exits", who(p)),
        ModelStep::Update(p) => format!("{} receive-pack: {}", who(p), moved()),
        ModelStep::Decline(p) => format!("{} receive-pack: the update hook declines a ref", who(p)),
        ModelStep::Exit(p) => format!("{} reports to its client", who(p)),
        ModelStep::Companion(p) => {
            format!("{} post-receive: the updated refs are recorded ({})", who(p), marks())
        }
        ModelStep::Reset(_) => format!("a local writer: {}", moved()),
        ModelStep::Lose(p) => format!("{} the connection to its client is lost", who(p)),
        ModelStep::KillHook(p) => format!("{} its hook is killed", who(p)),
        ModelStep::KillReceivePack(p) => format!("{} its receive-pack is killed", who(p)),
        ModelStep::Tear(p, _) => format!("{} its receive-pack is killed in its transaction: {}", who(p), moved()),
        ModelStep::Restart(..) => format!("the machine is restarted ({}; {})", marks(), moved()),
        ModelStep::Tick => "time passes".to_owned(),
    }
}

fn name_of(model: &Protocol, world: &World, p: usize) -> String {
    let script = &model.scenario.pushes[p];
    let push = &world.pushes[p];
    match (script.kind, push.tokens.iter().flatten().next()) {
        (Kind::Plain, Some(token)) => format!("token {token}"),
        (Kind::Plain, None) => format!("push {p}"),
        (kind, _) => format!("run {}: {}", script.client, format!("{kind:?}").to_lowercase()),
    }
}
