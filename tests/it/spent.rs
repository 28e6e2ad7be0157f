//! A token is spent when a ref moved, and only then. A push that moved nothing locks nobody out.

use crate::support::{
    World, any_git, gits,
    raw::{self, Frozen, NULL, RawCommand},
    wait_until,
};

#[test]
fn huge_token_on_a_forbidden_branch_locks_nobody_out_and_stays_usable() {
    for git in gits() {
        let world = World::new(&git);
        world.write_hook("update", "case $1 in refs/heads/forbidden) echo no >&2; exit 1;; esac");
        world.push_token("main", "3").assert_landed();
        let declined = world.push_token("forbidden", "999999");
        assert!(!declined.ok && declined.text.contains("hook declined"), "{}", declined.text);
        assert_eq!(world.mark(), 3, "the mark is unchanged");
        world.push_token("main", "4").assert_landed();
        world.push_token("main", "999999").assert_landed();
        assert_eq!(world.mark(), 999_999);
        let settled: Vec<(u64, u64)> = world
            .events("push.settled")
            .iter()
            .map(|line| (line["token"].as_u64().unwrap(), line["moved"].as_u64().unwrap()))
            .collect();
        assert_eq!(settled, [(3, 1), (999_999, 0), (4, 1), (999_999, 1)]);
        world.assert_log_is_whole();
    }
}

#[test]
fn push_declined_after_the_gate_spends_nothing() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("receive.denyNonFastForwards", "true");
        world.configure("receive.denyDeletes", "true");
        world.configure("transfer.hideRefs", "refs/heads/hidden");
        world.push_token("main", "1").assert_landed();
        assert!(!world.push_token("main", "900").ok, "another root is not a fast-forward");
        assert!(!world.push(&[":refs/heads/main"], &["fence-token=901"]).ok);
        assert!(!world.push_token("hidden", "902").ok);
        assert_eq!(world.mark(), 1);
        world.push(&["HEAD:refs/heads/more"], &["fence-token=2"]).assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn push_that_moves_some_of_its_refs_spends_its_token() {
    for git in gits() {
        let world = World::new(&git);
        world.write_hook("update", "case $1 in refs/heads/no*) exit 1;; esac");
        let pushed =
            world.push(&["HEAD:refs/heads/no1", "HEAD:refs/heads/yes", "HEAD:refs/heads/no2"], &["fence-token=7"]);
        assert!(!pushed.ok);
        assert_eq!(world.mark(), 7);
        world.push_token("main", "7").assert_refused("FENCE-STALE");
        // Atomic: nothing moves.
        let mut atomic = world.push_command(&["HEAD:refs/heads/no1", "HEAD:refs/heads/yes2"], &["fence-token=8"]);
        assert!(!atomic.arg("--atomic").output().unwrap().status.success());
        assert_eq!(world.mark(), 7);
        world.push_token("main", "8").assert_landed();
    }
}

/// While nine waits, five moves the ref that both push to. Nine is refused when its turn comes, and is retryable;
/// in observe mode git declines it. Compared with the ref's value when nine arrived, it would look as if
/// nine had moved it.
#[test]
fn old_values_are_read_after_waiting() {
    for (git, mode) in gits().iter().flat_map(|git| [(git, "enforce"), (git, "observe")]) {
        let world = World::new(git);
        world.configure("fence.mode", mode);
        world.configure("fence.wait", "10m");
        world.push_token("main", "4").assert_landed();
        world.stall_update_of("main");
        let five = world.start_push("main", "5");
        world.pid_in("stalled");
        let nine = world.start_push("main", "9");
        wait_until("nine waits", || nine.has_said("waiting"));
        world.go();
        five.wait().assert_landed();
        let nine = nine.wait();
        if mode == "enforce" {
            nine.assert_refused("FENCE-BUSY");
            assert!(
                nine.text.contains(r#""retryable":true"#) && nine.text.contains("hint: nothing was written. Fetch")
            );
        } else {
            assert!(!nine.ok && nine.code().is_none(), "declined by git, not by the gate: {}", nine.text);
        }
        assert_eq!(world.mark(), 5);
        world.push_token("main", "6").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn false_old_values_are_refused() {
    for git in gits() {
        lies_are_refused_at_once(&World::new(&git));
        let observes = World::new(&git);
        observes.configure("fence.mode", "observe");
        lies_spend_nothing(&observes);
    }
}

/// A push that the gate refuses holds no slot, so its client may freeze.
fn lies_are_refused_at_once(world: &World) {
    world.push_token("main", "5").assert_landed();
    let (tip, first) = (world.server_ref("refs/heads/main").unwrap(), world.commit("elsewhere"));
    world.push(&[&format!("{first}:refs/outside/x")], &[]).assert_landed();
    let nonsense = "1234567890123456789012345678901234567890";
    world.ok(world.git("server.git").args(["symbolic-ref", "refs/outside/alias", "refs/heads/main"]));
    world.ok(world.git("server.git").args(["symbolic-ref", "refs/outside/nowhere", "refs/heads/not-there"]));
    for (old, new, name) in [
        // The current value, another value, no ref, and deletions, which git executes with any old value.
        (NULL, tip.as_str(), "refs/heads/main"),
        (NULL, &first, "refs/heads/main"),
        (&first, &tip, "refs/heads/main"),
        (&first, &tip, "refs/heads/new"),
        (nonsense, &first, "refs/heads/main"),
        (nonsense, NULL, "refs/heads/main"),
        (&first, NULL, "refs/heads/main"),
        (NULL, NULL, "refs/heads/main"),
        (&first, &tip, "refs/outside/alias"),
        (&tip, &first, "refs/outside/nowhere"),
    ] {
        let lie = [RawCommand::new(NULL, &tip, "refs/heads/honest"), RawCommand::new(old, new, name)];
        let pushed = raw::push(world, &lie, &[b"fence-token=999999"]);
        pushed.assert_refused("FENCE-BUSY");
        assert!(pushed.text.contains(&format!("'{name}'")), "{}", pushed.text);
        assert_eq!(world.server_ref("refs/heads/main").as_ref(), Some(&tip), "{old} {new} {name}");
    }
    // A stale push is not told to retry.
    raw::push(world, &[RawCommand::new(NULL, &tip, "refs/heads/main")], &[b"fence-token=5"])
        .assert_refused("FENCE-STALE");
    assert_eq!((world.mark(), world.server_ref("refs/heads/honest")), (5, None));
    assert!(world.events("push.accepted").len() == 1, "none of them took the slot");
    world.configure("receive.denyDeleteCurrent", "ignore");
    // Correct old values land: through a symbolic ref, and the deletion of an existing ref.
    raw::push(world, &[RawCommand::new(&tip, &first, "refs/outside/alias")], &[b"fence-token=6"]).assert_landed();
    raw::push(world, &[RawCommand::new(&first, NULL, "refs/heads/main")], &[b"fence-token=7"]).assert_landed();
    world.assert_log_is_whole();
}

/// In observe mode git declines them, and the recorded old values are the actual ones.
fn lies_spend_nothing(world: &World) {
    world.configure("fence.wait", "10m");
    world.push_token("main", "5").assert_landed();
    let tip = world.server_ref("refs/heads/main").unwrap();
    let nonsense = "1234567890123456789012345678901234567890";
    // `0 -> current tip`, a nonsense old value, a nonsense new value.
    for (old, new) in [(NULL, tip.as_str()), (nonsense, tip.as_str()), (nonsense, nonsense), (NULL, nonsense)] {
        let lie = RawCommand::new(old, new, "refs/heads/main");
        let pushed = raw::push(world, &[lie], &[b"fence-token=999999"]);
        assert!(!pushed.ok, "{old} {new}: {}", pushed.text);
        assert_eq!(world.mark(), 5, "{old} {new}");
        assert_eq!(world.server_ref("refs/heads/main").unwrap(), tip);
    }
    // A deletion with a wrong old value does delete: it is a move, and spends the token.
    world.push(&["HEAD:refs/heads/doomed"], &["fence-token=6"]).assert_landed();
    raw::push(world, &[RawCommand::new(nonsense, NULL, "refs/heads/doomed")], &[b"fence-token=7"]);
    let is_gone = world.server_ref("refs/heads/doomed").is_none();
    assert_eq!(world.mark(), if is_gone { 7 } else { 6 });
    world.push_token("main", "8").assert_landed();
    world.assert_log_is_whole();
}

/// If the slot were freed because "its refs show their new values", although one of them had its new value from
/// the start, the next push could proceed while this one, stalled and still alive, may yet write.
#[test]
fn stalled_push_to_the_current_value_keeps_its_slot() {
    for git in gits() {
        let world = World::new(&git);
        world.push(&["HEAD:refs/heads/t5"], &["fence-token=5"]).assert_landed();
        let tip = world.server_ref("refs/heads/t5").unwrap();
        world.configure("fence.wait", "300ms");
        world.stall_update_of("t5");
        std::thread::scope(|scope| {
            let same = RawCommand::new(&tip, &tip, "refs/heads/t5");
            let stalled = scope.spawn(|| raw::push(&world, &[same], &[b"fence-token=6"]));
            let go = world.go_in_the_end();
            world.pid_in("stalled");
            world.push(&[":refs/heads/t5"], &["fence-token=7"]).assert_refused("FENCE-BUSY");
            drop(go);
            stalled.join().unwrap();
        });
        world.push(&[":refs/heads/t5"], &["fence-token=7"]).assert_landed();
        assert_eq!(world.server_ref("refs/heads/t5"), None);
    }
}

/// 800 refs and one false old value: git would decline that ref, and its receive-pack would then wait forever for the
/// client to read the report, alive and with a ref that never moves.
#[test]
fn frozen_client_with_a_false_old_value_blocks_nobody() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        let tip = world.server_ref("refs/heads/main").unwrap();
        let long = "x".repeat(150);
        let honest = (0..800).map(|n| RawCommand::new(NULL, &tip, format!("refs/heads/{n}-{long}")));
        let lie = RawCommand::new(NULL, &tip, "refs/heads/main");
        let commands: Vec<RawCommand> = honest.chain([lie]).collect();
        let _frozen = Frozen::push(&world, &commands, &[b"fence-token=6"]);
        let decided = || world.audit().iter().any(|line| line["token"] == 6 && line["event"] != "push.settled");
        wait_until("the gate has decided", decided);
        world.configure("fence.wait", "2s");
        world.push_token("t7", "7").assert_landed();
        assert_eq!(world.events("push.rejected")[0]["code"], "FENCE-BUSY");
    }
}

#[test]
fn ref_named_twice_is_refused() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let tip = world.server_ref("refs/heads/main").unwrap();
    let there_and_back =
        [RawCommand::new(&tip, NULL, "refs/heads/main"), RawCommand::new(NULL, &tip, "refs/heads/main")];
    let pushed = raw::push(&world, &there_and_back, &[b"fence-token=2"]);
    pushed.assert_refused("FENCE-MALFORMED");
    assert_eq!(world.mark(), 1);
    assert_eq!(world.server_ref("refs/heads/main").unwrap(), tip);
}
