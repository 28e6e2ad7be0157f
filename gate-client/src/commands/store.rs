//! `git fence store`: whether a store can keep leases, what it needs, and moving leases from one place to another.

use crate::{
    commands::{
        context::{Context, LeaseArgs, Target},
        moving,
        single::Output,
    },
    failure::Failure,
    git::How,
    report::{Report, outcome::Outcome},
    store::program::StoreProgram,
};
use clap::{Args, Subcommand};
use git_fence_core::{StoreCheck, StoreClock, StorePlace};
use std::time::Duration;

/// How long trying a store may take.
const TRIAL: Duration = Duration::from_secs(20);
/// Clocks that differ by more are named. By default, leases allow for as much.
const FAR_OFF_MS: u64 = 10_000;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Try a store: whether it can be reached, whether its compare-and-swap and its clock are as they must be
    Check(CheckArgs),
    /// Make what a store needs, such as tables; happens by itself where the user may do it
    Init(InitArgs),
    /// Move the leases of a fence from one place to another; no counter goes back
    Move(MoveArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// The URL of the store [default: GIT_FENCE_STORE, or fence.store]
    url: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// The URL of the store [default: GIT_FENCE_STORE, or fence.store]
    url: Option<String>,
    /// Put back the mark in the remote, from what the store knows, if somebody has removed it
    #[arg(long)]
    mark: bool,
    /// With --mark: the fence [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Option<String>,
    /// With --mark: the remote, by name or URL [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MoveArgs {
    /// Where the leases are now: 'remote', the URL of a store, or 'own' for a fence with tokens of its pushers' own
    from: String,
    /// Where they are to be: 'remote' or the URL of a store
    to: String,
    /// The fence [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Option<String>,
    /// The remote, by name or URL [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: LeaseArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl StoreCommand {
    pub(crate) fn json(&self) -> bool {
        match self {
            StoreCommand::Check(args) => args.json,
            StoreCommand::Init(args) => args.json,
            StoreCommand::Move(args) => args.json,
        }
    }

    /// The command's output, if it needs no clone.
    pub(crate) fn run_anywhere(&self) -> Option<Result<Output, Failure>> {
        match self {
            StoreCommand::Check(CheckArgs { url: Some(url), .. }) => Some(check(&StoreProgram::new(url, "check"))),
            StoreCommand::Init(InitArgs { url: Some(url), mark: false, .. }) => {
                Some(init(&StoreProgram::new(url, "init")))
            }
            _ => None,
        }
    }

    pub(crate) fn run(&self, context: &Context) -> Result<Output, Failure> {
        match self {
            StoreCommand::Check(args) => {
                let client = context.client(&Target { store: args.url.clone(), ..Target::default() })?;
                check(client.store.as_deref().ok_or_else(no_store)?)
            }
            StoreCommand::Init(args) => {
                let InitArgs { url, mark, fence, remote, .. } = args.clone();
                let client = context.client(&Target { fence, remote, store: url, ..Target::default() })?;
                let program = client.store.as_deref().ok_or_else(no_store)?;
                let made = init(program)?;
                if mark { moving::restore_mark(&client, &context.me(None, &Target::default())) } else { Ok(made) }
            }
            StoreCommand::Move(args) => {
                let MoveArgs { from, to, fence, remote, wanted, .. } = args.clone();
                moving::run(context, &moving::Move { from, to, fence, remote, wanted })
            }
        }
    }
}

fn no_store() -> Failure {
    Failure::usage("no store is named", "name its URL, or set fence.store:  git fence store check postgres://host/db")
}

fn init(program: &StoreProgram) -> Result<Output, Failure> {
    let made = program.init(&bounded())?;
    let place = program.place()?;
    let what = if made.is_empty() { "nothing was missing".to_owned() } else { format!("made {}", made.join(", ")) };
    Ok(Output::of(Report::new(Outcome::Made, what).kept_in(Some(place))))
}

fn check(program: &StoreProgram) -> Result<Output, Failure> {
    let place = program.place()?;
    let checked = program.check(&bounded())?;
    if let Some(step) = checked.steps.iter().find(|step| step.but.is_some()) {
        let but = step.but.as_deref().unwrap_or_default();
        return Err(Failure::broken(
            format!("the store {} cannot keep leases: it is not so that {}: {but}", place.store, step.claim),
            "use another store: it must read what was written last, and compare-and-swap",
        ));
    }
    let what = format!("{} can keep leases", place.store);
    let prose = format!("{what}\n{}", lines_of(&checked));
    let StoreCheck { steps, clocks } = checked;
    let report = Report::new(Outcome::Checked, what).kept_in(Some(place));
    Ok(Output::new(prose, Report { checks: Some(steps), clocks: Some(clocks), ..report }))
}

fn bounded() -> How {
    How { within: Some(TRIAL), ..How::default() }
}

fn lines_of(checked: &StoreCheck) -> String {
    let steps = checked.steps.iter().map(|step| format!("  ok     {}", step.claim));
    let clocks = checked.clocks.iter().map(|clock| format!("  clock  {}: {}", clock.endpoint, clock_in_words(clock)));
    let mut lines: Vec<String> = steps.chain(clocks).collect();
    let known: Vec<i64> = checked.clocks.iter().filter_map(|clock| clock.ahead_ms).collect();
    let apart = known.iter().max().zip(known.iter().min()).map_or(0, |(most, least)| most.abs_diff(*least));
    if apart > FAR_OFF_MS {
        lines.push(format!(
            "  note   its clocks differ by {} s: after a change of the endpoint a lease may seem to have expired",
            apart / 1000
        ));
    }
    lines.join("\n")
}

/// How far a clock is off. Clocks decide only who may try, never whose write counts.
fn clock_in_words(clock: &StoreClock) -> String {
    match clock.ahead_ms {
        None => "none: whether a lease has expired is seen by watching it".to_owned(),
        Some(ms) => {
            let seconds = ms.unsigned_abs() as f64 / 1000.0;
            let side = if ms < 0 { "behind" } else { "ahead of" };
            let note = if ms.unsigned_abs() > FAR_OFF_MS { ", which matters to nobody but people" } else { "" };
            format!("{seconds:.1} s {side} this machine{note}")
        }
    }
}

/// Where the lease of the client's fence is kept.
pub(super) fn in_words(place: Option<&StorePlace>) -> String {
    place.map_or_else(|| "the remote".to_owned(), |place| place.store.clone())
}
