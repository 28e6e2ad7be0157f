//! The checker itself, on histories made by hand: each rule is broken once, and seen to be.

use super::checker::{Decision, History, Move, Push, Settled, Told, Violation, check};

fn a_move(push: u64, token: u64, name: &str, seen: &[(&str, &str)]) -> Move {
    let seen = seen.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (fence, name) = ("repo".to_owned(), name.to_owned());
    Move { push, fence, token, name, old: String::new(), seen, is_watched: true }
}

fn told(id: u64, name: &str, told: Told) -> Push {
    Push { id, told: [(name.to_owned(), told)].into(), ..Push::default() }
}

fn refused(id: u64, code: &str) -> Push {
    Push { code: Some(code.to_owned()), ..told(id, "b", Told::Refused) }
}

fn settled(accepted: u64, moved: usize) -> Settled {
    Settled { accepted, moved, spent: (moved > 0).then(|| "repo".to_owned()).into_iter().collect() }
}

/// Pushes 1 and 2 land with tokens 5 and 6; 3 comes with 5 and is refused.
fn good() -> History {
    let stale = Decision { seq: 5, push: 3, code: Some("FENCE-STALE".to_owned()) };
    let accepted = |seq, push| Decision { seq, push, code: None };
    History {
        pushes: vec![told(1, "a", Told::Landed), told(2, "b", Told::Landed), refused(3, "FENCE-STALE")],
        moves: vec![a_move(1, 5, "a", &[]), a_move(2, 6, "b", &[("a", "1")])],
        log: Some((vec![accepted(1, 1), accepted(3, 2), stale], vec![settled(1, 1), settled(3, 1)])),
        marks: [("repo".to_owned(), 6)].into(),
        lease: vec![1, 2, 2, 3],
    }
}

/// What the checker says when the good history is changed by `change`.
fn after(change: impl FnOnce(&mut History)) -> Vec<Violation> {
    let mut history = good();
    change(&mut history);
    check(&history)
}

fn tell(history: &mut History, push: usize, name: &str, what: Told) {
    history.pushes[push].told.insert(name.to_owned(), what);
}

fn log(history: &mut History) -> &mut (Vec<Decision>, Vec<Settled>) {
    history.log.as_mut().unwrap()
}

#[test]
fn a_history_in_which_all_is_well_has_no_violations() {
    assert_eq!(check(&good()), []);
    // Who was told nothing claims nothing; who asks again may be decided on twice.
    assert_eq!(after(|history| tell(history, 0, "a", Told::Nothing)), []);
    let twice = after(|history| {
        history.pushes[1].leased = true;
        log(history).0.push(Decision { seq: 2, push: 2, code: Some("FENCE-BUSY".to_owned()) });
    });
    assert_eq!(twice, []);
}

#[test]
fn refs_that_move_out_of_token_order_are_seen() {
    let fence = || "repo".to_owned();
    let swapped = after(|history| {
        history.moves.swap(0, 1);
        history.moves[1].seen = [("b".to_owned(), "2".to_owned())].into();
    });
    assert_eq!(swapped, [Violation::TokenOrder { fence: fence(), token: 5, after: 6, push: 1 }]);
    let same = after(|history| history.moves[0].token = 6);
    assert_eq!(same, [Violation::TokenOrder { fence: fence(), token: 6, after: 6, push: 2 }]);
}

#[test]
fn an_older_push_that_was_still_to_move_is_seen() {
    let found = after(|history| history.moves[1].seen.clear());
    assert_eq!(found, [Violation::StaleAfterNewer { fence: "repo".to_owned(), token: 5, newer: 6, push: 1 }]);
}

#[test]
fn a_token_that_is_spent_for_nothing_or_not_spent_is_seen() {
    let found = after(|history| log(history).1[0] = settled(1, 0));
    assert_eq!(found, [Violation::SpentUnlessMoved { push: 1, moved: 1, spent: 0 }]);
    let found = after(|history| {
        history.moves.remove(0);
        history.pushes[0].told.clear();
    });
    assert_eq!(found, [Violation::SpentUnlessMoved { push: 1, moved: 0, spent: 1 }]);
    let found = after(|history| history.marks = [("repo".to_owned(), 7)].into());
    assert_eq!(found, [Violation::Mark { fence: "repo".to_owned(), mark: 7, highest: 6 }]);
}

#[test]
fn a_decision_that_is_missing_or_there_twice_is_seen() {
    let found = after(|history| drop(log(history).0.pop()));
    assert_eq!(found, [Violation::NotLoggedOnce { push: 3, accepted: 0, refused: 0 }]);
    let found = after(|history| {
        let again = log(history).0[2].clone();
        log(history).0.push(again);
    });
    assert_eq!(found, [Violation::NotLoggedOnce { push: 3, accepted: 0, refused: 2 }]);
    let found = after(|history| {
        log(history).0.remove(0);
        log(history).1.remove(0);
    });
    let unspent = Violation::SpentUnlessMoved { push: 1, moved: 1, spent: 0 };
    assert_eq!(found, [Violation::NotLoggedOnce { push: 1, accepted: 0, refused: 0 }, unspent]);
    let found = after(|history| history.pushes[2].code = Some("FENCE-MISSING".to_owned()));
    let (told, logged) = ("FENCE-MISSING".to_owned(), "FENCE-STALE".to_owned());
    assert_eq!(found, [Violation::OtherCode { push: 3, told, logged }]);
}

#[test]
fn a_push_that_is_never_settled_or_twice_is_seen() {
    let found = after(|history| {
        history.moves.remove(1);
        history.pushes[1].told.clear();
        history.marks.clear();
        log(history).1.remove(1);
    });
    assert_eq!(found, [Violation::NotSettledOnce { push: 2, settled: 0 }]);
    let found = after(|history| {
        let again = settled(1, 0);
        log(history).1.push(again);
    });
    assert_eq!(found, [Violation::NotSettledOnce { push: 1, settled: 2 }]);
}

#[test]
fn a_client_that_was_told_something_else_is_seen() {
    let found = after(|history| tell(history, 2, "c", Told::Landed));
    assert_eq!(found, [Violation::LandedIsNotThere { push: 3, name: "c".to_owned() }]);
    let found = after(|history| tell(history, 0, "a", Told::Refused));
    assert_eq!(found, [Violation::RefusedIsThere { push: 1, name: "a".to_owned() }]);
}

#[test]
fn a_push_that_lands_without_room_for_its_record_is_seen() {
    let found = after(|history| history.pushes[0].no_room = true);
    assert_eq!(found, [Violation::MovedWithoutRoom { push: 1 }]);
}

#[test]
fn a_lease_whose_counter_goes_back_is_seen() {
    let found = after(|history| history.lease.push(2));
    assert_eq!(found, [Violation::LeaseWentBack { token: 2, after: 3 }]);
}
