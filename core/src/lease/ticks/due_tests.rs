//! What is due, as tables.

use super::{
    due::{Due, DueError, LONGEST_JITTER, Scheduled, Start, jitter_part},
    job::{Job, JobName, ScheduleText, Tick, TickState, tests::job},
    schedule::Schedule,
};
use crate::FenceName;
use jiff::tz::TimeZone;
use std::time::Duration;

/// How far clocks may differ.
const SKEW: Duration = Duration::from_secs(10);

fn tick(seconds: u64) -> Tick {
    Tick::at(seconds).unwrap()
}

/// Every minute.
fn minutely() -> Scheduled {
    Scheduled {
        job: JobName::parse("a").unwrap(),
        schedule: Schedule::every(Duration::from_secs(60)).unwrap(),
        catch_up: 1,
        start_within: None,
        jitter: 0,
        jitter_part: 0,
        retry_failed: false,
        retry_lost: false,
        until: None,
        upto: None,
    }
}

fn start(seconds: u64, dropped: u64, late: bool) -> Due {
    Due::Start(Start { tick: tick(seconds), dropped, late })
}

fn done(tick: u64) -> Job {
    job(tick, TickState::Done, 1)
}

fn due(asked: &Scheduled, recorded: Option<&Job>, seconds: u64) -> Due {
    asked.due(recorded, seconds * 1000, SKEW).unwrap()
}

#[test]
fn latest_tick_is_started_and_earlier_ones_are_dropped() {
    let one = minutely();
    assert_eq!(due(&one, None, 100_000), start(99_960, 0, false), "a new job begins with the latest tick");
    assert_eq!(due(&one, Some(&done(99_960)), 100_019), {
        Due::AlreadyDone { job: done(99_960), next: Some(tick(100_020)) }
    });
    assert_eq!(due(&one, Some(&done(99_960)), 100_020), start(100_020, 0, false));
    assert_eq!(due(&one, Some(&done(60)), 60 + 30 * 60), start(60 + 30 * 60, 29, false), "an outage of 30 ticks");
}

#[test]
fn catch_up_runs_the_latest_ticks_oldest_first() {
    let three = Scheduled { catch_up: 3, ..minutely() };
    let mut record = done(60);
    let mut started = Vec::new();
    while let Due::Start(start) = due(&three, Some(&record), 659) {
        started.push((start.tick.seconds(), start.dropped, start.late));
        record.tick = start.tick;
    }
    assert_eq!(started, [(480, 6, true), (540, 0, true), (600, 0, false)]);
    // Ticks that come due meanwhile are another run's.
    let asked = |upto| due(&Scheduled { upto: Some(tick(upto)), ..three.clone() }, Some(&done(540)), 900);
    assert_eq!(asked(600), start(600, 0, false));
    assert!(matches!(asked(540), Due::AlreadyDone { .. }));
}

#[test]
fn failed_and_lost_ticks_are_started_again_only_if_asked() {
    use TickState as S;
    for (state, retry_failed, retry_lost, again) in [
        (S::Failed, false, true, false),
        (S::Failed, true, false, true),
        (S::Lost, true, false, false),
        (S::Lost, false, true, true),
        (S::Running, true, false, false),
        (S::Running, false, true, true),
        (S::Done, true, true, false),
    ] {
        let asked = Scheduled { retry_failed, retry_lost, ..minutely() };
        let record = job(600, state, 1);
        let is_start = due(&asked, Some(&record), 630) == start(600, 0, false);
        assert_eq!(is_start, again, "{state:?} {retry_failed} {retry_lost}");
        assert_eq!(due(&asked, Some(&record), 660), start(660, 0, false), "the latest tick comes first");
    }
    let asked = Scheduled { retry_lost: true, catch_up: 3, ..minutely() };
    assert_eq!(due(&asked, Some(&job(600, S::Lost, 1)), 720), start(600, 0, true));
}

#[test]
fn tick_that_is_too_late_is_dropped() {
    let asked = Scheduled { start_within: Some(Duration::from_secs(20)), catch_up: 5, ..minutely() };
    assert_eq!(due(&asked, Some(&done(600)), 680), start(660, 0, false));
    let too_late = Due::NotDue { too_late: Some(tick(660)), next: Some(tick(720)) };
    assert_eq!(due(&asked, Some(&done(600)), 681), too_late);
    assert_eq!(due(&asked, Some(&done(600)), 720), start(720, 1, false));
    assert!(matches!(due(&asked, None, 690), Due::NotDue { .. }));
    let lost = Scheduled { retry_lost: true, ..asked };
    assert!(matches!(due(&lost, Some(&job(600, TickState::Lost, 1)), 640), Due::AlreadyDone { .. }));
}

#[test]
fn jitter_waits_the_same_part_everywhere() {
    let hourly = Schedule::every(Duration::from_secs(3600)).unwrap();
    let asked = Scheduled { schedule: hourly, jitter: 10, jitter_part: 1 << 31, ..minutely() };
    let text = ScheduleText::parse("every 3600s").unwrap();
    let record = Job { schedule: text, ..done(3600) };
    let wait = Due::Wait { tick: tick(7200), wait: Duration::from_millis(179_500) };
    assert_eq!(asked.due(Some(&record), 7_200_500, SKEW).unwrap(), wait);
    assert_eq!(due(&asked, Some(&record), 7380), start(7200, 0, false));
    let weekly = Scheduled { schedule: Schedule::every(Duration::from_secs(7 * 86_400)).unwrap(), ..asked };
    assert_eq!(weekly.jitter_of(tick(0)), LONGEST_JITTER / 2);
    let part = |job: &str| jitter_part("host/app", &FenceName::repo(), &JobName::parse(job).unwrap());
    assert_eq!((part("a"), part("b")), (part("a"), part("b")));
    assert_ne!(part("a"), part("b"));
}

#[test]
fn schedule_ends_for_good() {
    let asked = Scheduled { until: Some(tick(630)), ..minutely() };
    assert_eq!(due(&asked, Some(&done(540)), 900), start(600, 0, false), "the last one is caught up");
    assert_eq!(due(&asked, Some(&done(600)), 900), Due::NotDue { too_late: None, next: None });
}

#[test]
fn other_schedule_and_tick_in_the_future_are_reported() {
    let asked = minutely();
    let record = Job { schedule: ScheduleText::parse("every 90s").unwrap(), ..done(600) };
    let both = asked.due(Some(&record), 900_000, SKEW).unwrap_err().to_string();
    assert!(both.contains("'every 90s'") && both.contains("'every 60s'"), "{both}");
    assert!(matches!(asked.due(Some(&done(660)), 649_000, SKEW), Err(DueError::Ahead { .. })));
    assert!(
        matches!(asked.due(Some(&done(660)), 650_000, SKEW), Ok(Due::AlreadyDone { .. })),
        "clocks differ a little"
    );
    assert_eq!(due(&asked, Some(&job(6000, TickState::Forgotten, 1)), 630), start(600, 0, false));
}

#[test]
fn million_missed_ticks_are_counted_at_once() {
    let asked = Scheduled { catch_up: 3, schedule: Schedule::every(Duration::from_secs(1)).unwrap(), ..minutely() };
    let record = Job { schedule: ScheduleText::parse("every 1s").unwrap(), ..done(600) };
    assert_eq!(due(&asked, Some(&record), 600 + 31_622_400), start(600 + 31_622_398, 31_622_397, true));
    let cron = Schedule::cron("* * * * *", "Europe/Berlin", TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
    let cron = cron.unwrap();
    let record = Job { schedule: cron.text().clone(), ..done(600) };
    assert_eq!(
        due(&Scheduled { schedule: cron, ..minutely() }, Some(&record), 60_000_600),
        start(60_000_600, 999_999, false)
    );
}
