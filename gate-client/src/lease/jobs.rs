//! What taking a lease does to the fence's scheduled jobs: whether a tick is due, and which jobs the new record has.

use crate::{failure::Failure, report::in_ms};
use git_fence_core::{
    Due, DueError, FenceName, JobName, Jobs, LeaseSnapshot, ScheduleText, Scheduled, SkipCause, Stamp, Start, Tick,
    TickSkip, Token,
};
use std::time::Duration;

/// How far clocks may differ for a tick that is due by one and not by the other to be waited for.
const LONGEST_SKEW: Duration = Duration::from_secs(5 * 60);

/// What a new lease does to the fence's scheduled jobs.
#[derive(Debug, Clone, Default)]
pub(crate) enum JobsAsk {
    /// Nothing.
    #[default]
    Carry,
    /// It is taken for a tick of this job, if one is due.
    Start(Box<Scheduled>),
    /// This job is forgotten.
    Forget(JobName),
    /// This job gets another schedule.
    Reschedule(JobName, ScheduleText),
}

/// The clocks by which ticks are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    /// The one that judges, as far as it is known here.
    pub(crate) judge_ms: u64,
    /// This machine's.
    pub(crate) ours_ms: u64,
    /// Whether a gate has judged the tick on record: it grants none of its future.
    pub(crate) by_gate: bool,
}

impl JobsAsk {
    /// What is due, if the lease is wanted for a tick. A tick that has come by our clock, and is still to come by the clock
    /// that judges, is waited for.
    pub(crate) fn due(
        &self,
        seen: &LeaseSnapshot,
        clocks: Clocks,
        skew: Duration,
        fence: &FenceName,
    ) -> Result<Option<Due>, Failure> {
        let JobsAsk::Start(scheduled) = self else { return Ok(None) };
        let recorded = seen.jobs().get(&scheduled.job);
        let mut judge_ms = clocks.judge_ms;
        // A gate grants no tick of its future: if the last one is in ours, our clock is behind.
        let ahead = self.ahead(seen, judge_ms);
        if clocks.by_gate && ahead <= LONGEST_SKEW {
            judge_ms = judge_ms.saturating_add(in_ms(ahead));
        }
        let due_at = |ms: u64| scheduled.due(recorded, ms, skew);
        let due = due_at(judge_ms).map_err(|why| cannot_tell(fence, &why))?;
        let soon = match due_at(clocks.ours_ms) {
            Ok(Due::Start(Start { tick, .. })) if clocks.ours_ms > judge_ms => {
                let wait = Duration::from_millis((tick.seconds() * 1000).saturating_sub(judge_ms));
                (!wait.is_zero() && wait <= LONGEST_SKEW).then_some(Due::Wait { tick, wait })
            }
            _ => None,
        };
        Ok(Some(soon.unwrap_or(due)))
    }

    /// The job of a scheduled run.
    pub(crate) fn job(&self) -> Option<&JobName> {
        match self {
            JobsAsk::Start(scheduled) => Some(&scheduled.job),
            JobsAsk::Carry | JobsAsk::Forget(_) | JobsAsk::Reschedule(..) => None,
        }
    }

    /// What a run that starts nothing has found.
    pub(crate) fn skip(&self, due: &Due) -> Option<TickSkip> {
        let (found, tick) = match due {
            Due::AlreadyDone { job, .. } => (SkipCause::AlreadyDone, Some(job.tick)),
            Due::NotDue { too_late, .. } => (SkipCause::NotDue, *too_late),
            Due::Start(_) | Due::Wait { .. } => return None,
        };
        Some(TickSkip { job: self.job()?.clone(), found, tick })
    }

    /// How far the tick on record is in the future.
    pub(crate) fn ahead(&self, seen: &LeaseSnapshot, now_ms: u64) -> Duration {
        let JobsAsk::Start(scheduled) = self else { return Duration::ZERO };
        let tick_ms = seen.jobs().get(&scheduled.job).map_or(0, |job| job.tick.seconds().saturating_mul(1000));
        Duration::from_millis(tick_ms.saturating_sub(now_ms))
    }

    /// The jobs of a new record with this token, after those `before`; `due` is what was found due.
    pub(crate) fn after(&self, before: &Jobs, due: Option<&Due>, token: Token, owner: &str) -> Result<Jobs, Failure> {
        let jobs = before.carried();
        match (self, due) {
            (JobsAsk::Start(scheduled), Some(Due::Start(start))) => {
                let started = jobs.started(&scheduled.job, start, scheduled.schedule.text(), token, owner);
                started.map_err(|e| Failure::usage(e.to_string(), "forget one:  git fence ticks forget JOB"))
            }
            (JobsAsk::Forget(name), _) => jobs.forgotten(name).ok_or_else(|| no_such_job(name, &jobs)),
            (JobsAsk::Reschedule(name, schedule), _) => {
                jobs.rescheduled(name, schedule).ok_or_else(|| no_such_job(name, &jobs))
            }
            (JobsAsk::Carry | JobsAsk::Start(_), _) => Ok(jobs),
        }
    }

    /// The ticks that are due now are all that the run catches up: what comes due meanwhile is for the next run.
    pub(crate) fn ends_now(&mut self, now: &Stamp) {
        if let JobsAsk::Start(scheduled) = self {
            scheduled.upto = scheduled.upto.or(Tick::at(now.unix_ms / 1000));
        }
    }
}

fn no_such_job(name: &JobName, jobs: &Jobs) -> Failure {
    let names: Vec<String> = jobs.iter().map(|(name, _)| format!("'{name}'")).collect();
    let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
    Failure::usage(format!("no job '{name}' is on record"), format!("nothing was changed. The jobs:  {known}"))
}

/// It cannot be said what is due.
fn cannot_tell(fence: &FenceName, why: &DueError) -> Failure {
    match why {
        DueError::Rescheduled { .. } => Failure::usage(
            format!("fence '{fence}': {why}"),
            "nothing ran. Name another job with  --job,  or change the record once:  git fence ticks reschedule JOB",
        ),
        DueError::Ahead { .. } => Failure::broken(
            format!("fence '{fence}': {why}"),
            "nothing ran. Compare the clocks of the machines; if the record is wrong:  git fence ticks forget JOB",
        ),
    }
}
