//! Forgotten members: what is forgotten, what is not, and that no old token comes back.

use super::{per_branch, push_own};
use crate::support::{
    World, any_git, gits,
    lease::{Agent, LeaseOf},
    wait_until,
};

/// A family that forgets at once.
fn forgetful(git: &crate::support::Git) -> World {
    let world = per_branch(git);
    world.configure("fence.branch.forgetAfter", "1ms");
    world
}

fn lease_of<'w>(world: &'w World, fence: &'w str) -> LeaseOf<'w> {
    LeaseOf { world, fence }
}

/// Takes the lease of `branch/<branch>`, pushes once, deletes the branch, and releases: tokens 1 to 3 are gone.
fn come_and_go(world: &World, branch: &str) {
    let fence = format!("branch/{branch}");
    let (lease, agent) = (lease_of(world, &fence), Agent::new("anna"));
    lease.take(&agent, 1, "first").assert_landed();
    lease.write(&agent, branch, 1, "first").assert_landed();
    let advanced = lease.advanced(&agent, 3, "first");
    let deletion = [format!(":refs/heads/{branch}"), advanced];
    lease.push(&deletion, &[format!("fence-token={fence}:2")]).assert_landed();
    lease.release(&agent, 3, "first").assert_landed();
}

#[test]
fn branch_of_long_ago_is_forgotten_and_no_old_token_comes_back() {
    for git in gits() {
        let world = forgetful(&git);
        come_and_go(&world, "old");
        let (old, new) = (lease_of(&world, "branch/old"), lease_of(&world, "branch/new"));
        assert!(old.at().is_some());
        let bob = Agent::new("bob");
        new.take(&bob, 1, "first").assert_landed();
        let forgotten = &world.events("members.forgotten")[0];
        assert_eq!(forgotten["fence"], "branch");
        assert_eq!(forgotten["members"], serde_json::json!(["branch/old"]));
        assert_eq!(forgotten["mark"], 3);
        assert_eq!(old.at(), None, "its refs are gone");
        assert_eq!(world.server_ref("refs/fence/branch%2fold/beat"), None);
        // Who holds the new branch is not concerned.
        new.write(&bob, "new", 1, "first").assert_landed();
        // All tokens of before are old, for this branch and for any that begins now.
        for token in 1..=3 {
            push_own(&world, "old", token).assert_refused("FENCE-STALE");
            old.take(&Agent::new("eve"), token, "first").assert_refused("FENCE-STALE");
        }
        lease_of(&world, "branch/newer").take(&Agent::new("eve"), 1, "first").assert_refused("FENCE-STALE");
        let anna = Agent::new("anna");
        old.take(&anna, 4, "first").assert_landed();
        old.write(&anna, "old", 4, "first").assert_landed();
        // Also by whoever reads the log from its beginning.
        let _ = std::fs::remove_file(world.fence_file("state.json"));
        push_own(&world, "third", 3).assert_refused("FENCE-STALE");
        world.assert_log_is_whole();
    }
}

#[test]
fn members_that_are_there_or_held_are_not_forgotten() {
    let world = forgetful(&any_git());
    let (there, held) = (lease_of(&world, "branch/there"), lease_of(&world, "branch/held"));
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    there.take(&anna, 1, "first").assert_landed();
    there.write(&anna, "there", 1, "first").assert_landed();
    there.release(&anna, 2, "first").assert_landed();
    held.take(&bob, 1, "first").assert_landed();
    lease_of(&world, "branch/another").take(&Agent::new("eve"), 1, "first").assert_landed();
    assert!(world.events("members.forgotten").is_empty());
    // Expired is as good as released.
    let brief = Agent::brief("brief");
    let expired = lease_of(&world, "branch/expired");
    expired.take(&brief, 1, "first").assert_landed();
    let mut count = 0;
    wait_until("it is forgotten", || {
        count += 1;
        let name = format!("branch/next-{count}");
        let agent = Agent::new("eve");
        let lease = lease_of(&world, &name);
        let _ = lease.take(&agent, 1, "first").ok || lease.take(&agent, 2, "first").ok;
        !world.events("members.forgotten").is_empty()
    });
    assert_eq!(world.events("members.forgotten")[0]["members"], serde_json::json!(["branch/expired"]));
}

#[test]
fn tokens_of_ones_own_are_never_forgotten() {
    let world = forgetful(&any_git());
    push_own(&world, "old", 7).assert_landed();
    world.push(&[":refs/heads/old"], &["fence-token=branch/old:8"]).assert_landed();
    push_own(&world, "new", 1).assert_landed();
    push_own(&world, "newer", 1).assert_landed();
    assert!(world.events("members.forgotten").is_empty());
    push_own(&world, "old", 8).assert_refused("FENCE-STALE");
}
