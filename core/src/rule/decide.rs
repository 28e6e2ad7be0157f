//! The decision: whether a push is admitted.

use crate::{
    Enforcement, FenceName, Ground, LeaseAsk, LeaseChange, LeaseMove, MarkAsk, MarkChange, MarkJudged, MovedRef,
    PlannedRef, Reject, Rules, Stamp, State, Token, TokenKind, lease::judge::halted,
};

/// What a push carries for one fence that it touches.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The fence's rules.
    pub rules: &'a Rules,
    /// The token for the fence.
    pub token: Option<Token>,
    /// Whether this pusher may push without one.
    pub exempt: bool,
    /// Whether the push moves refs that the fence guards, and not only its lease.
    pub guarded: bool,
    /// What the push asks of the fence's lease.
    pub lease: Option<&'a LeaseAsk>,
}

/// What to do with a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Admit it; it takes the slots of its fences.
    Admit {
        /// The refusal that an enforcing fence would have given.
        overruled: Option<Reject>,
        /// How leases change when it lands.
        leases: Vec<LeaseChange>,
    },
    /// Refuse it.
    Refuse(Reject),
    /// Wait: a push whose refs are still moving is in the slot of this fence. If this fence only observes,
    /// so do all the other occupied ones.
    Wait(FenceName),
}

/// Judges a push against the marks and slots of the fences it touches.
///
/// Marks only rise, so a token that is too old now stays too old: it is refused without waiting for
/// the push in the slot. Everything else waits until the slot is free, because the push in it may
/// still raise the mark.
pub fn decide(state: &State, claims: &[Claim<'_>], now: &Stamp) -> Decision {
    let enforcement = Enforcement::of_claims(claims);
    let is_occupied = |claim: &&Claim<'_>| state.fence(&claim.rules.fence).is_occupied();
    let enforces = |claim: &&Claim<'_>| enforcement.upholds(Ground::Refs(&claim.rules.fence));
    let (mut overruled, mut leases) = (None, Vec::new());
    for claim in claims {
        let Judged { token, lease } = judge(state, claim, now);
        let against_token = token.err().map(|reject| (reject, Ground::Refs(&claim.rules.fence)));
        let against_lease = lease.map(|change| leases.extend(change)).err().map(|reject| (reject, Ground::Lease));
        for (reject, ground) in against_token.into_iter().chain(against_lease) {
            if is_occupied(&claim) && may_change(&reject, claim) {
                continue;
            }
            if enforcement.upholds(ground) {
                return Decision::Refuse(reject);
            }
            overruled = overruled.or(Some(reject));
        }
    }
    // Name an enforcing fence first: an observing one admits the push after the wait anyway.
    let occupied = claims.iter().filter(enforces).find(is_occupied).or_else(|| claims.iter().find(is_occupied));
    match occupied {
        Some(claim) => Decision::Wait(claim.rules.fence.clone()),
        None => Decision::Admit { overruled, leases },
    }
}

/// Why an admitted push still gets no slot: one of its `refs`, read under the lock, does not have the value that
/// the pusher claims.
///
/// Git checks that too, but only after the gate, and its client can draw that out: a receive-pack that cannot write
/// its report stays alive, with a ref that never moves. Where a fence only observes, git declines the push; leases
/// are judged there, too.
pub fn outdated(claims: &[Claim<'_>], refs: &[PlannedRef]) -> Option<Reject> {
    let enforcement = Enforcement::of_claims(claims);
    let stands = |planned: &&PlannedRef| {
        enforcement.upholds(if planned.name.is_lease() { Ground::Lease } else { Ground::Refs(&planned.fence) })
    };
    refs.iter().filter(stands).find_map(|planned| {
        let claimed = planned.claimed.clone()?;
        let name = planned.via.as_ref().unwrap_or(&planned.name).clone();
        let moved = MovedRef { name, now: planned.old.clone(), claimed };
        Some(Reject::Moved { fence: planned.fence.clone(), moved: Box::new(moved) })
    })
}

/// Whether the push in the slot may still make the refusal untrue. A push that only asks is answered at once.
fn may_change(reject: &Reject, claim: &Claim<'_>) -> bool {
    // Once the kind of tokens is decided, no push in a slot changes it.
    let is_decided = matches!(reject, Reject::OwnTokens { .. });
    let concerns_a_lease = reject.is_about_the_lease() || matches!(reject, Reject::LeaseRequired { .. });
    let depends_on_the_lease = concerns_a_lease && !is_decided;
    let moves_the_lease = claim.lease.is_some_and(|asked| !asked.only_asks);
    matches!(reject, Reject::Jump { .. }) || (depends_on_the_lease && moves_the_lease)
}

/// The judgement of a push to one fence.
struct Judged {
    /// Whether it may move the refs that the fence guards.
    token: Result<(), Reject>,
    /// How the fence's lease changes.
    lease: Result<Option<LeaseChange>, Reject>,
}

fn judge(state: &State, claim: &Claim<'_>, now: &Stamp) -> Judged {
    let fence = state.fence(&claim.rules.fence);
    let lease = match (claim.lease, claim.mark()) {
        (Some(_), Some(_)) => claim.judge_mark(state, now).map(|judged| judged.lease),
        (Some(asked), None) => fence.judge(claim.rules, asked, now).map(Some),
        (None, _) => Ok(None),
    };
    let token = if claim.guarded { judge_token(state, claim) } else { Ok(()) };
    let only_takes = |change: &LeaseChange| !matches!(change.change, LeaseMove::Advance | LeaseMove::Release);
    let token = token.and_then(|()| match &lease {
        Ok(Some(change)) if claim.guarded && only_takes(change) => {
            Err(required(claim, "a push that acquires the lease cannot move refs"))
        }
        _ => Ok(()),
    });
    Judged { token, lease }
}

fn judge_token(state: &State, claim: &Claim<'_>) -> Result<(), Reject> {
    let fence = claim.rules.fence.clone();
    let standing = state.fence(&fence);
    let (mark, kind) = (standing.mark, standing.kind(claim.rules));
    if claim.token.is_none() && claim.exempt && claim.lease.is_none() {
        return Ok(());
    }
    if let Some(halted) = standing.lease.and_then(|lease| halted(claim.rules, lease)) {
        return Err(halted);
    }
    let Some(token) = claim.token else {
        return match kind {
            Some(TokenKind::Lease) => Err(required(claim, "the push carries no token")),
            Some(TokenKind::Own) | None => Err(Reject::Missing { fence, name: None, kind }),
        };
    };
    if !claim.rules.accept.admits(token, mark) {
        return Err(Reject::Stale { fence, token, mark, kind });
    }
    if let Some(limit) = claim.rules.max_jump.filter(|limit| token.get() - mark.get() > *limit) {
        return Err(Reject::Jump { fence, token, mark, limit });
    }
    if let Some(carried) = claim.mark() {
        return standing.counts(claim.rules, carried, token);
    }
    if claim.rules.store.is_some() {
        let why = format!(
            "its leases are kept in {}, and the push does not carry the mark of one",
            standing.store_in_words(claim.rules)
        );
        return Err(required(claim, &why));
    }
    if kind != Some(TokenKind::Lease) {
        return Ok(());
    }
    match standing.lease {
        _ if claim.lease.is_none() => Err(required(claim, "the push does not carry the lease")),
        // The lease's token is public: naming it proves nothing and grants nothing.
        Some(lease) if lease.lease.token != token => {
            Err(required(claim, &format!("token {token} is not the lease's token {}", lease.lease.token)))
        }
        _ => Ok(()),
    }
}

/// How marks change when a push with these claims lands, once it is admitted.
pub fn moved_marks(state: &State, claims: &[Claim<'_>], now: &Stamp) -> Vec<MarkChange> {
    let judged = claims.iter().filter(|claim| claim.mark().is_some()).map(|claim| claim.judge_mark(state, now));
    judged.filter_map(|judged| Some(judged.ok()?.mark)).collect()
}

impl Claim<'_> {
    /// The new mark that it carries.
    fn mark(&self) -> Option<&MarkAsk> {
        self.lease?.mark.as_deref()
    }

    fn judge_mark(&self, state: &State, now: &Stamp) -> Result<MarkJudged, Reject> {
        let writes = self.guarded.then_some(self.token);
        match self.lease.zip(self.mark()) {
            Some((asked, mark)) => state.fence(&self.rules.fence).judge_mark(self.rules, asked, mark, writes, now),
            None => Err(Reject::malformed("the push moves no mark")),
        }
    }
}

fn required(claim: &Claim<'_>, why: &str) -> Reject {
    Reject::LeaseRequired { fence: claim.rules.fence.clone(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Accept, Code, Lease, LeaseState, Mode, Proposal, Standing,
        lease::record::tests::{lease, proof},
        log::flight::tests::{in_flight, oid},
        value::token::Mark,
    };

    fn token(n: u64) -> Token {
        n.try_into().unwrap()
    }

    fn now() -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: 0, unix_ms: 0 }
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
            Decision::Admit { overruled: None, .. } => "admit",
            Decision::Admit { overruled: Some(_), .. } => "overruled",
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
            // A stale token is refused without waiting. One that may be good waits, above or below
            // the token in the slot, because the push in the slot may never land.
            (&plain, 5, Some(9), Some(5), false, "FENCE-STALE"),
            (&plain, 5, Some(9), None, false, "FENCE-MISSING"),
            (&plain, 5, Some(9), Some(6), false, "wait"),
            (&plain, 5, Some(9), Some(10), false, "wait"),
            (&plain, 5, Some(9), None, true, "wait"),
            (&tie, 5, None, Some(5), false, "admit"),
            (&tie, 5, None, Some(4), false, "FENCE-STALE"),
            (&near, 5, None, Some(15), false, "admit"),
            (&near, 5, None, Some(16), false, "FENCE-JUMP"),
            // The push in the slot may raise the mark far enough.
            (&near, 5, Some(9), Some(16), false, "wait"),
            (&observe, 5, None, Some(4), false, "overruled"),
            (&observe, 5, None, None, false, "overruled"),
            (&observe, 5, None, Some(6), false, "admit"),
            (&observe, 5, Some(9), Some(4), false, "wait"),
        ] {
            let claim = Claim { rules, token: offered.map(token), exempt, guarded: true, lease: None };
            let decision = decide(&state(mark, slot), &[claim], &now());
            assert_eq!(code(decision), expected, "mark {mark} slot {slot:?} token {offered:?} exempt {exempt}");
        }
    }

    #[test]
    fn push_with_a_wrong_old_value_is_refused_and_may_be_retried() {
        let enforce = Rules::for_repo();
        let observe = Rules { mode: Mode::Observe, ..enforce.clone() };
        let mut refs = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "c")]).plan.refs;
        let claim = |rules| Claim { rules, token: Some(token(5)), exempt: false, guarded: true, lease: None };
        assert_eq!(outdated(&[claim(&enforce)], &refs), None);
        refs[1].claimed = Some("1234".to_owned());
        let reject = outdated(&[claim(&enforce)], &refs).unwrap();
        assert_eq!((reject.code(), reject.is_retryable(), reject.compared()), (Code::Busy, true, None));
        assert_eq!(
            reject.to_string(),
            "ref 'refs/heads/b' does not exist, but the push expects it at 1234: another push was faster"
        );
        assert_eq!(outdated(&[claim(&observe)], &refs), None);
        refs[1].name = crate::LeasePart::Lease.of(&FenceName::repo());
        assert!(outdated(&[claim(&observe)], &refs).is_some());
    }

    #[test]
    fn any_enforcing_fence_refuses_and_any_occupied_fence_makes_a_push_wait() {
        let repo = Rules::for_repo();
        let deploy = Rules { fence: FenceName::parse(b"deploy").unwrap(), ..repo.clone() };
        let claims = |repo_token, deploy_token| {
            [
                Claim { rules: &deploy, token: Some(token(deploy_token)), exempt: false, guarded: true, lease: None },
                Claim { rules: &repo, token: Some(token(repo_token)), exempt: false, guarded: true, lease: None },
            ]
        };
        assert_eq!(code(decide(&state(5, None), &claims(5, 1), &now())), Code::Stale.as_str());
        assert_eq!(code(decide(&state(5, None), &claims(6, 1), &now())), "admit");
        assert_eq!(code(decide(&state(5, Some(6)), &claims(7, 1), &now())), "wait");
        assert_eq!(code(decide(&state(5, Some(6)), &claims(7, 1)[..1], &now())), "admit");
    }

    #[test]
    fn push_waits_for_an_enforcing_fence_before_an_observing_one() {
        let repo = Rules { max_jump: Some(10), ..Rules::for_repo() };
        let watch =
            Rules { fence: FenceName::parse(b"watch").unwrap(), mode: Mode::Observe, max_jump: None, ..repo.clone() };
        let claim = |rules, n| Claim { rules, token: Some(token(n)), exempt: false, guarded: true, lease: None };
        let mut state = state(5, Some(6));
        let stake = crate::Stake { fence: watch.fence.clone(), ..state.in_flight[0].stakes[0].clone() };
        state.in_flight[0].stakes.push(stake);
        for claims in [[claim(&watch, 7), claim(&repo, 7)], [claim(&repo, 7), claim(&watch, 7)]] {
            assert_eq!(decide(&state, &claims, &now()), Decision::Wait(FenceName::repo()));
        }
        // With only the observing fence occupied, the rule of the other still applies.
        state.in_flight[0].stakes.remove(0);
        let far = [claim(&watch, 99), claim(&repo, 99)];
        assert_eq!(code(decide(&state, &far, &now())), "FENCE-JUMP");
    }

    /// Fence `repo` with a lease that agent 1 holds, with token 5.
    fn leased(slot: Option<u64>) -> State {
        let mut state = state(4, slot);
        let standing = Standing {
            commit: oid("a"),
            parent: oid("9"),
            lease: lease(1, 5, LeaseState::Held),
            since: now(),
            heard: now(),
            progress: None,
            beat: None,
        };
        state.leases.insert(FenceName::repo(), standing);
        state
    }

    #[test]
    fn fence_takes_one_kind_of_tokens() {
        let rules = |tokens| Rules { tokens, ..Rules::for_repo() };
        let (any, own, leases) = (rules(None), rules(Some(TokenKind::Own)), rules(Some(TokenKind::Lease)));
        let ask = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
        let code_of = |state: &State, rules, token: Option<u64>, lease| {
            let claim = Claim { rules, token: token.map(self::token), exempt: false, guarded: token.is_some(), lease };
            code(decide(state, &[claim], &now()))
        };
        let mut written = state(4, None);
        written.kinds.insert(FenceName::repo(), TokenKind::Own);
        for (state, rules, as_token, as_lease) in [
            (&state(4, None), &any, "admit", "FENCE-LEASE-INVALID: free"),
            (&state(4, None), &own, "admit", "FENCE-LEASE-INVALID"),
            (&state(4, None), &leases, "FENCE-LEASE-REQUIRED", "FENCE-LEASE-INVALID: free"),
            (&written, &any, "admit", "FENCE-LEASE-INVALID"),
            (&written, &leases, "FENCE-LEASE-REQUIRED", "FENCE-LEASE-INVALID: free"),
            (&leased(None), &any, "FENCE-LEASE-REQUIRED", "FENCE-LEASE-HELD"),
            (&leased(None), &own, "admit", "FENCE-LEASE-INVALID"),
        ] {
            assert_eq!(code_of(state, rules, Some(5), None), as_token, "{:?}", rules.tokens);
            let claim = Claim { rules, token: None, exempt: false, guarded: false, lease: Some(&ask) };
            let Decision::Refuse(reject) = decide(state, &[claim], &now()) else { panic!("{as_lease}") };
            let free = if reject.to_string().contains("the lease is free") { ": free" } else { "" };
            assert_eq!(format!("{}{free}", reject.code()), as_lease, "{:?}", rules.tokens);
        }
        // A push that wants a lease where none is granted is refused without waiting.
        let takes = moves_to(lease(2, 5, LeaseState::Held), None);
        let mut busy = state(4, Some(5));
        busy.kinds.insert(FenceName::repo(), TokenKind::Own);
        let claim = Claim { rules: &any, token: None, exempt: false, guarded: false, lease: Some(&takes) };
        assert_eq!(code(decide(&busy, &[claim], &now())), "FENCE-LEASE-INVALID");
        assert_eq!(
            code(decide(&state(4, Some(5)), &[claim], &now())),
            "wait",
            "the push in the slot may decide the kind"
        );
        // Hints name only the fence's own kind of tokens.
        let hint = |state: &State, rules| {
            let claim = Claim { rules, token: Some(token(4)), exempt: false, guarded: true, lease: None };
            let Decision::Refuse(reject) = decide(state, &[claim], &now()) else { panic!("4 is the mark") };
            reject.hint().into_owned()
        };
        assert!(hint(&leased(None), &any).contains("git fence run"));
        for hint in [hint(&written, &any), hint(&state(4, None), &any), hint(&leased(None), &own)] {
            assert!(!hint.contains("git fence"), "{hint}");
        }
    }

    #[test]
    fn halted_fence_admits_only_those_who_need_no_token() {
        let enforce = Rules::for_repo();
        let observe = Rules { mode: Mode::Observe, ..enforce.clone() };
        let mut halted = leased(None);
        halted.leases.get_mut(&FenceName::repo()).unwrap().lease = lease(9, 6, LeaseState::Halted);
        let mut own = halted.clone();
        own.kinds.insert(FenceName::repo(), TokenKind::Own);
        let advance = moves_to(lease(1, 6, LeaseState::Held), Some(proof(1, 5)));
        for (state, offered, exempt, asked, enforced, observed) in [
            (&halted, Some(7), false, None, "FENCE-HALTED", "overruled"),
            (&halted, None, false, None, "FENCE-HALTED", "overruled"),
            (&halted, Some(5), false, Some(&advance), "FENCE-HALTED", "FENCE-HALTED"),
            (&halted, None, true, None, "admit", "admit"),
            (&halted, Some(7), true, None, "FENCE-HALTED", "overruled"),
            (&own, Some(7), false, None, "FENCE-HALTED", "overruled"),
            (&own, Some(3), false, None, "FENCE-HALTED", "overruled"),
            (&own, None, true, None, "admit", "admit"),
        ] {
            for (rules, expected) in [(&enforce, enforced), (&observe, observed)] {
                let claim = Claim { rules, token: offered.map(token), exempt, guarded: true, lease: asked };
                let found = code(decide(state, &[claim], &now()));
                assert_eq!(found, expected, "{:?} token {offered:?} exempt {exempt} {asked:?}", rules.mode);
            }
        }
    }

    fn moves_to(lease: Lease, proof: Option<crate::Secret>) -> LeaseAsk {
        let (commit, parents) = (oid("b").unwrap(), oid("9").into_iter().collect());
        LeaseAsk { lease: Some(Proposal { commit, parents, lease, proof }), ..LeaseAsk::default() }
    }

    #[test]
    fn only_the_holder_writes_to_a_fence_with_a_lease() {
        let enforce = Rules::for_repo();
        let observe = Rules { mode: Mode::Observe, ..enforce.clone() };
        let advance = moves_to(lease(1, 6, LeaseState::Held), Some(proof(1, 5)));
        let release = moves_to(lease(1, 5, LeaseState::Released), Some(proof(1, 5)));
        let skip = moves_to(lease(1, 7, LeaseState::Held), Some(proof(1, 5)));
        let unproven = moves_to(lease(1, 6, LeaseState::Held), None);
        let zombie = moves_to(lease(3, 4, LeaseState::Held), Some(proof(3, 3)));
        let ask = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
        for (slot, offered, exempt, asked, enforced, observed) in [
            (None, Some(5), false, Some(&advance), "admit", "admit"),
            (None, Some(5), false, Some(&release), "admit", "admit"),
            (None, Some(5), false, None, "FENCE-LEASE-REQUIRED", "overruled"),
            (None, Some(6), false, Some(&advance), "FENCE-LEASE-REQUIRED", "overruled"),
            (None, Some(4), false, Some(&advance), "FENCE-STALE", "overruled"),
            (None, None, false, None, "FENCE-LEASE-REQUIRED", "overruled"),
            (None, None, true, None, "admit", "admit"),
            (None, None, true, Some(&advance), "FENCE-LEASE-REQUIRED", "overruled"),
            // In observe mode too, a lease moves only as its rule allows.
            (None, Some(5), false, Some(&skip), "FENCE-LEASE-INVALID", "FENCE-LEASE-INVALID"),
            (None, Some(5), false, Some(&unproven), "FENCE-LEASE-REQUIRED", "FENCE-LEASE-REQUIRED"),
            (None, Some(4), false, Some(&zombie), "FENCE-STALE", "FENCE-LEASE-LOST"),
            (None, Some(5), false, Some(&zombie), "FENCE-LEASE-LOST", "FENCE-LEASE-LOST"),
            // The push in the slot may be the one that moves the lease to where this push expects it.
            (Some(5), Some(6), false, Some(&advance), "wait", "wait"),
            (Some(5), Some(5), false, Some(&skip), "wait", "wait"),
            (Some(5), Some(5), false, None, "FENCE-LEASE-REQUIRED", "wait"),
            (Some(5), None, false, Some(&ask), "FENCE-LEASE-REQUIRED", "FENCE-LEASE-HELD"),
        ] {
            for (rules, expected) in [(&enforce, enforced), (&observe, observed)] {
                let claim = Claim { rules, token: offered.map(token), exempt, guarded: true, lease: asked };
                let decision = decide(&leased(slot), &[claim], &now());
                assert_eq!(code(decision), expected, "{:?} slot {slot:?} token {offered:?} {asked:?}", rules.mode);
            }
        }
        let alone = Claim { rules: &observe, token: None, exempt: false, guarded: false, lease: Some(&ask) };
        assert_eq!(code(decide(&leased(Some(5)), &[alone], &now())), "FENCE-LEASE-HELD");
        let taken = moves_to(lease(2, 6, LeaseState::Held), None);
        let takes = Claim { lease: Some(&taken), ..alone };
        assert_eq!(code(decide(&leased(None), &[takes], &now())), "FENCE-LEASE-HELD");
        assert_eq!(code(decide(&leased(Some(5)), &[takes], &now())), "wait");
    }
}
