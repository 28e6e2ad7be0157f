//! `git fence run`: holds a lease around a command.
//!
//! Acquire, start the heartbeat, run the command, stop the heartbeat, release: in this order, so that no heartbeat is
//! sent after the release. Deadlines use the clock that includes suspend. The command runs under a keeper, which ends
//! it when the lease is lost or `run` dies. Called by the command line; the helper finds its lease with [`inside`].

pub(crate) mod acquiring;
pub(crate) mod alert;
pub(crate) mod child;
pub(crate) mod inside;
pub(crate) mod keeper;
pub(crate) mod lfs;
pub(crate) mod lookup;
pub(crate) mod members;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod starter;
pub(crate) mod ticks;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod wire;

use crate::{
    client::Client,
    commands::{
        context::{Context, LeaseArgs, Target, duration, fence_called, fence_of_branch, orphaned},
        own::{Whose, held},
    },
    failure::{Failure, HELD, who},
    lease::{held::TakenBy, jobs::JobsAsk},
    report::{CurrentHolder, Report, outcome::Outcome},
    run::{
        acquiring::Wait,
        alert::Alert,
        session::Session,
        starter::Starter,
        ticks::{TickArgs, next_of, nothing_to_do},
        watch::{Bounds, RunEvent, note},
    },
};
use clap::{Args, ValueEnum};
use git_fence_core::{Code, Due, FenceName, Halt, HeldBy};
use git_fence_system::{
    colours::say,
    signals::{listen, termination_signals},
};
use std::{
    ffi::OsString,
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
    /// The fence, or a member of a family, as in pr/7; repeat it to take the first free one [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Vec<String>,
    /// The fence of this branch, in the family 'branch': short for --fence branch/X; repeat it to take the first free one
    #[arg(long, value_name = "X")]
    branch: Vec<OsString>,
    /// The remote, by name or URL; repeat it to take the first free one [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Vec<String>,
    /// Where the lease is kept: the URL of a store, or 'remote' [default: GIT_FENCE_STORE, or fence.store, or the remote]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    wanted: LeaseArgs,
    #[command(flatten)]
    ticks: TickArgs,
    /// What to do if the lease is held [default: wait with --wait, or else fence.ifHeld, or skip]
    #[arg(long, value_enum, value_name = "WHAT")]
    if_held: Option<IfHeld>,
    /// Wait this long for a lease that is held [default with --if-held wait: 30s]
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
    /// Say nothing if the run is skipped, and nothing while it waits: for cron, which mails what is said
    #[arg(short, long)]
    quiet: bool,
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
    /// Run this shell command when the lease was lost or the fence halted: at most 10 s, with the outcome as JSON on
    /// standard input. It never changes the exit code [default: fence.onLost, or none]
    #[arg(long, value_name = "CMD")]
    on_lost: Option<String>,
    /// The same when nothing ran, because the lease is held or the fence halted [default: fence.onSkip, or none]
    #[arg(long, value_name = "CMD")]
    on_skip: Option<String>,
    /// Write the outcome of the run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Print the outcome as JSON on standard output, after the command's own output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; it begins after `--`, or at the first word that is no flag
    // Without allow_hyphen_values: a mistyped flag of ours must not become the command.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfHeld {
    /// Exit with code 0, or that of -E
    Skip,
    /// Try again until --wait has passed, then exit like skip
    Wait,
    /// Exit with code 11
    Fail,
}

/// Runs the command, reports the outcome, and returns the exit code.
pub(crate) fn run(context: &Context, args: &RunArgs, starter: Starter) -> ExitCode {
    let mut report = starting();
    let done = run_under_lease(context, args, starter, &mut report);
    let code = match done {
        Ok(code) => code,
        Err(failure) => {
            report.fail(&failure);
            failure.print();
            failure.exit_code()
        }
    };
    report.exit_code = Some(code);
    report.by(&context.me(args.wanted.owner.as_deref(), &Target::default()));
    // A usage error may be about this very file, and is reported already.
    if let Err(failure) = report.write(args.status_file.as_deref())
        && report.outcome != Outcome::Usage
    {
        failure.print();
    }
    if args.json {
        report.print_after(report.held_ms.is_some());
    }
    if let Some(alert) = Alert::on(&report) {
        alert.send(args, context, &report);
    }
    ExitCode::from(code)
}

fn starting() -> Report {
    Report::new(Outcome::Running, "starting: no lease has been taken yet")
}

fn run_under_lease(context: &Context, args: &RunArgs, starter: Starter, report: &mut Report) -> Result<u8, Failure> {
    let mut request = context.lease_request(&args.wanted, TakenBy::Run)?;
    let if_held = args.if_held(context)?;
    let bounds = Bounds::of(args)?;
    let wait = Wait { length: args.length_of_wait(if_held)?, is_quiet: args.quiet };
    lookup::check(&args.command[0], &context.environment)?;
    let clients = candidates(context, args)?;
    request.jobs = args.scheduled(context, &clients)?;
    // Check the status file before taking a lease.
    request.owner.clone_into(&mut report.owner);
    report.write(args.status_file.as_deref()).map_err(|failure| {
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
    Session { context, args, if_held, bounds, wait, clients, tell, events, stop }.run(request, report)
}

impl RunArgs {
    /// What to do if the lease is held. To wait for it is what `--wait` says.
    fn if_held(&self, context: &Context) -> Result<IfHeld, Failure> {
        match (self.if_held, &self.wait) {
            (Some(IfHeld::Skip | IfHeld::Fail), Some(_)) => Err(Failure::usage(
                "--wait contradicts --if-held skip and --if-held fail",
                "omit one of them: --wait alone waits",
            )),
            (Some(given), _) => Ok(given),
            (None, Some(_)) => Ok(IfHeld::Wait),
            (None, None) => context.defaults().if_held(),
        }
    }

    fn length_of_wait(&self, if_held: IfHeld) -> Result<Duration, Failure> {
        match if_held {
            IfHeld::Wait => duration(self.wait.as_deref().unwrap_or("30s"), "--wait"),
            IfHeld::Skip | IfHeld::Fail => Ok(Duration::ZERO),
        }
    }

    /// The schedule, if there is one: of one fence of one remote, because that is where its ticks are remembered.
    fn scheduled(&self, context: &Context, clients: &[Client]) -> Result<JobsAsk, Failure> {
        let Some(client) = clients.first() else { return Ok(JobsAsk::Carry) };
        let Some(scheduled) = self.ticks.scheduled(&context.resource(&client.remote), &client.fence)? else {
            return Ok(JobsAsk::Carry);
        };
        if clients.len() > 1 {
            return Err(Failure::usage(
                "a schedule has one fence of one remote: each remembers its own ticks, so each would run them",
                "name one --fence and one --remote",
            ));
        }
        Ok(JobsAsk::Start(Box::new(scheduled)))
    }

    /// No tick is to be started, which is not a failure.
    fn nothing_due(&self, report: &mut Report, client: &Client, ask: &JobsAsk, due: &Due) -> u8 {
        let JobsAsk::Start(scheduled) = ask else { return self.skip_code };
        report.fence = Some(client.fence.clone());
        report.remote = Some(client.remote.name.clone());
        report.outcome = if matches!(due, Due::AlreadyDone { .. }) { Outcome::AlreadyDone } else { Outcome::NotDue };
        report.message = nothing_to_do(client, &scheduled.job, due);
        (report.job, report.next_tick) = (Some(scheduled.job.clone()), next_of(due));
        if let Due::AlreadyDone { job, .. } = due {
            report.tick = Some(job.tick);
        }
        if !self.quiet {
            note(&report.message);
        }
        self.skip_code
    }

    /// The fence is halted, which is not a failure either. Nobody knows for how long, so it is not waited for.
    fn skip_halted(&self, report: &mut Report, remote: String, fence: FenceName, halt: Halt) -> u8 {
        report.message = format!("halted: nothing ran, because fence '{fence}' is {halt}");
        (report.outcome, report.code) = (Outcome::Halted, Some(Code::Halted));
        (report.fence, report.remote, report.halt) = (Some(fence), Some(remote), Some(halt));
        if !self.quiet {
            note(&report.message);
        }
        self.skip_code
    }

    /// Another run holds the lease, which is not a failure.
    fn skip(&self, context: &Context, if_held: IfHeld, report: &mut Report, client: &Client, by: HeldBy) -> u8 {
        let whose = context.whose(client, &by.lease);
        // To skip is normal if another holds it. If it is this clone, somebody may have forgotten a lease.
        let (what, hint_if_ours) = match &whose {
            Whose::Theirs => (format!("fence '{}' is held by {}", client.fence, who(&by)), None),
            ours => {
                let failure = held(client, by.clone(), ours);
                (failure.to_string(), Some(failure.hint()))
            }
        };
        report.fence = Some(client.fence.clone());
        report.remote = Some(client.remote.name.clone());
        (report.code, report.retryable) = (Some(Code::LeaseHeld), true);
        report.holder = Some(CurrentHolder::of(by, whose != Whose::Theirs));
        (report.outcome, report.message) = match if_held {
            IfHeld::Fail => {
                let hint = hint_if_ours.unwrap_or_else(|| "skip this run, or wait with  --wait 5m".to_owned());
                say(&format!("error: {what}\nhint: {hint}\n"));
                (report.outcome, report.message, report.hint) = (Outcome::Held, what, Some(hint));
                return HELD;
            }
            IfHeld::Wait => (Outcome::TimedOut, format!("timed out: {what}")),
            IfHeld::Skip => (Outcome::Skipped, format!("skipped: {what}")),
        };
        report.hint = hint_if_ours;
        if !self.quiet {
            note(&report.message);
            report.hint.iter().for_each(|hint| say(&format!("hint: {hint}\n")));
        }
        self.skip_code
    }
}

/// Every fence of every remote, in the order given.
fn candidates(context: &Context, args: &RunArgs) -> Result<Vec<Client>, Failure> {
    let remotes = if args.remote.is_empty() {
        vec![context.local.remote(None)?]
    } else {
        args.remote.iter().map(|name| context.local.remote(Some(name))).collect::<Result<_, _>>()?
    };
    let named = args.fence.iter().map(|name| fence_called(name));
    let mut fences: Vec<Option<FenceName>> = named
        .chain(args.branch.iter().map(|branch| fence_of_branch(branch)))
        .map(|it| it.map(Some))
        .collect::<Result<_, _>>()?;
    if fences.is_empty() {
        fences.push(None);
    }
    let mut clients = Vec::new();
    for remote in &remotes {
        for fence in &fences {
            let client = context.client_of(fence.clone(), remote.clone(), args.store.as_deref())?;
            clients.push(Client { waiting: client.waiting.clone().filter(|_| !args.quiet), ..client });
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
        let bounds = Bounds {
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
