//! Which tick is to be started now.

use super::{
    job::{Job, JobName, ScheduleText, Tick, TickState},
    schedule::Schedule,
};
use crate::FenceName;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The most missed ticks that can be caught up.
pub const MOST_CAUGHT_UP: usize = 1000;
/// The longest wait for jitter.
pub const LONGEST_JITTER: Duration = Duration::from_secs(15 * 60);

/// What a run asks of a schedule.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// The job.
    pub job: JobName,
    /// Its schedule.
    pub schedule: Schedule,
    /// How many of the missed ticks are run.
    pub catch_up: usize,
    /// A tick that is later than this is dropped.
    pub start_within: Option<Duration>,
    /// The part of the interval, in percent, that may pass before a tick is started.
    pub jitter: u8,
    /// Which part of that has to pass: of 2^32, the same everywhere for one job.
    pub jitter_part: u32,
    /// Whether a tick that failed is started again.
    pub retry_failed: bool,
    /// Whether a tick whose holder was lost is started again.
    pub retry_lost: bool,
    /// No later time is a tick.
    pub until: Option<Tick>,
    /// Of later ticks nothing is said: a run that catches up ends with those that were due when it began.
    pub upto: Option<Tick>,
}

/// A tick to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Start {
    /// The tick.
    pub tick: Tick,
    /// How many ticks before it are dropped.
    pub dropped: u64,
    /// Whether a later one is due already.
    pub late: bool,
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// This tick.
    Start(Start),
    /// This tick, after its jitter.
    Wait {
        /// The tick.
        tick: Tick,
        /// How long to wait.
        wait: Duration,
    },
    /// Nothing: the latest tick was started already.
    AlreadyDone {
        /// Whether it was started as the record says.
        job: Job,
        /// The next tick.
        next: Option<Tick>,
    },
    /// Nothing: no tick has come, or none that may still be started.
    NotDue {
        /// The tick that is too late to be started.
        too_late: Option<Tick>,
        /// The next tick; `None` if the schedule has ended.
        next: Option<Tick>,
    },
}

/// Why it cannot be said what is due.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DueError {
    /// The job is on record with another schedule.
    #[error("the job '{job}' is on record with the schedule '{recorded}', and this run asks for '{asked}'")]
    Rescheduled {
        /// The job.
        job: JobName,
        /// The recorded schedule.
        recorded: ScheduleText,
        /// This run's schedule.
        asked: ScheduleText,
    },
    /// The recorded tick is in the future.
    #[error("the last tick of the job '{job}' on record is {tick}, which is in the future: it is {now} here")]
    Ahead {
        /// The job.
        job: JobName,
        /// The recorded tick.
        tick: Tick,
        /// The clock that judges.
        now: Tick,
    },
}

/// Which part of its jitter a job waits: it depends only on these names, so it is the same everywhere and for ever.
pub fn jitter_part(resource: &str, fence: &FenceName, job: &JobName) -> u32 {
    let digest = Sha256::digest(format!("{resource}\n{fence}\n{job}"));
    digest.iter().take(4).fold(0, |part, byte| (part << 8) | u32::from(*byte))
}

impl Scheduled {
    /// What is due at `now_ms`, by the clock that judges, if the record has `recorded` of the job. Clocks may differ by
    /// `skew`.
    pub fn due(&self, recorded: Option<&Job>, now_ms: u64, skew: Duration) -> Result<Due, DueError> {
        let now = Tick::at(now_ms / 1000).unwrap_or_else(|| Tick::at(0).expect("1970 is a tick"));
        let recorded = recorded.filter(|job| job.state != TickState::Forgotten);
        if let Some(job) = recorded {
            self.fits(job, now_ms, now, skew)?;
        }
        let horizon = [self.until, self.upto].into_iter().flatten().fold(now, Tick::min);
        let (mut count, mut candidates) = match recorded {
            Some(job) => {
                let pending = self.schedule.between(job.tick, horizon, self.catch_up);
                (pending.count, pending.latest)
            }
            // A new job begins with the latest tick: nothing was missed before there was a job.
            None => {
                let first = self.schedule.latest_at(horizon);
                (u64::from(first.is_some()), first.into_iter().collect())
            }
        };
        let again = recorded.filter(|job| self.starts_again(job) && candidates.len() < self.catch_up);
        if let Some(job) = again {
            candidates.push_front(job.tick);
            count += 1;
        }
        let newest = candidates.back().copied();
        candidates.retain(|tick| !self.is_too_late(*tick, now));
        let Some(tick) = candidates.front().copied() else { return Ok(self.nothing(recorded, newest, now)) };
        let wait_until = tick.seconds() + self.jitter_of(tick).as_secs();
        if now.seconds() < wait_until {
            return Ok(Due::Wait { tick, wait: Duration::from_millis((wait_until * 1000).saturating_sub(now_ms)) });
        }
        let dropped = count - u64::try_from(candidates.len()).unwrap_or(count).min(count);
        // What comes after a tick that is started again has not been dropped yet.
        let dropped = if again.is_some_and(|job| job.tick == tick) { 0 } else { dropped };
        Ok(Due::Start(Start { tick, dropped, late: candidates.len() > 1 }))
    }

    /// The first tick after `now` that may be started.
    pub fn next_at(&self, now: Tick) -> Option<Tick> {
        self.schedule.next_after(now).filter(|next| self.until.is_none_or(|until| *next <= until))
    }

    /// How long `tick` waits before it is started.
    pub fn jitter_of(&self, tick: Tick) -> Duration {
        let Some(next) = self.schedule.next_after(tick).filter(|_| self.jitter > 0) else { return Duration::ZERO };
        let most = Duration::from_secs(next.seconds() - tick.seconds()) * u32::from(self.jitter) / 100;
        let part = (most.min(LONGEST_JITTER).as_millis() * u128::from(self.jitter_part)) >> 32;
        // Whole seconds, as ticks have.
        Duration::from_secs(u64::try_from(part / 1000).unwrap_or(0))
    }

    fn fits(&self, job: &Job, now_ms: u64, now: Tick, skew: Duration) -> Result<(), DueError> {
        if job.schedule != *self.schedule.text() {
            let (recorded, asked) = (job.schedule.clone(), self.schedule.text().clone());
            return Err(DueError::Rescheduled { job: self.job.clone(), recorded, asked });
        }
        let skew_ms = u64::try_from(skew.as_millis()).unwrap_or(u64::MAX);
        if job.tick.seconds().saturating_mul(1000) > now_ms.saturating_add(skew_ms) {
            return Err(DueError::Ahead { job: self.job.clone(), tick: job.tick, now });
        }
        Ok(())
    }

    /// A tick that is running under a lease that can be taken is lost.
    fn starts_again(&self, job: &Job) -> bool {
        match job.state {
            TickState::Failed => self.retry_failed,
            TickState::Lost | TickState::Running => self.retry_lost,
            TickState::Done | TickState::Forgotten => false,
        }
    }

    fn is_too_late(&self, tick: Tick, now: Tick) -> bool {
        self.start_within.is_some_and(|within| now.seconds().saturating_sub(tick.seconds()) > within.as_secs())
    }

    fn nothing(&self, recorded: Option<&Job>, newest: Option<Tick>, now: Tick) -> Due {
        let next = self.next_at(now);
        match recorded {
            Some(job) if newest.is_none_or(|newest| newest == job.tick) && next.is_some() => {
                Due::AlreadyDone { job: job.clone(), next }
            }
            _ => Due::NotDue { too_late: newest, next },
        }
    }
}
