//! Names of members: long ones, any bytes, and those that no ref can have.

use super::{per_branch, push_own};
use crate::support::{
    Pushed, any_git, gits,
    lease::{Agent, LeaseOf, commit},
};
use sha2::{Digest, Sha256};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

#[test]
fn branch_of_300_bytes_has_a_fence() {
    for git in gits() {
        let world = per_branch(&git);
        let long = ["x".repeat(150), "y".repeat(149)].join("/");
        push_own(&world, &long, 5).assert_landed();
        let stale = push_own(&world, &long, 5);
        stale.assert_refused("FENCE-STALE");
        // It is shown cut, with its hash, and can be named like that.
        let hash: String = Sha256::digest(format!("branch/{long}")).iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = format!("branch/{}~{hash}", &"x".repeat(150)[..111]);
        assert!(stale.text.contains(&format!("fence '{shown}'")), "{}", stale.text);
        let work = world.commit("work");
        let named = |token: &str| {
            world.push(&[&format!("+{work}:refs/heads/{long}")], &[&format!("fence-token={shown}:{token}")])
        };
        named("5").assert_refused("FENCE-STALE");
        named("6").assert_landed();
        // Another name of that length is another member.
        push_own(&world, &format!("{long}z"), 1).assert_landed();
    }
}

#[test]
fn lease_of_a_long_name_is_one_path_component() {
    let world = per_branch(&any_git());
    let long = "x".repeat(220);
    let hash: String = Sha256::digest(format!("branch/{long}")).iter().map(|byte| format!("{byte:02x}")).collect();
    let component = format!("branch/{}%={hash}", &long[..111]);
    let lease = LeaseOf { world: &world, fence: &component };
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    let advanced = lease.advanced(&anna, 2, "first");
    let work = world.commit("work");
    let pushed = world.push(
        &["--atomic", &format!("{work}:refs/heads/{long}"), &format!("+{advanced}")],
        &[&format!("fence-token=branch/{long}:1")],
    );
    pushed.assert_landed();
    assert_eq!(world.events("lease.advanced").len(), 1);
}

#[test]
fn any_bytes_can_name_a_member() {
    let world = per_branch(&any_git());
    let name = b"refs/heads/caf\xe9";
    let refspec = [&b"HEAD:"[..], name].concat();
    let push = |option: &[u8]| {
        let mut command = world.push_command(&[], &[]);
        command.arg(OsStr::from_bytes(&refspec)).arg("--push-option").arg(OsStr::from_bytes(option));
        Pushed::from(&command.output().unwrap())
    };
    push(b"fence-token=branch/cafe:1").assert_refused("FENCE-MISSING");
    // As its bytes, and as it is shown.
    push(b"fence-token=branch/caf\xe9:1").assert_landed();
    let refspec = format!("+{}:", world.commit("more")).into_bytes();
    let mut command = world.push_command(&[], &["fence-token=branch/caf\\xe9:1"]);
    command.arg(OsStr::from_bytes(&[&refspec[..], name].concat()));
    Pushed::from(&command.output().unwrap()).assert_refused("FENCE-STALE");
    assert_eq!(world.events("push.accepted")[0]["fence"], "branch/caf\\xe9");
    world.assert_log_is_whole();
}

#[test]
fn names_that_no_branch_can_have_are_refused() {
    let world = per_branch(&any_git());
    for (name, why) in [
        ("branch/a..b", "git allows no ref"),
        ("branch/x.lock", "git allows no ref"),
        ("branch/", "what the star in the family's pattern matches"),
        ("branch/a b", "git allows no such name"),
        ("branch/\\x61", "a backslash must be part of"),
        ("repo/x", "has no setting 'each'"),
        ("other/x", "this repository has no fence"),
        (&format!("branch/{}", "x".repeat(4100)), "too long"),
    ] {
        let refused = world.push(&["HEAD:refs/heads/a"], &[&format!("fence-token={name}:1")]);
        refused.assert_refused("FENCE-MALFORMED");
        assert!(refused.text.contains(why), "{name}: {}", refused.text);
    }
    let record = commit(&world, &Agent::new("anna").lease(1, "held", "first"), &[]);
    for (name, why) in [
        // Other spellings of a member would be other leases of the same branch.
        ("branch%2fa%2Fb", "is not a lease ref"),
        ("branch%2fA", "is not a lease ref"),
        ("branch%2f%61", "is not a lease ref"),
        ("branch/x", "is not a lease ref"),
        // A family has no lease, and nobody could push to what git allows no name.
        ("branch", "is a family"),
        ("branch%2fa%2e%2eb", "git allows no ref"),
        ("repo%2fx", "has no setting 'each'"),
    ] {
        let refused = world.push(&[&format!("{record}:refs/fence/{name}/lease")], &[]);
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains(why), "{name}: {}", refused.text);
    }
}

#[test]
fn family_that_cannot_be_is_named() {
    let world = crate::support::World::new(&any_git());
    world.configure("fence.branch.refs", "refs/heads/*");
    world.configure("fence.branch.refs", "refs/tags/*");
    world.configure("fence.branch.each", "true");
    let refused = world.push_token("main", "1");
    refused.assert_refused("FENCE-BROKEN");
    assert!(refused.text.contains("fence 'branch' cannot be a family (fence.branch.each)"), "{}", refused.text);
    assert!(refused.text.contains("needs exactly one pattern"), "{}", refused.text);
}
