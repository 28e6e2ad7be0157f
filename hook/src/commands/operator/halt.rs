//! Halting fences, and resuming them: the switch that stops a fleet.
//!
//! A halt moves the lease, as a revocation does, so whoever holds it is refused from then on. It goes before every push that
//! has no slot yet, waits for the one that has, evicts it if it does not end, and says what became of it.

use crate::{
    commands::{
        fleet::{self, OneOrAll},
        operator::{
            Operator, reason_given,
            revoke::{self, kept_elsewhere, refused},
            turn::Awaited,
        },
    },
    failure::CommandError,
    host::{clock, surroundings::Environment},
    log::{
        history,
        store::{Durability, Store},
    },
    push::catch_up,
};
use git_fence_core::{
    Event, FenceName, FenceNameError, Halt, Lease, LeaseState, Mode, Purpose, PushId, Rules, Standing, Token,
    few_words, text,
};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    path::Path,
};

/// The options of `halt` and `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct HaltArgs {
    #[command(flatten)]
    place: OneOrAll,
    /// The fence; repeat it for several [default: repo]
    #[arg(long, value_name = "NAME", value_parser = fence)]
    fence: Vec<FenceName>,
    /// Every fence of the repository
    #[arg(long, conflicts_with = "fence")]
    all: bool,
    /// Why, for the log and for those who are stopped
    #[arg(long)]
    reason: String,
    /// Print a line of JSON for each repository
    #[arg(long)]
    json: bool,
}

fn fence(name: &str) -> Result<FenceName, FenceNameError> {
    FenceName::read(name.as_bytes())
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    Halt,
    Resume,
}

impl Switch {
    fn verb(self) -> &'static str {
        match self {
            Switch::Halt => "halt",
            Switch::Resume => "resume",
        }
    }
}

/// What came of one fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum HaltOutcome {
    Halted,
    AlreadyHalted,
    Resumed,
    NotHalted,
    Failed,
}

/// A repository, and what came of its fences.
#[derive(Debug, Serialize)]
struct HaltReport {
    repository: String,
    fences: Vec<FenceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct FenceReport {
    fence: FenceName,
    outcome: HaltOutcome,
    /// The halt that stands, or that was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    halt: Option<Halt>,
    /// Who held the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<LastOwner>,
    /// The pushes that were in flight.
    in_flight: Vec<FlightReport>,
    /// Whether pushes that move no lease are only observed.
    observes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
struct LastOwner {
    owner: String,
    token: Token,
}

/// A push that was in flight, and what became of it.
#[derive(Debug, Serialize)]
struct FlightReport {
    push: PushId,
    pusher: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    /// How many of its refs moved; none if its end is not in the log yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<usize>,
    count: usize,
    /// Whether it was ended because it did not end by itself.
    evicted: bool,
}

/// `git-fence-hook halt` and `git-fence-hook resume`.
pub(crate) fn run(switch: Switch, args: &HaltArgs, environment: &Environment) -> Result<(), CommandError> {
    let reason = reason_given(&args.reason)?;
    let one = |dir: &Path| turn(dir, switch, args, &reason, environment);
    if args.json {
        let report = |dir: &Path| one(dir).unwrap_or_else(|failure| HaltReport::failed(dir, &failure));
        return fleet::each_in_json(&args.place, report, HaltReport::is_done);
    }
    if args.place.recursive {
        return fleet::each_below(&args.place.repository, |dir| one(dir)?.in_one_line());
    }
    let report = one(&args.place.repository)?;
    let mut out = io::stdout().lock();
    for fence in &report.fences {
        writeln!(out, "fence '{}'  {fence}", fence.fence)?;
    }
    match report.fences.iter().find(|fence| fence.outcome == HaltOutcome::Failed) {
        None => Ok(()),
        Some(FenceReport { fence, error, hint, .. }) => Err(CommandError::Other {
            what: format!("fence '{fence}': {}", error.clone().unwrap_or_default()),
            hint: hint.clone().unwrap_or_else(|| "run it again when the cause is gone: it is harmless".to_owned()),
        }),
    }
}

/// Halts or resumes the fences of a repository. One that fails does not stop the others.
fn turn(
    dir: &Path,
    switch: Switch,
    args: &HaltArgs,
    reason: &str,
    environment: &Environment,
) -> Result<HaltReport, CommandError> {
    let operator = Operator::at(dir, environment)?;
    let names: Vec<FenceName> = match (&args.fence[..], args.all) {
        ([], false) => vec![FenceName::repo()],
        (_, true) => all_fences(&operator, switch),
        (named, false) => named.to_vec(),
    };
    for name in &args.fence {
        operator.settings.fence_called(name).map_err(|no_fence| CommandError::Other {
            what: no_fence.to_string(),
            hint: "list the fences:  git-fence-hook status".to_owned(),
        })?;
    }
    let one = |fence: FenceName| {
        let rules = operator.rules(&fence);
        let done = match switch {
            _ if rules.is_family() => Err(new_members_go_on(&fence)),
            Switch::Halt => halt(&operator, &rules, reason),
            Switch::Resume => resume(&operator, &rules, reason),
        };
        done.unwrap_or_else(|failure| FenceReport::failed(&rules, &failure))
    };
    let repository = operator.repository.common_dir.display().to_string();
    Ok(HaltReport { repository, fences: names.into_iter().map(one).collect(), error: None })
}

/// The fences in the settings; of families, the known members. A family itself is there if it is halted, because that stops no
/// member which begins later.
fn all_fences(operator: &Operator, switch: Switch) -> Vec<FenceName> {
    let fences = &operator.settings.fences;
    // If the log cannot be read, each fence fails, and says why.
    let store = fences.iter().any(Rules::is_family).then(|| operator.lock().ok()).flatten();
    let mut names = Vec::new();
    for rules in fences {
        if let Some(store) = store.as_ref().filter(|_| rules.is_family()) {
            names.extend(store.state().members(&rules.fence).cloned());
        }
        if !rules.is_family() || switch == Switch::Halt {
            names.push(rules.fence.clone());
        }
    }
    names
}

/// Said rather than passed over: whoever halts all relies on it.
fn new_members_go_on(family: &FenceName) -> CommandError {
    CommandError::Other {
        what: format!("members of the family '{family}' that begin from now on are not halted"),
        hint:
            "those that are known are. Run it again if agents have taken up new branches, or stop pushes to the server"
                .to_owned(),
    }
}

/// Moves both refs in one transaction, then records it. If it is killed in between, the next push finds the new record.
fn halt(operator: &Operator, rules: &Rules, reason: &str) -> Result<FenceReport, CommandError> {
    let fence = &rules.fence;
    let (mut store, awaited) = operator.lock_after_eviction(fence, reason)?;
    let current = current_lease(operator, &mut store, rules, Switch::Halt)?;
    if let Some(halt) = current.as_ref().and_then(Standing::halt) {
        store.commit(Durability::Synced)?;
        return Ok(FenceReport { halt: Some(halt), ..FenceReport::of(rules, HaltOutcome::AlreadyHalted) });
    }
    let change = revoke::taken_away(operator, &store, rules, current.as_ref(), (Purpose::Halt, reason))?;
    let halt = change.standing.halt();
    let event = change.on_record(None, &operator.name, store.state());
    operator.commit(store, event)?;
    let held_by = current.filter(Standing::is_held).map(|held| {
        let Lease { owner, token, .. } = held.lease;
        LastOwner { owner, token }
    });
    let in_flight = what_became_of(operator, &awaited)?;
    Ok(FenceReport { halt, held_by, in_flight, ..FenceReport::of(rules, HaltOutcome::Halted) })
}

fn resume(operator: &Operator, rules: &Rules, reason: &str) -> Result<FenceReport, CommandError> {
    let mut store = operator.lock_when_free(&rules.fence)?;
    let current = current_lease(operator, &mut store, rules, Switch::Resume)?;
    let Some(halt) = current.as_ref().and_then(Standing::halt) else {
        store.commit(Durability::Synced)?;
        return Ok(FenceReport::of(rules, HaltOutcome::NotHalted));
    };
    let change = revoke::taken_away(operator, &store, rules, current.as_ref(), (Purpose::Resume, reason))?;
    let event = change.on_record(None, &operator.name, store.state());
    operator.commit(store, event)?;
    Ok(FenceReport { halt: Some(halt), ..FenceReport::of(rules, HaltOutcome::Resumed) })
}

/// The lease as it is now. What differs from the log is recorded first.
fn current_lease(
    operator: &Operator,
    store: &mut Store,
    rules: &Rules,
    switch: Switch,
) -> Result<Option<Standing>, CommandError> {
    let now = clock::stamp(&operator.here);
    let found = catch_up::compare_with_log(&operator.repository, store.state(), rules, &now, &operator.name);
    if let Some(line) = found.map_err(refused)? {
        store.append(Event::LeaseFound(line))?;
    }
    let lease = store.state().fence(&rules.fence).lease.cloned();
    // A halt from the time before the leases moved to a store can be ended.
    let is_here = lease.as_ref().is_some_and(|lease| lease.lease.state == LeaseState::Halted);
    match kept_elsewhere(switch.verb(), lease.as_ref(), rules) {
        Some(elsewhere) if !is_here => Err(elsewhere),
        _ => Ok(lease),
    }
}

/// What the log says about the pushes that were in flight.
fn what_became_of(operator: &Operator, awaited: &[Awaited]) -> Result<Vec<FlightReport>, CommandError> {
    let mut reports: Vec<FlightReport> = awaited.iter().map(FlightReport::of).collect();
    if reports.is_empty() {
        return Ok(reports);
    }
    history::read(&operator.fence_dir(), &operator.here.boot, |read| {
        if let Event::PushSettled { push, moved, .. } = &read.line.event
            && let Some(report) = reports.iter_mut().find(|report| report.push == *push)
        {
            report.moved = Some(*moved);
        }
    })?;
    Ok(reports)
}

impl FlightReport {
    fn of(awaited: &Awaited) -> FlightReport {
        let flight = &awaited.flight;
        FlightReport {
            push: flight.push,
            pusher: flight.who.pusher.clone(),
            token: flight.stakes.first().and_then(|stake| stake.token),
            moved: None,
            count: flight.plan.count,
            evicted: awaited.evicted,
        }
    }
}

impl std::fmt::Display for FlightReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FlightReport { push, pusher, moved, count, evicted, .. } = self;
        let how = if *evicted { " was ended because it hung:" } else { " was in flight:" };
        write!(f, "push {push} of {}{how}", text::in_quotes(pusher))?;
        match moved {
            Some(0) => f.write_str(" it has not landed, and will not"),
            Some(moved) if moved == count => f.write_str(" it has landed"),
            Some(moved) => write!(f, " {moved} of its {count} refs have landed, the others will not"),
            None => f.write_str(" its end is not in the log yet"),
        }
    }
}

impl HaltReport {
    fn failed(dir: &Path, failure: &CommandError) -> HaltReport {
        let error = Some(failure.in_one_line());
        HaltReport { repository: dir.display().to_string(), fences: Vec::new(), error }
    }

    fn is_done(&self) -> bool {
        self.error.is_none() && self.fences.iter().all(|fence| fence.outcome != HaltOutcome::Failed)
    }

    /// For a list of repositories.
    fn in_one_line(&self) -> Result<String, CommandError> {
        let words: Vec<String> = self.fences.iter().map(|fence| format!("'{}' {fence}", fence.fence)).collect();
        match self.fences.iter().any(|fence| fence.outcome == HaltOutcome::Failed) {
            true => Err(CommandError::Other { what: words.join("; "), hint: String::new() }),
            false => Ok(words.join("; ")),
        }
    }
}

impl FenceReport {
    fn of(rules: &Rules, outcome: HaltOutcome) -> FenceReport {
        FenceReport {
            fence: rules.fence.clone(),
            outcome,
            halt: None,
            held_by: None,
            in_flight: Vec::new(),
            observes: rules.mode != Mode::Enforce,
            error: None,
            hint: None,
        }
    }

    fn failed(rules: &Rules, failure: &CommandError) -> FenceReport {
        let (what, hint) = match failure {
            CommandError::Other { what, hint } => (what.clone(), Some(hint.clone())),
            other => (other.in_one_line(), None),
        };
        FenceReport { error: few_words(&what), hint, ..FenceReport::of(rules, HaltOutcome::Failed) }
    }
}

impl std::fmt::Display for FenceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let halt = self.halt.as_ref().map_or(String::new(), ToString::to_string);
        match self.outcome {
            HaltOutcome::Halted => write!(f, "{halt}")?,
            HaltOutcome::AlreadyHalted => write!(f, "was {halt} already: nothing was changed")?,
            HaltOutcome::Resumed => write!(f, "resumed; it was {halt}")?,
            HaltOutcome::NotHalted => write!(f, "is not halted: nothing was changed")?,
            HaltOutcome::Failed => write!(f, "failed: {}", self.error.as_deref().unwrap_or_default())?,
        }
        if let Some(LastOwner { owner, token }) = &self.held_by {
            write!(f, "; {} held it, with token {token}", text::in_quotes(owner))?;
        }
        for flight in &self.in_flight {
            write!(f, "; {flight}")?;
        }
        if self.observes && matches!(self.outcome, HaltOutcome::Halted | HaltOutcome::AlreadyHalted) {
            write!(f, "; this fence does not enforce: pushes that carry no lease are still admitted")?;
        }
        Ok(())
    }
}
