//! The scheduled jobs of a fence, as its lease carries them from record to record.

use super::{
    due::Start,
    job::{Job, JobName, ScheduleText, TickState},
};
use crate::Token;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _};

/// How many jobs a fence can have: every record of its lease carries them all.
pub const MOST_JOBS: usize = 64;

/// What a record's line of a job begins with; the job's name follows.
pub(crate) const JOB: &str = "Fence-Job-";

/// The jobs of a fence, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<JobName, Job>", into = "BTreeMap<JobName, Job>")]
pub struct Jobs(BTreeMap<JobName, Job>);

impl TryFrom<BTreeMap<JobName, Job>> for Jobs {
    type Error = &'static str;

    fn try_from(jobs: BTreeMap<JobName, Job>) -> Result<Jobs, &'static str> {
        if jobs.len() > MOST_JOBS { Err("more than 64 jobs") } else { Ok(Jobs(jobs)) }
    }
}

impl From<Jobs> for BTreeMap<JobName, Job> {
    fn from(jobs: Jobs) -> BTreeMap<JobName, Job> {
        jobs.0
    }
}

/// The fence has as many jobs as a record can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fence has {MOST_JOBS} jobs already, and its lease cannot carry more")]
pub struct TooManyJobs;

impl Jobs {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The job of this name.
    pub fn get(&self, name: &JobName) -> Option<&Job> {
        self.0.get(name)
    }

    /// Every job, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&JobName, &Job)> {
        self.0.iter()
    }

    /// The jobs as a new ownership gets them: what was running is lost, because whoever ran it holds the lease no longer;
    /// and what was forgotten is gone.
    #[must_use]
    pub fn carried(&self) -> Jobs {
        let mut jobs = self.0.clone();
        jobs.retain(|_, job| job.state != TickState::Forgotten);
        for job in jobs.values_mut().filter(|job| job.state == TickState::Running) {
            job.state = TickState::Lost;
        }
        Jobs(jobs)
    }

    /// The jobs after a release: what was running under the lease has ended so. `None` leaves it open, and the next owner
    /// records it as lost.
    #[must_use]
    pub fn ended(&self, how: Option<TickState>) -> Jobs {
        let Some(how) = how else { return self.clone() };
        let mut jobs = self.clone();
        for job in jobs.0.values_mut().filter(|job| job.state == TickState::Running) {
            job.state = how;
        }
        jobs
    }

    /// The jobs after the start of a tick under a lease with this token.
    pub fn started(
        &self,
        name: &JobName,
        start: &Start,
        schedule: &ScheduleText,
        token: Token,
        owner: &str,
    ) -> Result<Jobs, TooManyJobs> {
        let Start { tick, dropped, late } = *start;
        let (schedule, owner) = (schedule.clone(), owner.to_owned());
        let lost = self.get(name).and_then(Job::as_lost);
        self.with(name, Job { tick, state: TickState::Running, token, dropped, late, lost, schedule, owner })
    }

    /// The jobs with this one forgotten; `None` if there is no such job.
    pub fn forgotten(&self, name: &JobName) -> Option<Jobs> {
        let job = Job { state: TickState::Forgotten, ..self.get(name)?.clone() };
        self.with(name, job).ok()
    }

    /// The jobs with this one on another schedule; `None` if there is no such job.
    pub fn rescheduled(&self, name: &JobName, schedule: &ScheduleText) -> Option<Jobs> {
        let job = Job { schedule: schedule.clone(), ..self.get(name)?.clone() };
        self.with(name, job).ok()
    }

    fn with(&self, name: &JobName, job: Job) -> Result<Jobs, TooManyJobs> {
        let mut jobs = self.0.clone();
        jobs.insert(name.clone(), job);
        Jobs::try_from(jobs).map_err(|_| TooManyJobs)
    }

    /// The lines of a record.
    pub(crate) fn lines(&self) -> String {
        self.0.iter().fold(String::new(), |mut lines, (name, job)| {
            let _ = writeln!(lines, "{JOB}{name}: {}", job.line());
            lines
        })
    }

    /// Reads the lines of a record, each given as the job's name and the rest; `Err` has the name that cannot be read.
    pub(crate) fn read<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Jobs, &'a str> {
        let mut jobs = BTreeMap::new();
        for (name, line) in lines {
            let known = JobName::parse(name).zip(Job::read(line)).ok_or(name)?;
            jobs.insert(known.0, known.1);
            if jobs.len() > MOST_JOBS {
                return Err(name);
            }
        }
        Ok(Jobs(jobs))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lease::ticks::job::tests::job;

    pub(crate) fn name(name: &str) -> JobName {
        JobName::parse(name).unwrap()
    }

    pub(crate) fn jobs<const N: usize>(all: [(&str, Job); N]) -> Jobs {
        Jobs(all.into_iter().map(|(word, job)| (name(word), job)).collect())
    }

    #[test]
    fn new_owner_gets_running_ticks_as_lost_and_forgotten_jobs_not_at_all() {
        let before = jobs([
            ("a", job(60, TickState::Running, 1)),
            ("b", job(60, TickState::Failed, 2)),
            ("c", job(60, TickState::Forgotten, 3)),
        ]);
        let after = jobs([("a", job(60, TickState::Lost, 1)), ("b", job(60, TickState::Failed, 2))]);
        assert_eq!(before.carried(), after);
        assert_eq!(after.carried(), after);
        assert_eq!(before.ended(Some(TickState::Done)).get(&name("a")), Some(&job(60, TickState::Done, 1)));
        assert_eq!(before.ended(None), before);
        assert!(before.forgotten(&name("x")).is_none());
    }

    #[test]
    fn fence_has_room_for_64_jobs() {
        let token = Token::try_from(1).unwrap();
        let start = Start { tick: job(60, TickState::Done, 1).tick, dropped: 0, late: false };
        let every = ScheduleText::parse("every 60s").unwrap();
        let add = |jobs: &Jobs, n: usize| jobs.started(&name(&format!("j{n}")), &start, &every, token, "a");
        let mut jobs = Jobs::default();
        for n in 0..MOST_JOBS {
            jobs = add(&jobs, n).unwrap();
        }
        assert_eq!(add(&jobs, MOST_JOBS), Err(TooManyJobs));
        assert!(add(&jobs, 3).is_ok(), "a known job needs no room");
    }
}
