//! At a gate, a push that is on its way is in the slot, and whoever moves the mark waits for it: what becomes of those who wait
//! for too long, and of the push.

use super::{
    Place,
    on_its_way::{killed_push, stalled_push},
    only_where, record, witness,
};
use crate::support::{
    World,
    agents::{Agent, code_of},
    runs::{Background, taking_over},
    text, wait_until,
};

/// A server that stops the process that moves 'slow'.
fn stops_in_slow(world: &World) {
    let stop = "case $1 in refs/heads/slow) echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID;; esac";
    world.write_hook("update", stop);
}

/// After `fence.evictAfter`, and nothing of it lands.
#[test]
fn stalled_push_is_evicted_by_the_takeover_and_by_the_revocation() {
    only_where(Place::has_gate, |place| {
        for is_revoked in [false, true] {
            let world = place.world();
            world.configure("fence.evictAfter", "1s");
            let [zombie, next] = place.agents(&world, ["zombie", "next"]);
            zombie.ok(&["acquire", "--ttl", if is_revoked { "90s" } else { "1s" }]);
            stops_in_slow(&world);
            let push = Background::start(&mut zombie.fence(&["push", "origin", "HEAD:refs/heads/slow"]));
            world.pid_in("stalled");
            if is_revoked {
                let (code, said) = next.code(&["revoke", "--owner", "next", "--reason", "it hangs"]);
                assert_eq!((code, said.contains("may still land")), (0, false), "{said}");
            }
            let ran = taking_over(&next, &[], "git push -q origin HEAD:refs/heads/main").output().unwrap();
            assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
            let (code, said) = code_of(&push.end());
            assert_eq!((code, said.contains("'next' ")), (75, true), "{said}");
            assert_eq!(world.server_ref("refs/heads/slow"), None, "{said}");
            assert_eq!(world.events("push.evicted").len(), 1);
            assert_eq!(witness::tokens(&world), [if is_revoked { 3 } else { 2 }]);
            witness::assert_fenced(&world);
            world.assert_log_is_whole();
        }
    });
}

/// A world whose gate waits for one second.
fn impatient(place: Place) -> World {
    let world = place.world();
    world.configure("fence.wait", "1s");
    world
}

/// The outcome in JSON, and the exit code.
fn report(agent: &Agent<'_>, args: &[&str]) -> (i32, serde_json::Value) {
    let ran = agent.fence(args).arg("--json").output().unwrap();
    (ran.status.code().unwrap_or(-1), serde_json::from_slice(&ran.stdout).unwrap())
}

/// Nobody works under the lease that was granted: it is given back. Nor is the push told anything but what became of it.
#[test]
fn takeover_that_the_gate_lets_wait_for_too_long_is_busy() {
    only_where(Place::has_gate, |place| {
        let world = impatient(place);
        let [old, next] = place.agents(&world, ["old", "next"]);
        old.ok(&["acquire", "--ttl", "1s"]);
        let (push, slow) = stalled_push(place, &world, &old);
        let mut told = Default::default();
        wait_until("it has expired", || {
            told = report(&next, &["acquire", "--skew", "0s"]);
            told.0 != 11
        });
        let (code, report) = told;
        assert_eq!((code, &report["outcome"], &report["retryable"]), (69, &"busy".into(), &true.into()), "{report}");
        assert!(report["message"].as_str().unwrap().contains("FENCE-BUSY"), "{report}");
        let ran = next.run(&[], "touch ../ran").output().unwrap();
        assert_eq!((ran.status.code(), &next.status()["outcome"]), (Some(69), &"busy".into()), "{}", text(&ran.stderr));
        assert!(!world.path("ran").exists());
        let entry = record(&world, &place.engine().url);
        assert_eq!(entry["lease"]["lease"]["state"], "released", "{entry}");
        assert!(entry["barrier"].is_u64(), "it is still due: {entry}");
        assert!(slow.ends());
        let (code, said) = code_of(&push.end());
        assert_eq!((code, said.as_str()), (0, "landed with token 1: refs/heads/slow\n"));
        assert_eq!(old.code(&["push", "origin", "HEAD:late"]).0, 75);
        next.ok(&["acquire"]);
        next.ok(&["push", "origin", "HEAD:main"]);
        witness::assert_fenced(&world);
    });
}

/// What is granted to those who wait runs out while they do, and each takes over from the other.
#[test]
fn successors_whose_leases_run_out_at_the_gate_all_get_a_turn() {
    only_where(Place::has_gate, |place| {
        let world = place.world();
        let [zombie, b, c] = place.agents(&world, ["zombie", "b", "c"]);
        zombie.ok(&["acquire", "--ttl", "1s"]);
        let (push, slow) = stalled_push(place, &world, &zombie);
        let (inside, both) = (world.path("in"), world.path("both"));
        let script = format!(
            "mkdir {0} || touch {1}; git push -q origin +HEAD:refs/heads/$GIT_FENCE_OWNER; code=$?; rmdir {0}; exit $code",
            inside.display(),
            both.display()
        );
        let waiting = [&b, &c].map(|agent| Background::start(&mut taking_over(agent, &["--ttl", "6s"], &script)));
        wait_until("both are at the gate", || waiting.iter().all(Background::is_at_the_gate));
        assert!(slow.ends());
        assert_eq!(push.end().status.code(), Some(0));
        for run in waiting {
            let ended = run.end();
            assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        }
        assert!(!both.exists(), "two ran at once");
        assert_eq!(witness::tokens(&world).len(), 3);
        witness::assert_fenced(&world);
        world.assert_log_is_whole();
    });
}

#[test]
fn revocation_that_the_gate_lets_wait_for_too_long_says_that_a_push_may_still_land() {
    only_where(Place::has_gate, |place| {
        let world = impatient(place);
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        let (push, slow) = stalled_push(place, &world, &a);
        let (code, said) = b.code(&["revoke", "--reason", "it hangs"]);
        assert_eq!(code, 0, "{said}");
        let may_land = "revoked in the store; a push in flight may still land: fence 'repo' is busy: FENCE-BUSY";
        assert!(said.contains(may_land), "{said}");
        assert!(slow.ends(), "and it does");
        assert_eq!(push.end().status.code(), Some(0));
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        assert_eq!(a.code(&["push", "origin", "HEAD:late"]).0, 75);
        witness::assert_fenced(&world);
    });
}

/// It cannot be told yet what became of the push before, and that is what the holder is told.
#[test]
fn holder_whose_earlier_push_is_still_in_the_slot_is_told_so() {
    only_where(Place::has_gate, |place| {
        let world = impatient(place);
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["acquire"]);
        let slow = killed_push(place, &world, &a);
        for args in [&["push", "origin", "HEAD:refs/heads/next"][..], &["advance"]] {
            let (code, report) = report(&a, args);
            assert_eq!((code, &report["outcome"]), (69, &"busy".into()), "{report}");
            assert!(report["message"].as_str().unwrap().contains("FENCE-BUSY"), "{report}");
        }
        assert!(slow.ends());
        assert_eq!(a.ok(&["push", "origin", "HEAD:refs/heads/next"]), "landed with token 2: refs/heads/next");
        witness::assert_fenced(&world);
    });
}
