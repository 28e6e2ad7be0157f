//! `git fence run`: holds a lease around a command.
//!
//! Acquire, start the heartbeat, run the command, stop the heartbeat, release: in this order, and the heartbeat has ended
//! before the lease is given back. Deadlines go by the clock that counts suspend. The command runs under a keeper, which
//! ends it when the lease is lost or `run` dies. Called by the command line alone.

pub(crate) mod child;
pub(crate) mod inside;
pub(crate) mod keeper;
pub(crate) mod lfs;
pub(crate) mod members;
pub(crate) mod outcome;
pub(crate) mod signals;
pub(crate) mod starter;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod wire;

use crate::{
    commands::context::{Context, LeaseArgs, duration, orphaned},
    failure::{Failure, HELD, LOST, who},
    lease::client::Client,
    run::{
        outcome::Outcome,
        starter::Starter,
        waiting::{Won, give_back, take_first_free},
        watch::{Bounds, Ended, Run, RunEvent, code_of_signal, note},
    },
};
use clap::{Args, ValueEnum};
use git_fence_core::HeldBy;
use git_fence_system::signals::{SIGTERM, hear, that_ask_to_end};
use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The fence; given several times, the first free one is taken [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Vec<String>,
    /// The remote, by name or URL; given several times, the first free one is taken [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Vec<String>,
    #[command(flatten)]
    wanted: LeaseArgs,
    /// What to do when somebody else holds the lease
    #[arg(long, value_enum, default_value = "skip")]
    if_held: IfHeld,
    /// With --if-held wait: for how long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: String,
    /// Hold the lease at least this long, so that a second machine whose clock fires later still finds it held
    #[arg(long, value_name = "TIME")]
    min_hold: Option<String>,
    /// End the command after this long
    #[arg(long, value_name = "TIME")]
    max_hold: Option<String>,
    /// End the command when it has not called  git fence progress  for this long
    #[arg(long, value_name = "TIME")]
    stall_after: Option<String>,
    /// Leave fetches alone also where there is no gate; then a push URL that is written down elsewhere is not fenced
    #[arg(long)]
    plain_fetch: bool,
    /// The exit code for a run that was skipped
    #[arg(short = 'E', long = "skip-code", value_name = "CODE", default_value_t = 0)]
    skip_code: u8,
    /// Write what became of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// The same on standard output, after the command's own
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IfHeld {
    /// Leave, with exit code 0 or that of -E
    Skip,
    /// Try again until --wait has passed, then leave like skip
    Wait,
    /// Leave with exit code 11
    Fail,
}

/// Runs, says what became of it, and gives the exit code.
pub(crate) fn run(context: &Context, args: &RunArgs, starter: Starter) -> ExitCode {
    let mut outcome = Outcome::default();
    let done = run_under_lease(context, args, starter, &mut outcome);
    let code = match done {
        Ok(code) => code,
        Err(failure) => {
            if outcome.outcome.is_empty() || outcome.outcome == "running" {
                outcome.outcome = failure.outcome();
            }
            outcome.reason = Some(failure.in_one_line());
            outcome.retryable = failure.is_retryable();
            let _ = io::stderr().write_all(failure.prose().as_bytes());
            failure.exit_code()
        }
    };
    outcome.exit_code = Some(code);
    // What is wrong with the file has been said, where that is what was wrong.
    if let Err(failure) = outcome.write(args.status_file.as_deref())
        && outcome.outcome != "usage"
    {
        let _ = io::stderr().write_all(failure.prose().as_bytes());
    }
    if args.json {
        let _ = writeln!(io::stdout(), "{}", outcome.json());
    }
    ExitCode::from(code)
}

fn run_under_lease(context: &Context, args: &RunArgs, starter: Starter, outcome: &mut Outcome) -> Result<u8, Failure> {
    let wish = context.wish(&args.wanted)?;
    let bounds = Bounds::of(args)?;
    let clients = candidates(context, args)?;
    // Found out before anything is taken.
    Outcome { outcome: "running", ..Outcome::default() }.write(args.status_file.as_deref()).map_err(|failure| {
        Failure::usage(
            format!("the status file cannot be written: {}", failure.in_one_line()),
            "nothing was taken. Name a file that can",
        )
    })?;
    let (tell, events) = mpsc::channel();
    let (heard, stop) = (tell.clone(), Arc::new(AtomicBool::new(false)));
    let interrupted = stop.clone();
    hear(&that_ask_to_end(), move |signal| {
        interrupted.store(true, Ordering::Relaxed);
        let _ = heard.send(RunEvent::Signal(signal));
    })
    .map_err(|e| Failure::broken("cannot listen to signals", "try again").because(e))?;
    let (alone, orphaned) = (tell.clone(), stop.clone());
    starter.when_gone(move || {
        orphaned.store(true, Ordering::Relaxed);
        let _ = alone.send(RunEvent::GitIsGone);
    });

    outcome.owner = Some(wish.owner.clone());
    let (client, dir) = match take_first_free(&clients, &wish, bounds.wait, &events, &stop)? {
        Won::Ours(client, dir) => (client, dir),
        Won::Nobody(client, by, _) => return Ok(leave(args, outcome, &client, by)),
        Won::Interrupted(signal, left_behind) => {
            outcome.outcome = "interrupted";
            if let Some(failure) = left_behind {
                note(&failure.in_one_line());
                outcome.reason = Some(failure.in_one_line());
            }
            return Ok(code_of_signal(signal));
        }
    };
    let held = dir.held()?;
    *outcome = Outcome {
        outcome: "running",
        fence: Some(held.fence.clone()),
        remote: Some(held.remote.clone()),
        token: Some(held.lease.token),
        owner: Some(held.lease.owner.clone()),
        lease: Some(held.lease.id.clone()),
        ..Outcome::default()
    };
    let _ = outcome.write(args.status_file.as_deref());

    let began = client.clock.now();
    let run = Run { client: &client, dir: &dir, bounds: &bounds, ttl: held.lease.ttl.duration(), began: began.clone() };
    let ended = run.command(context, &args.command, &tell, &events);
    outcome.last_token = dir.held().ok().map(|held| held.lease.token);
    let released = give_back(&client, &dir);
    let held_for = began.age_at(&client.clock.now());
    outcome.held_ms = Some(u64::try_from(held_for.as_millis()).unwrap_or(u64::MAX));
    finish(ended?, released, outcome)
}

/// The exit code and the word for how it ended.
fn finish(ended: Ended, released: Result<(), Failure>, outcome: &mut Outcome) -> Result<u8, Failure> {
    if let Some(failure) = released.as_ref().err().filter(|failure| !matches!(failure, Failure::Lost { .. })) {
        let what = format!("the lease could not be given back ({}): it expires by itself", failure.in_one_line());
        note(&what);
        outcome.reason = Some(what);
    }
    // A command that was ended in time may not have heard of its successor; the release has.
    let after = released.as_ref().err().and_then(Failure::holder);
    match (ended, released) {
        (Ended::Lost(failure), _) | (Ended::ByItself(_), Err(failure @ Failure::Lost { .. })) => {
            outcome.outcome = "lost";
            outcome.holder = failure.holder().or(after);
            outcome.reason = Some(failure.in_one_line());
            let _ = io::stderr().write_all(failure.prose().as_bytes());
            Ok(LOST)
        }
        (Ended::Bounded(word, reason), _) => {
            outcome.outcome = word;
            note(&format!("the command was ended: {reason}"));
            outcome.reason = Some(reason);
            Ok(LOST)
        }
        (Ended::GitIsGone, _) => {
            let reason = "git, which had started this run, was killed";
            outcome.outcome = "interrupted";
            note(&format!("the command was ended: {reason}"));
            outcome.reason.get_or_insert_with(|| reason.to_owned());
            Ok(code_of_signal(SIGTERM))
        }
        (Ended::ByItself(code), _) => {
            outcome.outcome = "ran";
            Ok(code)
        }
        (Ended::NotStarted { code, why }, _) => {
            outcome.outcome = "not-started";
            let _ = writeln!(io::stderr(), "error: {why}\nhint: the lease was given back, nothing ran");
            outcome.reason = Some(why);
            Ok(code)
        }
    }
}

/// Somebody else is at it: not a failure.
fn leave(args: &RunArgs, outcome: &mut Outcome, client: &Client, by: HeldBy) -> u8 {
    let what = format!("fence '{}' is held by {}", client.fence, who(&by));
    outcome.fence = Some(client.fence.clone());
    outcome.remote = Some(client.remote.name.clone());
    outcome.reason = Some(what.clone());
    outcome.holder = Some(by);
    if args.if_held == IfHeld::Fail {
        outcome.outcome = "held";
        let _ = writeln!(io::stderr(), "error: {what}\nhint: leave it to its holder, or wait:  --if-held wait");
        return HELD;
    }
    outcome.outcome = "skipped";
    note(&format!("skipped: {what}"));
    args.skip_code
}

/// Every fence of every remote, in the order in which they were named.
fn candidates(context: &Context, args: &RunArgs) -> Result<Vec<Client>, Failure> {
    let remotes = if args.remote.is_empty() {
        vec![context.local.remote(None)?]
    } else {
        args.remote.iter().map(|name| context.local.remote(Some(name))).collect::<Result<_, _>>()?
    };
    let fences: Vec<Option<&str>> =
        if args.fence.is_empty() { vec![None] } else { args.fence.iter().map(|name| Some(name.as_str())).collect() };
    let mut clients = Vec::new();
    for remote in &remotes {
        for fence in &fences {
            clients.push(context.client_of(*fence, remote.clone())?);
        }
    }
    if let Some(client) = clients.iter().find(|client| context.is_orphan(client)) {
        return Err(orphaned(client));
    }
    for (held, _) in context.runs() {
        if let Some(client) = clients.iter().find(|client| client.remote.url == held.url) {
            let what =
                format!("this is already inside a run that holds fence '{}' of {}", held.fence, client.remote.name);
            return Err(Failure::usage(
                what,
                "plain  git push  carries its token here; one push cannot carry two leases",
            ));
        }
    }
    Ok(clients)
}

impl Bounds {
    /// What the command line says.
    fn of(args: &RunArgs) -> Result<Bounds, Failure> {
        let optional =
            |value: &Option<String>, name: &str| value.as_deref().map(|value| duration(value, name)).transpose();
        for (value, name) in [(&args.max_hold, "--max-hold"), (&args.stall_after, "--stall-after")] {
            if optional(value, name)?.is_some_and(|length| length.is_zero()) {
                return Err(Failure::usage(format!("{name} 0 would end the command at once"), "leave it out"));
            }
        }
        let wait = duration(&args.wait, "--wait")?;
        let bounds = Bounds {
            wait: if args.if_held == IfHeld::Wait { wait } else { Duration::ZERO },
            min_hold: optional(&args.min_hold, "--min-hold")?.unwrap_or_default(),
            max_hold: optional(&args.max_hold, "--max-hold")?,
            stall_after: optional(&args.stall_after, "--stall-after")?,
            plain_fetch: args.plain_fetch,
        };
        if bounds.max_hold.is_some_and(|most| most < bounds.min_hold) {
            return Err(Failure::usage("--max-hold is shorter than --min-hold", "leave one of them out"));
        }
        Ok(bounds)
    }
}
