//! `git fence run`: holds a lease around a command.
//!
//! Acquire, start the heartbeat, run the command, stop the heartbeat, release: in this order, so that no heartbeat is
//! sent after the release. Deadlines use the clock that includes suspend. The command runs under a keeper, which ends
//! it when the lease is lost or `run` dies. Called by the command line; the helper finds its lease with [`inside`].

pub(crate) mod acquiring;
pub(crate) mod child;
pub(crate) mod inside;
pub(crate) mod keeper;
pub(crate) mod lfs;
pub(crate) mod members;
pub(crate) mod outcome;
pub(crate) mod signals;
pub(crate) mod starter;
pub(crate) mod watch;
pub(crate) mod wire;

use crate::{
    client::Client,
    commands::context::{Context, LeaseArgs, duration, orphaned},
    failure::{Failure, HELD, LOST, who},
    run::{
        acquiring::{FirstFree, release, take_first_free},
        outcome::Outcome,
        starter::Starter,
        watch::{Bounds, Ended, Run, RunEvent, code_of_signal, note},
    },
};
use clap::{Args, ValueEnum};
use git_fence_core::HeldBy;
use git_fence_system::signals::{SIGTERM, listen, termination_signals};
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
    /// The fence; repeat it to take the first free one [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Vec<String>,
    /// The remote, by name or URL; repeat it to take the first free one [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Vec<String>,
    #[command(flatten)]
    wanted: LeaseArgs,
    /// What to do if the lease is held
    #[arg(long, value_enum, default_value = "skip")]
    if_held: IfHeld,
    /// How long to wait with --if-held wait
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: String,
    /// Hold the lease at least this long, so that a machine that starts later still finds it held
    #[arg(long, value_name = "TIME")]
    min_hold: Option<String>,
    /// Stop the command after this long
    #[arg(long, value_name = "TIME")]
    max_hold: Option<String>,
    /// Stop the command if it has not called  git fence progress  for this long
    #[arg(long, value_name = "TIME")]
    stall_after: Option<String>,
    /// Leave fetches alone without a gate, too; explicit push URLs in other clones are then not fenced
    #[arg(long)]
    plain_fetch: bool,
    /// The exit code of a skipped run
    #[arg(short = 'E', long = "skip-code", value_name = "CODE", default_value_t = 0)]
    skip_code: u8,
    /// Write the outcome of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Print the outcome as JSON on standard output, after the command's own output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IfHeld {
    /// Exit with code 0, or that of -E
    Skip,
    /// Retry until --wait has passed, then exit like skip
    Wait,
    /// Exit with code 11
    Fail,
}

/// Runs the command, reports the outcome, and returns the exit code.
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
    // A usage error may be about this very file, and is reported already.
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
    let request = context.lease_request(&args.wanted)?;
    let bounds = Bounds::of(args)?;
    let clients = candidates(context, args)?;
    // Check the status file before taking a lease.
    Outcome { outcome: "running", ..Outcome::default() }.write(args.status_file.as_deref()).map_err(|failure| {
        Failure::usage(
            format!("cannot write the status file: {}", failure.in_one_line()),
            "nothing was taken. Name a file that can be written",
        )
    })?;
    let (tell, events) = mpsc::channel();
    let (on_signal, stop) = (tell.clone(), Arc::new(AtomicBool::new(false)));
    let interrupted = stop.clone();
    listen(&termination_signals(), move |signal| {
        interrupted.store(true, Ordering::Relaxed);
        let _ = on_signal.send(RunEvent::Signal(signal));
    })
    .map_err(|e| Failure::broken("cannot handle signals", "try again").because(e))?;
    let (on_exit, orphaned) = (tell.clone(), stop.clone());
    starter.when_gone(move || {
        orphaned.store(true, Ordering::Relaxed);
        let _ = on_exit.send(RunEvent::GitIsGone);
    });

    outcome.owner = Some(request.owner.clone());
    let (client, dir) = match take_first_free(&clients, &request, bounds.wait, &events, &stop)? {
        FirstFree::Ours(client, dir) => (client, dir),
        FirstFree::AllHeld(client, by, _) => return Ok(skip(args, outcome, &client, by)),
        FirstFree::Interrupted(signal, left_behind) => {
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
    let released = release(&client, &dir);
    let held_for = began.age_at(&client.clock.now());
    outcome.held_ms = Some(u64::try_from(held_for.as_millis()).unwrap_or(u64::MAX));
    finish(ended?, released, outcome)
}

/// Records how the command ended, and returns the exit code.
fn finish(ended: Ended, released: Result<(), Failure>, outcome: &mut Outcome) -> Result<u8, Failure> {
    if let Some(failure) = released.as_ref().err().filter(|failure| !matches!(failure, Failure::Lost { .. })) {
        let what = format!("could not release the lease ({}): it will expire by itself", failure.in_one_line());
        note(&what);
        outcome.reason = Some(what);
    }
    // If the command was stopped in time, only the release knows who holds the lease now.
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
            note(&format!("the command was stopped: {reason}"));
            outcome.reason = Some(reason);
            Ok(LOST)
        }
        (Ended::GitIsGone, _) => {
            let reason = "git, which started this run, was killed";
            outcome.outcome = "interrupted";
            note(&format!("the command was stopped: {reason}"));
            outcome.reason.get_or_insert_with(|| reason.to_owned());
            Ok(code_of_signal(SIGTERM))
        }
        (Ended::ByItself(code), _) => {
            outcome.outcome = "ran";
            Ok(code)
        }
        (Ended::NotStarted { code, why }, _) => {
            outcome.outcome = "not-started";
            let _ = writeln!(io::stderr(), "error: {why}\nhint: nothing ran, and the lease was released");
            outcome.reason = Some(why);
            Ok(code)
        }
    }
}

/// Another run holds the lease, which is not a failure.
fn skip(args: &RunArgs, outcome: &mut Outcome, client: &Client, by: HeldBy) -> u8 {
    let what = format!("fence '{}' is held by {}", client.fence, who(&by));
    outcome.fence = Some(client.fence.clone());
    outcome.remote = Some(client.remote.name.clone());
    outcome.reason = Some(what.clone());
    outcome.holder = Some(by);
    if args.if_held == IfHeld::Fail {
        outcome.outcome = "held";
        let _ = writeln!(io::stderr(), "error: {what}\nhint: skip this run, or wait with  --if-held wait");
        return HELD;
    }
    outcome.outcome = "skipped";
    note(&format!("skipped: {what}"));
    args.skip_code
}

/// Every fence of every remote, in the order given.
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
            let what = format!("already inside a run that holds fence '{}' of '{}'", held.fence, client.remote.name);
            return Err(Failure::usage(
                what,
                "use plain  git push  here, which carries its token; one push cannot carry two leases",
            ));
        }
    }
    Ok(clients)
}

impl Bounds {
    /// From the command line.
    fn of(args: &RunArgs) -> Result<Bounds, Failure> {
        let optional =
            |value: &Option<String>, name: &str| value.as_deref().map(|value| duration(value, name)).transpose();
        for (value, name) in [(&args.max_hold, "--max-hold"), (&args.stall_after, "--stall-after")] {
            if optional(value, name)?.is_some_and(|length| length.is_zero()) {
                return Err(Failure::usage(format!("{name} 0 would stop the command at once"), "omit it"));
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
            return Err(Failure::usage("--max-hold is shorter than --min-hold", "omit one of them"));
        }
        Ok(bounds)
    }
}
