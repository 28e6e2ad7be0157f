//! The operator's commands, by member and by family.

use super::{per_branch, push_own};
use crate::support::{
    World, any_git, gits,
    lease::{Agent, LeaseOf},
    text,
};
use serde_json::{Value, json};

fn ok(world: &World, args: &[&str]) -> String {
    world.ok(world.hook_program().args(args).arg(world.server()))
}

/// The last line of what a refused command says, and what it says before.
fn refused(world: &World, args: &[&str]) -> String {
    let done = world.hook_program().args(args).arg(world.server()).output().unwrap();
    assert!(!done.status.success(), "{args:?}");
    text(&done.stderr)
}

fn status_of(world: &World, fence: &str) -> Value {
    let status: Value = serde_json::from_str(&ok(world, &["status", "--json", "--fence", fence])).unwrap();
    crate::support::schema::assert_is("hook_status", &status);
    status["fences"].clone()
}

#[test]
fn install_per_branch_sets_up_the_family() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let said = ok(&world, &["install", "--per-branch"]);
        assert!(said.contains("fence.branch.each"), "{said}");
        push_own(&world, "a", 5).assert_landed();
        push_own(&world, "b", 1).assert_landed();
        push_own(&world, "a", 5).assert_refused("FENCE-STALE");
        // Again, it changes nothing; and a gate that is there can be given a family later.
        let again = ok(&world, &["install", "--per-branch"]);
        assert!(again.contains("fence.branch.each = true  already there"), "{again}");
        let later = World::new(&git);
        later.push_token("main", "7").assert_landed();
        ok(&later, &["install", "--per-branch"]);
        push_own(&later, "main", 7).assert_refused("FENCE-STALE");
        push_own(&later, "main", 8).assert_landed();
        assert!(ok(&later, &["doctor"]).starts_with("ok "));
        // Without the family, its settings are gone.
        ok(&later, &["uninstall"]);
        let left = later.git("server.git").args(["config", "--get-regexp", "^fence"]).output().unwrap();
        assert_eq!(text(&left.stdout), "");
    }
}

#[test]
fn status_shows_the_family_and_the_members_in_use() {
    let world = per_branch(&any_git());
    let lease = LeaseOf { world: &world, fence: "branch/held" };
    lease.take(&Agent::new("anna"), 1, "first").assert_landed();
    let free = LeaseOf { world: &world, fence: "branch/free" };
    let bob = Agent::new("bob");
    free.take(&bob, 1, "first").assert_landed();
    free.write(&bob, "free", 1, "first").assert_landed();
    free.release(&bob, 2, "first").assert_landed();
    let shown = ok(&world, &["status"]);
    assert!(
        shown.contains("family 'branch'  a fence for each ref, which begins above 0\n  members    2 known, 1 held"),
        "{shown}"
    );
    assert!(shown.contains("fence 'branch/held'  mark 0\n  lease      held by 'anna'"), "{shown}");
    assert!(!shown.contains("branch/free"), "{shown}");
    assert!(shown.contains("fence 'repo'"), "{shown}");
    let names = |fence: &str| {
        let fences = status_of(&world, fence);
        fences.as_array().unwrap().iter().map(|it| it["fence"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("branch"), ["branch", "branch/free", "branch/held"]);
    assert_eq!(names("branch/free"), ["branch/free"]);
    assert_eq!(names("branch/never-used"), ["branch/never-used"]);
    assert_eq!(status_of(&world, "branch/free")[0]["mark"], 1);
    assert_eq!(status_of(&world, "branch")[0]["members"], json!({ "known": 2, "held": 1 }));
    for (name, why) in [
        ("other", "has no fence 'other'"),
        ("repo/x", "not a member of a family"),
        ("branch/a..b", "git allows no ref"),
    ] {
        let said = refused(&world, &["status", "--fence", name]);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn audit_and_stats_go_by_member_and_by_family() {
    let world = per_branch(&any_git());
    for branch in ["a", "a", "b"] {
        push_own(&world, branch, 1);
    }
    world.push(&["HEAD:refs/tags/v1"], &["fence-token=1"]).assert_landed();
    let lines = |fence: &str| ok(&world, &["audit", "--json", "--fence", fence]).lines().count();
    // Accepted and settled; the second push to a was refused.
    assert_eq!((lines("branch/a"), lines("branch/b"), lines("branch"), lines("repo")), (3, 2, 5, 2));
    let stats = |args: &[&str]| -> Value {
        let figures: Value = serde_json::from_str(&ok(&world, &[&["stats", "--json"], args].concat())).unwrap();
        crate::support::schema::assert_is("stats", &figures);
        let fences = figures["fences"].as_array().unwrap().iter();
        fences.map(|it| json!([it["fence"], it["pushes"], it["refused"]])).collect()
    };
    assert_eq!(stats(&[]), json!([["branch", 3, 1], ["repo", 1, 0]]));
    assert_eq!(stats(&["--fence", "branch"]), json!([["branch/a", 2, 1], ["branch/b", 1, 0], ["branch", 0, 0]]));
    assert_eq!(stats(&["--fence", "branch/b"]), json!([["branch/b", 1, 0]]));
    let metrics = ok(&world, &["stats", "--prometheus"]);
    assert!(metrics.contains("fence=\"branch\",verdict=\"accepted\"} 2") && !metrics.contains("branch/a"), "{metrics}");
}

#[test]
fn marks_are_raised_and_lowered_by_member_and_raised_for_all() {
    let world = per_branch(&any_git());
    push_own(&world, "a", 9).assert_landed();
    let why = ["--reason", "a test"];
    ok(&world, &[&["lower", "--fence", "branch/a", "--to", "3", "--expect", "9"], &why[..]].concat());
    ok(&world, &[&["raise", "--fence", "branch/b", "--to", "4"], &why[..]].concat());
    push_own(&world, "b", 4).assert_refused("FENCE-STALE");
    push_own(&world, "a", 4).assert_landed();
    // All of them, also those that begin later.
    ok(&world, &[&["raise", "--fence", "branch", "--to", "20"], &why[..]].concat());
    for branch in ["a", "b", "new"] {
        push_own(&world, branch, 20).assert_refused("FENCE-STALE");
    }
    push_own(&world, "new", 21).assert_landed();
    for (args, words) in [
        (&["lower", "--fence", "branch", "--to", "1", "--expect", "20"][..], "'branch' is a family"),
        (&["revoke", "--fence", "branch"], "'branch' is a family"),
        (&["evict", "--fence", "branch"], "'branch' is a family"),
        (&["raise", "--fence", "branch/a..b", "--to", "99"], "git allows no ref"),
        (&["revoke", "--fence", "branch/nobody"], "is not held"),
        (&["tokens", "lease", "--fence", "branch/a"], "accept one kind of tokens"),
    ] {
        let said = refused(&world, &[args, &why].concat());
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let said = refused(&world, &["observe", "--fence", "branch/a"]);
    assert!(said.contains("name the family, 'branch'"), "{said}");
}

#[test]
fn leases_are_revoked_by_member_and_by_the_change_to_own_tokens() {
    for git in gits() {
        let world = per_branch(&git);
        let (a, b) = (LeaseOf { world: &world, fence: "branch/a" }, LeaseOf { world: &world, fence: "branch/b" });
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        a.take(&anna, 1, "first").assert_landed();
        b.take(&bob, 1, "first").assert_landed();
        let said = ok(&world, &["revoke", "--fence", "branch/a", "--reason", "it hangs"]);
        assert_eq!(said, "fence 'branch/a'  the lease of 'anna', token 1, was revoked");
        push_own(&world, "a", 1).assert_refused("FENCE-STALE");
        b.write(&bob, "b", 1, "first").assert_landed();
        let said = ok(&world, &["tokens", "own", "--fence", "branch", "--reason", "a lease service"]);
        assert!(said.contains("fence 'branch/b'  the lease of 'bob', token 2, was revoked"), "{said}");
        assert!(said.contains("fence 'branch'  accepts own tokens of the pushers, above 3"), "{said}");
        for branch in ["a", "b", "new"] {
            push_own(&world, branch, 3).assert_refused("FENCE-STALE");
            push_own(&world, branch, 4).assert_landed();
        }
        world.assert_log_is_whole();
    }
}

#[test]
fn halting_goes_by_member_and_says_that_new_members_go_on() {
    let world = per_branch(&any_git());
    let (a, b) = (LeaseOf { world: &world, fence: "branch/a" }, LeaseOf { world: &world, fence: "branch/b" });
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    a.take(&anna, 1, "first").assert_landed();
    b.take(&bob, 1, "first").assert_landed();
    ok(&world, &["halt", "--fence", "branch/a", "--reason", "a test"]);
    a.ask().assert_refused("FENCE-HALTED");
    b.write(&bob, "b", 1, "first").assert_landed();
    let said = refused(&world, &["halt", "--fence", "branch", "--reason", "a test"]);
    assert!(said.contains("'branch' is a family"), "{said}");
    let said = refused(&world, &["halt", "--all", "--reason", "a test"]);
    assert!(said.contains("that begin from now on are not halted"), "{said}");
    b.ask().assert_refused("FENCE-HALTED");
    ok(&world, &["resume", "--all", "--reason", "a test"]);
    for lease in [&a, &b] {
        let free = lease.ask();
        assert!(free.text.contains("the lease is free"), "{}", free.text);
    }
}

#[test]
fn doctor_looks_at_the_leases_of_members() {
    let world = per_branch(&any_git());
    let lease = LeaseOf { world: &world, fence: "branch/a" };
    lease.take(&Agent::new("anna"), 1, "first").assert_landed();
    let findings = || {
        let done = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
        text(&done.stdout)
    };
    assert!(!findings().contains("lease-"), "{}", findings());
    let head = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
    world.ok(world.git("server.git").args(["fetch", "-q"]).arg(world.path("work")).arg("HEAD"));
    world.ok(world.git("server.git").args(["update-ref", "refs/fence/branch%2fa/lease", &head]));
    let said = findings();
    assert!(said.contains("lease-unreadable") && said.contains("refs/fence/branch%2fa/lease"), "{said}");
}
