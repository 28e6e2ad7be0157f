//! Which moves of a mark are admitted, as tables.

use super::*;
use crate::{
    Claim, Decision, FenceEntry, FenceName, LeasePart, MarkAsk, MarkAt, MarkRecord, MarkStanding, MarkState, MovedTo,
    Ownership, PreparedPart, Reason, Secret, State, StoreFault, StorePlace, StoreUrl, StoredLease, Token, TokenKind,
    Version, decide,
    lease::record::tests::{beat, lease, proof, secret},
    log::flight::tests::{in_flight, oid},
    moved_marks, nonce_of,
};

const RESOURCE: &str = "git.example.com/app";

fn token(n: u64) -> Token {
    n.try_into().unwrap()
}

fn at(seconds: u64) -> Stamp {
    Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: seconds * 1000 }
}

fn ownership((id, first): (u8, u64)) -> Ownership {
    Ownership { lease: LeaseId::of([id; 16]), first: token(first) }
}

fn place() -> Option<StorePlace> {
    StorePlace::new("etcd://host", RESOURCE)
}

/// A gate that asks the store.
fn with_store() -> Rules {
    let store = Some(StoreUrl::parse("etcd://inside:2379").unwrap());
    Rules { store, resource: Some(RESOURCE.to_owned()), ..Rules::for_repo() }
}

fn record(token: u64, by: Option<(u8, u64)>) -> MarkRecord {
    let begun = MarkRecord::begins(Mark::at(token).unwrap(), place(), "agent", nonce_of([1; 16]));
    MarkRecord { by: by.map(ownership), ..begun }
}

/// A fence whose mark is at `mark`, by the gate as well as in the repository, at commit `a`.
fn state(mark: u64, by: Option<(u8, u64)>) -> State {
    let mut state = State::default();
    let at = Some(MarkAt { commit: oid("a").unwrap(), record: record(mark, by) });
    state.marks.insert(FenceName::repo(), Mark::at(mark).unwrap());
    state.written.insert(FenceName::repo(), MarkStanding { at, last: by.map(ownership) });
    state
}

/// A push of this mark; `parent` is a fill digit, "0" for none.
fn ask(record: MarkRecord, parent: &str) -> MarkAsk {
    MarkAsk { commit: oid("b").unwrap(), parents: oid(parent).into_iter().collect(), record, proof: None, answer: None }
}

/// What the store shows: lease `id` with `token`, whose ownership began with `first`.
fn entry(id: u8, first: u64, token: u64, state: LeaseState) -> FenceEntry {
    let stored = |lease: Lease| StoredLease {
        at: Version::new(&*lease.nonce),
        parent: None,
        lease,
        time: "2026-01-01T00:00:00Z".to_owned(),
    };
    let mut entry = FenceEntry::new(format!("{RESOURCE}/repo"), "n".to_owned());
    for lease in [lease(id, first, LeaseState::Held), Lease { reason: Reason::Revoked, ..lease(id, token, state) }] {
        let from = entry.lease.as_ref().map(|lease| lease.at.clone());
        entry = entry.with(&[(from, PreparedPart::Lease(stored(lease)))], "n".to_owned()).unwrap();
    }
    entry.with(&[(None, PreparedPart::Beat(beat(id)))], "n".to_owned()).unwrap()
}

/// The proof that a mark of lease `id` shows if it moves alone.
fn of_beat(id: u8) -> Option<Secret> {
    Some(secret(id).of_record(LeasePart::Beat, &beat(id).nonce))
}

fn proven(record: MarkRecord, proof: Option<Secret>, entry: FenceEntry) -> MarkAsk {
    MarkAsk { proof, answer: Some(Ok(Some(entry))), ..ask(record, "a") }
}

/// The code of the refusal, or how far the mark rises when its ref moves.
fn judged(rules: &Rules, state: &State, token: Option<u64>, mark: MarkAsk, more: LeaseAsk) -> String {
    let asked = LeaseAsk { mark: Some(Box::new(mark)), ..more };
    let guarded = token.is_some();
    let claim = Claim { rules, token: token.map(self::token), exempt: false, guarded, lease: Some(&asked) };
    match decide(state, &[claim], &at(9)) {
        Decision::Admit { overruled: None, .. } => format!("to {}", moved_marks(state, &[claim], &at(9))[0].raises_to),
        Decision::Admit { .. } => "overruled".to_owned(),
        Decision::Wait(_) => "wait".to_owned(),
        Decision::Refuse(reject) => reject.code().as_str().to_owned(),
    }
}

fn write(rules: &Rules, state: &State, token: u64, mark: MarkAsk) -> String {
    judged(rules, state, Some(token), mark, LeaseAsk::default())
}

fn alone(rules: &Rules, state: &State, mark: MarkAsk) -> String {
    judged(rules, state, None, mark, LeaseAsk::default())
}

#[test]
fn write_counts_above_the_mark_and_from_an_ownership_that_nobody_has_overtaken() {
    let rules = Rules::for_repo();
    for (mark, last, pushed, of_record, by, expected) in [
        (4, Some((1, 3)), 5, 5, Some((1, 3)), "to 0"),
        (4, Some((1, 3)), 4, 4, Some((1, 3)), "FENCE-STALE"),
        (4, Some((1, 3)), 5, 5, Some((2, 5)), "to 0"),
        (7, Some((2, 7)), 8, 8, Some((1, 5)), "FENCE-LEASE-LOST"),
        (5, Some((1, 5)), 6, 6, Some((2, 5)), "FENCE-LEASE-LOST"),
        (4, Some((1, 3)), 5, 6, Some((1, 3)), "FENCE-LEASE-INVALID"),
        (4, None, 5, 5, None, "to 0"),
    ] {
        let found = write(&rules, &state(mark, last), pushed, ask(record(of_record, by), "a"));
        assert_eq!(found, expected, "mark {mark} by {last:?}, token {pushed} of record {of_record} by {by:?}");
    }
}

#[test]
fn mark_follows_the_current_one_and_stays_in_its_place() {
    let rules = Rules::for_repo();
    let here = state(4, None);
    let moved = |record: MarkRecord| MarkRecord { state: MarkState::Moved, ..record };
    let elsewhere = |resource: &str| MarkRecord { place: StorePlace::new("etcd://host", resource), ..record(5, None) };
    let own = |token| MarkRecord { place: None, ..record(token, None) };
    for (mark, expected) in [
        (ask(record(5, None), "0"), "FENCE-LEASE-INVALID"),
        (ask(record(5, None), "9"), "FENCE-LEASE-INVALID"),
        (
            MarkAsk { parents: vec![oid("a").unwrap(), oid("9").unwrap()], ..ask(record(5, None), "a") },
            "FENCE-LEASE-INVALID",
        ),
        (ask(elsewhere("other"), "a"), "FENCE-LEASE-INVALID"),
        (ask(own(5), "a"), "FENCE-LEASE-INVALID"),
        (ask(moved(record(5, None)), "a"), "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(write(&rules, &here, 5, mark.clone()), expected, "{mark:?}");
    }
    assert_eq!(write(&rules, &State::default(), 5, ask(own(5), "0")), "to 0", "the first one has no parent");
    let at_the_end = Token::MAX.get() - 1;
    assert_eq!(write(&rules, &here, at_the_end, ask(record(at_the_end, None), "a")), "FENCE-LEASE-INVALID");
    // A push in the slot may be the one that it follows.
    let busy = State { in_flight: vec![in_flight(1, Some(5), &[])], ..here.clone() };
    assert_eq!(write(&rules, &busy, 6, ask(record(6, None), "b")), "wait");
    // The gate knows the same repository under another name of the host, but under the same resource.
    assert_eq!(write(&with_store(), &here, 5, ask(elsewhere("other"), "a")), "FENCE-LEASE-INVALID");
    // After the leases have moved back, tokens of one's own may follow.
    let mut back = here;
    back.written.get_mut(&FenceName::repo()).unwrap().at.as_mut().unwrap().record.state = MarkState::Moved;
    assert_eq!(write(&rules, &back, 5, ask(record(5, None), "a")), "FENCE-LEASE-INVALID");
    assert_eq!(write(&rules, &back, 5, ask(own(5), "a")), "to 0");
    assert_eq!(alone(&rules, &back, ask(MarkRecord { place: None, ..record(4, None) }, "a")), "FENCE-LEASE-INVALID");
    assert_eq!(alone(&rules, &back, ask(moved(record(4, None)), "a")), "to 0", "a touch");
}

#[test]
fn gate_that_knows_the_store_admits_only_what_its_record_shows() {
    let rules = with_store();
    let here = state(4, Some((1, 3)));
    let held = |first, token| entry(1, first, token, LeaseState::Held);
    let by = Some((1, 3));
    let good = proven(record(5, by), Some(proof(1, 5)), held(3, 5));
    assert_eq!(write(&rules, &here, 5, good.clone()), "to 5");
    let released = entry(1, 3, 5, LeaseState::Released);
    let mut moved = held(3, 5);
    moved.moved_to = Some(MovedTo::Remote);
    let fault = StoreFault::unreachable("no answer");
    for (token, mark, expected) in [
        (5, MarkAsk { proof: None, ..good.clone() }, "FENCE-LEASE-REQUIRED"),
        (5, MarkAsk { proof: Some(proof(1, 4)), ..good.clone() }, "FENCE-LEASE-REQUIRED"),
        (5, proven(record(5, None), Some(proof(1, 5)), held(3, 5)), "FENCE-LEASE-REQUIRED"),
        // An agent that was told the mark tries the next number.
        (6, proven(record(6, by), Some(proof(1, 5)), held(3, 5)), "FENCE-LEASE-LOST"),
        (5, proven(record(5, by), Some(proof(1, 5)), held(3, 6)), "FENCE-LEASE-LOST"),
        (5, proven(record(5, by), Some(proof(1, 5)), entry(2, 3, 5, LeaseState::Held)), "FENCE-LEASE-LOST"),
        (5, proven(record(5, by), Some(proof(1, 5)), entry(2, 3, 5, LeaseState::Halted)), "FENCE-HALTED"),
        (5, proven(record(5, by), Some(proof(1, 5)), entry(1, 3, 5, LeaseState::Halted)), "FENCE-HALTED"),
        // It says that it began later than it did.
        (5, proven(record(5, Some((1, 5))), Some(proof(1, 5)), held(3, 5)), "FENCE-LEASE-LOST"),
        (5, proven(record(5, by), Some(proof(1, 5)), released), "FENCE-LEASE-LOST"),
        (5, proven(record(5, by), Some(proof(1, 5)), moved), "FENCE-LEASE-INVALID"),
        (5, proven(record(5, by), Some(proof(1, 5)), held(3, 3)), "FENCE-STALE"),
        (5, MarkAsk { answer: Some(Ok(None)), ..good.clone() }, "FENCE-LEASE-INVALID"),
        (5, MarkAsk { answer: Some(Err(fault)), ..good.clone() }, "FENCE-STORE"),
        (5, MarkAsk { answer: None, ..good.clone() }, "FENCE-LEASE-REQUIRED"),
        (4, good.clone(), "FENCE-STALE"),
    ] {
        assert_eq!(write(&rules, &here, token, mark.clone()), expected, "{token} {mark:?}");
    }
    // The store has lost its memory, and an old holder is current there again.
    let overtaken = state(7, Some((2, 7)));
    assert_eq!(write(&rules, &overtaken, 8, proven(record(8, by), Some(proof(1, 8)), held(3, 8))), "FENCE-LEASE-LOST");
    // Without the mark there is no way.
    let claim = Claim { rules: &rules, token: Some(token(5)), exempt: false, guarded: true, lease: None };
    let Decision::Refuse(reject) = decide(&here, &[claim], &at(9)) else { panic!("no mark") };
    assert_eq!(reject.code().as_str(), "FENCE-LEASE-REQUIRED");
    assert!(reject.to_string().contains("'etcd://inside'"), "{reject}");
    // In observe mode, what is not proven spends nothing by the mark alone.
    let observe = Rules { mode: crate::Mode::Observe, ..with_store() };
    assert_eq!(write(&observe, &here, 5, MarkAsk { proof: None, ..good }), "overruled");
}

#[test]
fn mark_that_moves_alone_is_touched_and_is_raised_only_by_who_may() {
    let (own, store) = (Rules::for_repo(), with_store());
    let here = state(4, Some((1, 3)));
    let touch = || ask(record(4, Some((1, 3))), "a");
    let raised = |token, by| ask(record(token, by), "a");
    let overtakes = |token| proven(record(token, Some((2, 9))), of_beat(2), entry(2, 9, 9, LeaseState::Held));
    let revokes = |token, by| proven(record(token, by), of_beat(2), entry(2, 9, 9, LeaseState::Released));
    let halts = |token, by| proven(record(token, by), of_beat(2), entry(2, 9, 9, LeaseState::Halted));
    let returns = proven(record(8, Some((3, 2))), of_beat(3), entry(3, 2, 8, LeaseState::Held));
    for (mark, of_own, of_store) in [
        (touch(), "to 0", "to 0"),
        (raised(3, Some((1, 3))), "to 0", "to 0"),
        (raised(5, Some((1, 3))), "FENCE-LEASE-INVALID", "FENCE-LEASE-REQUIRED"),
        (raised(4, Some((2, 5))), "FENCE-LEASE-INVALID", "FENCE-LEASE-REQUIRED"),
        (raised(4, None), "FENCE-LEASE-INVALID", "FENCE-LEASE-REQUIRED"),
        // A takeover puts the mark below its own token.
        (overtakes(8), "FENCE-LEASE-INVALID", "to 8"),
        (overtakes(10), "FENCE-LEASE-INVALID", "FENCE-LEASE-LOST"),
        (MarkAsk { proof: of_beat(3), ..overtakes(8) }, "FENCE-LEASE-INVALID", "FENCE-LEASE-REQUIRED"),
        // The proof of the lease is for a push: shown here, others could use it first.
        (MarkAsk { proof: Some(proof(2, 9)), ..overtakes(8) }, "FENCE-LEASE-INVALID", "FENCE-LEASE-REQUIRED"),
        // A halt puts it at its own, and admits nobody else.
        (halts(9, Some((2, 9))), "FENCE-LEASE-INVALID", "to 9"),
        (halts(9, Some((3, 8))), "FENCE-LEASE-INVALID", "FENCE-HALTED"),
        // A revocation puts it at its own.
        (revokes(9, None), "FENCE-LEASE-INVALID", "to 9"),
        (revokes(9, Some((2, 9))), "FENCE-LEASE-INVALID", "to 9"),
        (
            proven(record(8, None), of_beat(2), entry(2, 9, 9, LeaseState::Held)),
            "FENCE-LEASE-INVALID",
            "FENCE-LEASE-REQUIRED",
        ),
        // An old holder, current again in a store that lost its memory, must not become the last writer this way.
        (returns, "FENCE-LEASE-INVALID", "FENCE-LEASE-LOST"),
    ] {
        assert_eq!(alone(&own, &here, mark.clone()), of_own, "{mark:?}");
        assert_eq!(alone(&store, &here, mark.clone()), of_store, "{mark:?}");
        let may = LeaseAsk { may_revoke: true, ..LeaseAsk::default() };
        assert!(judged(&own, &here, None, mark, may).starts_with("to "));
    }
    let mut fresh = State::default();
    assert_eq!(alone(&own, &fresh, ask(record(0, None), "0")), "to 0");
    assert_eq!(alone(&own, &fresh, ask(record(1, None), "0")), "FENCE-LEASE-INVALID");
    assert_eq!(alone(&own, &fresh, ask(record(0, Some((1, 1))), "0")), "FENCE-LEASE-INVALID");
    fresh.marks.insert(FenceName::repo(), Mark::at(6).unwrap());
    assert_eq!(alone(&own, &fresh, ask(record(6, None), "0")), "to 0");
    // Its ref is ahead of the gate's mark: a push landed in part. A touch does not make that count.
    let mut ahead = here;
    ahead.marks.insert(FenceName::repo(), Mark::at(2).unwrap());
    assert_eq!(alone(&own, &ahead, touch()), "to 0");
    assert_eq!(write(&own, &ahead, 3, ask(record(3, Some((1, 3))), "a")), "to 0", "and it stops nobody");
}

fn standing(id: u8, token: u64, state: LeaseState) -> Standing {
    let (commit, parent, lease) = (oid("c"), oid("9"), lease(id, token, state));
    Standing { commit, parent, lease, since: at(0), heard: at(8), progress: None, beat: None }
}

fn moving(token: u64, state: LeaseState, parent: &str, proof: Option<Secret>) -> LeaseAsk {
    let parents = oid(parent).into_iter().collect();
    let proposal = Proposal { commit: oid("d").unwrap(), parents, lease: lease(7, token, state), proof };
    LeaseAsk { lease: Some(proposal), ..LeaseAsk::default() }
}

#[test]
fn lease_moves_to_a_store_and_back_only_together_with_the_mark() {
    let (own, store) = (Rules::for_repo(), with_store());
    let with = |lease: Option<Standing>, written: Option<MarkRecord>| {
        let mut state = State::default();
        state.marks.insert(FenceName::repo(), Mark::at(4).unwrap());
        state.leases.extend(lease.map(|lease| (FenceName::repo(), lease)));
        let at = written.map(|record| MarkAt { commit: oid("a").unwrap(), record });
        state.written.insert(FenceName::repo(), MarkStanding { at, last: None });
        state
    };
    let to_store = |token, parent, proof| moving(token, LeaseState::Moved, parent, proof);
    let begins = |token| ask(record(token, None), "0");
    let gone = standing(1, 5, LeaseState::Moved);
    let (held, released) = (standing(1, 5, LeaseState::Held), standing(1, 5, LeaseState::Released));
    for (current, asked, mark, of_own, of_store) in [
        (None, to_store(1, "0", None), begins(0), "to 0", "to 0"),
        (None, to_store(1, "0", None), begins(4), "to 4", "to 4"),
        (None, to_store(1, "0", None), begins(5), "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        // This gate grants the leases, and could not tell any more who holds them.
        (Some(&released), to_store(5, "c", None), begins(5), "FENCE-LEASE-INVALID", "to 5"),
        (Some(&released), to_store(4, "c", None), begins(0), "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (Some(&released), to_store(5, "e", None), begins(0), "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (Some(&held), to_store(5, "c", None), begins(0), "FENCE-LEASE-INVALID", "FENCE-LEASE-HELD"),
        (Some(&held), to_store(5, "c", Some(proof(1, 4))), begins(0), "FENCE-LEASE-INVALID", "FENCE-LEASE-HELD"),
        (Some(&held), to_store(5, "9", Some(proof(1, 5))), begins(0), "FENCE-LEASE-INVALID", "to 0"),
        (Some(&gone), to_store(5, "c", None), begins(0), "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (
            Some(&released),
            moving(6, LeaseState::Held, "c", None),
            begins(0),
            "FENCE-LEASE-INVALID",
            "FENCE-LEASE-INVALID",
        ),
    ] {
        let state = with(current.cloned(), None);
        assert_eq!(judged(&own, &state, None, mark.clone(), asked.clone()), of_own, "{asked:?}");
        assert_eq!(judged(&store, &state, None, mark, asked.clone()), of_store, "{asked:?}");
        // Never without the mark.
        let claim = Claim { rules: &own, token: None, exempt: false, guarded: false, lease: Some(&asked) };
        assert!(matches!(decide(&state, &[claim], &at(9)), Decision::Refuse(_)), "{asked:?}");
    }
    let expired = Standing { heard: Stamp { boot: "x".to_owned(), ..at(0) }, ..held };
    let late = LeaseAsk { ..to_store(5, "c", None) };
    let state = with(Some(expired), None);
    let claim = |asked| Claim { rules: &store, token: None, exempt: false, guarded: false, lease: Some(asked) };
    let asked = LeaseAsk { mark: Some(Box::new(begins(0))), ..late };
    let Decision::Admit { leases, .. } = decide(&state, &[claim(&asked)], &at(900_000)) else {
        panic!("it has expired")
    };
    assert_eq!(leases[0].raises_to.get(), 5, "no token that was granted counts any more");

    // Back.
    let moved = state_of_moved(&gone);
    let back = |token| moving(token, LeaseState::Released, "c", None);
    let mark = |record: MarkRecord| ask(MarkRecord { state: MarkState::Moved, ..record }, "a");
    for (asked, mark, expected) in [
        (back(5), mark(record(4, None)), "to 0"),
        (back(9), mark(record(4, None)), "to 0"),
        (back(4), mark(record(4, None)), "FENCE-LEASE-INVALID"),
        (back(5), ask(record(4, None), "a"), "FENCE-LEASE-INVALID"),
        (back(5), mark(record(5, None)), "FENCE-LEASE-INVALID"),
        (back(5), mark(record(4, Some((1, 1)))), "FENCE-LEASE-INVALID"),
        (moving(6, LeaseState::Held, "c", None), mark(record(4, None)), "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(judged(&own, &moved, None, mark.clone(), asked.clone()), expected, "{asked:?} {mark:?}");
        let refused = judged(&store, &moved, None, mark, asked);
        assert_eq!(refused, "FENCE-LEASE-INVALID", "the setting says where the leases are");
    }
}

#[test]
fn from_store_to_store_nothing_changes_but_the_place_and_the_old_store_shows_who_holds_it() {
    use LeaseState::{Held, Released};
    let there = record(4, Some((1, 1)));
    let elsewhere = |record: MarkRecord| MarkRecord { place: StorePlace::new("redis://other", RESOURCE), ..record };
    let mut moved = state(4, Some((1, 1)));
    moved.leases.insert(FenceName::repo(), standing(1, 5, LeaseState::Moved));
    let (own, store) = (Rules::for_repo(), with_store());
    let along = |may_revoke| LeaseAsk { may_revoke, ..moving(5, LeaseState::Moved, "c", None) };
    let shown = |proof, entry| proven(elsewhere(there.clone()), proof, entry);
    let renamed = MarkRecord { place: StorePlace::new("redis://other", "another/app"), ..there.clone() };
    let closed = entry(2, 5, 5, Held).moved_away(MovedTo::Remote, "n".to_owned());
    for (mark, may_revoke, of_own, of_store) in [
        (shown(of_beat(2), entry(2, 5, 5, Held)), false, "to 0", "to 0"),
        (shown(None, entry(2, 5, 5, Held)), false, "to 0", "FENCE-LEASE-REQUIRED"),
        (shown(None, entry(2, 5, 5, Held)), true, "to 0", "to 0"),
        (shown(of_beat(3), entry(2, 5, 5, Held)), false, "to 0", "FENCE-LEASE-REQUIRED"),
        (shown(of_beat(2), entry(2, 5, 6, Released)), false, "to 0", "FENCE-LEASE-REQUIRED"),
        (shown(of_beat(2), closed), false, "to 0", "FENCE-LEASE-REQUIRED"),
        (ask(elsewhere(record(5, Some((1, 1)))), "a"), true, "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (ask(elsewhere(record(3, Some((1, 1)))), "a"), true, "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (ask(elsewhere(record(4, Some((2, 1)))), "a"), true, "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (ask(elsewhere(there.clone()), "c"), true, "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (ask(MarkRecord { place: None, ..there.clone() }, "a"), true, "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
        (ask(renamed, "a"), true, "to 0", "FENCE-LEASE-INVALID"),
    ] {
        assert_eq!(judged(&own, &moved, None, mark.clone(), along(may_revoke)), of_own, "{mark:?}");
        assert_eq!(judged(&store, &moved, None, mark.clone(), along(may_revoke)), of_store, "{mark:?}");
        let alone = LeaseAsk { may_revoke, ..LeaseAsk::default() };
        assert_eq!(judged(&own, &moved, None, mark, alone), "FENCE-LEASE-INVALID", "never without the lease");
    }
}

fn state_of_moved(lease: &Standing) -> State {
    let mut moved = state(4, None);
    moved.leases.insert(FenceName::repo(), lease.clone());
    moved
}

#[test]
fn nothing_is_granted_here_while_the_leases_are_kept_in_a_store() {
    let moved = state_of_moved(&standing(1, 5, LeaseState::Moved));
    let takes = moving(6, LeaseState::Held, "c", None);
    let asks = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
    let revokes = LeaseAsk { may_revoke: true, ..moving(6, LeaseState::Released, "c", None) };
    for (rules, state, asked) in [
        (Rules::for_repo(), &moved, &takes),
        (Rules::for_repo(), &moved, &asks),
        (Rules::for_repo(), &moved, &revokes),
        (with_store(), &State::default(), &takes),
        (with_store(), &State::default(), &asks),
    ] {
        let claim = Claim { rules: &rules, token: None, exempt: false, guarded: false, lease: Some(asked) };
        let Decision::Refuse(reject) = decide(state, &[claim], &at(9)) else { panic!("{asked:?}") };
        let place = if rules.store.is_some() { "'etcd://inside'" } else { "'etcd://host'" };
        assert!(reject.to_string().contains(&format!("are kept in {place}")), "{reject}");
    }
}

#[test]
fn marks_go_with_the_kind_of_tokens_that_the_fence_takes() {
    let fence = FenceName::repo();
    let mut leased = state(4, None);
    leased.kinds.insert(fence.clone(), TokenKind::Lease);
    let carried = ask(record(5, Some((1, 5))), "a");
    assert_eq!(write(&Rules::for_repo(), &state(4, None), 5, carried.clone()), "to 0");
    assert_eq!(write(&Rules::for_repo(), &leased, 5, carried), "FENCE-LEASE-REQUIRED", "the gate cannot ask");
    let of = |rules: &Rules, state: &State| state.fence(&fence).kind(rules);
    assert_eq!(of(&with_store(), &state(4, None)), Some(TokenKind::Lease));
    assert_eq!(of(&Rules::for_repo(), &state_of_moved(&standing(1, 5, LeaseState::Moved))), None);
}
