//! `--on-lost` and `--on-skip`: a command for people's alerts.

use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git,
    runs::Background,
    schema::assert_is,
    sh, text, wait_until,
};
use std::fs;

/// A command that keeps what it is told.
fn keeping(world: &World, name: &str) -> String {
    format!("cat >{}", sh(world.path(name)))
}

fn told(world: &World, name: &str) -> serde_json::Value {
    let report = serde_json::from_slice(&fs::read(world.path(name)).unwrap()).unwrap();
    assert_is("result", &report);
    report
}

/// A run that holds the lease, which `take_away` then takes from it.
fn loses(agent: &Agent<'_>, options: &[&str], take_away: &[&str]) -> (Option<i32>, String, String) {
    let inside = agent.world.path("inside");
    let _ = fs::remove_file(&inside);
    let run = Background::start(
        &mut agent.run(&[&["--ttl", "3s"], options].concat(), &format!("echo >{}; exec sleep 1000", inside.display())),
    );
    wait_until("it runs", || inside.exists());
    agent.world.agent(take_away[0]).ok(take_away);
    let ended = run.end();
    (ended.status.code(), text(&ended.stdout), text(&ended.stderr))
}

#[test]
fn commands_are_told_what_became_of_a_run_and_change_nothing() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        if remote == Remote::Gate {
            world.configure("fence.allowRevoke", "tester");
        }
        let (a, b) = (world.agent("a"), world.agent("b"));
        let (lost, skip) = (keeping(&world, "lost"), keeping(&world, "skip"));
        let both = ["--on-lost", &lost, "--on-skip", &skip];
        let ran = a.run(&both, "exit 3").output().unwrap();
        assert_eq!(ran.status.code(), Some(3));
        assert!(!world.path("lost").exists() && !world.path("skip").exists(), "nothing to tell");

        let (code, _, said) = loses(&a, &both, &["revoke", "--reason", "x"]);
        assert_eq!(code, Some(75), "{said}");
        let report = told(&world, "lost");
        assert_eq!((&report["outcome"], &report["exit_code"]), (&"lost".into(), &75.into()));
        assert!(!world.path("skip").exists());

        let (code, _, said) = loses(&a, &both, &["halt", "--reason", "x"]);
        assert_eq!(code, Some(75), "{said}");
        assert_eq!(told(&world, "lost")["outcome"], "halted");
        assert!(!world.path("skip").exists());
        let ran = a.run(&[&both[..], &["-E", "7"]].concat(), "true").output().unwrap();
        assert_eq!(ran.status.code(), Some(7));
        let report = told(&world, "skip");
        assert_eq!((&report["outcome"], &report["exit_code"]), (&"halted".into(), &7.into()));
        b.ok(&["resume", "--reason", "x"]);

        b.ok(&["acquire", "--ttl", "1h"]);
        for (options, outcome, code) in
            [(&[][..], "skipped", 0), (&["--if-held", "fail"], "held", 11), (&["--wait", "1s"], "timed-out", 0)]
        {
            fs::remove_file(world.path("skip")).unwrap();
            let ran = a.run(&[&both[..], options].concat(), "true").output().unwrap();
            assert_eq!(ran.status.code(), Some(code), "{options:?}");
            assert_eq!(told(&world, "skip")["outcome"], outcome);
        }
    }
}

/// It fails, reads nothing, hangs or cannot be run: one line says so, and the exit code stays. What it prints is not taken for
/// the outcome.
#[test]
fn command_that_fails_is_told_in_one_line() {
    let world = Remote::Bare.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    b.ok(&["acquire", "--ttl", "1h"]);
    let child = world.path("child");
    let hangs = format!("echo $$ >{}; trap '' TERM; while :; do sleep 0.1; done", sh(&child));
    for (command, why) in [
        ("exit 3", "the command of --on-skip failed: exit status: 3"),
        ("kill -9 $$", "the command of --on-skip failed: signal: 9 (SIGKILL)"),
        ("no-such-command", "the command of --on-skip failed: exit status: 127"),
        (&hangs, "the command of --on-skip failed: it took longer than 10 s, and was ended"),
        ("echo noise; exec 0<&-", ""),
        ("", ""),
    ] {
        let ran = a.run(&["-q", "--json", "-E", "9", "--on-skip", command], "true").output().unwrap();
        assert_eq!(ran.status.code(), Some(9), "{command}");
        let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(report["outcome"], "skipped", "{command}");
        let said = text(&ran.stderr);
        assert!(said.contains(why), "{command}: {said}");
        assert_eq!(said.matches("note: ").count(), usize::from(!why.is_empty()), "{command}: {said}");
    }
    let pid = fs::read_to_string(child).unwrap();
    let process = std::path::PathBuf::from(format!("/proc/{}/exe", pid.trim()));
    wait_until("it has ended", || !process.exists());
}

#[test]
fn commands_come_from_the_configuration() {
    let world = Remote::Bare.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    b.ok(&["acquire", "--ttl", "1h"]);
    world.ok(a.git().args(["config", "fence.onSkip", &keeping(&world, "set")]));
    a.run(&["--on-skip", ""], "true").output().unwrap();
    assert!(!world.path("set").exists(), "an empty one switches it off");
    a.run(&[], "true").output().unwrap();
    assert_eq!(told(&world, "set")["outcome"], "skipped");
    a.run(&["--on-skip", &keeping(&world, "given")], "true").output().unwrap();
    assert_eq!(told(&world, "given")["outcome"], "skipped");
    world.ok(a.git().args(["config", "fence.onLost", &keeping(&world, "lost")]));
    b.ok(&["release"]);
    let (code, _, said) = loses(&a, &[], &["revoke", "--reason", "x"]);
    assert_eq!((code, told(&world, "lost")["outcome"].as_str()), (Some(75), Some("lost")), "{said}");
}
