//! Statistics of scheduled jobs. A skip is never a failure: each has a count of its own.

use crate::{Code, Event, FenceName, JobName, Refused, SkipCause, TickChange, TickState};
use std::collections::BTreeMap;

/// How many jobs are counted. Names in skips come from outside, so there may be any number.
const MOST_JOBS_COUNTED: usize = 1000;

/// What happened to the ticks of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobTally {
    /// Started.
    pub started: u64,
    /// Ended with exit code 0.
    pub done: u64,
    /// Ended with another exit code, or stopped.
    pub failed: u64,
    /// Their holder was lost.
    pub lost: u64,
    /// Not started before the next one came due: dropped, or started late.
    pub missed: u64,
    /// Never started.
    pub dropped: u64,
    /// Runs that found the lease held.
    pub skipped_held: u64,
    /// Runs whose tick was started already.
    pub already_done: u64,
    /// Runs that came when nothing was due.
    pub not_due: u64,
    /// Runs that found the fence halted.
    pub halted: u64,
}

/// What happened to ticks, by fence and job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScheduledTally {
    /// The counts.
    pub jobs: BTreeMap<(FenceName, JobName), JobTally>,
}

impl ScheduledTally {
    pub(crate) fn add(&mut self, event: &Event) {
        match event {
            Event::LeaseGranted(line)
            | Event::LeaseReleased(line)
            | Event::LeaseRevoked(line)
            | Event::LeaseHalted(line)
            | Event::LeaseResumed(line) => {
                for change in &line.ticks {
                    self.change(&line.fence, change);
                }
            }
            Event::TickSkipped { fence, skip, .. } => self.skip(fence, &skip.job, skip.found),
            _ => {}
        }
        if let Some(Refused { code, fence: Some(fence), job: Some(job), .. }) = event.refused_lease() {
            self.skip(fence, job, if *code == Code::Halted { SkipCause::Halted } else { SkipCause::Held });
        }
    }

    fn change(&mut self, fence: &FenceName, change: &TickChange) {
        let Some(tally) = self.of(fence, &change.job) else { return };
        match change.became {
            _ if change.schedule.is_some() => {}
            TickState::Running => {
                let dropped = change.dropped.unwrap_or(0);
                tally.started += 1;
                tally.dropped = tally.dropped.saturating_add(dropped);
                tally.missed = tally.missed.saturating_add(dropped).saturating_add(u64::from(change.late));
            }
            TickState::Done => tally.done += 1,
            TickState::Failed => tally.failed += 1,
            TickState::Lost => tally.lost += 1,
            TickState::Forgotten => {}
        }
    }

    fn skip(&mut self, fence: &FenceName, job: &JobName, cause: SkipCause) {
        let Some(tally) = self.of(fence, job) else { return };
        match cause {
            SkipCause::Held => tally.skipped_held += 1,
            SkipCause::AlreadyDone => tally.already_done += 1,
            SkipCause::NotDue => tally.not_due += 1,
            SkipCause::Halted => tally.halted += 1,
        }
    }

    fn of(&mut self, fence: &FenceName, job: &JobName) -> Option<&mut JobTally> {
        let key = (fence.clone(), job.clone());
        if self.jobs.len() >= MOST_JOBS_COUNTED && !self.jobs.contains_key(&key) {
            return None;
        }
        Some(self.jobs.entry(key).or_default())
    }
}
