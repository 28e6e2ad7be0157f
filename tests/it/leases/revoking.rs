//! Revoked leases: by the server's operator, and by permitted pushers.

use super::revoke;
use crate::support::{
    Door, Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    needs::{Need, lacks},
    text, wait_until,
};
use std::{fs, process::Command};

#[test]
fn operator_revokes_a_lease() {
    for git in gits() {
        for init in [&[][..], &["--object-format=sha256"]] {
            let world = World::with(&git, Door::Fence, init);
            let lease = LeaseOf::repo(&world);
            let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
            let said = text(&revoke(&world, &["--reason", "too soon"]).stderr);
            assert!(said.contains("is not held"), "{said}");
            lease.take(&anna, 1, "first").assert_landed();
            lease.write(&anna, "main", 1, "first").assert_landed();
            let before = lease.at().unwrap();
            assert!(!revoke(&world, &["--reason", " "]).status.success());
            assert!(!revoke(&world, &["--reason", "x", "--fence", "nowhere"]).status.success());
            let ran = revoke(&world, &["--reason", "it hangs"]);
            assert!(ran.status.success(), "{}", text(&ran.stderr));
            assert_eq!(text(&ran.stdout), "fence 'repo'  the lease of 'anna', token 2, was revoked\n");
            let line = &world.events("lease.revoked")[0];
            assert_eq!((&line["token"], &line["state"]), (&3.into(), &"released".into()));
            assert_eq!((&line["reason"], &line["words"]), (&"revoked".into(), &"it hangs".into()));
            assert!(line["held_ms"].is_u64());
            world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/*:refs/fence/*"));
            assert_eq!(lease.parents_of(&lease.at().unwrap()), [before]);
            let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", &lease.name("lease")]));
            assert!(message.contains("Fence-Reason: revoked: it hangs"), "{message}");
            assert!(!revoke(&world, &["--reason", "again"]).status.success());
            lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
            let next = lease.advanced(&anna, 3, "first");
            let zombie = lease.write_command(&anna, "main", 2, &next).output().unwrap();
            Pushed::from(&zombie).assert_refused("FENCE-STALE");
            lease.take(&bob, 4, "released").assert_landed();
            lease.write(&bob, "main", 4, "released").assert_landed();
            assert!(world.events("lease.found").is_empty());
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn lease_is_not_revoked_under_a_push_in_flight() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let next = lease.advanced(&anna, 2, "first");
    let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
    world.pid_in("stalled");
    world.configure("fence.wait", "300ms");
    let said = text(&revoke(&world, &["--reason", "x"]).stderr);
    assert!(said.contains("a push has been in flight") && said.contains("git-fence-hook evict"), "{said}");
    world.go();
    slow.wait().assert_landed();
    assert!(revoke(&world, &["--reason", "x"]).status.success());
}

/// Pushes arrive one after the other: the slot is never free for long. The operator precedes waiting pushes.
#[test]
fn revoke_waits_for_the_push_in_flight_and_precedes_newer_ones() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        world.configure("fence.exempt", "tester");
        let lease = LeaseOf::repo(&world);
        lease.take(&Agent::new("anna"), 1, "first").assert_landed();
        world.stall_update_of("slow");
        let first = Running::start(&mut world.push_command(&["HEAD:refs/heads/slow"], &[]));
        let _go = world.go_in_the_end();
        world.pid_in("stalled");
        let mut command = world.hook_program();
        command.args(["revoke", "--reason", "it hangs"]).arg(world.server());
        let revoking = Running::start(&mut command);
        let mutex = world.fence_file("mutex");
        wait_until("it waits for its turn", || fs::read_to_string(&mutex).unwrap().contains("\"turns\":[{"));
        let second = Running::start(&mut world.push_command(&["HEAD:refs/heads/newer"], &[]));
        wait_until("the newer push stalls", || second.has_said("waiting"));
        world.go();
        first.wait().assert_landed();
        assert!(revoking.wait().ok);
        second.wait().assert_landed();
        let seq = |event: &str| world.events(event).last().unwrap()["seq"].as_u64().unwrap();
        assert!(seq("lease.revoked") < seq("push.accepted"), "{:?}", world.audit());
        world.assert_log_is_whole();
    }
}

/// The refs have moved, and the process that moved them was killed before it recorded that.
#[test]
fn interrupted_revocation_is_found() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    world.write_hook(
        "reference-transaction",
        "[ \"$1\" = committed ] && kill -KILL $(awk '{ print $4 }' /proc/$PPID/stat); exit 0",
    );
    assert!(!revoke(&world, &["--reason", "x"]).status.success());
    fs::remove_file(world.hook("reference-transaction")).unwrap();
    assert!(world.events("lease.revoked").is_empty());
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    assert_eq!(world.events("lease.found").len(), 1);
    world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/*:refs/fence/*"));
    lease.take(&bob, 3, "released").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn root_revokes_a_lease_and_owns_no_file_of_it() {
    use std::os::unix::fs::MetadataExt;
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    lease.take(&Agent::new("anna"), 1, "first").assert_landed();
    world.ok(world.git("server.git").args(["pack-refs", "--all"]));
    fs::set_permissions(world.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.ok(Command::new("chown").args(["-R", "12345:12345"]).arg(world.server()));
    let ran = revoke(&world, &["--reason", "x"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    for (name, ..) in crate::support::tree(&world.server()) {
        let owner = fs::symlink_metadata(world.server().join(&name)).unwrap().uid();
        assert_eq!(owner, 12345, "{name}");
    }
}

#[test]
fn only_allowed_pushers_revoke_by_a_push() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, boss) = (Agent::new("anna"), Agent::new("boss"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.take_away(&boss, 2).assert_refused("FENCE-LEASE-INVALID");
    world.configure("fence.allowRevoke", "tester");
    lease.take_away(&boss, 2).assert_landed();
    assert_eq!(world.events("push.accepted").len(), 2);
    lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    assert_eq!(world.events("lease.revoked")[0]["words"], "it hangs");
    lease.take(&Agent::new("bob"), 3, "released").assert_landed();
    assert_eq!(lease.mark(), 2);
}
