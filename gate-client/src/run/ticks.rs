//! The schedule of a run, from its options: which ticks there are, and which of them it wants.

use crate::{client::Client, commands::context::duration, failure::Failure, lease::jobs::JobsAsk};
use clap::Args;
use git_fence_core::{
    Due, FenceName, Job, JobName, LONGEST_JITTER, MOST_CAUGHT_UP, Schedule, ScheduleText, Scheduled, Tick, jitter_part,
    text,
};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use std::time::Duration;

/// The most of an interval that may be jitter, in percent: the next tick must not be near.
const MOST_JITTER: u8 = 50;

/// When ticks are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ScheduleArgs {
    /// Run for each tick of this interval once, on whichever machine fires: 45m, counted from 1970
    #[arg(long, value_name = "TIME", conflicts_with = "cron")]
    every: Option<String>,
    /// Run for each tick of this cron expression once: minute, hour, day, month and weekday
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,
    /// The time zone of --cron [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
}

/// The schedule of a run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TickArgs {
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// The name under which the lease remembers the ticks of this schedule
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Of ticks that were missed, run the latest N, oldest first; the others are dropped [default: 1]
    #[arg(long, value_name = "N")]
    catch_up: Option<usize>,
    /// Drop a tick that is later than this
    #[arg(long, value_name = "TIME")]
    start_within: Option<String>,
    /// Wait for a part of the interval that is the same everywhere, at most 15m: 10%
    #[arg(long, value_name = "PERCENT")]
    jitter: Option<String>,
    /// Run a tick again whose command failed
    #[arg(long)]
    retry_failed: bool,
    /// Run a tick again whose run lost the lease or died
    #[arg(long)]
    retry_lost: bool,
    /// No tick after this date or time
    #[arg(long, value_name = "DATE")]
    until: Option<String>,
}

impl ScheduleArgs {
    /// The schedule, if one is given, and its time zone.
    pub(crate) fn schedule(&self) -> Result<Option<(Schedule, TimeZone)>, Failure> {
        let usage = |what: String| Failure::usage(what, "use for example  --every 45m  or  --cron '30 3 * * *'");
        if let (Some(_), Some(_)) = (&self.every, &self.tz) {
            return Err(usage("--tz belongs to --cron: --every counts from 1970, whatever the time zone".to_owned()));
        }
        match (&self.every, &self.cron) {
            (Some(every), _) => {
                let schedule = Schedule::every(duration(every, "--every")?);
                Ok(Some((schedule.map_err(|e| usage(format!("--every {every}: {e}")))?, TimeZone::UTC)))
            }
            (None, Some(expression)) => {
                let (name, zone) = zone(self.tz.as_deref().unwrap_or("UTC"))?;
                let schedule = Schedule::cron(expression, &name, zone.clone());
                Ok(Some((schedule.map_err(|e| usage(format!("--cron: {e}")))?, zone)))
            }
            (None, None) => Ok(None),
        }
    }
}

impl TickArgs {
    /// The schedule that a run of this client's fence is given. Its jitter depends on `resource`, the repository's name.
    pub(crate) fn scheduled(&self, resource: &str, fence: &FenceName) -> Result<Option<Scheduled>, Failure> {
        let Some((schedule, zone)) = self.schedule.schedule()? else { return self.nothing_given().map(|()| None) };
        let job = self.job.as_deref().ok_or_else(|| {
            Failure::usage("a schedule needs a name, under which its ticks are remembered", "add one:  --job nightly")
        })?;
        let job = job_name(job)?;
        let jitter_part = jitter_part(resource, fence, &job);
        let scheduled = Scheduled {
            job,
            schedule,
            catch_up: self.catch_up()?,
            start_within: self.start_within.as_deref().map(|time| duration(time, "--start-within")).transpose()?,
            jitter: self.jitter()?,
            jitter_part,
            retry_failed: self.retry_failed,
            retry_lost: self.retry_lost,
            until: self.until.as_deref().map(|date| until(date, &zone)).transpose()?,
            upto: None,
        };
        // A tick that is dropped before its jitter has passed would never run.
        let most = scheduled
            .schedule
            .interval()
            .map_or(LONGEST_JITTER, |interval| (interval * u32::from(scheduled.jitter) / 100).min(LONGEST_JITTER));
        if scheduled.jitter > 0 && scheduled.start_within.is_some_and(|within| within <= most) {
            return Err(Failure::usage(
                format!("--start-within is not longer than --jitter can be, which is {} s", most.as_secs()),
                "make it longer, or the jitter smaller: a tick could be dropped before it may start",
            ));
        }
        Ok(Some(scheduled))
    }

    fn catch_up(&self) -> Result<usize, Failure> {
        match self.catch_up.unwrap_or(1) {
            n @ 1..=MOST_CAUGHT_UP => Ok(n),
            n => Err(Failure::usage(
                format!("--catch-up {n} is not between 1 and {MOST_CAUGHT_UP}"),
                "1 runs the latest of the missed ticks",
            )),
        }
    }

    fn jitter(&self) -> Result<u8, Failure> {
        let Some(given) = &self.jitter else { return Ok(0) };
        let percent = given.strip_suffix('%').and_then(|digits| digits.parse::<u8>().ok());
        percent.filter(|percent| *percent <= MOST_JITTER).ok_or_else(|| {
            let what = format!("--jitter {} is not a part of the interval", text::quoted(given.as_bytes()));
            Failure::usage(what, format!("use 0% to {MOST_JITTER}%, for example  --jitter 10%"))
        })
    }

    /// An option of schedules means nothing without one.
    fn nothing_given(&self) -> Result<(), Failure> {
        let given = [
            ("--tz", self.schedule.tz.is_some()),
            ("--job", self.job.is_some()),
            ("--catch-up", self.catch_up.is_some()),
            ("--start-within", self.start_within.is_some()),
            ("--jitter", self.jitter.is_some()),
            ("--retry-failed", self.retry_failed),
            ("--retry-lost", self.retry_lost),
            ("--until", self.until.is_some()),
        ];
        given.iter().find(|(_, is_given)| *is_given).map_or(Ok(()), |(name, _)| {
            let what = format!("{name} belongs to a schedule, and none is given");
            Err(Failure::usage(what, "add  --every 45m  or  --cron '30 3 * * *'"))
        })
    }
}

/// The name of a job.
pub(crate) fn job_name(name: &str) -> Result<JobName, Failure> {
    JobName::try_from(name.to_owned()).map_err(|what| Failure::usage(what, "use for example  --job nightly"))
}

/// The time zone of this name, and its name as the database spells it: records compare it.
fn zone(name: &str) -> Result<(String, TimeZone), Failure> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(("UTC".to_owned(), TimeZone::UTC));
    }
    let unknown = || {
        Failure::usage(
            format!("there is no time zone {} on this machine", text::quoted(name.as_bytes())),
            "use a name like Europe/Berlin. On a machine without time zones, install the package tzdata",
        )
    };
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let spelled = zone.iana_name().ok_or_else(unknown)?.to_owned();
    Ok((spelled, zone))
}

/// The schedule that a record names; `None` if its time zone is not known here.
pub(crate) fn schedule_of(text: &ScheduleText) -> Option<Schedule> {
    match text.as_str().split_once(' ')? {
        ("every", interval) => {
            let seconds = interval.strip_suffix('s')?.parse().ok()?;
            Schedule::every(Duration::from_secs(seconds)).ok()
        }
        (_, cron) => {
            let (name, expression) = cron.split_once(' ')?;
            let (name, zone) = zone(name).ok()?;
            Schedule::cron(expression, &name, zone).ok()
        }
    }
}

/// The end of this day in `zone`, or this moment.
fn until(given: &str, zone: &TimeZone) -> Result<Tick, Failure> {
    let end_of = |date: Date| {
        let next = date.tomorrow().ok()?.to_zoned(zone.clone()).ok()?;
        Some(next.timestamp().as_second() - 1)
    };
    let moment = || given.parse::<Timestamp>().ok().map(Timestamp::as_second);
    let second = given.parse::<Date>().ok().filter(|_| given.len() == 10).and_then(end_of).or_else(moment);
    second.and_then(|second| Tick::at(u64::try_from(second).ok()?)).ok_or_else(|| {
        Failure::usage(
            format!("--until {} is neither a date nor a time", text::quoted(given.as_bytes())),
            "use for example  --until 2026-12-31  or  --until 2026-12-31T12:00:00Z",
        )
    })
}

/// The tick for which this lease was taken.
pub(crate) fn started<'a>(ask: &JobsAsk, jobs: &'a git_fence_core::Jobs) -> Option<(JobName, &'a Job)> {
    let JobsAsk::Start(scheduled) = ask else { return None };
    Some((scheduled.job.clone(), jobs.get(&scheduled.job)?))
}

/// Why nothing runs, in a sentence.
pub(crate) fn nothing_to_do(client: &Client, job: &JobName, due: &Due) -> String {
    let fence = &client.fence;
    let then = |next: &Option<Tick>| match next {
        Some(next) => format!("the next one comes {next}"),
        None => "the schedule has ended".to_owned(),
    };
    match due {
        Due::AlreadyDone { job: record, next } => {
            format!("nothing to do for job '{job}' of fence '{fence}': {}, and {}", record.in_words(), then(next))
        }
        Due::NotDue { too_late: Some(late), next } => {
            format!(
                "nothing to do for job '{job}' of fence '{fence}': tick {late} is too late to start, and {}",
                then(next)
            )
        }
        Due::NotDue { too_late: None, next } => {
            format!("nothing to do for job '{job}' of fence '{fence}': no tick is due, and {}", then(next))
        }
        Due::Start(start) => format!("tick {} of job '{job}' is due", start.tick),
        Due::Wait { tick, wait } => {
            format!("tick {tick} of job '{job}' of fence '{fence}' starts in {} s", seconds_up(*wait))
        }
    }
}

fn seconds_up(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The tick after what is due.
pub(crate) fn next_of(due: &Due) -> Option<Tick> {
    match due {
        Due::AlreadyDone { next, .. } | Due::NotDue { next, .. } => *next,
        Due::Start(_) | Due::Wait { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(every: &str) -> TickArgs {
        let schedule = ScheduleArgs { every: Some(every.to_owned()), ..ScheduleArgs::default() };
        TickArgs { schedule, job: Some("nightly".to_owned()), ..TickArgs::default() }
    }

    fn scheduled(args: &TickArgs) -> Result<Option<Scheduled>, Failure> {
        args.scheduled("host/app", &FenceName::repo())
    }

    fn refusal(args: &TickArgs) -> String {
        scheduled(args).unwrap_err().to_string()
    }

    #[test]
    fn schedule_that_cannot_be_used_says_why() {
        let given = |text: &str| Some(text.to_owned());
        let cron = |expression: &str, tz: Option<&str>| TickArgs {
            schedule: ScheduleArgs { every: None, cron: given(expression), tz: tz.map(str::to_owned) },
            ..args("1s")
        };
        for (args, says) in [
            (args("0"), "whole seconds"),
            (args("500ms"), "whole seconds"),
            (args("soon"), "not a duration"),
            (TickArgs { job: None, ..args("45m") }, "needs a name"),
            (TickArgs { job: given("A b"), ..args("45m") }, "not a valid job name"),
            (TickArgs { catch_up: Some(0), ..args("45m") }, "between 1 and 1000"),
            (TickArgs { catch_up: Some(1_000_000), ..args("45m") }, "between 1 and 1000"),
            (TickArgs { jitter: given("90%"), ..args("45m") }, "not a part of the interval"),
            (TickArgs { jitter: given("10"), ..args("45m") }, "not a part of the interval"),
            (TickArgs { until: given("tomorrow"), ..args("45m") }, "neither a date nor a time"),
            (
                TickArgs { jitter: given("10%"), start_within: given("4m"), ..args("45m") },
                "--start-within is not longer",
            ),
            (cron("0 30 3 * * *", None), "has 6 fields"),
            (cron("0 0 30 2 *", None), "never comes due"),
            (cron("30 3 * * *", Some("Europe/Atlantis")), "no time zone 'Europe/Atlantis'"),
            (TickArgs { schedule: ScheduleArgs::default(), ..args("1s") }, "--job belongs to a schedule"),
        ] {
            let why = refusal(&args);
            assert!(why.contains(says), "{why}");
        }
        assert!(scheduled(&TickArgs::default()).unwrap().is_none());
    }

    #[test]
    fn until_is_the_end_of_a_day_or_a_moment() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(until("2026-07-31", &zone).unwrap().to_string(), "2026-07-31T21:59:59Z");
        assert_eq!(until("2026-07-31T12:00:00+02:00", &zone).unwrap().to_string(), "2026-07-31T10:00:00Z");
    }

    #[test]
    fn zone_is_known_by_one_spelling() {
        assert_eq!(zone("utc").unwrap().0, "UTC");
        if let Ok((spelled, _)) = zone("europe/berlin") {
            assert_eq!(spelled, "Europe/Berlin");
        }
    }
}
