//! Leases in observe mode, beside other fences and exempt pushers; and how they are shown.

use super::revoke;
use crate::support::{
    Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    text, wait_until,
};
use std::fs;

#[test]
fn leases_are_judged_in_observe_mode() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.mode", "observe");
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        lease.take(&anna, 1, "first").assert_landed();
        // Tokens are only observed.
        let observed = world.push_token("main", "9");
        observed.assert_landed();
        assert!(observed.text.contains("FENCE-LEASE-REQUIRED"), "{}", observed.text);
        world.push(&["HEAD:refs/heads/other"], &[]).assert_landed();
        // Leases are enforced, no matter what is said about the token beside them.
        lease.take(&bob, 2, "expired").assert_refused("FENCE-LEASE-HELD");
        lease.ask().assert_refused("FENCE-LEASE-HELD");
        lease.beat(&bob).assert_refused("FENCE-LEASE-LOST");
        lease.push(&[format!(":{}", lease.name("lease"))], &[]).assert_refused("FENCE-LEASE-INVALID");
        world.push(&["HEAD:refs/fence/repo/x"], &[]).assert_refused("FENCE-LEASE-INVALID");
        let back = [format!("{}:refs/heads/main", world.commit("x")), lease.advanced(&anna, 3, "first")];
        lease.push(&back, &["fence-token=1".to_owned()]).assert_refused("FENCE-LEASE-INVALID");
        let step = lease.record("lease", &anna.lease(2, "held", "first"), &lease.parents_of(&lease.at().unwrap()));
        let unproven = [format!("{}:refs/heads/main", world.commit("x")), step];
        lease.push(&unproven, &["fence-token=1".to_owned()]).assert_refused("FENCE-LEASE-REQUIRED");
        // The mark is 9 by now, which observe mode ignores; the lease continues as usual.
        lease.write(&anna, "main", 1, "first").assert_landed();
        assert_eq!(lease.status()["token"], 2);
        // With a broken fence, leases cannot be judged, so nothing is admitted.
        let log = world.fence_file("audit.jsonl");
        let whole = fs::read(&log).unwrap();
        fs::write(&log, &whole[..whole.len() / 2]).unwrap();
        world.push_token("main", "10").assert_landed();
        lease.beat(&anna).assert_refused("FENCE-BROKEN");
        lease.advance(&anna, 3, "first").assert_refused("FENCE-BROKEN");
        fs::write(&log, &whole).unwrap();
        lease.advance(&anna, 3, "first").assert_landed();
        world.assert_log_is_whole();
    }
}

/// In observe mode a stalled push blocks nobody, but a lease push has to wait its turn to be judged.
#[test]
fn lease_push_waits_its_turn_in_observe_mode() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    world.configure("fence.wait", "200ms");
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let slow = Running::start(&mut world.push_command(&["HEAD:refs/heads/slow"], &[]));
    world.pid_in("stalled");
    lease.take(&anna, 1, "first").assert_refused("FENCE-BUSY");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    world.go();
    slow.wait().assert_landed();
    lease.take(&anna, 1, "first").assert_landed();
}

#[test]
fn each_fence_has_its_own_lease() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.configure("fence.deploy.accept", "at-or-above");
    let (repo, deploy) = (LeaseOf::repo(&world), LeaseOf { world: &world, fence: "deploy" });
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    repo.take(&anna, 1, "first").assert_landed();
    world.push_token("deploy/x", "1").assert_refused("FENCE-MISSING");
    let raise = ["raise", "--fence", "deploy", "--to", "7", "--reason", "x"];
    world.ok(world.hook_program().args(raise).arg(world.server()));
    let taken = deploy.take(&bob, 8, "first");
    taken.assert_landed();
    assert_eq!(taken.remote, r#"fence: {"verdict":"granted","fence":"deploy","token":8,"mark":8}"#);
    assert_eq!((repo.mark(), deploy.mark()), (0, 8));
    // The proof for one lease is not valid for the other.
    deploy.beat(&anna).assert_refused("FENCE-LEASE-LOST");
    let wrong = deploy.record("beat", &repo.proven(&bob, "beat", &bob.beat("")), &[]);
    deploy.push(&[wrong], &[]).assert_refused("FENCE-LEASE-INVALID");
    // Both in one push: each needs its own proof, and the push is atomic.
    let work = world.commit("both");
    let refspecs = |advanced: u64| {
        [
            format!("{work}:refs/heads/main"),
            format!("{work}:refs/heads/deploy/y"),
            repo.advanced(&anna, 2, "first"),
            deploy.advanced(&bob, advanced, "first"),
        ]
    };
    let options = ["fence-token=1".to_owned(), "fence-token=deploy:8".to_owned()];
    repo.push(&refspecs(10), &options).assert_refused("FENCE-LEASE-INVALID");
    assert_eq!(world.server_ref("refs/heads/main"), None);
    repo.push(&refspecs(9), &options).assert_landed();
    assert_eq!((repo.mark(), deploy.mark()), (1, 9));
    // Two heartbeats in one push.
    repo.push(&[repo.beating(&anna, ""), deploy.beating(&bob, "")], &[]).assert_landed();
    let beats = [repo.beating(&anna, ""), deploy.record("beat", &bob.beat(""), &[])];
    repo.push(&beats, &[]).assert_refused("FENCE-LEASE-REQUIRED");
    assert_eq!(world.events("lease.renewed").len(), 2);
    world.assert_log_is_whole();
}

#[test]
fn exempt_pushers_push_beside_a_lease() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.configure("fence.exempt", "tester");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    world.push_token("main", "1").assert_refused("FENCE-LEASE-REQUIRED");
    lease.write(&anna, "main", 1, "first").assert_landed();
}

/// In stored files, output and syslog. Used proofs are in the refs only.
#[test]
fn no_secret_or_unused_proof_is_stored_or_shown() {
    let world = World::new(&any_git());
    let socket = world.path("syslog");
    let listener = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    world.configure("fence.syslog", socket.to_str().unwrap());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    let mut said = String::new();
    let mut proofs = vec![anna.secret.clone(), bob.secret.clone()];
    let mut hear = |pushed: Pushed| {
        said += &pushed.text;
        for agent in [&anna, &bob] {
            for part in ["lease", "beat"] {
                proofs.push(lease.proven(agent, part, "")["Fence-Proof: ".len()..].trim_end().to_owned());
            }
        }
    };
    hear(lease.take(&anna, 1, "first"));
    hear(lease.beat(&anna));
    hear(lease.write(&anna, "main", 1, "first"));
    let theirs = Agent { secret: anna.secret.clone(), ..bob.clone() };
    hear(lease.beat(&theirs));
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &[format!("fence-holder={}x", anna.secret)]));
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &[format!("fence-holder=nowhere:{}", anna.secret)]));
    let both = [anna.option_of_before("repo"), bob.option_of_before("repo")];
    hear(lease.push(&[lease.record("beat", &anna.beat(""), &[])], &both));
    let cut = lease.beating(&anna, "").split(':').next().unwrap().to_owned();
    let message = world.ok(world.git("work").args(["log", "-1", "--format=%B", &cut]));
    hear(lease.push(&[lease.record("beat", message.trim_end().strip_suffix(|_| true).unwrap(), &[])], &[]));
    hear(lease.advance(&anna, 9, "first"));
    hear(lease.release(&anna, 2, "first"));
    said += &text(&world.hook_program().args(["status", "--json"]).arg(world.server()).output().unwrap().stdout);
    let mut buffer = vec![0; 65536];
    let mut heard = 0;
    while let Ok(n) = listener.recv(&mut buffer) {
        said += &text(&buffer[..n]);
        heard += 1;
    }
    assert!(heard > 8 && said.contains("FENCE-MALFORMED") && said.contains("lease.renewed"), "{said}");
    for (_, _, content) in crate::support::tree(&world.server().join("fence")) {
        said += &text(&content);
    }
    assert!(said.contains("\"holder\":\""), "{said}");
    for proof in &proofs {
        assert!(!said.contains(&proof[..12]), "{said}");
    }
    world.assert_log_is_whole();
}

#[test]
fn leases_are_shown_and_counted() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::brief("b'ob"));
    let show = || world.ok(world.hook_program().arg("status").arg(world.server()));
    assert!(!show().contains("lease"));
    lease.take(&anna, 1, "first").assert_landed();
    Pushed::from(&lease.beat_command(&anna, "Fence-Progress: page 3 of 9\n").output().unwrap()).assert_landed();
    assert!(show().contains("  lease      held by 'anna', token 1, since "), "{}", show());
    assert!(show().contains("progress 'page 3 of 9'"), "{}", show());
    let status = lease.status();
    assert_eq!((&status["state"], &status["ttl_s"], &status["reason"]), (&"held".into(), &600.into(), &"first".into()));
    assert!(status["expires_in_ms"].as_u64().unwrap() > 0 && status["since"].as_str().unwrap().ends_with('Z'));
    lease.ask().assert_refused("FENCE-LEASE-HELD");
    lease.release(&anna, 1, "first").assert_landed();
    assert!(show().contains("  lease      free (last: 'anna', token 1, released "), "{}", show());
    lease.take(&bob, 2, "released").assert_landed();
    wait_until("it has expired", || lease.status()["state"] == "expired");
    assert!(show().contains("  lease      free (last: 'b\\'ob', token 2, expired "), "{}", show());
    lease.take(&anna.again(), 3, "expired").assert_landed();
    assert!(revoke(&world, &["--reason", "enough"]).status.success());
    assert!(show().contains(": 'enough')"), "{}", show());
    let stats = |args: &[&str]| world.ok(world.hook_program().arg("stats").args(args).arg(world.server()));
    let figures: serde_json::Value = serde_json::from_str(&stats(&["--json"])).unwrap();
    let leases = &figures["leases"];
    let expected = serde_json::json!({ "first": 1, "released": 1, "expired": 1, "revoked": 0 });
    assert_eq!((&leases["granted"], &leases["granted_by_reason"]), (&3.into(), &expected));
    for (name, count) in [("found_held", 1), ("renewed", 1), ("released", 1), ("revoked", 1), ("advanced", 0)] {
        assert_eq!(leases[name], count, "{name}");
    }
    assert_eq!(leases["holds_us"]["count"], 3);
    assert_eq!(
        (&leases["wants_longer_ttl"], &leases["beat_gap_p95_percent"]),
        (&false.into(), &serde_json::Value::Null)
    );
    let prose = stats(&[]);
    for line in [
        "       3  leases granted",
        "       1    after the previous one was released",
        "       4  leases asked for",
        "       1    FENCE-LEASE-HELD",
        "time held, of those that ended",
    ] {
        assert!(prose.lines().any(|shown| shown == line), "{line:?} in\n{prose}");
    }
    let page = stats(&["--prometheus"]);
    assert!(page.contains("git_fence_lease_grants_total{") && page.contains(r#"reason="expired"} 1"#), "{page}");
    assert!(page.contains("git_fence_lease_hold_seconds_count{"), "{page}");
    let audit = world.ok(world.hook_program().arg("audit").arg(world.server()));
    assert!(audit.contains("granted") && audit.contains("(revoked: 'enough')"), "{audit}");
    world.assert_log_is_whole();
}
