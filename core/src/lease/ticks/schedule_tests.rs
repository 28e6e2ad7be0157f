//! Ticks of schedules, as tables: fields, and the days on which the clock changes.

use super::{
    job::Tick,
    schedule::{Schedule, ScheduleError},
};
use jiff::tz::TimeZone;
use std::time::Duration;

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const NEW_YORK: &str = "EST5EDT,M3.2.0,M11.1.0";
/// The clock changes by half an hour, in the other half of the year.
const LORD_HOWE: &str = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0";

fn cron(expression: &str, zone: &str) -> Result<Schedule, ScheduleError> {
    Schedule::cron(expression, "Some/Zone", TimeZone::posix(zone).unwrap())
}

fn tick(text: &str) -> Tick {
    Tick::parse(&format!("{text}:00Z")).unwrap()
}

/// The ticks after `from` and not after `to`.
fn ticks(expression: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let schedule = cron(expression, zone).unwrap();
    let pending = schedule.between(tick(from), tick(to), 100);
    assert_eq!(pending.count, pending.latest.len() as u64);
    for each in &pending.latest {
        assert_eq!(schedule.latest_at(*each), Some(*each), "a tick is the latest at its own time");
    }
    pending.latest.iter().map(|tick| tick.to_string().trim_end_matches(":00Z").to_owned()).collect()
}

#[test]
fn interval_counts_from_1970_whatever_the_hour() {
    let every = |seconds| Schedule::every(Duration::from_secs(seconds)).unwrap();
    let forty_five = every(45 * 60);
    let pending = forty_five.between(tick("2026-01-01T00:00"), tick("2026-01-01T03:00"), 9);
    let times: Vec<String> = pending.latest.iter().map(Tick::to_string).collect();
    assert_eq!(times, ["2026-01-01T00:45:00Z", "2026-01-01T01:30:00Z", "2026-01-01T02:15:00Z", "2026-01-01T03:00:00Z"]);
    assert_eq!(every(60).latest_at(tick("2026-01-01T00:01")), Some(tick("2026-01-01T00:01")));
    assert_eq!(every(60).next_after(tick("2026-01-01T00:01")), Some(tick("2026-01-01T00:02")));
    assert_eq!(forty_five.text().as_str(), "every 2700s");
    for bad in [Duration::ZERO, Duration::from_millis(500), Duration::from_millis(1500)] {
        assert_eq!(Schedule::every(bad).unwrap_err(), ScheduleError::Interval);
    }
    assert_eq!(every(u64::MAX).next_after(tick("2026-01-01T00:00")), None);
}

#[test]
fn cron_field_is_not_an_interval() {
    let times = ticks("*/45 * * * *", "UTC0", "2026-01-01T00:00", "2026-01-01T02:00");
    assert_eq!(times, ["2026-01-01T00:45", "2026-01-01T01:00", "2026-01-01T01:45", "2026-01-01T02:00"]);
}

#[test]
fn tick_in_the_gap_comes_once_after_it_and_one_in_the_repeated_hour_once() {
    for (expression, zone, from, to, expected) in [
        // Berlin: at 02:00 it is 03:00 on 29 March, and at 03:00 it is 02:00 on 25 October.
        (
            "30 2 * * *",
            BERLIN,
            "2026-03-28T00:00",
            "2026-03-30T12:00",
            &["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"][..],
        ),
        (
            "30 2 * * *",
            BERLIN,
            "2026-10-24T00:00",
            "2026-10-26T12:00",
            &["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
        ),
        // Where a field has a star, the time that passes counts.
        (
            "*/30 * * * *",
            BERLIN,
            "2026-10-25T00:00",
            "2026-10-25T02:00",
            &["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"],
        ),
        ("0 4 * * *", BERLIN, "2026-03-28T12:00", "2026-03-29T12:00", &["2026-03-29T02:00"]),
        // New York: 8 March and 1 November.
        (
            "30 2 * * *",
            NEW_YORK,
            "2026-03-07T00:00",
            "2026-03-09T12:00",
            &["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"],
        ),
        (
            "30 1 * * *",
            NEW_YORK,
            "2026-10-31T00:00",
            "2026-11-02T12:00",
            &["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"],
        ),
        // Lord Howe: half an hour, on 4 October forward and on 5 April back.
        ("15 2 * * *", LORD_HOWE, "2026-10-02T18:00", "2026-10-05T12:00", &["2026-10-03T15:30", "2026-10-04T15:15"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-03T18:00", "2026-04-06T00:00", &["2026-04-04T14:45", "2026-04-05T15:15"]),
    ] {
        assert_eq!(ticks(expression, zone, from, to), expected, "{expression} {zone} from {from}");
    }
}

/// Ticks are counted a day at a time: the sum is that of counting each.
#[test]
fn long_spans_are_counted_as_if_each_tick_was() {
    let (from, to) = (tick("2026-02-27T11:07"), tick("2026-12-03T04:59"));
    for zone in [BERLIN, NEW_YORK, LORD_HOWE, "UTC0"] {
        for expression in ["30 2 * * *", "*/20 * * * *", "15,45 1-3 * * *", "0 */5 * * MON", "30 2 L * *", "0 0 1 * *"]
        {
            let schedule = cron(expression, zone).unwrap();
            let each = std::iter::successors(schedule.next_after(from), |tick| schedule.next_after(*tick));
            let each: Vec<Tick> = each.take_while(|tick| *tick <= to).collect();
            let pending = schedule.between(from, to, 3);
            assert_eq!(pending.count, each.len() as u64, "{expression} {zone}");
            assert_eq!(pending.latest, &each[each.len() - 3..], "{expression} {zone}");
        }
    }
}

#[test]
fn expression_that_is_no_schedule_says_why() {
    for (expression, says) in [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 30 3 * * *", "has 6 fields, and a schedule has five"),
        ("0 30 3 * * * 2026", "has 7 fields"),
        ("@daily", "has 1 fields"),
        ("60 * * * *", "is not a cron expression"),
        ("* 24 * * *", "is not a cron expression"),
        ("* * 0 * *", "is not a cron expression"),
        ("* * * JANU *", "is not a cron expression"),
        ("*/0 * * * *", "is not a cron expression"),
        ("a b c d e", "is not a cron expression"),
        ("5;1 * * * *", "is not a cron expression"),
        ("\u{1b}[1m * * * *", "is not a cron expression"),
        ("0 0 30 2 *", "never comes due"),
        ("0 0 31 2,4,6 *", "never comes due"),
    ] {
        let why = cron(expression, "UTC0").unwrap_err().to_string();
        assert!(why.contains(says), "{expression}: {why}");
    }
    let names = cron("0  3-5/2 * jan-mar,DEC Mon", "UTC0").unwrap();
    assert_eq!(names.text().as_str(), "cron Some/Zone 0 3-5/2 * JAN-MAR,DEC MON");
    let leap = cron("0 0 29 2 *", "UTC0").unwrap();
    assert_eq!(leap.latest_at(tick("2027-12-01T00:00")), Some(tick("2024-02-29T00:00")));
    assert_eq!(leap.latest_at(tick("2104-02-28T00:00")), Some(tick("2096-02-29T00:00")));
}
