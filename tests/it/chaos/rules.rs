//! Tests of the checker, on handmade histories: each rule is broken once, and the checker detects it.

use super::checker::{Decision, History, Move, Planned, Push, Reset, Settled, Told, Violation, check};

fn a_move(push: u64, token: u64, name: &str, seen: &[(&str, &str)]) -> Move {
    let seen = seen.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (fence, name) = ("repo".to_owned(), name.to_owned());
    Move {
        push,
        fence,
        token,
        name,
        old: String::new(),
        new: push.to_string(),
        at: push as usize,
        seen,
        is_watched: true,
    }
}

fn told(id: u64, name: &str, told: Told) -> Push {
    Push { id, told: [(name.to_owned(), told)].into(), ..Push::default() }
}

fn refused(id: u64, code: &str) -> Push {
    Push { code: Some(code.to_owned()), ..told(id, "b", Told::Refused) }
}

fn settled(accepted: u64, moved: usize) -> Settled {
    let spent = (moved > 0).then(|| "repo".to_owned()).into_iter().collect();
    Settled { accepted, token: 0, moved, spent, is_end: true, is_reported: true }
}

/// Pushes 1 and 2 land with tokens 5 and 6; push 3 has token 5 and is refused.
fn good() -> History {
    let stale = Decision { seq: 5, push: 3, code: Some("FENCE-STALE".to_owned()), planned: vec![] };
    let accepted = |seq, push| Decision { seq, push, code: None, planned: vec![] };
    History {
        pushes: vec![told(1, "a", Told::Landed), told(2, "b", Told::Landed), refused(3, "FENCE-STALE")],
        moves: vec![a_move(1, 5, "a", &[]), a_move(2, 6, "b", &[("a", "1")])],
        log: Some((vec![accepted(1, 1), accepted(3, 2), stale], vec![settled(1, 1), settled(3, 1)])),
        marks: [("repo".to_owned(), 6)].into(),
        lease: vec![1, 2, 2, 3],
        ..History::default()
    }
}

/// The violations when the good history is changed by `change`.
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
fn correct_history_has_no_violations() {
    assert_eq!(check(&good()), []);
    // A client that was told nothing claims nothing; a client that retries may get two decisions.
    assert_eq!(after(|history| tell(history, 0, "a", Told::Nothing)), []);
    let twice = after(|history| {
        history.pushes[1].leased = true;
        log(history).0.push(Decision { seq: 2, push: 2, code: Some("FENCE-BUSY".to_owned()), planned: vec![] });
    });
    assert_eq!(twice, []);
}

#[test]
fn refs_moved_out_of_token_order_are_detected() {
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
fn older_push_that_has_yet_to_move_is_detected() {
    let found = after(|history| history.moves[1].seen.clear());
    assert_eq!(found, [Violation::StaleAfterNewer { fence: "repo".to_owned(), token: 5, newer: 6, push: 1 }]);
}

#[test]
fn token_wrongly_spent_or_unspent_is_detected() {
    // A push that moved only the lease of its fence has spent its token.
    let only_the_lease = after(|history| {
        history.moves.remove(0);
        history.pushes[0].told.clear();
        history.pushes[0].leased = true;
        history.lease_moves.insert((1, "repo".to_owned()));
    });
    assert_eq!(only_the_lease, []);
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
fn missing_or_duplicate_decision_is_detected() {
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
fn push_settled_never_or_twice_is_detected() {
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
fn client_told_the_wrong_outcome_is_detected() {
    let found = after(|history| tell(history, 2, "c", Told::Landed));
    assert_eq!(found, [Violation::LandedIsNotThere { push: 3, name: "c".to_owned() }]);
    let found = after(|history| tell(history, 0, "a", Told::Refused));
    assert_eq!(found, [Violation::RefusedIsThere { push: 1, name: "a".to_owned() }]);
    // A client that read the ref may have read it after the reset; a refused push has not moved at all.
    let looked = |from: &'static str, what: Told| {
        after(|history| {
            reset_a(history, from);
            tell(history, 0, "a", what);
        })
    };
    assert_eq!(looked("1", Told::NotThere), []);
    let there = [Violation::RefusedIsThere { push: 1, name: "a".to_owned() }];
    assert_eq!(looked("0", Told::NotThere), there);
    assert_eq!(looked("1", Told::Refused), there);
}

#[test]
fn push_that_lands_on_a_full_disk_is_detected() {
    let found = after(|history| history.pushes[0].no_room = true);
    assert_eq!(found, [Violation::MovedWithoutRoom { push: 1 }]);
}

#[test]
fn decreasing_lease_counter_is_detected() {
    let found = after(|history| history.lease.push(2));
    assert_eq!(found, [Violation::LeaseWentBack { token: 2, after: 3 }]);
}

/// Push 1 was accepted in line 1 when "a" was at "0", and "a" was reset from `from`, not by a push.
fn reset_a(history: &mut History, from: &str) {
    let planned = Planned { name: "a".to_owned(), old: "0".to_owned(), new: "1".to_owned() };
    log(history).0[0].planned = vec![planned];
    history.resets.push(Reset { name: "a".to_owned(), from: from.to_owned() });
}

#[test]
fn reset_ref_counts_as_moved() {
    let back = |seen_at: Option<usize>| {
        after(|history| {
            reset_a(history, "1");
            // Push 2 finds "a" with the value that push 1 had found.
            history.moves[1].seen.clear();
            history.first_seen = seen_at.map(|at| (("a".to_owned(), "1".to_owned()), at)).into_iter().collect();
        })
    };
    assert_eq!(back(Some(1)), []);
    // The new value was never seen, or only later: the ref had not moved yet.
    let waiting = [Violation::StaleAfterNewer { fence: "repo".to_owned(), token: 5, newer: 6, push: 1 }];
    assert_eq!(back(None), waiting);
    assert_eq!(back(Some(3)), waiting);
}

#[test]
fn token_revived_by_a_ref_reset_is_detected() {
    // The record says that nothing moved, and push 3 is admitted with the same token.
    let found = after(|history| {
        reset_a(history, "1");
        log(history).1[0] = Settled { is_reported: false, ..settled(1, 0) };
    });
    assert_eq!(found, [Violation::SpentUnlessMoved { push: 1, moved: 1, spent: 0 }]);
    let found = after(|history| {
        reset_a(history, "1");
        history.moves.push(Move { seen: [("a".to_owned(), "0".to_owned())].into(), ..a_move(3, 6, "c", &[]) });
        history.first_seen = [(("a".to_owned(), "1".to_owned()), 1), (("b".to_owned(), "2".to_owned()), 2)].into();
        history.pushes[2] = told(3, "c", Told::Landed);
        log(history).0[2].code = None;
        log(history).1.push(settled(5, 1));
    });
    assert_eq!(found, [Violation::TokenOrder { fence: "repo".to_owned(), token: 6, after: 6, push: 3 }]);
}

/// Its ref has changed since the gate read it, because it was reset, and git never reported: undecidable.
#[test]
fn token_may_be_spent_without_a_move_only_if_the_move_is_unknowable() {
    let unmoved = |from: &str, end: Settled| {
        after(|history| {
            reset_a(history, from);
            history.moves.remove(0);
            history.moves[0].seen.clear();
            history.pushes[0].told.clear();
            log(history).1[0] = end;
        })
    };
    let compared = || Settled { is_reported: false, ..settled(1, 1) };
    assert_eq!(unmoved("0", compared()), []);
    let lied = [Violation::SpentUnlessMoved { push: 1, moved: 0, spent: 1 }];
    assert_eq!(unmoved("9", compared()), lied, "that reset was before or after the push");
    assert_eq!(unmoved("0", settled(1, 1)), lied, "git reported it");
    // Even then the mark must equal the token.
    let marked = |token: u64, mark: u64| {
        after(|history| {
            reset_a(history, "0");
            history.moves.remove(0);
            history.moves[0].seen.clear();
            history.pushes[0].told.clear();
            log(history).1[0] = Settled { token, ..compared() };
            history.marks = [("repo".to_owned(), mark)].into();
        })
    };
    assert_eq!(marked(9, 9), []);
    assert_eq!(marked(9, 6), [Violation::Mark { fence: "repo".to_owned(), mark: 6, highest: 9 }]);
}

#[test]
fn landed_lines_add_to_the_settlement() {
    let lines = |end: Settled, landed: Settled| {
        after(|history| {
            log(history).1[0] = end;
            log(history).1.push(Settled { is_end: false, is_reported: false, ..landed });
        })
    };
    // Recorded while it was in flight, and corrected when it had been settled too early.
    assert_eq!(lines(settled(1, 1), settled(1, 1)), []);
    assert_eq!(lines(settled(1, 0), settled(1, 1)), []);
    let found = lines(settled(1, 1), settled(5, 1));
    assert_eq!(found, [], "a push that does not exist");
    let found = lines(settled(1, 0), settled(1, 0));
    assert_eq!(found, [Violation::SpentUnlessMoved { push: 1, moved: 1, spent: 0 }]);
    // The log says that a push landed that moved nothing.
    let found = after(|history| {
        history.moves.remove(0);
        history.pushes[0].told.clear();
        log(history).1[0] = settled(1, 0);
        log(history).1.push(Settled { is_end: false, ..settled(1, 1) });
    });
    assert_eq!(found, [Violation::SpentUnlessMoved { push: 1, moved: 0, spent: 1 }]);
}

#[test]
fn wrong_count_of_moved_refs_is_detected() {
    let found = after(|history| log(history).1[0].moved = 2);
    assert_eq!(found, [Violation::OtherCount { push: 1, moved: 1, said: 2 }]);
    let counted = |is_reported: bool| {
        after(|history| {
            reset_a(history, "1");
            history.moves.insert(1, a_move(1, 5, "z", &[("a", "1")]));
            history.moves[2].seen.insert("z".to_owned(), "1".to_owned());
            log(history).1[0].is_reported = is_reported;
        })
    };
    assert_eq!(counted(false), [], "one of two was reset, and settled by comparing refs");
    assert_eq!(counted(true), [Violation::OtherCount { push: 1, moved: 2, said: 1 }]);
}
