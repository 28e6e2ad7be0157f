//! One run: it takes its lease and runs its command under it, once, or once for each tick that it catches up.

use super::{IfHeld, RunArgs};
use crate::{
    client::Client,
    commands::context::Context,
    failure::{Failure, LOST},
    lease::{held::LeaseDir, jobs::JobsAsk, taking::LeaseRequest},
    report::{Report, in_ms, outcome::Outcome},
    run::{
        acquiring::{FirstFree, Wait, release, take_first_free, wait_for_tick},
        ticks::{nothing_to_do, started},
        watch::{Bounds, Ended, Run, RunEvent, code_of_signal, note},
    },
};
use git_fence_core::{Due, TickState};
use git_fence_system::{colours::say, signals::SIGTERM};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

/// What a run needs to take its lease and to run its command under it: once, or once for each tick that it catches up.
pub(super) struct Session<'a> {
    pub(super) context: &'a Context,
    pub(super) args: &'a RunArgs,
    pub(super) if_held: IfHeld,
    pub(super) bounds: Bounds,
    pub(super) wait: Wait,
    pub(super) clients: Vec<Client>,
    pub(super) tell: mpsc::Sender<RunEvent>,
    pub(super) events: mpsc::Receiver<RunEvent>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Session<'_> {
    pub(super) fn run(&self, mut request: LeaseRequest, report: &mut Report) -> Result<u8, Failure> {
        // The exit code of the tick before, if this run catches up.
        let mut before = None;
        loop {
            let taken = match take_first_free(&self.clients, &request, self.wait, &self.events, &self.stop) {
                Err(Failure::Halted { remote, fence, halt }) if self.if_held != IfHeld::Fail => {
                    let skip = || self.args.skip_halted(report, remote, fence, *halt);
                    return Ok(before.unwrap_or_else(skip));
                }
                taken => taken?,
            };
            match taken {
                FirstFree::Ours(client, dir) => {
                    let is_late = started(&request.jobs, &dir.held()?.lease.jobs).is_some_and(|(_, job)| job.late);
                    request.jobs.ends_now(&client.clock.now());
                    let code = self.under(&client, &dir, &request.jobs, report)?;
                    if !is_late || code != 0 || self.stop.load(Ordering::Relaxed) {
                        return Ok(code);
                    }
                    before = Some(code);
                }
                FirstFree::NothingDue(client, due) => match *due {
                    Due::Wait { wait, .. } => {
                        self.tell_of_wait(&client, &request.jobs, &due);
                        if let Some(signal) = wait_for_tick(&client.clock, wait, &self.events) {
                            return Ok(interrupted(signal, None, report));
                        }
                    }
                    _ => {
                        return Ok(
                            before.unwrap_or_else(|| self.args.nothing_due(report, &client, &request.jobs, &due))
                        );
                    }
                },
                FirstFree::AllHeld(client, by, _) => {
                    let skip = || self.args.skip(self.context, self.if_held, report, &client, by);
                    return Ok(before.unwrap_or_else(skip));
                }
                FirstFree::Interrupted(signal, left_behind) => return Ok(interrupted(signal, left_behind, report)),
            }
        }
    }

    fn tell_of_wait(&self, client: &Client, ask: &JobsAsk, due: &Due) {
        if let (JobsAsk::Start(scheduled), false) = (ask, self.args.quiet) {
            note(&nothing_to_do(client, &scheduled.job, due));
        }
    }

    /// Runs the command under the lease in `dir`, and releases it.
    fn under(&self, client: &Client, dir: &LeaseDir, ask: &JobsAsk, report: &mut Report) -> Result<u8, Failure> {
        let held = dir.held()?;
        let tick = started(ask, &held.lease.jobs);
        let of_tick =
            tick.as_ref().map_or(String::new(), |(name, job)| format!(", for tick {} of job '{name}'", job.tick));
        let what =
            format!("running under the lease of fence '{}', with token {}{of_tick}", held.fence, held.lease.token);
        *report = Report::new(Outcome::Running, what).under(&held, dir.left(&client.clock)).for_tick(tick);
        let _ = report.write(self.args.status_file.as_deref());

        let began = client.clock.now();
        let ttl = held.lease.ttl.duration();
        let run = Run { client, dir, bounds: &self.bounds, ttl, began: began.clone() };
        let ended = run.command(self.context, &self.args.command, &self.tell, &self.events);
        report.expires_in_ms = None;
        report.last_token = dir.held().ok().map(|held| held.lease.token);
        let is_told = dir.is_told();
        // A run that cannot say how its tick ended leaves it to the next owner, who records it as lost.
        let is_done = matches!(ended, Ok(Ended::ByItself(0)));
        let _ = dir.set_ended(if is_done { TickState::Done } else { TickState::Failed });
        let released = release(client, dir);
        let held_for = began.age_at(&client.clock.now());
        report.held_ms = Some(in_ms(held_for));
        finish(ended?, released, report).or_else(|failure| told_before(failure, is_told, report))
    }
}

/// A signal ended the run before it had the lease.
fn interrupted(signal: i32, left_behind: Option<Failure>, report: &mut Report) -> u8 {
    report.outcome = Outcome::Interrupted;
    "a signal ended the run before it had the lease".clone_into(&mut report.message);
    if let Some(failure) = left_behind {
        report.message = failure.in_one_line();
        note(&report.message);
    }
    code_of_signal(signal)
}

/// A lease whose loss a push inside the run has told: one sentence is enough.
fn told_before(failure: Failure, is_told: bool, report: &mut Report) -> Result<u8, Failure> {
    if !is_told || !matches!(failure, Failure::Lost { .. }) {
        return Err(failure);
    }
    report.fail(&failure);
    let how = if failure.halt().is_some() { "the fence halted" } else { "the lease lost" };
    note(&format!("the run ends with exit code {LOST}, because its push found {how}"));
    Ok(LOST)
}

/// Reports how the command ended, and returns the exit code.
fn finish(ended: Ended, released: Result<(), Failure>, report: &mut Report) -> Result<u8, Failure> {
    // If the command was stopped in time, only the release knows who holds the lease now.
    let holder = released.as_ref().err().and_then(Failure::holder);
    let kept = released.as_ref().err().filter(|failure| !matches!(failure, Failure::Lost { .. })).map(|failure| {
        let what = format!("could not release the lease ({}): it will expire by itself", failure.in_one_line());
        note(&what);
        what
    });
    let code = match (ended, released) {
        (Ended::Lost(failure), _) | (Ended::ByItself(_), Err(failure @ Failure::Lost { .. })) => {
            report.holder = holder;
            return Err(failure);
        }
        (Ended::Bounded(outcome, reason), _) => stopped(report, outcome, &reason, LOST),
        (Ended::GitIsGone, _) => {
            let reason = "git, which started this run, was killed";
            stopped(report, Outcome::Interrupted, reason, code_of_signal(SIGTERM))
        }
        (Ended::ByItself(code), _) => {
            (report.outcome, report.message) = (Outcome::Ran, format!("the command ended with exit code {code}"));
            code
        }
        (Ended::NotStarted { code, why }, _) => {
            let hint = "nothing ran, and the lease was released";
            say(&format!("error: {why}\nhint: {hint}\n"));
            (report.outcome, report.message, report.hint) = (Outcome::NotStarted, why, Some(hint.to_owned()));
            code
        }
    };
    if let Some(kept) = kept {
        report.message = format!("{}; {kept}", report.message);
    }
    Ok(code)
}

/// The command was stopped, and not because the lease was lost.
fn stopped(report: &mut Report, outcome: Outcome, reason: &str, code: u8) -> u8 {
    (report.outcome, report.message) = (outcome, format!("the command was stopped: {reason}"));
    note(&report.message);
    code
}
