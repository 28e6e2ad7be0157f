//! The decision: whether a push may go on.

use crate::{FenceName, Mode, Reject, Rules, State, Token};

/// What a push brings for one fence that it touches.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The fence's rules.
    pub rules: &'a Rules,
    /// The token for it.
    pub token: Option<Token>,
    /// Whether this pusher may come without one.
    pub exempt: bool,
}

/// What is to happen with a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may go on and takes the slots of its fences.
    Admit {
        /// What would have refused it if its fence did more than observe.
        overruled: Option<Reject>,
    },
    /// It is refused.
    Refuse(Reject),
    /// A push whose refs are still moving is in the slot of this fence. If this fence only observes,
    /// so do all others that are occupied.
    Wait(FenceName),
}

/// Judges a push against the marks and slots of the fences it touches.
///
/// Marks only rise, so a token that is too old now stays too old: it is refused without waiting for
/// whoever is in the slot. Everything else waits until the slot is free, because the push in it may
/// yet raise the mark.
pub fn decide(state: &State, claims: &[Claim<'_>]) -> Decision {
    let is_occupied = |claim: &&Claim<'_>| state.fence(&claim.rules.fence).is_occupied();
    let enforces = |claim: &&Claim<'_>| claim.rules.mode == Mode::Enforce;
    let mut overruled = None;
    for claim in claims {
        match judge(state, claim) {
            Some(Reject::Jump { .. }) if is_occupied(&claim) => {}
            Some(reject) if claim.rules.mode == Mode::Enforce => return Decision::Refuse(reject),
            Some(reject) => overruled = overruled.or(Some(reject)),
            None => {}
        }
    }
    // One that enforces is named first: whoever only observes lets the push go on after the wait.
    let in_the_way = claims.iter().filter(enforces).find(is_occupied).or_else(|| claims.iter().find(is_occupied));
    match in_the_way {
        Some(claim) => Decision::Wait(claim.rules.fence.clone()),
        None => Decision::Admit { overruled },
    }
}

fn judge(state: &State, claim: &Claim<'_>) -> Option<Reject> {
    let fence = claim.rules.fence.clone();
    let mark = state.fence(&fence).mark;
    let Some(token) = claim.token else {
        return (!claim.exempt).then_some(Reject::Missing { fence, name: None });
    };
    if !claim.rules.accept.admits(token, mark) {
        return Some(Reject::Stale { fence, token, mark });
    }
    let limit = claim.rules.max_jump?;
    (token.get() - mark.get() > limit).then_some(Reject::Jump { fence, token, mark, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accept, Code, flight::tests::in_flight, token::Mark};

    fn token(n: u64) -> Token {
        n.try_into().unwrap()
    }

    fn state(mark: u64, slot: Option<u64>) -> State {
        let mut state = State::default();
        if mark > 0 {
            state.marks.insert(FenceName::repo(), Mark::from(token(mark)));
        }
        state.in_flight.extend(slot.map(|n| in_flight(1, Some(n), &[])));
        state
    }

    fn code(decision: Decision) -> &'static str {
        match decision {
            Decision::Admit { overruled: None } => "admit",
            Decision::Admit { overruled: Some(_) } => "overruled",
            Decision::Wait(_) => "wait",
            Decision::Refuse(reject) => reject.code().as_str(),
        }
    }

    #[test]
    fn the_rule_as_a_table() {
        let plain = Rules::for_repo();
        let observe = Rules { mode: Mode::Observe, ..plain.clone() };
        let tie = Rules { accept: Accept::AtOrAbove, ..plain.clone() };
        let near = Rules { max_jump: Some(10), ..plain.clone() };
        for (rules, mark, slot, offered, exempt, expected) in [
            (&plain, 0, None, Some(1), false, "admit"),
            (&plain, 5, None, Some(6), false, "admit"),
            (&plain, 5, None, Some(5), false, "FENCE-STALE"),
            (&plain, 5, None, Some(4), false, "FENCE-STALE"),
            (&plain, 5, None, None, false, "FENCE-MISSING"),
            (&plain, 5, None, None, true, "admit"),
            (&plain, 5, None, Some(5), true, "FENCE-STALE"),
            // A stale token is refused without waiting; one that may be good waits, above or below
            // the token in the slot: that one may never land.
            (&plain, 5, Some(9), Some(5), false, "FENCE-STALE"),
            (&plain, 5, Some(9), None, false, "FENCE-MISSING"),
            (&plain, 5, Some(9), Some(6), false, "wait"),
            (&plain, 5, Some(9), Some(10), false, "wait"),
            (&plain, 5, Some(9), None, true, "wait"),
            (&tie, 5, None, Some(5), false, "admit"),
            (&tie, 5, None, Some(4), false, "FENCE-STALE"),
            (&near, 5, None, Some(15), false, "admit"),
            (&near, 5, None, Some(16), false, "FENCE-JUMP"),
            // The slot's push may raise the mark within reach.
            (&near, 5, Some(9), Some(16), false, "wait"),
            (&observe, 5, None, Some(4), false, "overruled"),
            (&observe, 5, None, None, false, "overruled"),
            (&observe, 5, None, Some(6), false, "admit"),
            (&observe, 5, Some(9), Some(4), false, "wait"),
        ] {
            let claim = Claim { rules, token: offered.map(token), exempt };
            let decision = decide(&state(mark, slot), &[claim]);
            assert_eq!(code(decision), expected, "mark {mark} slot {slot:?} token {offered:?} exempt {exempt}");
        }
    }

    #[test]
    fn one_enforcing_fence_is_enough_to_refuse_and_one_occupied_to_wait() {
        let repo = Rules::for_repo();
        let deploy = Rules { fence: FenceName::parse(b"deploy").unwrap(), ..repo.clone() };
        let claims = |repo_token, deploy_token| {
            [
                Claim { rules: &deploy, token: Some(token(deploy_token)), exempt: false },
                Claim { rules: &repo, token: Some(token(repo_token)), exempt: false },
            ]
        };
        assert_eq!(code(decide(&state(5, None), &claims(5, 1))), Code::Stale.as_str());
        assert_eq!(code(decide(&state(5, None), &claims(6, 1))), "admit");
        assert_eq!(code(decide(&state(5, Some(6)), &claims(7, 1))), "wait");
        assert_eq!(code(decide(&state(5, Some(6)), &claims(7, 1)[..1])), "admit");
    }

    #[test]
    fn an_enforcing_fence_is_waited_for_before_an_observing_one() {
        let repo = Rules { max_jump: Some(10), ..Rules::for_repo() };
        let watch =
            Rules { fence: FenceName::parse(b"watch").unwrap(), mode: Mode::Observe, max_jump: None, ..repo.clone() };
        let claim = |rules, n| Claim { rules, token: Some(token(n)), exempt: false };
        let mut state = state(5, Some(6));
        let stake = crate::Stake { fence: watch.fence.clone(), ..state.in_flight[0].stakes[0].clone() };
        state.in_flight[0].stakes.push(stake);
        for claims in [[claim(&watch, 7), claim(&repo, 7)], [claim(&repo, 7), claim(&watch, 7)]] {
            assert_eq!(decide(&state, &claims), Decision::Wait(FenceName::repo()));
        }
        // Where only the observing one is occupied, the other's rule is not suspended.
        state.in_flight[0].stakes.remove(0);
        let far = [claim(&watch, 99), claim(&repo, 99)];
        assert_eq!(code(decide(&state, &far)), "FENCE-JUMP");
    }
}
