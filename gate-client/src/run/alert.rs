//! `--on-lost` and `--on-skip`: a short command for people's alerts. It is bounded in time, gets the outcome as JSON, and never
//! changes it.

use crate::{
    commands::context::Context,
    report::{Report, outcome::Outcome},
    run::{RunArgs, watch::note},
};
use git_fence_system::{clock::since_boot, process};
use std::{
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// How long the command may take.
const LONGEST: Duration = Duration::from_secs(10);
/// How long it has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// What a run tells people about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alert {
    /// The lease was lost, or the fence halted, while the command ran.
    Lost,
    /// Nothing ran: another holds the lease, or the fence is halted.
    Skipped,
}

impl Alert {
    /// What this outcome is, if it is one of them.
    pub(super) fn on(report: &Report) -> Option<Alert> {
        match report.outcome {
            Outcome::Lost => Some(Alert::Lost),
            Outcome::Halted if report.held_ms.is_some() => Some(Alert::Lost),
            Outcome::Halted | Outcome::Skipped | Outcome::Held | Outcome::TimedOut => Some(Alert::Skipped),
            _ => None,
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Alert::Lost => "--on-lost",
            Alert::Skipped => "--on-skip",
        }
    }

    /// Runs the command for it, if there is one. What fails is told in one line.
    pub(super) fn send(self, args: &RunArgs, context: &Context, report: &Report) {
        let (given, set) = match self {
            Alert::Lost => (&args.on_lost, context.defaults().on_lost()),
            Alert::Skipped => (&args.on_skip, context.defaults().on_skip()),
        };
        // An empty one switches off what is set.
        let Some(command) = given.clone().or(set).filter(|command| !command.trim().is_empty()) else { return };
        let why = match ran(&command, report) {
            Ok(Some(status)) if status.success() => return,
            Ok(Some(status)) => status.to_string(),
            Ok(None) => format!("it took longer than {} s, and was ended", LONGEST.as_secs()),
            Err(e) => e.to_string(),
        };
        note(&format!("the command of {} failed: {why}", self.flag()));
    }
}

/// Runs the command in a process group of its own. None if it had to be ended.
fn ran(command: &str, report: &Report) -> io::Result<Option<ExitStatus>> {
    // Standard output is for the outcome as JSON, and for what the run's own command prints.
    let stdout = Stdio::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut shell = Command::new("sh");
    let mut child = shell.args(["-c", command]).process_group(0).stdin(Stdio::piped()).stdout(stdout).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It need not read. What is written fits into a pipe, so nobody waits.
        let _ = writeln!(stdin, "{}", report.json());
    }
    if let Some(status) = ended_within(&mut child, LONGEST)? {
        return Ok(Some(status));
    }
    for (signal, grace) in [(process::Signal::TERM, GRACE), (process::Signal::KILL, LONGEST)] {
        if let Some(group) = process::Pid::from_raw(child.id().cast_signed()) {
            process::signal_group(group, signal);
        }
        if ended_within(&mut child, grace)?.is_some() {
            break;
        }
    }
    Ok(None)
}

fn ended_within(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let end = since_boot() + time;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if since_boot() >= end {
            return Ok(None);
        }
        thread::sleep(POLL_EVERY);
    }
}
