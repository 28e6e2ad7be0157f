//! Getting out of trouble: on record, with a reason, and never behind anybody's back.

use crate::support::{World, any_git, gits, text};
use std::{fs, process::Output};

fn run(world: &World, args: &[&str]) -> Output {
    world.hook_program().args(args).arg(world.server()).output().unwrap()
}

#[test]
fn lowering_a_mark_needs_a_reason_and_the_mark_as_it_is() {
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
fn a_stalled_push_is_ended_on_record_and_never_lands() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.write_hook("update", "case $1 in refs/heads/t5) echo $PPID >stalled; kill -STOP $PPID;; esac");
        let five = world.start_push("t5", "5");
        world.pid_in("stalled");
        assert!(!run(&world, &["evict"]).status.success(), "without a reason");
        let ran = run(&world, &["evict", "--reason", "it hangs"]);
        assert!(text(&ran.stdout).contains("has ended"), "{} {}", text(&ran.stdout), text(&ran.stderr));
        assert!(!five.wait().ok);
        world.push_token("t4", "4").assert_landed();
        assert_eq!(world.server_ref("refs/heads/t5"), None);
        assert_eq!(world.events("push.evicted")[0]["reason"], "it hangs");
        let ran = run(&world, &["evict", "--reason", "again"]);
        assert!(text(&ran.stdout).contains("nothing is in flight"), "{}", text(&ran.stdout));
        world.assert_log_is_whole();
    }
}

#[test]
fn rotating_carries_marks_slots_and_the_chain_on() {
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

    // A push in flight is settled out of what was carried on.
    world.write_hook("update", "kill -KILL $PPID");
    assert!(!world.push_token("main", "7").ok);
    fs::remove_file(world.hook("update")).unwrap();
    assert!(run(&world, &["rotate"]).status.success());
    world.push_token("main", "7").assert_landed();
    assert_eq!(world.mark(), 7);
    world.assert_log_is_whole();

    // A byte changed in a file that was moved away is found; a file that is gone is a later beginning.
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
    // The fence itself stands on the newest file alone.
    world.push_token("main", "7").assert_refused("FENCE-STALE");
    world.push_token("main", "8").assert_landed();
}

/// Killed at each system call in turn, a rotation leaves a log that is whole and a mark that holds.
#[test]
fn a_rotation_killed_at_any_system_call_loses_nothing() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let mut killed = 0;
    for at in 1.. {
        let mut strace = std::process::Command::new("strace");
        world.hermetic(&mut strace);
        strace.args(["-qq", "-o", "/dev/null", "-e", &format!("inject=all:signal=KILL:when={at}")]);
        strace.arg(env!("CARGO_BIN_EXE_git-fence-hook")).arg("rotate").arg(world.server());
        if strace.output().unwrap().status.success() {
            break;
        }
        killed += 1;
        if at % 4 == 0 {
            world.push_token("main", "5").assert_refused("FENCE-STALE");
        }
        let verified = world.verify();
        assert!(verified.status.success(), "killed at {at}: {}", text(&verified.stderr));
    }
    println!("killed at each of {killed} system calls");
    assert!(killed > 50, "only {killed}: strace did not do its work");
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    world.push_token("main", "6").assert_landed();
    assert_eq!(world.mark(), 6);
    world.assert_log_is_whole();
}
