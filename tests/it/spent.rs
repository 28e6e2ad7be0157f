//! A token is spent when a ref moved, and only then. Nobody is locked out by a push that did not.

use crate::support::{
    World, any_git, gits,
    raw::{self, NULL, RawCommand},
    wait_until,
};

#[test]
fn a_huge_token_on_a_forbidden_branch_locks_nobody_out_and_can_be_used_again() {
    for git in gits() {
        let world = World::new(&git);
        world.write_hook("update", "case $1 in refs/heads/forbidden) echo no >&2; exit 1;; esac");
        world.push_token("main", "3").assert_landed();
        let declined = world.push_token("forbidden", "999999");
        assert!(!declined.ok && declined.text.contains("hook declined"), "{}", declined.text);
        assert_eq!(world.mark(), 3, "the mark is where it was");
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
fn a_push_that_git_declines_after_the_gate_spends_nothing() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("receive.denyNonFastForwards", "true");
        world.configure("receive.denyDeletes", "true");
        world.configure("transfer.hideRefs", "refs/heads/hidden");
        world.push_token("main", "1").assert_landed();
        assert!(!world.push_token("main", "900").ok, "another root is no fast-forward");
        assert!(!world.push(&[":refs/heads/main"], &["fence-token=901"]).ok);
        assert!(!world.push_token("hidden", "902").ok);
        assert_eq!(world.mark(), 1);
        world.push(&["HEAD:refs/heads/more"], &["fence-token=2"]).assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn a_push_that_moves_some_of_its_refs_spends_its_token() {
    for git in gits() {
        let world = World::new(&git);
        world.write_hook("update", "case $1 in refs/heads/no*) exit 1;; esac");
        let pushed =
            world.push(&["HEAD:refs/heads/no1", "HEAD:refs/heads/yes", "HEAD:refs/heads/no2"], &["fence-token=7"]);
        assert!(!pushed.ok);
        assert_eq!(world.mark(), 7);
        world.push_token("main", "7").assert_refused("FENCE-STALE");
        // All or nothing: nothing.
        let mut atomic = world.push_command(&["HEAD:refs/heads/no1", "HEAD:refs/heads/yes2"], &["fence-token=8"]);
        assert!(!atomic.arg("--atomic").output().unwrap().status.success());
        assert_eq!(world.mark(), 7);
        world.push_token("main", "8").assert_landed();
    }
}

/// While nine waits, five moves the ref that both want, and git declines nine. Compared with what the ref was when nine
/// came, it would look as if nine had moved it.
#[test]
fn a_push_that_waited_is_compared_with_the_refs_as_they_are_when_its_turn_comes() {
    for git in gits() {
        let world = World::new(&git);
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
        assert!(!nine.ok && nine.code().is_none(), "declined by git, not by the gate: {}", nine.text);
        assert_eq!(world.mark(), 5);
        world.push_token("main", "6").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn lies_about_old_values_get_no_further() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.push_token("main", "5").assert_landed();
        let tip = world.server_ref("refs/heads/main").unwrap();
        let nonsense = "1234567890123456789012345678901234567890";
        // `0 -> current tip`, nonsense as the old value, nonsense as the new one.
        for (old, new) in [(NULL, tip.as_str()), (nonsense, tip.as_str()), (nonsense, nonsense), (NULL, nonsense)] {
            let lie = RawCommand::new(old, new, "refs/heads/main");
            let pushed = raw::push(&world, &[lie], &[b"fence-token=999999"]);
            assert!(!pushed.ok, "{old} {new}: {}", pushed.text);
            assert_eq!(world.mark(), 5, "{old} {new}");
            assert_eq!(world.server_ref("refs/heads/main").unwrap(), tip);
        }
        // A deletion with a wrong old value does delete: so it is a move, and spends.
        world.push(&["HEAD:refs/heads/doomed"], &["fence-token=6"]).assert_landed();
        raw::push(&world, &[RawCommand::new(nonsense, NULL, "refs/heads/doomed")], &[b"fence-token=7"]);
        let is_gone = world.server_ref("refs/heads/doomed").is_none();
        assert_eq!(world.mark(), if is_gone { 7 } else { 6 });
        world.push_token("main", "8").assert_landed();
        world.assert_log_is_whole();
    }
}

/// Were the liar's slot freed because "its refs show their new values", token 6 could delete the
/// ref, and the liar, stalled and still alive, would create it again with token 5.
#[test]
fn a_stalled_liar_cannot_recreate_what_a_newer_push_deleted() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "4").assert_landed();
        world.push(&["HEAD:refs/heads/t5"], &["fence-token=5"]).assert_landed();
        let tip = world.server_ref("refs/heads/t5").unwrap();
        world.configure("fence.wait", "300ms");
        world.stall_update_of("t5");
        std::thread::scope(|scope| {
            let liar =
                scope.spawn(|| raw::push(&world, &[RawCommand::new(NULL, &tip, "refs/heads/t5")], &[b"fence-token=6"]));
            let go = world.go_in_the_end();
            world.pid_in("stalled");
            world.push(&[":refs/heads/t5"], &["fence-token=7"]).assert_refused("FENCE-BUSY");
            drop(go);
            assert!(!liar.join().unwrap().ok);
        });
        world.push(&[":refs/heads/t5"], &["fence-token=6"]).assert_landed();
        assert_eq!(world.server_ref("refs/heads/t5"), None);
    }
}

#[test]
fn a_ref_named_twice_is_refused() {
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
