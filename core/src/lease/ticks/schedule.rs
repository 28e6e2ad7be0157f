//! Which times are the ticks of a schedule.

use super::job::{ScheduleText, Tick};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use std::{collections::VecDeque, time::Duration};

/// The spans, in seconds, in which the latest tick is looked for: an hour, a day, a month and more, a year and more, and
/// nine years, since a 29 February can be eight years away.
const LOOKBACKS: [u64; 5] = [3_600, DAY, 40 * DAY, 400 * DAY, 9 * 366 * DAY];
const DAY: u64 = 86_400;
/// The year 2000.
const BEGIN: u64 = 946_684_800;

/// A schedule: every so often, counted from 1970, or a cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct Schedule {
    text: ScheduleText,
    times: Times,
}

#[derive(Debug, Clone)]
enum Times {
    Every(u64),
    Cron {
        cron: Box<Cron>,
        zone: TimeZone,
        /// How many ticks a day has on which there are any and the clock does not change.
        per_day: u64,
    },
}

/// Why something is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// An interval that is not at least one whole second.
    #[error("a schedule needs an interval of whole seconds, at least one")]
    Interval,
    /// Another number of fields.
    #[error("'{expression}' has {count} fields, and a schedule has five: minute, hour, day, month and weekday")]
    Fields {
        /// The expression.
        expression: String,
        /// How many fields it has.
        count: usize,
    },
    /// A field cannot be read.
    #[error("'{expression}' is not a cron expression: {why}")]
    Field {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        why: String,
    },
    /// No day matches.
    #[error("'{0}' never comes due")]
    Never(String),
    /// Too long to be kept.
    #[error("the schedule is too long to be kept in a lease")]
    Length,
}

/// The ticks that came due in a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    /// How many there are.
    pub count: u64,
    /// The latest of them, oldest first.
    pub latest: VecDeque<Tick>,
}

impl Schedule {
    /// Every `interval`, counted from 1970: the same on every machine.
    pub fn every(interval: Duration) -> Result<Schedule, ScheduleError> {
        let seconds = interval.as_secs();
        if seconds == 0 || interval.subsec_nanos() != 0 {
            return Err(ScheduleError::Interval);
        }
        let text = ScheduleText::parse(&format!("every {seconds}s")).ok_or(ScheduleError::Length)?;
        Ok(Schedule { text, times: Times::Every(seconds) })
    }

    /// A cron expression of five fields in `zone`, whose name is `zone_name`.
    pub fn cron(expression: &str, zone_name: &str, zone: TimeZone) -> Result<Schedule, ScheduleError> {
        let fields: Vec<String> = expression.split_whitespace().map(str::to_ascii_uppercase).collect();
        let (count, fields) = (fields.len(), fields.join(" "));
        let expression = fields.chars().take(100).collect::<String>();
        if count != 5 {
            return Err(ScheduleError::Fields { expression, count });
        }
        let text = ScheduleText::parse(&format!("cron {zone_name} {fields}"));
        // Nicknames like @daily are no field, and what else they may hide is not known.
        let text = text.ok_or_else(|| ScheduleError::Field {
            expression: expression.clone(),
            why: "it has a character that no field has, or is too long".to_owned(),
        })?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&fields).map_err(|why| ScheduleError::Field {
            expression: expression.clone(),
            why: why.to_string().trim_end_matches('.').to_owned(),
        })?;
        if walk(&cron, &zone, BEGIN).next().is_none() {
            return Err(ScheduleError::Never(expression));
        }
        let times_of_day: Vec<&str> = fields.split(' ').take(2).chain(["*", "*", "*"]).collect();
        let daily = parser.parse(&times_of_day.join(" ")).unwrap_or_else(|_| cron.clone());
        let per_day = walk(&daily, &TimeZone::UTC, BEGIN - 1).take_while(|tick| tick.seconds() < BEGIN + DAY).count();
        let per_day = u64::try_from(per_day).unwrap_or(u64::MAX);
        Ok(Schedule { text, times: Times::Cron { cron: Box::new(cron), zone, per_day } })
    }

    /// The schedule as records have it.
    pub fn text(&self) -> &ScheduleText {
        &self.text
    }

    /// The interval, if it has one.
    pub fn interval(&self) -> Option<Duration> {
        match self.times {
            Times::Every(seconds) => Some(Duration::from_secs(seconds)),
            Times::Cron { .. } => None,
        }
    }

    /// The first tick after this one.
    pub fn next_after(&self, tick: Tick) -> Option<Tick> {
        match &self.times {
            Times::Every(seconds) => Tick::at((tick.seconds() / seconds + 1).checked_mul(*seconds)?),
            Times::Cron { cron, zone, .. } => walk(cron, zone, tick.seconds()).next(),
        }
    }

    /// The latest tick that is not after `now`.
    pub fn latest_at(&self, now: Tick) -> Option<Tick> {
        match &self.times {
            Times::Every(seconds) => Tick::at(now.seconds() / seconds * seconds),
            Times::Cron { cron, zone, .. } => latest_of(cron, zone, 0, now, 1).pop_back(),
        }
    }

    /// The ticks after `after` and not after `upto`, of which the latest `keep` are listed.
    pub fn between(&self, after: Tick, upto: Tick, keep: usize) -> Pending {
        match &self.times {
            Times::Every(seconds) => {
                let (first, last) = (after.seconds() / seconds, upto.seconds() / seconds);
                let count = last.saturating_sub(first);
                let kept = count.min(u64::try_from(keep).unwrap_or(u64::MAX));
                let latest = (last - kept..last).filter_map(|n| Tick::at((n + 1) * seconds)).collect();
                Pending { count, latest }
            }
            Times::Cron { cron, zone, per_day } => Pending {
                count: count_of(cron, zone, *per_day, after, upto).unwrap_or(0),
                latest: latest_of(cron, zone, after.seconds(), upto, keep),
            },
        }
    }
}

/// The ticks after this second. Always forward: a search backward could see a change of the clock otherwise.
fn walk<'a>(cron: &'a Cron, zone: &TimeZone, after: u64) -> impl Iterator<Item = Tick> + use<'a> {
    let next = |after: &Zoned| cron.find_next_occurrence(after, false).ok();
    let first = zoned(after, zone).and_then(|after| next(&after));
    std::iter::successors(first, move |last| next(last)).map_while(|time| tick_of(&time))
}

/// The latest `keep` ticks after the second `after` and not after `upto`. They are near the end, however long ago it began.
fn latest_of(cron: &Cron, zone: &TimeZone, after: u64, upto: Tick, keep: usize) -> VecDeque<Tick> {
    let mut latest = VecDeque::new();
    for span in LOOKBACKS {
        let from = upto.seconds().saturating_sub(span).max(after);
        latest = walk(cron, zone, from).take_while(|tick| *tick <= upto).collect();
        if latest.len() >= keep || from == after {
            break;
        }
    }
    latest.drain(..latest.len().saturating_sub(keep));
    latest
}

/// How many ticks are after `after` and not after `upto`: a day at a time where the day is whole and its clock does not
/// change, so that a year of minutes is counted at once.
fn count_of(cron: &Cron, zone: &TimeZone, per_day: u64, after: Tick, upto: Tick) -> Option<u64> {
    let upto = zoned(upto.seconds(), zone)?;
    let (mut at, mut count) = (zoned(after.seconds(), zone)?, 0);
    while let Some(next) = cron.find_next_occurrence(&at, false).ok().filter(|next| *next <= upto) {
        let begin = next.start_of_day().ok()?;
        let end = begin.tomorrow().ok()?;
        let is_ordinary = end.timestamp().as_second() - begin.timestamp().as_second() == DAY.cast_signed();
        if at < begin && end <= upto && is_ordinary {
            count += per_day;
            at = end.checked_sub(SignedDuration::from_secs(1)).ok()?;
        } else {
            count += 1;
            at = next;
        }
    }
    Some(count)
}

fn zoned(second: u64, zone: &TimeZone) -> Option<Zoned> {
    let time = Timestamp::from_second(i64::try_from(second).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()))
}

fn tick_of(time: &Zoned) -> Option<Tick> {
    Tick::at(u64::try_from(time.timestamp().as_second()).ok()?)
}
