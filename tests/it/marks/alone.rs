//! Marks that move without other refs: a touch spends nothing, and not everybody may raise one.

use super::{Guarded, MARK, marked, push, push_command, token, work, written};
use crate::support::{
    Pushed, World, any_git,
    engine::{Holder, begins, fresh, mark_now},
    gits,
};
use git_fence_core::{LeaseState, Mark, MarkRecord, MarkState, Ownership, Secret};

fn own(at: u64) -> MarkRecord {
    MarkRecord::begins(Mark::at(at).unwrap(), None, "anna", fresh())
}

#[test]
fn tokens_of_ones_own_go_with_the_mark() {
    for git in gits() {
        let world = World::new(&git);
        push(&world, &[work(&world), marked(&world, &own(7), None)], Some(7)).assert_landed();
        push(&world, &[work(&world), marked(&world, &own(7), None)], Some(7)).assert_refused("FENCE-STALE");
        push(&world, &[work(&world), marked(&world, &own(9), None)], Some(8)).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[work(&world), marked(&world, &own(8), None)], None).assert_refused("FENCE-MISSING");
        push(&world, &[work(&world), marked(&world, &own(8), None)], Some(8)).assert_landed();
        let status = world.status();
        assert_eq!((&status["fences"][0]["kind"], world.mark()), (&"own".into(), 8));
        // Nor is it deleted, or replaced by one with another history.
        push(&world, &[format!(":{MARK}")], None).assert_refused("FENCE-LEASE-INVALID");
        let orphan =
            crate::support::lease::commit(&world, &own(9).message(&git_fence_core::FenceName::repo(), None), &[]);
        let orphan = format!("+{orphan}:{MARK}");
        push(&world, &[work(&world), orphan], Some(9)).assert_refused("FENCE-LEASE-INVALID");
        let message = crate::support::lease::commit(&world, "no record", &[]);
        push(&world, &[format!("+{message}:{MARK}")], None).assert_refused("FENCE-LEASE-INVALID");
        world.assert_log_is_whole();
    }
}

#[test]
fn touch_spends_nothing_and_changes_nothing_else() {
    for git in gits() {
        let world = World::new(&git);
        push(&world, &[work(&world), marked(&world, &own(7), None)], Some(7)).assert_landed();
        let touched = mark_now(&world).unwrap().touched(fresh());
        push(&world, &[marked(&world, &touched, None)], None).assert_landed();
        assert_eq!(world.mark(), 7);
        let before = world.server_ref(MARK);
        let by = Some(Ownership { lease: git_fence_core::LeaseId::of([1; 16]), first: token(99) });
        let place = git_fence_core::StorePlace::new("etcd://host", "app");
        for other in [
            MarkRecord { token: Mark::at(8).unwrap(), ..touched.clone() },
            MarkRecord { by, ..touched.clone() },
            MarkRecord { place, ..touched.clone() },
            MarkRecord { state: MarkState::Moved, ..touched.clone() },
        ] {
            push(&world, &[marked(&world, &other, None)], None).assert_refused("FENCE-LEASE-INVALID");
        }
        assert_eq!(world.server_ref(MARK), before);
        push(&world, &[work(&world), marked(&world, &own(8), None)], Some(8)).assert_landed();
        world.assert_log_is_whole();
    }
}

/// Who may write nothing but `refs/fence/*` has three ways to try: alone, from nothing, and together with a ref that an
/// update hook declines.
#[test]
fn pusher_who_may_write_only_marks_locks_nobody_out() {
    for git in gits() {
        let world = World::new(&git);
        push(&world, &[marked(&world, &own(1 << 40), None)], None).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[marked(&world, &own(0), None)], None).assert_landed();
        push(&world, &[marked(&world, &own(1 << 40), None)], None).assert_refused("FENCE-LEASE-INVALID");
        world.write_hook("update", "case $1 in refs/heads/*) [ -e open ];; esac");
        let option = format!("fence-token={}", 1u64 << 40);
        let refspecs = [work(&world), marked(&world, &own(1 << 40), None)];
        let partly = world.push(&[&refspecs[0], &refspecs[1]], &[&option]);
        assert!(!partly.ok, "{}", partly.text);
        assert_eq!(mark_now(&world).unwrap().token.get(), 1 << 40, "git moved the mark, and declined the rest");
        assert_eq!(world.mark(), 0, "nothing was written");
        std::fs::write(world.server().join("open"), "").unwrap();
        push(&world, &[work(&world), marked(&world, &own(7), None)], Some(7)).assert_landed();
        assert_eq!(world.mark(), 7);
        // Installing again takes nothing over that the log has already.
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!(world.mark(), 7);
        world.assert_log_is_whole();
    }
}

#[test]
fn pusher_in_allow_revoke_raises_the_mark() {
    let world = World::new(&any_git());
    push(&world, &[work(&world), marked(&world, &own(7), None)], Some(7)).assert_landed();
    world.configure("fence.allowRevoke", "tester");
    let raised = mark_now(&world).unwrap().raised(Mark::at(20).unwrap(), None, "boss", fresh());
    push(&world, &[marked(&world, &raised, None)], None).assert_landed();
    assert_eq!(world.mark(), 20);
    push(&world, &[work(&world), marked(&world, &own(20), None)], Some(20)).assert_refused("FENCE-STALE");
    push(&world, &[work(&world), marked(&world, &own(21), None)], Some(21)).assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn barrier_needs_the_proof_of_the_record_and_stops_who_was_overtaken() {
    let Some(mut at) = Guarded::new() else { return };
    let (anna, bob) = (Holder::new("anna", 5), Holder::new("bob", 9));
    at.hold(&anna, 5);
    at.write(&anna, 5).assert_landed();
    at.hold(&anna, 6);
    let late = marked(&at.world, &written(&at.world, &anna, 6), Some(&anna.proof(&at.entry)));
    let mut late = push_command(&at.world, &[work(&at.world), late], Some(6));
    // Bob takes over, and puts the mark below his token.
    at.hold(&bob, 9);
    let barrier = |to: u64| mark_now(&at.world).unwrap().raised(token(to).into(), Some(bob.by()), "bob", fresh());
    let refused = |record: &MarkRecord, proof: Option<&Secret>, code: &str| {
        push(&at.world, &[marked(&at.world, record, proof)], None).assert_refused(code);
    };
    refused(&barrier(8), None, "FENCE-LEASE-REQUIRED");
    refused(&barrier(8), Some(&anna.proof(&at.entry)), "FENCE-LEASE-REQUIRED");
    refused(&barrier(10), Some(&bob.proof(&at.entry)), "FENCE-LEASE-LOST");
    let other = MarkRecord { by: Some(anna.by()), ..barrier(8) };
    refused(&other, Some(&bob.proof(&at.entry)), "FENCE-LEASE-LOST");
    assert_eq!(at.world.mark(), 5);
    push(&at.world, &[marked(&at.world, &barrier(8), Some(&bob.proof(&at.entry)))], None).assert_landed();
    assert_eq!(at.world.mark(), 8);
    let late = Pushed::from(&late.output().unwrap());
    assert!(!late.ok, "{}", late.text);
    at.write(&bob, 9).assert_landed();
    // A revocation puts the mark at its own token.
    let boss = Holder::new("boss", 10);
    at.put(boss.goes_to(&at.entry, 10, LeaseState::Released));
    let revoked = mark_now(&at.world).unwrap().raised(token(10).into(), None, "boss", fresh());
    push(&at.world, &[marked(&at.world, &revoked, Some(&boss.proof(&at.entry)))], None).assert_landed();
    assert_eq!(at.world.mark(), 10);
    at.world.assert_log_is_whole();
}

/// A lost answer is settled by a touch, also while the store is away.
#[test]
fn touch_needs_no_store() {
    let Some(mut at) = Guarded::new() else { return };
    let anna = Holder::new("anna", 5);
    at.hold(&anna, 5);
    at.write(&anna, 5).assert_landed();
    at.engine.stop();
    let touched = mark_now(&at.world).unwrap().touched(fresh());
    let pushed = push(&at.world, &[marked(&at.world, &touched, None)], None);
    at.engine.go_on();
    pushed.assert_landed();
    assert_eq!(at.world.mark(), 5);
    at.hold(&anna, 6);
    at.write(&anna, 6).assert_landed();
}

/// What clients did before there was a gate, and what somebody wrote on the server, counts from then on.
#[test]
fn mark_that_is_found_is_taken_over() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("receive.advertisePushOptions", "true");
        let anna = Holder::new("anna", 5);
        push(&world, &[marked(&world, &begins("etcd://host"), None)], None).assert_landed();
        push(&world, &[work(&world), marked(&world, &written(&world, &anna, 5), None)], None).assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!((world.mark(), world.events("mark.found").len()), (5, 1));
        push(&world, &[work(&world), marked(&world, &written(&world, &anna, 5), None)], Some(5))
            .assert_refused("FENCE-STALE");
        push(&world, &[work(&world), marked(&world, &written(&world, &anna, 6), None)], Some(6)).assert_landed();
        let old = Holder::new("bob", 4);
        let refused = push(&world, &[work(&world), marked(&world, &written(&world, &old, 7), None)], Some(7));
        refused.assert_refused("FENCE-LEASE-LOST");
        // Moved on the server, and then removed there.
        let (_, ahead) = marked(&world, &written(&world, &anna, 20), None)
            .split_once(':')
            .map(|(id, _)| ((), id.to_owned()))
            .unwrap();
        world.push(&[&format!("{ahead}:refs/outside/mark")], &[]).assert_landed();
        world.ok(world.git("server.git").args(["update-ref", MARK, &ahead]));
        push(&world, &[work(&world), marked(&world, &written(&world, &anna, 20), None)], Some(20))
            .assert_refused("FENCE-STALE");
        assert_eq!(world.mark(), 20);
        world.ok(world.git("server.git").args(["update-ref", "-d", MARK]));
        push(&world, &[marked(&world, &own(21), None)], None).assert_refused("FENCE-LEASE-INVALID");
        push(&world, &[marked(&world, &own(20), None)], None).assert_landed();
        assert_eq!(world.mark(), 20);
        // A symbolic ref in its place.
        world.ok(world.git("server.git").args(["update-ref", "-d", MARK]));
        world.ok(world.git("server.git").args(["symbolic-ref", MARK, "refs/heads/main"]));
        let refused = world.push_token("main", "30");
        refused.assert_refused("FENCE-LEASE-INVALID");
        assert!(refused.text.contains("is a symbolic ref"), "{}", refused.text);
        world.assert_log_is_whole();
    }
}
