//! A gate that asks the store: only what the store's record shows may write.

use super::{Guarded, mark_now, marked, push, token, work, written};
use crate::support::{
    Pushed, Running,
    engine::{Holder, empty_entry, fresh},
    wait_until,
};
use git_fence_core::{LeaseState, MarkRecord, Ownership, Secret, StorePlace};
use std::time::{Duration, Instant};

#[test]
fn agent_that_was_told_the_mark_cannot_try_the_next_number() {
    let Some(mut at) = Guarded::new() else { return };
    let anna = Holder::new("anna", 42);
    at.hold(&anna, 42);
    at.write(&anna, 42).assert_landed();
    assert_eq!(at.world.mark(), 42);
    let main = at.world.server_ref("refs/heads/main");
    let shown = at.world.ok(at.world.git("server.git").args(["log", "-1", "--format=%B", super::MARK]));
    let copied = Secret::shown_in(format!("{shown}\n").as_bytes());
    assert!(copied.is_some());
    // The number alone, and with a mark by hand: without a proof, with the one that landed, and as nobody.
    at.world.push(&[&work(&at.world)], &["fence-token=43"]).assert_refused("FENCE-LEASE-REQUIRED");
    let record = written(&at.world, &anna, 43);
    for (record, proof, code) in [
        (record.clone(), None, "FENCE-LEASE-LOST"),
        (record.clone(), copied.as_ref(), "FENCE-LEASE-LOST"),
        (MarkRecord { by: None, ..record.clone() }, copied.as_ref(), "FENCE-LEASE-REQUIRED"),
        (MarkRecord { by: None, place: None, ..record }, None, "FENCE-LEASE-INVALID"),
    ] {
        push(&at.world, &[work(&at.world), marked(&at.world, &record, proof)], Some(43)).assert_refused(code);
    }
    // The holder has taken the next number, and somebody else tries it first.
    at.hold(&anna, 43);
    let record = written(&at.world, &anna, 43);
    for proof in [None, copied.as_ref()] {
        let mark = marked(&at.world, &record, proof);
        push(&at.world, &[work(&at.world), mark], Some(43)).assert_refused("FENCE-LEASE-REQUIRED");
    }
    assert_eq!((at.world.server_ref("refs/heads/main"), at.world.mark()), (main, 42), "nothing landed");
    at.write(&anna, 43).assert_landed();
    at.world.assert_log_is_whole();
}

#[test]
fn number_that_landed_cannot_be_used_again() {
    let Some(mut at) = Guarded::new() else { return };
    let anna = Holder::new("anna", 7);
    at.hold(&anna, 7);
    at.write(&anna, 7).assert_landed();
    at.write(&anna, 7).assert_refused("FENCE-STALE");
    at.hold(&anna, 8);
    at.write(&anna, 8).assert_landed();
    let status = at.world.status();
    let written = &status["fences"][0]["written"];
    assert_eq!(
        (&written["by"]["first"], &written["token"], &written["store"]),
        (&7.into(), &8.into(), &at.engine.shown().into())
    );
    at.world.assert_log_is_whole();
}

#[test]
fn store_that_does_not_answer_lets_nothing_land_and_a_retry_lands() {
    let Some(mut at) = Guarded::new() else { return };
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.wait", "1500ms"]));
    let anna = Holder::new("anna", 7);
    at.hold(&anna, 7);
    at.engine.stop();
    let began = Instant::now();
    let refused = at.write(&anna, 7);
    let took = began.elapsed();
    at.engine.go_on();
    refused.assert_refused("FENCE-STORE");
    assert!(refused.text.contains("\"retryable\":true"), "{}", refused.text);
    assert!(took < Duration::from_secs(20), "bounded by fence.wait: {took:?}");
    assert_eq!((at.world.server_ref("refs/heads/main"), at.world.mark()), (None, 0));
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.wait", "20s"]));
    at.write(&anna, 7).assert_landed();
    at.world.assert_log_is_whole();
}

#[test]
fn store_that_cannot_be_asked_is_named_and_nothing_lands() {
    let Some(mut at) = Guarded::new() else { return };
    let anna = Holder::new("anna", 7);
    at.hold(&anna, 7);
    for (url, why) in
        [("redis://:wrong@127.0.0.1:1", "127.0.0.1:1"), (&*at.engine.shown(), "redis"), ("tape://host", "tape")]
    {
        at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.store", url]));
        let refused = at.write(&anna, 7);
        refused.assert_refused("FENCE-STORE");
        assert!(refused.text.contains(why), "{}", refused.text);
        let doctor = at.world.hook_program().arg("doctor").arg(at.world.server()).output().unwrap();
        let said = crate::support::text(&doctor.stdout);
        assert!(said.contains("store-unasked"), "{said}");
    }
    assert_eq!(at.world.server_ref("refs/heads/main"), None);
}

#[test]
fn record_of_another_name_is_no_record() {
    let Some(mut at) = Guarded::new() else { return };
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.resource", "elsewhere"]));
    let anna = Holder::new("anna", 7);
    at.hold(&anna, 7);
    at.write(&anna, 7).assert_refused("FENCE-LEASE-INVALID");
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.resource", "git.example.com/app"]));
    // Nobody has ever taken a lease of this fence in that store.
    let Some(other) = crate::support::engine::Engine::start() else { return };
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.store", &other.url()]));
    let refused = at.write(&anna, 7);
    refused.assert_refused("FENCE-LEASE-INVALID");
    assert!(refused.text.contains("'git.example.com/app/repo'"), "{}", refused.text);
}

#[test]
fn holder_of_before_stays_out_when_the_store_has_lost_its_memory() {
    let Some(mut at) = Guarded::new() else { return };
    let (anna, bob) = (Holder::new("anna", 5), Holder::new("bob", 6));
    at.hold(&anna, 5);
    at.write(&anna, 5).assert_landed();
    let backup = at.entry.clone();
    at.hold(&bob, 6);
    at.write(&bob, 6).assert_landed();
    at.hold(&bob, 7);
    at.write(&bob, 7).assert_landed();
    // A copy of the store is promoted that has not seen bob. Its record is behind the mark.
    at.put(backup);
    at.hold(&anna, 6);
    at.write(&anna, 6).assert_refused("FENCE-STALE");
    let record =
        MarkRecord { token: token(8).into(), by: Some(anna.by()), nonce: fresh(), ..mark_now(&at.world).unwrap() };
    let behind = push(&at.world, &[work(&at.world), marked(&at.world, &record, Some(&anna.proof(&at.entry)))], Some(8));
    behind.assert_refused("FENCE-STALE");
    assert!(behind.text.contains("has lost records"), "{}", behind.text);
    let doctor = at.world.hook_program().arg("doctor").arg(at.world.server()).output().unwrap();
    let said = crate::support::text(&doctor.stdout);
    assert!(said.contains("store-behind") && said.contains(&at.engine.shown()), "{said}");
    // Anna goes on in the store, above the mark. She began before bob wrote.
    at.hold(&anna, 8);
    let refused = at.write(&anna, 8);
    refused.assert_refused("FENCE-LEASE-LOST");
    assert!(refused.text.contains("it began with token 5, before another wrote with 7"), "{}", refused.text);
    // Nor by a barrier of her own.
    let barrier = mark_now(&at.world).unwrap().raised(token(8).into(), Some(anna.by()), "anna", fresh());
    let barrier = marked(&at.world, &barrier, Some(&anna.proof(&at.entry)));
    push(&at.world, &[barrier], None).assert_refused("FENCE-LEASE-LOST");
    // A new ownership, above the mark.
    let carol = Holder::new("carol", 9);
    at.hold(&carol, 9);
    at.write(&carol, 9).assert_landed();
    at.world.assert_log_is_whole();
}

#[test]
fn of_two_holders_of_one_number_one_writes() {
    let Some(mut at) = Guarded::new() else { return };
    let (anna, bob) = (Holder::new("anna", 5), Holder::new("bob", 5));
    at.hold(&anna, 5);
    at.write(&anna, 5).assert_landed();
    at.put(bob.goes_to(&empty_entry(), 5, LeaseState::Held));
    at.write(&bob, 5).assert_refused("FENCE-STALE");
    at.hold(&bob, 6);
    at.write(&bob, 6).assert_refused("FENCE-LEASE-LOST");
}

#[test]
fn ownership_cannot_say_that_it_began_later() {
    let Some(mut at) = Guarded::new() else { return };
    let anna = Holder::new("anna", 5);
    at.hold(&anna, 5);
    at.hold(&anna, 6);
    let lie = Ownership { first: token(6), ..anna.by() };
    let record = MarkRecord { by: Some(lie), ..written(&at.world, &anna, 6) };
    let mark = marked(&at.world, &record, Some(&anna.proof(&at.entry)));
    push(&at.world, &[work(&at.world), mark], Some(6)).assert_refused("FENCE-LEASE-LOST");
    let elsewhere = StorePlace::new(&at.engine.shown(), "git.example.com/other");
    let record = MarkRecord { place: elsewhere, ..written(&at.world, &anna, 6) };
    let mark = marked(&at.world, &record, Some(&anna.proof(&at.entry)));
    push(&at.world, &[work(&at.world), mark], Some(6)).assert_refused("FENCE-LEASE-INVALID");
    at.write(&anna, 6).assert_landed();
}

/// The answer was good when the push came. While it waited for the slot, the lease was taken over.
#[test]
fn push_that_has_waited_asks_again() {
    let Some(mut at) = Guarded::new() else { return };
    let (anna, bob) = (Holder::new("anna", 5), Holder::new("bob", 6));
    at.world.configure("fence.exempt", "tester");
    at.world.stall_update_of("slow");
    let _go = at.world.go_in_the_end();
    let slow = at.world.commit("slow");
    let stalled = Running::start(&mut at.world.push_command(&[&format!("{slow}:refs/heads/slow")], &[]));
    at.world.pid_in("stalled");
    at.hold(&anna, 5);
    let waiting = Running::start(&mut at.write_command(&anna, 5));
    wait_until("it waits", || waiting.has_said("waiting up to"));
    std::thread::sleep(Duration::from_millis(2500));
    at.hold(&bob, 6);
    at.world.go();
    stalled.wait().assert_landed();
    let refused: Pushed = waiting.wait();
    refused.assert_refused("FENCE-LEASE-LOST");
    assert!(refused.text.contains("'bob' holds it, with token 6"), "{}", refused.text);
    at.write(&bob, 6).assert_landed();
    at.world.assert_log_is_whole();
}

/// The program must not keep the hook's output open, nor outlive it.
#[test]
fn helper_that_never_answers_is_ended_with_the_push() {
    let Some(mut at) = Guarded::new() else { return };
    at.world.ok(at.world.git("server.git").args(["config", "--replace-all", "fence.wait", "1s"]));
    let anna = Holder::new("anna", 5);
    at.hold(&anna, 5);
    // A hook with a program beside it that ignores the end of its input.
    let dir = at.world.path("programs");
    std::fs::create_dir(&dir).unwrap();
    crate::support::copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &dir.join("git-fence-hook"));
    let pids = at.world.path("pids");
    crate::support::write_script(
        &dir.join("git-fence-store"),
        &format!("echo $$ >>{}; exec sleep 600", pids.display()),
    );
    let gate = at.world.hook("pre-receive");
    let body = std::fs::read_to_string(&gate).unwrap();
    let replaced = body.replace(env!("CARGO_BIN_EXE_git-fence-hook"), dir.join("git-fence-hook").to_str().unwrap());
    assert_ne!(body, replaced);
    std::fs::write(&gate, replaced).unwrap();
    at.write(&anna, 5).assert_refused("FENCE-STORE");
    let pid: u32 = std::fs::read_to_string(&pids).unwrap().lines().next().unwrap().parse().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is still there");
    // Without the program at all.
    std::fs::remove_file(dir.join("git-fence-store")).unwrap();
    let refused = at.write(&anna, 5);
    refused.assert_refused("FENCE-STORE");
    assert!(refused.text.contains("the program 'git-fence-store' cannot be started"), "{}", refused.text);
}
