//! Which changes of a lease are granted and which are refused, as tables.

use super::*;
use crate::{
    Beat, Code, LeasePart, Reason, Secret,
    lease::record::tests::{beat, lease, of_before, proof, secret},
    log::flight::tests::oid,
    nonce_of,
};
use std::time::Duration;

fn at(seconds: u64) -> Stamp {
    Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: seconds * 1000 }
}

fn standing(id: u8, token: u64, state: LeaseState) -> Standing {
    Standing {
        commit: oid("a"),
        parent: oid("9"),
        lease: lease(id, token, state),
        since: at(0),
        heard: at(0),
        progress: None,
        beat: None,
    }
}

fn proposal(lease: Lease, parent: &str) -> LeaseAsk {
    let beat = Some(Beat { lease: lease.id.clone(), ..beat(0) });
    let parents = oid(parent).into_iter().collect();
    let commit = oid("b").unwrap();
    LeaseAsk { lease: Some(Proposal { commit, parents, lease, proof: None }), beat, ..LeaseAsk::default() }
}

fn code_of(current: Option<&Standing>, mark: u64, asked: &LeaseAsk, now: u64) -> &'static str {
    let rules = Rules::for_repo();
    match judge_lease(&rules, current, Mark::at(mark).unwrap(), asked, &at(now)) {
        Ok(LeaseChange { change: LeaseMove::Grant, .. }) => "grant",
        Ok(LeaseChange { change: LeaseMove::Advance, .. }) => "advance",
        Ok(LeaseChange { change: LeaseMove::Release, .. }) => "release",
        Ok(LeaseChange { change: LeaseMove::Revoke, .. }) => "revoke",
        Ok(LeaseChange { change: LeaseMove::Renew, .. }) => "renew",
        Ok(LeaseChange { change: LeaseMove::Halt, .. }) => "halt",
        Ok(LeaseChange { change: LeaseMove::Resume, .. }) => "resume",
        Err(reject) => reject.code().as_str(),
    }
}

fn taking(token: u64, reason: Reason, parent: &str) -> LeaseAsk {
    proposal(Lease { reason, ..lease(2, token, LeaseState::Held) }, parent)
}

#[test]
fn lease_is_granted_only_when_it_is_free() {
    let held = standing(1, 5, LeaseState::Held);
    let released = standing(1, 5, LeaseState::Released);
    for (current, mark, asked, now, expected) in [
        (None, 0, taking(1, Reason::First, "0"), 0, "grant"),
        (None, 41, taking(42, Reason::First, "0"), 0, "grant"),
        (None, 41, taking(41, Reason::First, "0"), 0, "FENCE-STALE"),
        (None, 0, taking(9, Reason::First, "0"), 0, "FENCE-LEASE-INVALID"),
        (None, 0, taking(1, Reason::Expired, "0"), 0, "FENCE-LEASE-INVALID"),
        (Some(&released), 4, taking(6, Reason::Released, "a"), 1, "grant"),
        (Some(&released), 4, taking(5, Reason::Released, "a"), 1, "FENCE-STALE"),
        (Some(&released), 4, taking(6, Reason::Expired, "a"), 1, "FENCE-LEASE-INVALID"),
        (Some(&released), 4, taking(6, Reason::Released, "9"), 1, "FENCE-LEASE-INVALID"),
        (Some(&held), 4, taking(6, Reason::Expired, "a"), 89, "FENCE-LEASE-HELD"),
        (Some(&held), 4, taking(6, Reason::Expired, "a"), 90, "grant"),
        (Some(&held), 4, taking(6, Reason::Released, "a"), 90, "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(code_of(current, mark, &asked, now), expected, "{asked:?} at {now}");
    }
    let mut alone = taking(6, Reason::Released, "a");
    alone.beat = None;
    assert_eq!(code_of(Some(&released), 4, &alone, 1), "FENCE-LEASE-INVALID");
    let mut long = taking(6, Reason::Released, "a");
    long.lease.as_mut().unwrap().lease.ttl = crate::Ttl::MAX;
    assert_eq!(code_of(Some(&released), 4, &long, 1), "FENCE-LEASE-INVALID");
}

/// The ref was removed on the server, so clients see no lease and start at 1.
#[test]
fn counter_continues_when_the_lease_ref_is_gone() {
    let gone = |state| Standing { commit: None, ..standing(1, 5, state) };
    let (held, released) = (gone(LeaseState::Held), gone(LeaseState::Released));
    for (current, mark, asked, now, expected) in [
        (&released, 4, taking(1, Reason::First, "0"), 1, "FENCE-STALE"),
        (&released, 4, taking(5, Reason::First, "0"), 1, "FENCE-STALE"),
        (&released, 4, taking(6, Reason::First, "0"), 1, "grant"),
        (&released, 9, taking(6, Reason::First, "0"), 1, "FENCE-STALE"),
        (&released, 9, taking(10, Reason::First, "0"), 1, "grant"),
        (&released, 4, taking(6, Reason::Released, "a"), 1, "FENCE-LEASE-INVALID"),
        (&held, 4, taking(6, Reason::First, "0"), 89, "FENCE-LEASE-HELD"),
        (&held, 4, taking(6, Reason::First, "0"), 90, "grant"),
    ] {
        assert_eq!(code_of(Some(current), mark, &asked, now), expected, "{asked:?} at {now}");
    }
    // If the ref exists, the same record would cut off its history.
    let there = standing(1, 5, LeaseState::Released);
    assert_eq!(code_of(Some(&there), 4, &taking(6, Reason::First, "0"), 1), "FENCE-LEASE-INVALID");
    let told =
        judge_lease(&Rules::for_repo(), Some(&released), Mark::at(4).unwrap(), &taking(1, Reason::First, "0"), &at(1));
    assert!(matches!(told, Err(Reject::Stale { mark, .. }) if mark.get() == 5), "{told:?}");
}

#[test]
fn only_the_holder_advances_or_releases_and_changes_nothing_else() {
    let held = standing(1, 5, LeaseState::Held);
    let with = |lease: Lease, proof| {
        let mut asked = proposal(lease, "9");
        asked.lease.as_mut().unwrap().proof = proof;
        asked
    };
    let next = |token, state| with(lease(1, token, state), Some(proof(1, 5)));
    for (asked, expected) in [
        (next(6, LeaseState::Held), "advance"),
        (next(5, LeaseState::Held), "FENCE-LEASE-INVALID"),
        (next(7, LeaseState::Held), "FENCE-LEASE-INVALID"),
        (next(5, LeaseState::Released), "release"),
        (next(6, LeaseState::Released), "FENCE-LEASE-INVALID"),
        (with(lease(1, 6, LeaseState::Held), None), "FENCE-LEASE-REQUIRED"),
        (with(lease(1, 6, LeaseState::Held), Some(proof(2, 5))), "FENCE-LEASE-INVALID"),
        // The previous proof, which everybody can read by now, and the master secret itself.
        (with(lease(1, 6, LeaseState::Held), Some(proof(1, 4))), "FENCE-LEASE-INVALID"),
        (with(lease(1, 6, LeaseState::Held), Some(secret(1))), "FENCE-LEASE-INVALID"),
        // A push option does not count as a proof.
        (LeaseAsk { secret: Some(proof(1, 5)), ..with(lease(1, 6, LeaseState::Held), None) }, "FENCE-LEASE-REQUIRED"),
        // A proof can be used once: the next record must not ask for the same one.
        (
            with(Lease { holder: proof(1, 5).holder(), ..lease(1, 6, LeaseState::Held) }, Some(proof(1, 5))),
            "FENCE-LEASE-INVALID",
        ),
        (with(of_before(lease(1, 6, LeaseState::Held)), Some(proof(1, 5))), "FENCE-LEASE-INVALID"),
        (
            with(Lease { owner: "x".to_owned(), ..lease(1, 6, LeaseState::Held) }, Some(proof(1, 5))),
            "FENCE-LEASE-INVALID",
        ),
        // Late, but nobody else has taken the lease.
        (next(6, LeaseState::Held), "advance"),
    ] {
        assert_eq!(code_of(Some(&held), 4, &asked, 9_000), expected, "{asked:?}");
    }
    assert_eq!(
        code_of(Some(&standing(1, 5, LeaseState::Released)), 4, &next(6, LeaseState::Held), 1),
        "FENCE-LEASE-LOST"
    );
    // Another owner has taken it since.
    assert_eq!(code_of(Some(&standing(2, 6, LeaseState::Held)), 5, &next(6, LeaseState::Held), 1), "FENCE-LEASE-LOST");
}

/// The ref is at `beat(1)`, and the next beat carries the proof that it asks for.
fn alive(id: u8, shows: Option<Secret>) -> LeaseAsk {
    let nonce = nonce_of([id + 1; 16]);
    let holder = Some(secret(id).of_record(LeasePart::Beat, &nonce).holder());
    let next = Beat { nonce, holder, ..beat(id) };
    LeaseAsk { beat: Some(next), beat_proof: shows, beat_now: Some(beat(1)), ..LeaseAsk::default() }
}

#[test]
fn only_a_beat_of_the_current_holder_renews_the_lease() {
    let shows = |id: u8, nonce: u8| Some(secret(id).of_record(LeasePart::Beat, &nonce_of([nonce; 16])));
    let held = standing(1, 5, LeaseState::Held);
    let of_lease = Some(secret(1).of_record(LeasePart::Lease, &nonce_of([1; 16])));
    let again = |mut asked: LeaseAsk| {
        asked.beat.as_mut().unwrap().holder = shows(1, 1).map(|proof| proof.holder());
        asked
    };
    for (current, asked, expected) in [
        (&held, alive(1, shows(1, 1)), "renew"),
        (&held, alive(1, None), "FENCE-LEASE-REQUIRED"),
        (&held, LeaseAsk { secret: shows(1, 1), ..alive(1, None) }, "FENCE-LEASE-REQUIRED"),
        (&held, alive(1, shows(1, 0)), "FENCE-LEASE-INVALID"),
        (&held, alive(1, shows(2, 1)), "FENCE-LEASE-INVALID"),
        // The proof for the lease is not the proof for the beat.
        (&held, alive(1, of_lease), "FENCE-LEASE-INVALID"),
        (&held, again(alive(1, shows(1, 1))), "FENCE-LEASE-INVALID"),
        (&held, alive(2, shows(2, 1)), "FENCE-LEASE-LOST"),
        (&standing(1, 5, LeaseState::Released), alive(1, shows(1, 1)), "FENCE-LEASE-LOST"),
    ] {
        assert_eq!(code_of(Some(current), 4, &asked, 9_000), expected, "{asked:?}");
    }
    let renewed =
        judge_lease(&Rules::for_repo(), Some(&held), Mark::default(), &alive(1, shows(1, 1)), &at(60)).unwrap();
    assert_eq!(renewed.standing.left_at(&at(149)), Some(Duration::from_secs(1)));
    assert_eq!(renewed.standing.left_at(&at(150)), None);
    // Only if the ref has no beat of this ownership does the last recorded beat count.
    let heard = Standing { beat: shows(1, 7).map(|proof| proof.holder()), ..held.clone() };
    for (now, shown, expected) in [
        (Some(beat(1)), 1, "renew"),
        (Some(beat(1)), 7, "FENCE-LEASE-INVALID"),
        (Some(beat(2)), 7, "renew"),
        (None, 7, "renew"),
        (None, 1, "FENCE-LEASE-INVALID"),
    ] {
        let asked = LeaseAsk { beat_now: now, ..alive(1, shows(1, shown)) };
        assert_eq!(code_of(Some(&heard), 4, &asked, 1), expected, "{asked:?}");
    }
    let unheard = LeaseAsk { beat_now: None, ..alive(1, shows(1, 1)) };
    assert_eq!(code_of(Some(&held), 4, &unheard, 1), "FENCE-LEASE-INVALID");
}

/// It keeps its one secret and its push options until it ends. No new lease of this format is granted.
#[test]
fn lease_of_the_old_format_keeps_its_holder() {
    let before = |token, state| of_before(lease(1, token, state));
    let held = Standing { lease: before(5, LeaseState::Held), ..standing(1, 5, LeaseState::Held) };
    let old_beat = Beat { holder: None, ..beat(1) };
    let next = |lease: Lease, secret| LeaseAsk { secret, beat: None, ..proposal(lease, "9") };
    let alive_with = |secret| LeaseAsk { beat: Some(old_beat.clone()), secret, ..LeaseAsk::default() };
    let mut upgraded = next(lease(1, 6, LeaseState::Held), Some(secret(1)));
    upgraded.lease.as_mut().unwrap().proof = Some(secret(1));
    for (asked, expected) in [
        (next(before(6, LeaseState::Held), Some(secret(1))), "advance"),
        (next(before(5, LeaseState::Released), Some(secret(1))), "release"),
        (alive_with(Some(secret(1))), "renew"),
        (next(before(6, LeaseState::Held), None), "FENCE-LEASE-REQUIRED"),
        (next(before(6, LeaseState::Held), Some(secret(2))), "FENCE-LEASE-INVALID"),
        (alive_with(None), "FENCE-LEASE-REQUIRED"),
        (alive_with(Some(secret(2))), "FENCE-LEASE-INVALID"),
        (alive(1, Some(secret(1))), "FENCE-LEASE-INVALID"),
        (upgraded, "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(code_of(Some(&held), 4, &asked, 1), expected, "{asked:?}");
    }
    let mut taking = taking(1, Reason::First, "0");
    let new = taking.lease.as_mut().unwrap();
    new.lease = of_before(new.lease.clone());
    assert_eq!(code_of(None, 0, &taking, 1), "FENCE-LEASE-INVALID");
    taking.lease.as_mut().unwrap().lease = lease(2, 1, LeaseState::Held);
    assert_eq!(code_of(None, 0, &taking, 1), "grant");
    taking.beat.as_mut().unwrap().holder = None;
    assert_eq!(code_of(None, 0, &taking, 1), "FENCE-LEASE-INVALID");
}

#[test]
fn live_lease_is_revoked_only_by_those_who_may() {
    let held = standing(1, 5, LeaseState::Held);
    let away = || proposal(Lease { reason: Reason::Revoked, ..lease(2, 6, LeaseState::Released) }, "a");
    assert_eq!(code_of(Some(&held), 4, &away(), 1), "FENCE-LEASE-INVALID");
    assert_eq!(code_of(Some(&held), 4, &LeaseAsk { may_revoke: true, ..away() }, 1), "revoke");
    assert_eq!(code_of(None, 5, &LeaseAsk { may_revoke: true, ..away() }, 1), "FENCE-LEASE-INVALID");
    let gone = Standing { commit: None, ..held };
    let away = proposal(Lease { reason: Reason::Revoked, ..lease(2, 6, LeaseState::Released) }, "0");
    assert_eq!(code_of(Some(&gone), 4, &LeaseAsk { may_revoke: true, ..away }, 1), "revoke");
}

#[test]
fn asking_is_answered_and_changes_nothing() {
    let asks = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
    let held = standing(1, 5, LeaseState::Held);
    assert_eq!(code_of(Some(&held), 4, &asks, 1), Code::LeaseHeld.as_str());
    assert_eq!(code_of(Some(&held), 4, &asks, 91), Code::LeaseInvalid.as_str());
    assert_eq!(code_of(None, 0, &asks, 91), Code::LeaseInvalid.as_str());
}

#[test]
fn holder_whose_push_git_stopped_is_told_that_the_lease_is_lost() {
    let held = standing(1, 5, LeaseState::Held);
    let stopped = |id: u8| {
        let id = lease(id, 5, LeaseState::Held).id;
        let stopped = crate::StoppedPush::of(&id, held.lease.token, ["refs/heads/main"]);
        LeaseAsk { only_asks: true, stopped, ..LeaseAsk::default() }
    };
    assert_eq!(code_of(Some(&held), 4, &stopped(2), 1), Code::LeaseLost.as_str());
    assert_eq!(code_of(Some(&held), 4, &stopped(2), 91), Code::LeaseLost.as_str());
    assert_eq!(code_of(None, 0, &stopped(2), 1), Code::LeaseLost.as_str());
    let released = standing(1, 5, LeaseState::Released);
    assert_eq!(code_of(Some(&released), 4, &stopped(1), 1), Code::LeaseLost.as_str());
    assert_eq!(code_of(Some(&held), 4, &stopped(1), 1), Code::LeaseHeld.as_str(), "it still holds the lease");
}

#[test]
fn halted_lease_goes_to_nobody_until_those_who_may_resume_it() {
    let halts = |token, reason, parent| proposal(Lease { reason, ..lease(3, token, LeaseState::Halted) }, parent);
    let resumes = |token, parent| {
        let reason = Reason::Revoked;
        proposal(Lease { reason, ..lease(4, token, LeaseState::Released) }, parent)
    };
    let may = |ask: LeaseAsk| LeaseAsk { may_revoke: true, ..ask };
    let (held, free) = (standing(1, 5, LeaseState::Held), standing(1, 5, LeaseState::Released));
    let halted = standing(3, 6, LeaseState::Halted);
    let gone = Standing { commit: None, ..halted.clone() };
    let beat_of = |id: u8| LeaseAsk { beat: Some(beat(id)), beat_proof: Some(secret(id)), ..LeaseAsk::default() };
    let asks = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
    let mut of_holder = proposal(lease(1, 6, LeaseState::Held), "9");
    of_holder.lease.as_mut().unwrap().proof = Some(proof(1, 5));
    // Nor does anybody continue from the halt itself, whatever they prove.
    let mut of_halt = proposal(lease(3, 7, LeaseState::Held), "9");
    of_halt.lease.as_mut().unwrap().proof = Some(proof(3, 6));
    for (current, asked, expected) in [
        // Whatever the lease is: held, expired (the time below is past its TTL), released, or never granted.
        (Some(&held), may(halts(6, Reason::Revoked, "a")), "halt"),
        (Some(&free), may(halts(6, Reason::Released, "a")), "halt"),
        (None, may(halts(5, Reason::First, "0")), "halt"),
        (Some(&held), halts(6, Reason::Revoked, "a"), "FENCE-LEASE-INVALID"),
        (None, halts(5, Reason::First, "0"), "FENCE-LEASE-INVALID"),
        (Some(&held), may(halts(6, Reason::Revoked, "c")), "FENCE-LEASE-INVALID"),
        (Some(&held), may(halts(5, Reason::Revoked, "a")), "FENCE-STALE"),
        (Some(&halted), may(halts(7, Reason::Released, "a")), "FENCE-HALTED"),
        // Nobody gets it, however long that takes.
        (Some(&halted), taking(7, Reason::Released, "a"), "FENCE-HALTED"),
        (Some(&halted), taking(7, Reason::Expired, "a"), "FENCE-HALTED"),
        (Some(&halted), may(taking(7, Reason::Released, "a")), "FENCE-HALTED"),
        (Some(&gone), taking(7, Reason::First, "0"), "FENCE-HALTED"),
        (Some(&halted), of_holder, "FENCE-HALTED"),
        (Some(&halted), of_halt, "FENCE-HALTED"),
        (Some(&halted), beat_of(1), "FENCE-HALTED"),
        (Some(&halted), beat_of(3), "FENCE-HALTED"),
        (Some(&halted), asks, "FENCE-HALTED"),
        (Some(&halted), may(resumes(6, "a")), "resume"),
        (Some(&gone), may(resumes(6, "0")), "resume"),
        (Some(&halted), resumes(6, "a"), "FENCE-LEASE-INVALID"),
        (Some(&halted), may(resumes(6, "c")), "FENCE-LEASE-INVALID"),
        (Some(&halted), may(resumes(5, "a")), "FENCE-STALE"),
        (Some(&halted), may(resumes(7, "a")), "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(code_of(current, 4, &asked, 100_000), expected, "{current:?} {asked:?}");
    }
    let resumed = Standing { lease: Lease { reason: Reason::Revoked, ..lease(4, 6, LeaseState::Released) }, ..halted };
    assert_eq!(code_of(Some(&resumed), 5, &taking(7, Reason::Released, "a"), 1), "grant");
}
