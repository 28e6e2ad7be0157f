//! Lease refs that differ from the log: after a kill, a lost line, a deleted ref, an older gate.

use super::{json, under_strace};
use crate::support::{
    World, any_git, gits,
    lease::{Agent, LeaseOf, commit},
    needs::{Need, lacks},
    wait_until,
};
use std::{fs, process::Command};

#[test]
fn push_that_dies_before_its_refs_move_leaves_the_lease_unchanged() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "10m");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        world.write_hook("update", "case $1 in refs/fence/*) kill -KILL $PPID;; esac");
        assert!(!lease.take(&anna, 1, "first").ok);
        fs::remove_file(world.hook("update")).unwrap();
        assert_eq!((lease.at(), lease.mark()), (None, 0));
        lease.take(&bob, 1, "first").assert_landed();
        // Killed in the middle of its refs: those that have moved have moved.
        world.write_hook(
            "reference-transaction",
            "[ \"$1\" = committed ] || exit 0\ngrep -q refs/fence/ && kill -KILL $PPID; exit 0",
        );
        assert!(!lease.write(&bob, "main", 1, "first").ok, "its receive-pack was killed");
        fs::remove_file(world.hook("reference-transaction")).unwrap();
        let status = lease.status();
        assert_eq!((&status["owner"], &status["token"]), (&"bob".into(), &2.into()));
        lease.write(&bob, "main", 2, "first").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn step_whose_line_was_lost_in_a_crash_is_found() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.ask().assert_refused("FENCE-LEASE-HELD");
    // The question settled it, and neither line was synced: only the first has survived.
    let log = world.fence_file("audit.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let cut = lines.find(r#""event":"lease.granted""#).unwrap();
    let cut = lines[..cut].rfind('\n').unwrap() + 1;
    assert!(lines[..cut].trim_end().lines().last().unwrap().contains("push.settled"));
    fs::write(&log, &lines[..cut]).unwrap();
    crate::state::reboot(&world);
    world.push_token("main", "1").assert_refused("FENCE-LEASE-REQUIRED");
    let found = &world.events("lease.found")[0];
    assert_eq!((&found["lease"]["id"], &found["id"]), (&serde_json::Value::Null, &(*anna.id).into()));
    lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
    assert_eq!(lease.mark(), 1);
    world.assert_log_is_whole();
}

#[test]
fn rotation_keeps_leases() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.ok(world.hook_program().arg("rotate").arg(world.server()));
    lease.take(&Agent::new("bob"), 2, "expired").assert_refused("FENCE-LEASE-HELD");
    lease.write(&anna, "main", 1, "first").assert_landed();
    assert!(world.events("lease.found").is_empty());
    world.assert_log_is_whole();
}

/// An operator has removed the ref: clients see no lease, but the counter continues.
#[test]
fn lease_whose_ref_is_gone_is_not_forgotten() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::brief("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    for token in 1..4 {
        lease.write(&anna, "main", token, "first").assert_landed();
    }
    lease.advance(&anna, 5, "first").assert_landed();
    for part in ["lease", "beat"] {
        world.ok(world.git("server.git").args(["update-ref", "-d", &lease.name(part)]));
    }
    let mut told = None;
    wait_until("it has expired", || {
        let tried = lease.take(&bob, 1, "first");
        let is_held = tried.code().as_deref() == Some("FENCE-LEASE-HELD");
        told = Some(tried);
        !is_held
    });
    let told = told.unwrap();
    told.assert_refused("FENCE-STALE");
    assert_eq!(json(&told)["mark"], 5, "5 was granted, although it never wrote");
    lease.take(&bob, 6, "first").assert_landed();
    lease.write(&bob, "main", 6, "first").assert_landed();
    assert_eq!(world.events("lease.found").len(), 1);
    // Reset to its old value: the old holder's tokens stay stale.
    let old = commit(&world, &anna.lease(5, "held", "first"), &[]);
    world.push(&[&format!("{old}:refs/outside/object")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["update-ref", &lease.name("lease"), &old]));
    lease.write(&anna, "main", 5, "first").assert_refused("FENCE-STALE");
    let carl = Agent::new("carl");
    let mut told = None;
    wait_until("it has expired", || {
        let tried = lease.take(&carl, 6, "expired");
        let is_held = tried.code().as_deref() == Some("FENCE-LEASE-HELD");
        told = Some(tried);
        !is_held
    });
    assert_eq!(json(&told.unwrap())["mark"], 7, "7 was bob's");
    lease.take(&carl, 8, "expired").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn ref_that_is_not_a_lease_closes_its_fence_and_names_the_fix() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    lease.release(&anna, 1, "first").assert_landed();
    let blob = world.ok(world.git("server.git").args(["hash-object", "-w", "--stdin"]));
    let update_ref = |to: &str| world.ok(world.git("server.git").args(["update-ref", &lease.name("lease"), to]));
    for garbage in ["blob", "symbolic"] {
        match garbage {
            "blob" => _ = update_ref(&blob),
            _ => _ = world.ok(world.git("server.git").args(["symbolic-ref", &lease.name("lease"), "refs/heads/main"])),
        }
        let refused = world.push_token("main", "5");
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("git update-ref --no-deref -d refs/fence/repo/lease"), "{}", refused.text);
        lease.ask().assert_refused("FENCE-LEASE-INVALID");
        let doctor = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let finding = &report["findings"][0];
        assert_eq!((&finding["name"], &finding["severity"]), (&"lease-unreadable".into(), &"error".into()), "{report}");
        let mut sh = Command::new("sh");
        world.hermetic(&mut sh);
        world.ok(sh.args(["-c", finding["mend"].as_str().unwrap()]));
        let told = lease.take(&anna.again(), 1, "first");
        told.assert_refused("FENCE-STALE");
        let next = json(&told)["mark"].as_u64().unwrap() + 1;
        let anna = anna.again();
        lease.take(&anna, next, "first").assert_landed();
        lease.release(&anna, next, "first").assert_landed();
    }
    world.assert_log_is_whole();
}

#[test]
fn leases_from_before_the_gate_are_found_and_continue() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let lease = LeaseOf::repo(&world);
        world.configure("receive.advertisePushOptions", "true");
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        lease.take(&anna, 7, "expired").assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!((lease.mark(), &lease.status()["owner"]), (6, &"anna".into()));
        let doctor = world.ok(world.hook_program().arg("doctor").arg(world.server()));
        assert!(doctor.starts_with("ok") && doctor.contains("note: lease-moved"), "{doctor}");
        // Her next push is a heartbeat.
        lease.beat(&anna).assert_landed();
        lease.take(&bob, 8, "expired").assert_refused("FENCE-LEASE-HELD");
        world.push_token("main", "7").assert_refused("FENCE-LEASE-REQUIRED");
        lease.write(&anna, "main", 7, "expired").assert_landed();
        assert_eq!(world.events("lease.found").len(), 1);
        world.assert_log_is_whole();
    }
}

/// The grant is in the log, but git is never told that it was accepted.
#[test]
fn hook_killed_after_granting_has_granted_nothing() {
    if lacks(&[Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let installed = fs::read(world.hook("pre-receive")).unwrap();
    under_strace(&world, "exit_group -e inject=exit_group:signal=KILL");
    assert!(!lease.take(&Agent::new("anna"), 1, "first").ok);
    fs::write(world.hook("pre-receive"), installed).unwrap();
    assert_eq!(world.events("push.accepted")[0]["leases"][0]["change"], "grant");
    lease.take(&Agent::new("bob"), 1, "first").assert_landed();
    assert_eq!(lease.status()["owner"], "bob");
    assert_eq!(
        (world.events("lease.granted").len(), world.events("lease.found").len()),
        (1, 0),
        "granted to bob, and to nobody else"
    );
    world.assert_log_is_whole();
}

/// Someone has written the last possible token, or one shortly before it, into a lease. After that no further
/// lease could be granted.
#[test]
fn lease_without_a_next_token_is_not_adopted_and_the_fix_is_named() {
    for token in [i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs() - 1] {
        let world = World::bare(&any_git(), &[]);
        let lease = LeaseOf::repo(&world);
        world.configure("receive.advertisePushOptions", "true");
        let (mallory, anna) = (Agent::new("mallory"), Agent::new("anna"));
        lease.take(&mallory, token, "first").assert_landed();
        let ran = world.hook_program().arg("install").arg(world.server()).output().unwrap();
        let said = crate::support::text(&ran.stderr);
        let way_out = "update-ref --no-deref -d refs/fence/repo/lease";
        assert!(!ran.status.success() && said.contains(&token.to_string()) && said.contains(way_out), "{said}");
        assert!(!world.fence_file("").exists(), "nothing was installed");
        let remove = || world.ok(world.git("server.git").args(way_out.split(' ')));
        remove();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        lease.take(&anna, 1, "first").assert_landed();

        // The same, written without the gate: the fence is closed, and the log does not record it.
        let message = mallory.lease(token, "held", "expired");
        let object = commit(&world, &message, &[]);
        world.push(&[&format!("{object}:refs/outside/object")], &[]).assert_landed();
        world.ok(world.git("server.git").args(["update-ref", "refs/fence/repo/lease", &object]));
        let pushed = world.push_token("main", "5");
        pushed.assert_refused("FENCE-LEASE-INVALID");
        assert!(pushed.text.contains(way_out) && pushed.text.contains(&token.to_string()), "{}", pushed.text);
        let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
        assert!(crate::support::text(&doctor.stdout).contains(way_out));
        remove();
        assert_eq!(lease.mark(), 0);
        let bob = Agent::new("bob");
        world.ok(world.hook_program().args(["revoke", "--reason", "its ref is gone"]).arg(world.server()));
        world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/repo/lease"));
        lease.take(&bob, 3, "released").assert_landed();
        world.assert_log_is_whole();
    }
}
