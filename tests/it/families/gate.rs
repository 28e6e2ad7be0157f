//! The gate: marks, slots, kinds and heirs of members.

use super::{per_branch, push_own};
use crate::support::{
    Running, any_git, gits,
    lease::{Agent, LeaseOf},
};

#[test]
fn each_branch_has_a_mark_of_its_own() {
    for git in gits() {
        let world = per_branch(&git);
        push_own(&world, "a", 5).assert_landed();
        push_own(&world, "feature/x", 1).assert_landed();
        push_own(&world, "a", 5).assert_refused("FENCE-STALE");
        push_own(&world, "feature/x", 2).assert_landed();
        let without = world.push(&["+HEAD:refs/heads/a"], &[]);
        without.assert_refused("FENCE-MISSING");
        assert!(
            without.text.contains("carries no token for it") && without.text.contains("'branch/a'"),
            "{}",
            without.text
        );
        // Tags belong to the fence 'repo'.
        world.push(&["HEAD:refs/tags/v1"], &["fence-token=1"]).assert_landed();
        // A token for the family, or for another member, is none for this one.
        world.push(&["HEAD:refs/heads/b"], &["fence-token=branch:9"]).assert_refused("FENCE-MALFORMED");
        world.push(&["HEAD:refs/heads/b"], &["fence-token=branch/a:9"]).assert_refused("FENCE-MISSING");
        world.assert_log_is_whole();
    }
}

#[test]
fn push_over_several_members_needs_a_token_for_each() {
    let world = per_branch(&any_git());
    let both = ["HEAD:refs/heads/a", "HEAD:refs/heads/b"];
    world.push(&both, &["fence-token=branch/a:1"]).assert_refused("FENCE-MISSING");
    world.push(&both, &["fence-token=branch/a:1", "fence-token=branch/b:7"]).assert_landed();
    // One line, with both.
    let accepted = &world.events("push.accepted")[0];
    assert_eq!(accepted["fence"], "branch/a");
    assert_eq!(accepted["also"][0], serde_json::json!({ "fence": "branch/b", "token": 7, "mark": 0 }));
    let again = world.commit("again");
    let both = [format!("{again}:refs/heads/a"), format!("{again}:refs/heads/b")];
    let both = both.each_ref().map(String::as_str);
    let stale = world.push(&both, &["fence-token=branch/a:2", "fence-token=branch/b:7"]);
    stale.assert_refused("FENCE-STALE");
    assert!(stale.text.contains("'branch/b'"), "{}", stale.text);
    // Trailers, too.
    let stamped = world.commit("work\n\nFencing-Token: branch/a:2\nFencing-Token: branch/b:8\n");
    let both = [format!("{stamped}:refs/heads/a"), format!("{stamped}:refs/heads/b")];
    world.push(&both.each_ref().map(|it| format!("+{it}")).each_ref().map(String::as_str), &[]).assert_landed();
    push_own(&world, "a", 2).assert_refused("FENCE-STALE");
}

#[test]
fn stalled_push_holds_up_only_its_own_branch() {
    let world = per_branch(&any_git());
    world.stall_update_of("a");
    let _go = world.go_in_the_end();
    let first = world.commit("first");
    let stalled =
        Running::start(&mut world.push_command(&[&format!("{first}:refs/heads/a")], &["fence-token=branch/a:1"]));
    world.pid_in("stalled");
    push_own(&world, "b", 1).assert_landed();
    world.configure("fence.branch.wait", "300ms");
    // Changed settings make a push wait for all that are in flight.
    push_own(&world, "a", 2).assert_refused("FENCE-BUSY");
    world.go();
    stalled.wait().assert_landed();
    push_own(&world, "a", 2).assert_landed();
}

#[test]
fn deleted_and_renamed_branches_keep_their_marks() {
    for git in gits() {
        let world = per_branch(&git);
        push_own(&world, "old", 5).assert_landed();
        let deletion = |token: &str| world.push(&[":refs/heads/old"], &[&format!("fence-token=branch/old:{token}")]);
        world.push(&[":refs/heads/old"], &[]).assert_refused("FENCE-MISSING");
        deletion("5").assert_refused("FENCE-STALE");
        deletion("6").assert_landed();
        // Made anew, a token from before is still old.
        push_own(&world, "old", 6).assert_refused("FENCE-STALE");
        push_own(&world, "old", 7).assert_landed();
        // Renamed: the new name is another member, and the push needs a token for both.
        let rename = ["HEAD:refs/heads/new", ":refs/heads/old"];
        world.push(&rename, &["fence-token=branch/old:8"]).assert_refused("FENCE-MISSING");
        world.push(&rename, &["fence-token=branch/old:8", "fence-token=branch/new:1"]).assert_landed();
        push_own(&world, "old", 8).assert_refused("FENCE-STALE");
    }
}

#[test]
fn leases_of_members_are_independent_and_the_kind_is_that_of_the_family() {
    for git in gits() {
        let world = per_branch(&git);
        let (a, b) = (LeaseOf { world: &world, fence: "branch/a" }, LeaseOf { world: &world, fence: "branch/b/c" });
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        a.take(&anna, 1, "first").assert_landed();
        b.take(&bob, 1, "first").assert_landed();
        a.take(&bob.again(), 2, "first").assert_refused("FENCE-LEASE-HELD");
        a.write(&anna, "a", 1, "first").assert_landed();
        b.write(&bob, "b/c", 1, "first").assert_landed();
        b.beat(&bob).assert_landed();
        // The lease of one is none for the other.
        let wrong = a.advanced(&anna, 3, "first");
        Running::start(&mut a.write_command(&anna, "b/c", 2, &wrong)).wait().assert_refused("FENCE-LEASE-REQUIRED");
        a.release(&anna, 2, "first").assert_landed();
        a.take(&bob.again(), 3, "released").assert_landed();
        // Leases decide for the whole family.
        push_own(&world, "new", 1).assert_refused("FENCE-LEASE-REQUIRED");
        world.assert_log_is_whole();
    }
    let world = per_branch(&any_git());
    push_own(&world, "x", 1).assert_landed();
    let lease = LeaseOf { world: &world, fence: "branch/y" };
    lease.take(&Agent::new("anna"), 1, "first").assert_refused("FENCE-LEASE-INVALID");
}

#[test]
fn branch_inherits_when_a_family_takes_it_over_and_when_it_leaves() {
    let world = crate::support::World::new(&any_git());
    world.push_token("main", "41").assert_landed();
    world.configure("fence.branch.refs", "refs/heads/*");
    world.configure("fence.branch.each", "true");
    push_own(&world, "main", 41).assert_refused("FENCE-STALE");
    push_own(&world, "other", 41).assert_refused("FENCE-STALE");
    push_own(&world, "main", 50).assert_landed();
    push_own(&world, "other", 42).assert_landed();
    // Another part of the name: refs/heads/f/x was branch/f/x.
    push_own(&world, "f/x", 60).assert_landed();
    let git = |args: &[&str]| world.ok(world.git("server.git").arg("config").args(args));
    git(&["--unset-all", "fence.branch.refs"]);
    world.configure("fence.branch.refs", "refs/heads/f/*");
    let push = |token: &str| world.push(&["+HEAD:refs/heads/f/x"], &[&format!("fence-token=branch/x:{token}")]);
    push("60").assert_refused("FENCE-STALE");
    // Back to one fence for all.
    git(&["--remove-section", "fence.branch"]);
    world.push_token("main", "60").assert_refused("FENCE-STALE");
    world.push_token("main", "61").assert_landed();
}

#[test]
fn state_of_members_survives_a_lost_checkpoint_and_a_rotation() {
    let world = per_branch(&any_git());
    push_own(&world, "a", 5).assert_landed();
    let _ = std::fs::remove_file(world.fence_file("state.json"));
    push_own(&world, "a", 5).assert_refused("FENCE-STALE");
    world.ok(world.hook_program().arg("rotate").arg(world.server()));
    push_own(&world, "a", 5).assert_refused("FENCE-STALE");
    push_own(&world, "a", 6).assert_landed();
    world.assert_log_is_whole();
}
