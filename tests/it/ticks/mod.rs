//! Schedules: `git fence run --every` and `--cron`, on two machines with clocks of their own.

mod clocks;
mod compressed;
mod jobs;

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, text,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// Ten minutes: what a test's clock jumps from tick to tick.
const INTERVAL: i64 = 600;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// A tick so long ago that 300 of them are in the past of a gate, too.
fn long_ago() -> i64 {
    (now() - 300 * INTERVAL) / INTERVAL * INTERVAL
}

/// `git fence run` for each tick of ten minutes, on a machine whose clock shows `time`.
fn run_at(agent: &Agent<'_>, time: i64, options: &[&str], script: &str) -> Command {
    let mut run = agent.run(&[&["--every", "10m", "--job", "nightly", "--skew", "0s"], options].concat(), script);
    run.env("GIT_FENCE_CLOCK_OFFSET", (time - now()).to_string());
    run
}

/// Runs it, and returns its outcome.
#[track_caller]
fn outcome_at(agent: &Agent<'_>, time: i64, options: &[&str], script: &str) -> String {
    let ran = run_at(agent, time, options, script).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    agent.status()["outcome"].as_str().unwrap().to_owned()
}

/// A script that notes each start: tick, dropped ticks, owner.
fn noting(world: &World) -> String {
    format!("echo \"$GIT_FENCE_TICK $GIT_FENCE_TICKS_DROPPED $GIT_FENCE_OWNER\" >>{}", world.path("starts").display())
}

/// What [`noting`] has noted.
fn starts(world: &World) -> Vec<String> {
    fs::read_to_string(world.path("starts")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The tick of this second, as it is written.
fn tick(second: i64) -> String {
    let date = Command::new("date").args(["-u", "-d", &format!("@{second}"), "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    text(&date.stdout).trim().to_owned()
}

/// What is on record about the job.
fn on_record(agent: &Agent<'_>) -> Value {
    let shown: Value = serde_json::from_str(&agent.ok(&["ticks", "--json"])).unwrap();
    crate::support::schema::assert_is("result", &shown);
    shown["jobs"][0].clone()
}

/// How often each tick has become what, by the gate's log.
fn in_the_log(world: &World) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for event in world.audit() {
        for change in event["ticks"].as_array().into_iter().flatten() {
            let of = |key: &str| change[key].as_str().unwrap().to_owned();
            *counts.entry((of("tick"), of("became"))).or_default() += 1;
        }
    }
    counts
}

#[test]
fn tick_starts_once_wherever_it_fires() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        let first = long_ago();
        let noting = noting(&world);
        assert_eq!(outcome_at(&a, first + 5, &[], &noting), "ran");
        let (ran, status) = (tick(first), a.status());
        assert_eq!(
            (&status["tick"], &status["ticks_dropped"], &status["job"]),
            (&ran.clone().into(), &0.into(), &"nightly".into())
        );
        // Late, twice, and on the machine that ran it.
        assert_eq!(outcome_at(&b, first + 65, &[], &noting), "already-done");
        let (status, next) = (b.status(), tick(first + INTERVAL));
        assert_eq!((&status["tick"], &status["next_tick"]), (&ran.clone().into(), &next.clone().into()));
        assert_eq!(outcome_at(&a, first + INTERVAL / 2, &[], &noting), "already-done");
        let (code, said) = code_of(&run_at(&b, first + 70, &["-E", "9"], "exit 3").output().unwrap());
        assert_eq!(code, 9, "{said}");
        assert!(said.contains(&format!("tick {ran} was done by 'a', and the next one comes {next}")), "{said}");
        let (code, said) = code_of(&run_at(&b, first + 70, &["--quiet"], "exit 3").output().unwrap());
        assert_eq!((code, said.as_str()), (0, ""));
        assert_eq!(outcome_at(&b, first + INTERVAL, &[], &noting), "ran");
        assert_eq!(starts(&world), [format!("{ran} 0 a"), format!("{next} 0 b")], "{remote:?}");
    }
}

#[test]
fn after_an_outage_the_latest_ticks_run_and_the_others_are_dropped() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        let (first, noting) = (long_ago(), noting(&world));
        let after = |missed: i64| first + missed * INTERVAL;
        assert_eq!(outcome_at(&a, first, &[], &noting), "ran");
        assert_eq!(outcome_at(&a, after(30), &[], &noting), "ran");
        assert_eq!(outcome_at(&a, after(60), &["--catch-up", "3"], &noting), "ran");
        assert_eq!(outcome_at(&a, after(63) + 400, &["--start-within", "5m"], &noting), "not-due");
        assert!(a.status()["message"].as_str().unwrap().contains("is too late to start"));
        assert_eq!(outcome_at(&a, after(64), &["--start-within", "5m"], &noting), "ran");
        let expected = [
            format!("{} 0 a", tick(first)),
            format!("{} 29 a", tick(after(30))),
            format!("{} 27 a", tick(after(58))),
            format!("{} 0 a", tick(after(59))),
            format!("{} 0 a", tick(after(60))),
            format!("{} 3 a", tick(after(64))),
        ];
        assert_eq!(starts(&world), expected, "{remote:?}");
        if remote == Remote::Gate {
            let dropped =
                |event: &Value| event["ticks"].as_array().into_iter().flatten().any(|tick| tick["dropped"] == 29);
            assert_eq!(world.audit().iter().filter(|event| dropped(event)).count(), 1, "one line");
        }
    }
}

/// A year of seconds.
#[test]
fn million_missed_ticks_are_dropped_at_once() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    let year = 366 * 24 * 3600;
    for (time, dropped) in [(now() - year, 0), (now(), u64::try_from(year).unwrap() - 1)] {
        let mut run = a.run(&["--every", "1s", "--job", "j", "--skew", "0s"], "true");
        // The clock of the second run may have gone on by a few seconds.
        let ran = run.env("GIT_FENCE_CLOCK_OFFSET", (time - now()).to_string()).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        assert!(a.status()["ticks_dropped"].as_u64().unwrap().abs_diff(dropped) < 60, "{}", a.status());
    }
}

#[test]
fn failed_tick_is_spent_unless_it_is_retried() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        let first = long_ago();
        let failed = run_at(&a, first, &[], "exit 3").output().unwrap();
        assert_eq!(failed.status.code(), Some(3));
        assert_eq!(on_record(&a)["state"], "failed");
        assert_eq!(outcome_at(&b, first + 5, &[], "true"), "already-done");
        assert_eq!(outcome_at(&b, first + 5, &["--retry-lost"], "true"), "already-done");
        assert_eq!(outcome_at(&b, first + 5, &["--retry-failed"], "true"), "ran");
        assert_eq!(outcome_at(&a, first + 9, &["--retry-failed"], "true"), "already-done");
        assert_eq!((&on_record(&a)["state"], &on_record(&a)["owner"]), (&"done".into(), &"b".into()));
        // A run that catches up ends with the first failure: the others are still due.
        let failed = run_at(&a, first + 3 * INTERVAL, &["--catch-up", "5"], "exit 4").output().unwrap();
        assert_eq!(failed.status.code(), Some(4));
        assert_eq!(on_record(&a)["tick"], tick(first + INTERVAL));
    }
}

#[test]
fn bad_schedules_are_refused_before_anything_is_taken() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    for (options, says) in [
        (&["--every", "0", "--job", "j"][..], "needs an interval of whole seconds"),
        (&["--every", "45m"], "a schedule needs a name"),
        (&["--cron", "0 30 3 * * *", "--job", "j"], "has 6 fields, and a schedule has five"),
        (&["--cron", "0 30 3 * * * 2027", "--job", "j"], "has 7 fields"),
        (&["--cron", "0 0 30 2 *", "--job", "j"], "never comes due"),
        (&["--cron", "61 * * * *", "--job", "j"], "is not a cron expression"),
        (&["--cron", "0 3 * * *", "--tz", "Europe/Atlantis", "--job", "j"], "there is no time zone 'Europe/Atlantis'"),
        (&["--every", "45m", "--cron", "0 3 * * *", "--job", "j"], "cannot be used with"),
        (&["--every", "45m", "--job", "j", "--tz", "UTC"], "--tz belongs to --cron"),
        (&["--tz", "UTC"], "belongs to a schedule"),
        (&["--every", "45m", "--job", "j", "--catch-up", "1000000"], "is not between 1 and 1000"),
        (&["--every", "45m", "--job", "j", "--until", "soon"], "neither a date nor a time"),
        (&["--retry-lost"], "belongs to a schedule"),
        (&["--every", "45m", "--job", "j", "--fence", "repo", "--fence", "other"], "one fence of one remote"),
    ] {
        let (code, said) = code_of(&a.run(options, "touch ran").output().unwrap());
        assert_eq!(code, 2, "{options:?}: {said}");
        assert!(said.contains(says), "{options:?}: {said}");
    }
    assert!(!a.path("ran").exists());
    assert_eq!(world.server_ref("refs/fence/repo/lease"), None);
}

/// Every skip is on the server's record, and none of them is a failure.
#[test]
fn figures_tell_starts_skips_and_failures_apart() {
    let world = Remote::Gate.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    let first = long_ago();
    let at = |ticks: i64| first + ticks * INTERVAL;
    assert_eq!(outcome_at(&a, first, &[], "true"), "ran");
    assert_eq!(outcome_at(&b, first + 5, &[], "true"), "already-done");
    assert_eq!(outcome_at(&b, at(1) + 400, &["--start-within", "5m"], "true"), "not-due");
    // Held by somebody else: found by a look, and at the gate.
    a.ok(&["acquire"]);
    assert_eq!(outcome_at(&b, at(1), &[], "true"), "skipped");
    a.ok(&["release"]);
    assert_eq!(run_at(&b, at(4), &["--catch-up", "2"], "exit 3").output().unwrap().status.code(), Some(3));
    assert_eq!(outcome_at(&b, at(4), &["--catch-up", "2"], "true"), "ran");
    let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
    let stats: Value = serde_json::from_str(&stats).unwrap();
    crate::support::schema::assert_is("stats", &stats);
    let job = &stats["scheduled"][0];
    let expected = serde_json::json!({
        "fence": "repo", "job": "nightly", "started": 3, "done": 2, "failed": 1, "lost": 0,
        "missed": 3, "dropped": 2, "skipped_held": 1, "already_done": 1, "not_due": 1, "halted": 0,
    });
    assert_eq!(*job, expected);
    assert_eq!(stats["leases"]["refused"], 1, "a skip is no refusal, unless the lease was held: {stats}");
    let page = world.ok(world.hook_program().args(["stats", "--prometheus"]).arg(world.server()));
    let line = page.lines().find(|line| line.starts_with("git_fence_scheduled_dropped_total{")).unwrap();
    assert!(line.contains(r#"fence="repo",job="nightly""#) && line.ends_with("} 2"), "{line}");
    let table = world.ok(world.hook_program().arg("stats").arg(world.server()));
    assert!(table.contains("  nightly of repo: 3 started, 2 done, 1 failed, 3 missed, 2 dropped"), "{table}");
    let audit = world.ok(world.hook_program().arg("audit").arg(world.server()));
    assert!(audit.contains(&format!("job 'nightly': tick {} failed", tick(at(3)))), "{audit}");
    assert!(audit.contains(&format!("job 'nightly': already-done, last tick {}", tick(first))), "{audit}");
    world.ok(world.hook_program().args(["halt", "--reason", "a bad release"]).arg(world.server()));
    assert_eq!(outcome_at(&b, at(5), &[], "true"), "halted");
    let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
    let job = &serde_json::from_str::<Value>(&stats).unwrap()["scheduled"][0];
    assert_eq!((&job["halted"], &job["failed"], &job["started"]), (&1.into(), &1.into(), &3.into()), "{job}");
    world.ok(world.hook_program().args(["resume", "--reason", "fixed"]).arg(world.server()));
    assert_eq!(outcome_at(&b, at(5), &[], "true"), "ran");
    world.assert_log_is_whole();
}
