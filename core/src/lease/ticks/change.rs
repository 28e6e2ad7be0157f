//! What a record may do to the jobs of the record before it: the gate judges by this, and the log shows it.

use super::{
    job::{Job, JobName, ScheduleText, Tick, TickState},
    jobs::Jobs,
};
use crate::{Stamp, Token};
use serde::{Deserialize, Serialize};

/// How far ahead of the judge's clock a tick may be: clocks that are set by the network differ by less.
pub const TICK_ALLOWANCE_MS: u64 = 10_000;

/// What happened to a tick, as the log shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickChange {
    /// The job.
    pub job: JobName,
    /// The tick.
    pub tick: Tick,
    /// What it became: running if it was started.
    pub became: TickState,
    /// The new schedule, if only that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleText>,
    /// How many ticks were dropped by this start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Whether a later tick was due already at this start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Who had started it.
    pub owner: String,
}

/// Why a record may not do that to the jobs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobFault {
    /// A job is missing, or was changed beyond what a record may change.
    #[error("the record changes the job '{0}' in a way that is not allowed: update git-fence")]
    Changed(JobName),
    /// The tick was started already.
    #[error("tick {tick} of the job '{job}' was started already")]
    Started {
        /// The job.
        job: JobName,
        /// The tick.
        tick: Tick,
    },
    /// The tick is not due yet.
    #[error("tick {tick} of the job '{job}' is in the future: it is {now} here")]
    Ahead {
        /// The job.
        job: JobName,
        /// The tick.
        tick: Tick,
        /// The judge's clock.
        now: Tick,
    },
    /// The schedules differ.
    #[error("the job '{job}' is on record with the schedule '{recorded}', not '{asked}'")]
    Schedule {
        /// The job.
        job: JobName,
        /// The recorded schedule.
        recorded: ScheduleText,
        /// The schedule in the record.
        asked: ScheduleText,
    },
    /// More than one job was changed.
    #[error("the record changes more than one job")]
    Several,
}

impl Jobs {
    /// Whether a new ownership with `token` and `owner` may begin with the jobs `after`.
    ///
    /// It carries on every job, and may start a tick of one job, forget one, or give one another schedule. A tick is
    /// started once: only one that failed or was lost may be started again, and an earlier one never.
    pub fn granted(&self, after: &Jobs, token: Token, owner: &str, now: &Stamp) -> Result<(), JobFault> {
        let base = self.carried();
        if let Some((name, _)) = base.iter().find(|(name, _)| after.get(name).is_none()) {
            return Err(JobFault::Changed(name.clone()));
        }
        let mut changed = after.iter().filter(|(name, job)| base.get(name) != Some(job));
        let Some((name, job)) = changed.next() else { return Ok(()) };
        if changed.next().is_some() {
            return Err(JobFault::Several);
        }
        judge_one(name, base.get(name), job, token, owner, now)
    }

    /// Whether a release may leave the jobs as `after`: those that run under the lease may end.
    pub fn released(&self, after: &Jobs) -> Result<(), JobFault> {
        for (name, job) in self.iter() {
            let refused = || JobFault::Changed(name.clone());
            let next = after.get(name).ok_or_else(refused)?;
            if next != job && !is_end(job, next) {
                return Err(refused());
            }
        }
        let unknown = after.iter().find(|(name, _)| self.get(name).is_none());
        unknown.map_or(Ok(()), |(name, _)| Err(JobFault::Changed(name.clone())))
    }

    /// A job that both have, and whose last tick would go back with the jobs `after`.
    pub fn behind(&self, after: &Jobs) -> Option<&JobName> {
        let is_behind = |(name, job): &(&JobName, &Job)| {
            job.state != TickState::Forgotten && after.get(name).is_some_and(|next| next.tick < job.tick)
        };
        self.iter().find(is_behind).map(|(name, _)| name)
    }

    /// What happened to ticks between these jobs and the jobs `after` of the next record.
    pub fn changes_to(&self, after: &Jobs) -> Vec<TickChange> {
        let mut changes = Vec::new();
        for (name, job) in self.iter().filter(|(name, job)| after.get(name) != Some(job)) {
            // What was running has ended, or was lost before anything else happened to the job.
            match after.get(name).filter(|next| is_end(job, next)) {
                Some(next) => changes.push(change_of(name, next, None)),
                None if job.state == TickState::Running => {
                    changes.push(change_of(name, &Job { state: TickState::Lost, ..job.clone() }, None));
                }
                None => {}
            }
        }
        let base = self.carried();
        for (name, next) in after.iter().filter(|(name, next)| base.get(name) != Some(next)) {
            let before = self.get(name);
            if before != Some(next) && !before.is_some_and(|before| is_end(before, next)) {
                let other = base.get(name).filter(|base| base.schedule != next.schedule && base.tick == next.tick);
                changes.push(change_of(name, next, other.map(|_| next.schedule.clone())));
            }
        }
        changes
    }
}

/// Whether `next` is the end of what ran in `job`, and nothing else.
fn is_end(job: &Job, next: &Job) -> bool {
    let ends = matches!(next.state, TickState::Done | TickState::Failed);
    job.state == TickState::Running && ends && Job { state: job.state, ..next.clone() } == *job
}

fn judge_one(
    name: &JobName,
    before: Option<&Job>,
    job: &Job,
    token: Token,
    owner: &str,
    now: &Stamp,
) -> Result<(), JobFault> {
    let refused = || JobFault::Changed(name.clone());
    match (before, job.state) {
        (Some(before), TickState::Forgotten) if Job { state: before.state, ..job.clone() } == *before => Ok(()),
        (Some(before), _) if Job { schedule: before.schedule.clone(), ..job.clone() } == *before => Ok(()),
        (before, TickState::Running) => {
            if job.token != token || job.owner != owner || job.lost != before.and_then(Job::as_lost) {
                return Err(refused());
            }
            if let Some(before) = before {
                may_follow(name, before, job)?;
            }
            if job.tick.seconds().saturating_mul(1000) > now.unix_ms.saturating_add(TICK_ALLOWANCE_MS) {
                let now = Tick::at(now.unix_ms / 1000).ok_or_else(refused)?;
                return Err(JobFault::Ahead { job: name.clone(), tick: job.tick, now });
            }
            Ok(())
        }
        _ => Err(refused()),
    }
}

/// Whether `job` may be started after `before`.
fn may_follow(name: &JobName, before: &Job, job: &Job) -> Result<(), JobFault> {
    if job.schedule != before.schedule {
        return Err(JobFault::Schedule {
            job: name.clone(),
            recorded: before.schedule.clone(),
            asked: job.schedule.clone(),
        });
    }
    let again = job.tick == before.tick && matches!(before.state, TickState::Failed | TickState::Lost);
    if again || job.tick > before.tick {
        return Ok(());
    }
    Err(JobFault::Started { job: name.clone(), tick: job.tick })
}

fn change_of(name: &JobName, job: &Job, schedule: Option<ScheduleText>) -> TickChange {
    TickChange {
        job: name.clone(),
        tick: job.tick,
        became: job.state,
        schedule,
        dropped: (job.state == TickState::Running && job.dropped > 0).then_some(job.dropped),
        late: job.state == TickState::Running && job.late,
        owner: job.owner.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::ticks::{
        job::tests::job,
        jobs::tests::{jobs, name},
    };

    fn at(seconds: u64) -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: 0, unix_ms: seconds * 1000 }
    }

    /// What a grant with token 9 at second 1000 may make of `before`.
    fn granted(before: &Jobs, after: &Jobs) -> Result<Vec<TickChange>, JobFault> {
        before.granted(after, Token::try_from(9).unwrap(), "agent-1", &at(1000))?;
        Ok(before.changes_to(after))
    }

    fn released(before: &Jobs, after: &Jobs) -> Result<Vec<TickChange>, JobFault> {
        before.released(after)?;
        Ok(before.changes_to(after))
    }

    #[test]
    fn tick_is_started_once_and_never_goes_back() {
        use TickState as S;
        let start = |tick| jobs([("a", job(tick, S::Running, 9))]);
        let twice = |tick| Err(JobFault::Started { job: name("a"), tick: Tick::at(tick).unwrap() });
        for (state, again) in [(S::Done, false), (S::Failed, true), (S::Lost, true), (S::Running, true)] {
            let before = jobs([("a", job(600, state, 5))]);
            let after = |tick| {
                before
                    .carried()
                    .get(&name("a"))
                    .and_then(Job::as_lost)
                    .map_or(start(tick), |lost| jobs([("a", Job { lost: Some(lost), ..job(tick, S::Running, 9) })]))
            };
            assert!(granted(&before, &after(660)).is_ok(), "{state:?}");
            assert_eq!(granted(&before, &after(540)), twice(540), "{state:?}");
            if again {
                assert!(granted(&before, &after(600)).is_ok(), "{state:?}");
            } else {
                assert_eq!(granted(&before, &start(600)), twice(600));
            }
        }
        let lost = jobs([("a", Job { lost: job(600, S::Lost, 5).as_lost(), ..job(600, S::Running, 9) })]);
        let again = granted(&jobs([("a", job(600, S::Running, 5))]), &lost).unwrap();
        let became = again.iter().map(|change| (change.tick.seconds(), change.became)).collect::<Vec<_>>();
        assert_eq!(became, [(600, S::Lost), (600, S::Running)]);
        assert!(granted(&Jobs::default(), &start(600)).is_ok());
        assert!(granted(&jobs([("a", job(600, S::Forgotten, 5))]), &start(540)).is_ok(), "a new job");
    }

    #[test]
    fn tick_in_the_future_is_refused() {
        let start = |tick| jobs([("a", job(tick, TickState::Running, 9))]);
        assert!(granted(&Jobs::default(), &start(1010)).is_ok());
        let (tick, now) = (Tick::at(1011).unwrap(), Tick::at(1000).unwrap());
        assert_eq!(granted(&Jobs::default(), &start(1011)), Err(JobFault::Ahead { job: name("a"), tick, now }));
    }

    #[test]
    fn no_job_vanishes_and_only_one_changes() {
        use TickState as S;
        let before = jobs([("a", job(600, S::Done, 5)), ("b", job(600, S::Running, 6))]);
        let carried = before.carried();
        let lost = granted(&before, &carried).unwrap();
        assert_eq!((lost.len(), lost[0].became, &lost[0].job), (1, S::Lost, &name("b")));
        let changed = |a: Job, b: Job| granted(&before, &jobs([("a", a), ("b", b)]));
        let lost = || job(600, S::Lost, 6);
        assert_eq!(granted(&before, &before), Err(JobFault::Changed(name("b"))), "nobody runs it any more");
        assert_eq!(granted(&before, &jobs([("b", lost())])), Err(JobFault::Changed(name("a"))));
        assert_eq!(changed(job(660, S::Running, 9), job(660, S::Running, 9)), Err(JobFault::Several));
        for bad in [
            job(660, S::Running, 8),
            Job { owner: "somebody".to_owned(), ..job(660, S::Running, 9) },
            job(660, S::Done, 9),
            job(600, S::Failed, 5),
            job(600, S::Lost, 5),
        ] {
            assert_eq!(changed(bad.clone(), lost()), Err(JobFault::Changed(name("a"))), "{bad:?}");
        }
        let hourly = ScheduleText::parse("every 3600s").unwrap();
        let asked = Job { schedule: hourly.clone(), ..job(660, S::Running, 9) };
        assert!(matches!(changed(asked, lost()), Err(JobFault::Schedule { .. })), "a start on another schedule");
        let rescheduled = changed(Job { schedule: hourly.clone(), ..job(600, S::Done, 5) }, lost()).unwrap();
        assert_eq!(rescheduled[1].schedule, Some(hourly));
        let forgotten = changed(job(600, S::Forgotten, 5), lost()).unwrap();
        assert_eq!(forgotten[1].became, S::Forgotten);
    }

    #[test]
    fn jobs_that_move_to_another_place_do_not_go_back() {
        let before = jobs([("a", job(600, TickState::Done, 5)), ("b", job(600, TickState::Forgotten, 6))]);
        let after = |a, b| jobs([("a", job(a, TickState::Done, 7)), ("b", job(b, TickState::Done, 8))]);
        assert_eq!(before.behind(&after(600, 60)), None);
        assert_eq!(before.behind(&after(540, 660)), Some(&name("a")));
        assert_eq!(before.behind(&Jobs::default()), None, "it may have been forgotten there");
    }

    #[test]
    fn release_ends_what_runs_and_changes_nothing_else() {
        use TickState as S;
        let before = jobs([("a", job(600, S::Done, 5)), ("b", job(600, S::Running, 6))]);
        let after = |a: Job, b: Job| released(&before, &jobs([("a", a), ("b", b)]));
        let (done, running) = (|| job(600, S::Done, 5), || job(600, S::Running, 6));
        assert_eq!(after(done(), running()), Ok(Vec::new()));
        for how in [S::Done, S::Failed] {
            assert_eq!(after(done(), job(600, how, 6)).unwrap()[0].became, how);
        }
        for bad in [S::Lost, S::Forgotten] {
            assert!(after(done(), job(600, bad, 6)).is_err(), "{bad:?}");
        }
        assert!(after(job(600, S::Failed, 5), running()).is_err());
        assert!(after(done(), job(660, S::Done, 6)).is_err());
        assert!(before.released(&jobs([("a", done())])).is_err());
        assert!(Jobs::default().released(&before).is_err());
        assert_eq!(before.ended(Some(S::Done)), jobs([("a", done()), ("b", job(600, S::Done, 6))]));
    }
}
