//! The rule, with any state and any push: what must never be admitted.

use super::{
    near::cases,
    values::{self, object, stamp, token},
};
use crate::{
    Accept, Claim, Decision, Event, Fence, Format, FoundLease, Holder, Jobs, Lease, LeaseAsk, LeaseMove, LeasePart,
    LeaseState, Mode, Proposal, Push, Rules, Secret, Standing, Start, State, TickState, Token, TokenKind, Ttl, decide,
    next_token, nonce_of, refs_say_over, settle, settle_as_reported,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn rules() -> impl Strategy<Value = Rules> {
    let mode = select(vec![Mode::Enforce, Mode::Enforce, Mode::Observe]);
    let accept = select(vec![Accept::Above, Accept::Above, Accept::AtOrAbove]);
    let tokens = option::weighted(0.2, values::kind());
    (values::fence(), mode, accept, option::of(1..4u64), 1..4u64, tokens).prop_map(
        |(fence, mode, accept, max_jump, ttl, tokens)| {
            let lease_max_ttl = Ttl::of_seconds(ttl).unwrap();
            Rules { fence, mode, accept, max_jump, lease_max_ttl, tokens, ..Rules::for_repo() }
        },
    )
}

/// The proof of one of three master secrets, for a record with one of three nonces.
fn proof() -> impl Strategy<Value = Secret> {
    let part = select(vec![LeasePart::Lease, LeasePart::Beat]);
    (0..3u8, part, 0..3u8).prop_map(|(id, part, nonce)| values::secret(id).of_record(part, &nonce_of([nonce; 16])))
}

/// The master secret whose proof a record asks for, if it is one of ours.
fn master_of(lease: &Lease) -> Option<Secret> {
    let asks = |master: &Secret| master.of_record(LeasePart::Lease, &lease.nonce).holder() == lease.holder;
    (0..3).map(values::secret).find(asks)
}

/// A request that often fits the current lease: the next change by its holder, or the next grant.
fn ask() -> impl Strategy<Value = Request> {
    let beat = (option::of(values::beat()), option::of(proof()), option::of(values::beat()));
    let lease = option::of((object(), vec(object(), 0..2), values::lease(), option::of(proof())));
    (lease, beat, any::<bool>(), option::of(0..3u8), any::<bool>(), 0..6u8, values::reason()).prop_map(
        |(lease, (beat, beat_proof, beat_now), only_asks, secret, may_revoke, fitting, reason)| Request {
            ask: LeaseAsk {
                lease: lease.map(|(commit, parents, lease, proof)| Proposal { commit, parents, lease, proof }),
                beat,
                beat_proof,
                beat_now,
                mark: None,
                only_asks: only_asks && fitting == 0,
                stopped: None,
                skip: None,
                secret: secret.map(values::secret),
                may_revoke,
            },
            fitting,
            reason,
        },
    )
}

#[derive(Debug, Clone)]
struct Request {
    ask: LeaseAsk,
    fitting: u8,
    reason: crate::Reason,
}

impl Request {
    /// A heartbeat of the current holder, after the one in the ref.
    fn beating(mut self, fence: &Fence<'_>) -> LeaseAsk {
        if let (Some(current), Some(beat), Some(now), 1..=3) =
            (fence.lease, &mut self.ask.beat, &mut self.ask.beat_now, self.fitting)
        {
            beat.lease = current.lease.id.clone();
            now.lease = current.lease.id.clone();
            let shown = (0..3).map(|id| values::secret(id).of_record(LeasePart::Beat, &now.nonce));
            self.ask.beat_proof = shown.into_iter().find(|proof| Some(proof.holder()) == now.holder);
        }
        self.ask
    }

    /// Adapted to the current state of the fence, more or less.
    fn adapted_to(mut self, fence: &Fence<'_>) -> LeaseAsk {
        let Some(Proposal { parents, lease, proof, .. }) = &mut self.ask.lease else { return self.beating(fence) };
        match (self.fitting, fence.lease) {
            (1 | 2, Some(current)) => {
                let nonce = lease.nonce.clone();
                let state = if self.fitting == 1 { LeaseState::Held } else { LeaseState::Released };
                let next = next_token(Some(current.lease.token), crate::Mark::default());
                let token = next.filter(|_| self.fitting == 1).unwrap_or(current.lease.token);
                let ends = (self.fitting == 2).then_some(TickState::Done);
                *lease = Lease { nonce, state, token, jobs: current.lease.jobs.ended(ends), ..current.lease.clone() };
                *parents = current.parent.clone().into_iter().collect();
                self.ask.secret = (0..3).map(values::secret).find(|secret| secret.holder() == lease.holder);
                if let Some(master) = master_of(&current.lease) {
                    *proof = Some(master.of_record(LeasePart::Lease, &current.lease.nonce));
                    lease.holder = master.of_record(LeasePart::Lease, &lease.nonce).holder();
                }
                self.ask.beat = None;
            }
            (3 | 4, current) => {
                let last = current.map(|current| current.lease.token);
                lease.token = next_token(last, fence.mark).unwrap_or(Token::MAX);
                lease.reason = if current.is_none() { crate::Reason::First } else { self.reason };
                lease.ttl = Ttl::of_seconds(1).unwrap();
                lease.state = match lease.state {
                    LeaseState::Halted => LeaseState::Halted,
                    _ if lease.reason == crate::Reason::Revoked => LeaseState::Released,
                    _ => LeaseState::Held,
                };
                if let Some(halted) = current.filter(|current| current.halt().is_some() && lease.is_revocation()) {
                    lease.token = halted.lease.token;
                }
                *parents = current.and_then(|current| current.commit.clone()).into_iter().collect();
                self.ask.secret = None;
                *proof = None;
                lease.jobs = started(current, lease);
                if let Some(beat) = &mut self.ask.beat {
                    beat.lease = lease.id.clone();
                }
            }
            _ => {}
        }
        self.ask
    }
}

/// The jobs of the lease before, one of whose ticks may be started: the first job that the request has.
fn started(current: Option<&Standing>, lease: &Lease) -> Jobs {
    let before = current.map(|current| current.lease.jobs.carried()).unwrap_or_default();
    let Some((name, job)) = lease.jobs.iter().next() else { return before };
    let start = Start { tick: job.tick, dropped: job.dropped, late: job.late };
    let schedule = before.get(name).map_or(&job.schedule, |known| &known.schedule);
    before.started(name, &start, schedule, lease.token, &lease.owner).unwrap()
}

/// Whether the request carries the proof that the previous record asked for, and asks for another one next.
fn is_proven(ask: &LeaseAsk, current: &Standing) -> bool {
    let shows = |proof: Option<&Secret>, asked: Option<&Holder>, next: Option<&Holder>| {
        proof.map(Secret::holder).as_ref() == asked && asked.is_some() && next.is_some() && next != asked
    };
    match (&ask.lease, &ask.beat) {
        _ if current.lease.format == Format::OneSecret => {
            ask.secret.as_ref().map(Secret::holder).as_ref() == Some(&current.lease.holder)
        }
        (Some(next), _) => shows(next.proof.as_ref(), Some(&current.lease.holder), Some(&next.lease.holder)),
        (None, Some(next)) => {
            let now = ask.beat_now.as_ref().filter(|now| now.lease == current.lease.id);
            let asked = now.and_then(|now| now.holder.as_ref()).or(current.beat.as_ref());
            shows(ask.beat_proof.as_ref(), asked, next.holder.as_ref())
        }
        (None, None) => false,
    }
}

/// The token that would be granted next, which must never come twice.
fn counter(fence: &Fence<'_>) -> Option<Token> {
    next_token(fence.lease.map(|lease| lease.lease.token), fence.mark)
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn only_mark_lowered_lowers_a_mark(events in vec(values::event(), 1..12)) {
        let mut state = State::default();
        for event in events {
            let before = state.clone();
            // The right line number, so that pushes are accepted and settled.
            let seq = if let Event::PushAccepted { push, .. } = &event { push.0 } else { 3 };
            let applied = state.apply(seq, "2026-01-01T00:00:00.000Z", &event);
            if applied.is_err() {
                prop_assert_eq!(&state, &before, "a refused line changes nothing");
            }
            for (fence, mark) in &before.marks {
                let is_lowered = matches!(&event, Event::MarkLowered { fence: named, .. } if named == fence);
                prop_assert!(is_lowered || state.marks[fence] >= *mark, "{:?}", event);
            }
            // A recorded kind is changed by nobody but the operator.
            for (fence, kind) in before.kinds.iter().filter(|_| before.settings.as_ref().is_some_and(|settings| settings.one_kind)) {
                let is_changed = matches!(&event, Event::TokensChanged { fence: named, .. } if named == fence);
                prop_assert!(is_changed || state.kinds.get(fence) == Some(kind), "{:?}", event);
            }
            prop_assert!(before.leases.keys().all(|fence| state.leases.contains_key(fence)), "a counter survives");
            super::same_again(&state);
        }
    }

    #[test]
    fn guarded_push_needs_a_good_token_and_the_lease(
        state in values::state(),
        rules in prop_oneof![3 => vec(rules(), 1), 1 => vec(rules(), 2)],
        free in 0..4u8,
        offered in vec((option::of(token()), 0..4u8, any::<bool>(), proptest::bool::weighted(0.8), option::weighted(0.3, ask())), 2),
        now in stamp(),
    ) {
        // Keep most slots free and half of the fences without a lease, or hardly any push is admitted.
        let mut state = state;
        state.in_flight.truncate(usize::from(free == 0));
        if free % 2 == 1 {
            state.leases.clear();
            state.kinds.retain(|_, kind| *kind == TokenKind::Own);
        }
        let asks: Vec<Option<LeaseAsk>> = rules.iter().zip(&offered)
            .map(|(rules, (.., ask))| ask.clone().map(|ask| ask.adapted_to(&state.fence(&rules.fence)))).collect();
        let claims: Vec<Claim<'_>> = rules.iter().zip(&offered).zip(&asks)
            .map(|((rules, (token, fitting, exempt, guarded, _)), lease)| {
                let current = state.fence(&rules.fence).lease.map(|lease| lease.lease.token);
                // The lease's token, those around the mark, or any.
                let mark = state.fence(&rules.fence).mark.get();
                let token = match fitting {
                    0 => current.or(*token),
                    1 => Token::try_from(mark).ok().or(*token),
                    2 => Token::try_from(mark + 1).ok().or(*token),
                    _ => *token,
                };
                Claim { rules, token, exempt: *exempt, guarded: *guarded, lease: lease.as_ref() }
            })
            .collect();
        let decision = decide(&state, &claims, &now);
        let occupied = claims.iter().any(|claim| state.fence(&claim.rules.fence).is_occupied());
        let Decision::Admit { overruled, leases } = decision else {
            prop_assert!(occupied || !matches!(decision, Decision::Wait(_)));
            return Ok(());
        };
        prop_assert!(!occupied, "two pushes in one slot");
        prop_assert!(overruled.is_none() || claims.iter().any(|claim| claim.rules.mode != Mode::Enforce));
        prop_assert_eq!(leases.len(), claims.iter().filter(|claim| claim.lease.is_some()).count());
        let takes = |claim: &Claim<'_>| state.fence(&claim.rules.fence).kind(claim.rules);
        prop_assert!(claims.iter().all(|claim| claim.lease.is_none() || takes(claim) != Some(TokenKind::Own)));
        for claim in claims.iter().filter(|claim| claim.guarded && claim.rules.mode == Mode::Enforce) {
            let fence = state.fence(&claim.rules.fence);
            match claim.token {
                None => prop_assert!(claim.exempt && claim.lease.is_none()),
                Some(token) => {
                    let is_new = match claim.rules.accept {
                        Accept::Above => token.get() > fence.mark.get(),
                        Accept::AtOrAbove => token.get() >= fence.mark.get(),
                    };
                    prop_assert!(is_new, "{} at the mark {}", token, fence.mark);
                    prop_assert!(claim.rules.max_jump.is_none_or(|limit| token.get() <= fence.mark.get().saturating_add(limit)));
                    if fence.kind(claim.rules) == Some(TokenKind::Lease) {
                        let lease = fence.lease.expect("no push is admitted without a granted lease");
                        prop_assert_eq!(lease.lease.token, token);
                        prop_assert!(is_proven(claim.lease.expect("the push carries its lease"), lease));
                        prop_assert!(lease.is_held());
                    }
                }
            }
        }
    }

    #[test]
    fn lease_only_moves_forward_and_only_by_those_who_may(
        state in values::state(),
        rules in rules(),
        ask in ask(),
        now in stamp(),
    ) {
        let fence = state.fence(&rules.fence);
        let ask = ask.adapted_to(&fence);
        let Ok(change) = fence.judge(&rules, &ask, &now) else { return Ok(()) };
        prop_assert!(fence.kind(&rules) != Some(TokenKind::Own));
        prop_assert!(!ask.only_asks);
        let is_new =
            matches!(change.change, LeaseMove::Grant | LeaseMove::Revoke | LeaseMove::Halt | LeaseMove::Resume);
        let after = change.standing.lease.token;
        if let Some(current) = fence.lease {
            prop_assert!(after >= current.lease.token, "back from {} to {}", current.lease.token, after);
            prop_assert_eq!(is_new, current.lease.id != change.standing.lease.id);
            prop_assert!(change.change != LeaseMove::Grant || current.left_at(&now).is_none(), "granted while another held it");
            let is_halted = current.halt().is_some();
            prop_assert_eq!(change.change == LeaseMove::Resume, is_halted, "a halted fence can only be resumed");
            if !is_new {
                prop_assert!(is_proven(&ask, current), "{:?} of {:?}", ask, current);
                prop_assert!(current.is_held());
            }
        } else {
            prop_assert!(is_new, "{:?} without a lease", change.change);
        }
        if is_new {
            prop_assert!(after.get() > fence.mark.get() || change.change == LeaseMove::Resume);
            let ends = matches!(change.change, LeaseMove::Revoke | LeaseMove::Resume);
            prop_assert_eq!(ends, change.standing.lease.is_revocation());
            prop_assert_eq!(change.change == LeaseMove::Halt, change.standing.halt().is_some());
            prop_assert!(change.change == LeaseMove::Grant || ask.may_revoke);
            prop_assert!(change.standing.lease.ttl <= rules.lease_max_ttl);
            prop_assert!(change.standing.lease.format == Format::OneUse && change.standing.beat.is_some());
        }
        // No job goes back, and no tick that was done is started again.
        for (name, job) in fence.lease.iter().flat_map(|lease| lease.lease.jobs.iter()) {
            let next = change.standing.lease.jobs.get(name);
            prop_assert!(next.is_some() || job.state == TickState::Forgotten, "'{}' has vanished", name);
            let Some(next) = next.filter(|_| job.state != TickState::Forgotten) else { continue };
            prop_assert!(next.tick >= job.tick, "{:?} after {:?}", next, job);
            let starts = next.token != job.token && next.state == TickState::Running;
            prop_assert!(!starts || next.tick > job.tick || job.state != TickState::Done, "{:?} after {:?}", next, job);
        }
        // After it has landed, no token granted before can be granted or can write again.
        let mut later = state.clone();
        later.apply(9, "", &change.on_record(None, "anna", &state)).unwrap();
        let (before, after) = (counter(&fence), counter(&later.fence(&rules.fence)));
        prop_assert!(after.is_none() || after >= before, "{:?} {:?}", before, after);
        prop_assert!(later.fence(&rules.fence).mark >= fence.mark);
    }

    #[test]
    fn counter_never_goes_back_whatever_is_found(
        state in values::state(),
        rules in rules(),
        found in option::of((object(), vec(object(), 0..2), values::lease())),
        now in stamp(),
    ) {
        let found = found.map_or(FoundLease::Nothing, |(commit, parents, lease)| FoundLease::Record(Box::new(Proposal { commit, parents, lease, proof: None })));
        let Some(line) = state.fence(&rules.fence).lease_found(&rules, found, &now, "anna") else { return Ok(()) };
        let mut later = state.clone();
        later.apply(9, "", &Event::LeaseFound(line)).unwrap();
        let (before, after) = (counter(&state.fence(&rules.fence)), counter(&later.fence(&rules.fence)));
        prop_assert!(after.is_none() || after >= before, "{:?} {:?}", before, after);
    }

    #[test]
    fn push_is_settled_whatever_the_values_of_the_refs(
        state in values::state(),
        seen in vec(option::of(object()), 0..4),
    ) {
        for flight in &state.in_flight {
            let settlement = settle(flight, &flight.plan.refs, &seen);
            let over = refs_say_over(&flight.plan.refs, &seen);
            let counted = flight.plan.refs.len().min(seen.len());
            let known = &flight.landed;
            prop_assert!(known.moved <= settlement.moved && settlement.moved <= counted.max(known.moved));
            prop_assert!(!over || settlement.moved >= counted);
            prop_assert!(settlement.spent.iter().all(|fence| flight.touches(fence)));
            // What has landed stays landed, whatever the refs and git's report say.
            let reported = settle_as_reported(flight, &flight.plan.refs, &Push::default());
            for fence in known.spent.iter().filter(|fence| flight.touches(fence)) {
                prop_assert!(settlement.spent.contains(fence) && reported.spent.contains(fence));
            }
            let mut later = state.clone();
            // A generated state may have the same id twice. Then the first push counts.
            let is_first = state.in_flight.iter().find(|other| other.push == flight.push) == Some(flight);
            for event in settlement.on_record(flight, &state, counted, crate::Evidence::RefsMoved) {
                prop_assert!(later.apply(9, "", &event).is_ok() || !is_first);
            }
            for fence in state.marks.keys() {
                prop_assert!(later.fence(fence).mark >= state.fence(fence).mark);
            }
        }
    }
}
