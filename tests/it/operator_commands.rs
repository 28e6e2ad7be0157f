//! The operator's commands for recovery: recorded, with a reason, and never silent.

use crate::support::{
    World, any_git, gits,
    needs::{Need, lacks},
    strace, text,
};
use std::{
    fs,
    process::{Command, Output},
};

fn run(world: &World, args: &[&str]) -> Output {
    world.hook_program().args(args).arg(world.server()).output().unwrap()
}

#[test]
fn lower_needs_a_reason_and_the_current_mark() {
    let world = World::new(&any_git());
    world.push_token("main", "999999").assert_landed();
    for (args, why) in [
        (&["lower", "--to", "5", "--expect", "999999"][..], "--reason"),
        (&["lower", "--to", "5", "--expect", "999999", "--reason", "  "], "reason is empty"),
        (&["lower", "--to", "5", "--expect", "7", "--reason", "x"], "is 999999, not 7"),
        (&["lower", "--to", "999999", "--expect", "999999", "--reason", "x"], "not below"),
        (&["lower", "--to", "5", "--expect", "999999", "--fence", "nowhere", "--reason", "x"], "no fence 'nowhere'"),
        (&["lower", "--to", "-5", "--expect", "999999", "--reason", "x"], "-5"),
    ] {
        let ran = run(&world, args);
        assert!(!ran.status.success(), "{args:?}");
        assert!(text(&ran.stderr).contains(why), "{args:?}: {}", text(&ran.stderr));
    }
    assert_eq!(world.mark(), 999_999);
    let ran = run(&world, &["lower", "--to", "5", "--expect", "999999", "--reason", "a test\u{1b}[2J pushed it"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(world.mark(), 5);
    let lowered = &world.events("mark.lowered")[0];
    assert_eq!((&lowered["from"], &lowered["mark"]), (&999_999.into(), &5.into()));
    assert_eq!(lowered["reason"], "a test[2J pushed it");
    assert!(lowered["pusher"].is_string());
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    world.push_token("main", "6").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn raise_fences_every_token_at_or_below_the_mark() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    for (args, why) in [
        (&["raise", "--to", "9"][..], "--reason"),
        (&["raise", "--to", "9", "--reason", ""], "reason is empty"),
        (&["raise", "--to", "5", "--reason", "x"], "not above the mark 5"),
        (&["raise", "--to", "9223372036854775808", "--reason", "x"], "not above the mark"),
    ] {
        let ran = run(&world, args);
        assert!(!ran.status.success() && text(&ran.stderr).contains(why), "{args:?}: {}", text(&ran.stderr));
    }
    assert!(run(&world, &["raise", "--to", "9", "--reason", "restored a backup"]).status.success());
    assert_eq!(world.mark(), 9);
    assert_eq!(world.events("mark.raised")[0]["reason"], "restored a backup");
    world.push_token("main", "9").assert_refused("FENCE-STALE");
    world.push_token("main", "10").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn evicted_push_is_recorded_and_never_lands() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.write_hook(
            "update",
            "case $1 in refs/heads/t5) echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID;; esac",
        );
        let five = world.start_push("t5", "5");
        world.pid_in("stalled");
        assert!(!run(&world, &["evict"]).status.success(), "without a reason");
        let ran = run(&world, &["evict", "--reason", "it hangs"]);
        assert!(text(&ran.stdout).contains("has exited"), "{} {}", text(&ran.stdout), text(&ran.stderr));
        assert!(!five.wait().ok);
        world.push_token("t4", "4").assert_landed();
        assert_eq!(world.server_ref("refs/heads/t5"), None);
        assert_eq!(world.events("push.evicted")[0]["reason"], "it hangs");
        let ran = run(&world, &["evict", "--reason", "again"]);
        assert!(text(&ran.stdout).contains("nothing is in flight"), "{}", text(&ran.stdout));
        world.assert_log_is_whole();
    }
}

/// Git removes its locks on SIGTERM. After SIGKILL it would leave them, and nobody could write there again.
#[test]
fn evicted_push_leaves_no_ref_locks() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.write_hook(
            "reference-transaction",
            "[ \"$1\" = prepared ] && grep -q refs/heads/t5 && ! [ -e stalled ] || exit 0\n\
             echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID",
        );
        let five = world.start_push("t5", "5");
        world.pid_in("stalled");
        let lock = world.server().join("refs/heads/t5.lock");
        assert!(lock.exists(), "it holds its ref lock");
        let ran = run(&world, &["evict", "--reason", "it hangs"]);
        assert!(text(&ran.stdout).contains("has exited"), "{} {}", text(&ran.stdout), text(&ran.stderr));
        assert!(!five.wait().ok);
        assert!(!lock.exists(), "the lock was left behind");
        world.push_token("t5", "5").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn rotation_keeps_marks_slots_and_the_chain() {
    let world = World::new(&any_git());
    let mut lines = 0;
    for token in 1..=6 {
        world.push_token("main", &token.to_string()).assert_landed();
        world.push_token("main", &token.to_string()).assert_refused("FENCE-STALE");
        let before = world.audit();
        assert!(run(&world, &["rotate"]).status.success());
        assert_eq!(world.mark(), token);
        let after = world.audit();
        assert!(after.len() > before.len() && after[..before.len()] == before[..], "nothing is lost");
        lines = after.len();
        world.push_token("main", &token.to_string()).assert_refused("FENCE-STALE");
    }
    assert_eq!(world.audit().last().unwrap()["seq"], lines as u64 + 1);
    world.assert_log_is_whole();

    // A push in flight is settled from the state that was carried over.
    world.write_hook("update", "kill -KILL $PPID");
    assert!(!world.push_token("main", "7").ok);
    fs::remove_file(world.hook("update")).unwrap();
    assert!(run(&world, &["rotate"]).status.success());
    world.push_token("main", "7").assert_landed();
    assert_eq!(world.mark(), 7);
    world.assert_log_is_whole();

    // A changed byte in an archive file is found; a missing archive file is a later start.
    let archives = || {
        let mut found: Vec<_> =
            fs::read_dir(world.server().join("fence")).unwrap().map(|e| e.unwrap().path()).collect();
        found.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("audit-"));
        found.sort();
        found
    };
    let third = &archives()[2];
    let good = fs::read_to_string(third).unwrap();
    fs::write(third, good.replacen("tester", "nobody", 1)).unwrap();
    let verified = world.verify();
    assert!(!verified.status.success());
    fs::write(third, &good).unwrap();
    fs::remove_file(&archives()[0]).unwrap();
    world.assert_log_is_whole();
    fs::remove_file(third).unwrap();
    assert!(!world.verify().status.success(), "one is missing in the middle");
    // The fence itself needs only the newest file.
    world.push_token("main", "7").assert_refused("FENCE-STALE");
    world.push_token("main", "8").assert_landed();
}

/// Killed at each system call in turn, a rotation leaves an intact log and the same mark.
#[test]
fn rotation_killed_at_any_system_call_loses_nothing() {
    if lacks(&[Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let trace = world.path("trace");
    let rotate_under_strace = |options: &[&str]| {
        let mut strace = Command::new("strace");
        world.hermetic(&mut strace);
        strace.arg("-qq").arg("-o").arg(&trace).args(options);
        strace.arg(env!("CARGO_BIN_EXE_git-fence-hook")).arg("rotate").arg(world.server());
        strace.output().unwrap().status.success()
    };
    assert!(rotate_under_strace(&[]));
    let calls = strace::system_calls_in(&fs::read_to_string(&trace).unwrap());
    let mut killed = 0;
    for call in &calls {
        if rotate_under_strace(&["-e", &call.kill()]) {
            continue;
        }
        killed += 1;
        let verified = world.verify();
        assert!(verified.status.success(), "killed at {call:?}: {}", text(&verified.stderr));
        assert_eq!(world.mark(), 5, "killed at {call:?}");
        if killed % 8 == 0 {
            world.push_token("main", "5").assert_refused("FENCE-STALE");
        }
    }
    println!("killed at {killed} of {} system calls", calls.len());
    assert!(killed > 50 && killed * 10 > calls.len() * 9, "killed at {killed} of {}", calls.len());
    for needed in ["linkat", "renameat", "fsync", "pwrite64"] {
        assert!(calls.iter().any(|call| call.kill().contains(&format!("={needed}:"))), "{needed} is not among them");
    }
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    world.push_token("main", "6").assert_landed();
    assert_eq!(world.mark(), 6);
    world.assert_log_is_whole();
}

#[test]
fn repair_shows_its_plan_and_acts_only_with_yes() {
    let world = World::new(&any_git());
    for token in 1..=4 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    assert!(text(&run(&world, &["repair"]).stdout).contains("nothing to repair"));
    let log = world.fence_file("audit.jsonl");
    let whole = fs::read(&log).unwrap();

    // What an interruption leaves.
    let mut torn = whole;
    torn.extend(b"{\"seq\":");
    fs::write(&log, &torn).unwrap();
    fs::write(world.fence_file("plan-999.jsonl"), "x").unwrap();
    fs::remove_file(world.fence_file("mutex")).unwrap();
    let before = fs::read_dir(world.server().join("fence")).unwrap().count();
    let ran = run(&world, &["repair"]);
    assert!(!ran.status.success());
    for word in ["mutex is missing", "torn (7 bytes)", "plan-999.jsonl"] {
        assert!(text(&ran.stdout).contains(word), "{}", text(&ran.stdout));
    }
    assert_eq!(fs::read_dir(world.server().join("fence")).unwrap().count(), before, "nothing was changed");
    assert!(run(&world, &["repair", "--yes"]).status.success());
    assert!(text(&run(&world, &["repair"]).stdout).contains("nothing to repair"));
    world.assert_log_is_whole();

    // A truncated tail and a changed line: only with a reason, and recorded.
    let whole = fs::read(&log).unwrap();
    let third_last = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).rev().nth(2).unwrap();
    let mut changed = whole.clone();
    changed[third_last + 40] = b'~';
    for damaged in [&whole[..third_last], &changed] {
        fs::write(&log, damaged).unwrap();
        world.push_token("main", "9").assert_refused("FENCE-BROKEN");
        assert!(!run(&world, &["repair"]).status.success());
        let without = run(&world, &["repair", "--yes"]);
        assert!(text(&without.stderr).contains("reason is empty"), "{}", text(&without.stderr));
        world.push_token("main", "9").assert_refused("FENCE-BROKEN");
        let ran = run(&world, &["repair", "--yes", "--reason", "restored from last night"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let repaired = world.events("log.repaired").pop().unwrap();
        assert_eq!(repaired["reason"], "restored from last night");
        world.assert_log_is_whole();
        world.push_token("main", "9").assert_landed();
        world.push_token("main", "9").assert_refused("FENCE-STALE");
        fs::write(&log, &whole).unwrap();
        fs::remove_file(world.fence_file("mutex")).unwrap();
        world.assert_log_is_whole();
    }
}

#[test]
fn decisions_go_to_syslog_and_pushes_work_without_a_listener() {
    let world = World::new(&any_git());
    let path = world.path("listener");
    world.configure("fence.syslog", path.to_str().unwrap());
    world.push_token("main", "1").assert_landed();
    let listener = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    world.push_token("main", "2").assert_landed();
    world.push_token("main", "2").assert_refused("FENCE-STALE");
    let hear = || {
        let mut buffer = [0; 8192];
        let length = listener.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let heard: Vec<String> = (0..3).map(|_| hear()).collect();
    assert!(heard[0].contains("token=\"2\"") && heard[0].contains("pusher=\"tester\""), "{heard:?}");
    assert!(heard[1].contains("moved 1 of 1 refs"), "what git has updated, as soon as git reports it: {heard:?}");
    assert!(heard[2].starts_with("<84>1 ") && heard[2].contains("code=\"FENCE-STALE\""), "{heard:?}");
    // A listener that never reads blocks nobody.
    for token in 3..=40 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    world.assert_log_is_whole();
}

/// An older log in place of a rotated one has more bytes and fewer lines.
#[test]
fn older_log_in_place_of_a_rotated_one_is_not_trusted() {
    let world = World::new(&any_git());
    for token in 1..=3 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    let log = world.fence_file("audit.jsonl");
    let old = fs::read(&log).unwrap();
    assert!(run(&world, &["rotate"]).status.success());
    world.push_token("main", "50").assert_landed();
    let new = fs::read(&log).unwrap();
    fs::write(&log, &old).unwrap();
    world.push_token("main", "40").assert_refused("FENCE-BROKEN");
    assert!(!world.verify().status.success());
    fs::write(&log, &new).unwrap();
    world.push_token("main", "50").assert_refused("FENCE-STALE");

    // When everything else is gone, the archived lines refer to the log too.
    for file in ["audit.jsonl", "mutex"] {
        fs::remove_file(world.fence_file(file)).unwrap();
    }
    world.configure("fence.init", "auto");
    world.push_token("main", "2").assert_refused("FENCE-BROKEN");
    assert!(!run(&world, &["install"]).status.success());
}

/// A changed line can still be parsed, and must not be accepted as written.
#[test]
fn repair_moves_the_changed_line_aside_and_overwrites_nothing() {
    let world = World::new(&any_git());
    for token in 1..=4 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    let log = world.fence_file("audit.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let changed = whole.replacen("\"token\":2,", "\"token\":9,", 1);
    assert_ne!(changed, whole);
    fs::write(&log, changed).unwrap();
    let offset =
        whole.lines().take_while(|line| !line.contains("\"token\":2,")).map(|line| line.len() + 1).sum::<usize>();
    fs::write(world.fence_file(&format!("torn-{offset}")), "from an earlier day").unwrap();
    assert!(run(&world, &["repair", "--yes", "--reason", "somebody edited it"]).status.success());
    assert_eq!(fs::read_to_string(world.fence_file(&format!("torn-{offset}"))).unwrap(), "from an earlier day");
    assert!(fs::read_to_string(world.fence_file(&format!("torn-{offset}-2"))).unwrap().contains("\"token\":9,"));
    assert!(!fs::read_to_string(&log).unwrap().contains("\"token\":9,"));
    world.assert_log_is_whole();
}
