//! How a line of the log changes the state of all fences.

use crate::{Event, FenceName, InFlight, KnownSettings, Landed, PushId, State};

/// The version of the log's format that this code writes and reads.
pub const LOG_VERSION: u32 = 1;

/// Why a line does not fit the lines before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Written by another version.
    #[error("the log has version {0}, and this git-fence-hook supports version {LOG_VERSION}")]
    Version(u32),
    /// A push that is not in flight cannot be settled.
    #[error("push {0} is settled but was not in flight")]
    NotInFlight(PushId),
    /// A push's id is the number of its line.
    #[error("push {0} is accepted in line {1}")]
    WrongId(PushId, u64),
}

impl State {
    /// Applies the event of line `seq`, written at `time`.
    pub fn apply(&mut self, seq: u64, time: &str, event: &Event) -> Result<(), FoldError> {
        match event {
            Event::LogBegun { version, .. } | Event::LogRotated { version, .. } if *version != LOG_VERSION => {
                return Err(FoldError::Version(*version));
            }
            Event::LogBegun { .. }
            | Event::LogRecovered { .. }
            | Event::LogRepaired { .. }
            | Event::PushRejected(_)
            | Event::LeaseRefused(_)
            | Event::PushObserved(_)
            | Event::TickSkipped { .. }
            | Event::PushEvicted { .. } => {}
            Event::LogRotated { state, .. } => *self = State::clone(state).with_kinds(),
            Event::MarkLowered { fence, mark, .. } => _ = self.marks.insert(fence.clone(), *mark),
            Event::SettingsChanged { settings, digest, heirs } => {
                self.settings = Some(KnownSettings::of(settings, digest.clone()));
                self.settings_since = seq;
                self.inherit(heirs);
            }
            Event::MarkRaised { fence, mark, .. } => self.raise_all(fence, *mark),
            Event::MembersForgotten { fence, members, mark, .. } => self.forget(fence, members, *mark),
            Event::TokensChanged { fence, tokens, mark, .. } => {
                self.kinds.insert(fence.configured(), *tokens);
                self.raise_all(fence, *mark);
            }
            Event::LeaseGranted(line)
            | Event::LeaseAdvanced(line)
            | Event::LeaseReleased(line)
            | Event::LeaseRevoked(line)
            | Event::LeaseHalted(line)
            | Event::LeaseResumed(line) => self.move_lease(line),
            Event::LeaseFound(line) => self.find_lease(line),
            Event::MarkFound(line) => self.find_mark(line),
            Event::LeaseRenewed(renewed) => self.renew_lease(renewed),
            Event::PushAccepted { push, .. } if push.0 != seq => return Err(FoldError::WrongId(*push, seq)),
            Event::PushAccepted { push, stake, also, leases, marks, who, plan, receive_pack, place, .. } => {
                self.in_flight.push(InFlight {
                    push: *push,
                    time: time.to_owned(),
                    stakes: [std::slice::from_ref(stake), also].concat(),
                    plan: plan.clone(),
                    leases: leases.clone(),
                    marks: marks.clone(),
                    who: who.clone(),
                    place: place.clone(),
                    receive_pack: *receive_pack,
                    landed: Landed::default(),
                });
            }
            Event::PushLanded { push, stake, also, spent, moved, .. } => {
                for stake in std::iter::once(stake).chain(also) {
                    self.raise_by(*push, &stake.fence, stake.mark);
                }
                if let Some(flight) = self.in_flight.iter_mut().find(|flight| flight.push == *push) {
                    flight.landed = Landed { spent: spent.clone(), moved: *moved };
                }
            }
            Event::PushSettled { push, spent, marks, .. } => self.settle_push(*push, spent, marks)?,
        }
        Ok(())
    }

    /// The push leaves its slot, and the tokens it spent raise the marks.
    fn settle_push(&mut self, push: PushId, spent: &[FenceName], marks: &[FenceName]) -> Result<(), FoldError> {
        let at = self.in_flight.iter().position(|flight| flight.push == push);
        let flight = self.in_flight.remove(at.ok_or(FoldError::NotInFlight(push))?);
        for change in flight.marks.iter().filter(|change| marks.contains(&change.fence)) {
            self.move_mark(push, change);
        }
        for (fence, token) in spent.iter().filter_map(|fence| Some((fence, flight.token_for(fence)?))) {
            let mark = self.fence(fence).mark.after(token);
            self.raise_by(push, fence, mark);
            // A lease's token moves refs together with the lease, so the line of the lease decides the kind.
            if !flight.leases.iter().any(|change| change.fence == *fence) {
                let kind = self.wrote(fence, flight.marks.iter().find(|change| change.fence == *fence));
                self.kinds.entry(fence.configured()).or_insert(kind);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Evidence, Heir, LeaseLine, Mark, Source, Standing, TokenKind, log::flight::tests::in_flight};

    fn accepted(seq: u64, token: Option<u64>) -> Event {
        let InFlight { push, stakes, plan, leases, marks, who, place, receive_pack, .. } =
            in_flight(seq, token, &[("refs/heads/a", "a", "b")]);
        Event::PushAccepted {
            push,
            stake: stakes[0].clone(),
            also: vec![],
            leases,
            marks,
            code: None,
            reason: None,
            source: Source::Option,
            who,
            plan,
            receive_pack,
            place,
            elapsed_us: 1,
        }
    }

    fn settled(push: u64, token: Option<u64>, moved: bool) -> Event {
        Event::PushSettled {
            push: PushId(push),
            stake: in_flight(push, token, &[]).stakes.remove(0),
            also: vec![],
            spent: if moved { vec![FenceName::repo()] } else { vec![] },
            moved: usize::from(moved),
            count: 1,
            marks: vec![],
            evidence: Evidence::ReceivePackGone,
        }
    }

    fn fold(events: &[Event]) -> Result<State, FoldError> {
        let mut state = State::default();
        for (at, event) in events.iter().enumerate() {
            state.apply(at as u64 + 1, "2026-01-01T00:00:00.000Z", event)?;
        }
        Ok(state)
    }

    fn mark(state: &State) -> u64 {
        state.fence(&FenceName::repo()).mark.get()
    }

    #[test]
    fn null_settings_survive_a_checkpoint() {
        let state =
            fold(&[Event::SettingsChanged { settings: serde_json::Value::Null, digest: None, heirs: vec![] }]).unwrap();
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
    }

    #[test]
    fn accepted_push_takes_the_slot_and_leaves_the_mark() {
        let state = fold(&[accepted(1, Some(5))]).unwrap();
        assert!(state.fence(&FenceName::repo()).is_occupied());
        assert_eq!(mark(&state), 0);
    }

    #[test]
    fn settling_frees_the_slot_and_raises_the_mark_only_if_a_ref_moved() {
        let state = fold(&[accepted(1, Some(5)), settled(1, Some(5), true)]).unwrap();
        assert!(!state.fence(&FenceName::repo()).is_occupied());
        assert_eq!(mark(&state), 5);
        assert_eq!(mark(&fold(&[accepted(1, Some(5)), settled(1, Some(5), false)]).unwrap()), 0);
        assert_eq!(mark(&fold(&[accepted(1, None), settled(1, None, true)]).unwrap()), 0);
    }

    #[test]
    fn stale_push_in_observe_mode_does_not_lower_the_mark() {
        let events = [accepted(1, Some(5)), settled(1, Some(5), true), accepted(3, Some(4)), settled(3, Some(4), true)];
        assert_eq!(mark(&fold(&events).unwrap()), 5);
    }

    #[test]
    fn raise_below_the_mark_does_not_lower_it() {
        let raised = |to: u64| Event::MarkRaised {
            fence: FenceName::repo(),
            mark: crate::Token::try_from(to).unwrap().into(),
            reason: "migrated".to_owned(),
            pusher: "anna".to_owned(),
        };
        assert_eq!(mark(&fold(&[raised(7)]).unwrap()), 7);
        assert_eq!(mark(&fold(&[raised(7), raised(3)]).unwrap()), 7);
    }

    fn lease_line(make: fn(LeaseLine) -> Event) -> Event {
        lease_line_with(make, crate::LeaseState::Held)
    }

    fn lease_line_with(make: fn(LeaseLine) -> Event, state: crate::LeaseState) -> Event {
        let now = crate::Stamp { boot: String::new(), uptime_ms: 0, unix_ms: 0 };
        let lease = crate::lease::record::tests::lease(1, 6, state);
        let standing =
            Standing { commit: None, parent: None, lease, since: now.clone(), heard: now, progress: None, beat: None };
        let (fence, mark, pusher) = (FenceName::repo(), Mark::default(), String::new());
        make(LeaseLine { fence, push: None, mark, standing, ticks: Vec::new(), held_ms: None, pusher })
    }

    fn kind(state: &State) -> Option<TokenKind> {
        state.fence(&FenceName::repo()).kind
    }

    fn settings(tokens: bool) -> Event {
        let fence = if tokens { serde_json::json!({ "tokens": "any" }) } else { serde_json::json!({}) };
        Event::SettingsChanged { settings: serde_json::json!({ "fences": [fence] }), digest: None, heirs: vec![] }
    }

    #[test]
    fn only_the_first_landed_push_or_grant_decides_the_kind_of_tokens() {
        let raised = Event::MarkRaised {
            fence: FenceName::repo(),
            mark: Mark::at(7).unwrap(),
            reason: String::new(),
            pusher: String::new(),
        };
        assert_eq!(kind(&fold(&[settings(true), raised, accepted(3, Some(9))]).unwrap()), None);
        assert_eq!(kind(&fold(&[settings(true), accepted(2, Some(5)), settled(2, Some(5), false)]).unwrap()), None);
        assert_eq!(kind(&fold(&[settings(true), accepted(2, None), settled(2, None, true)]).unwrap()), None);
        let own = [settings(true), accepted(2, Some(5)), settled(2, Some(5), true)];
        assert_eq!(kind(&fold(&own).unwrap()), Some(TokenKind::Own));
        for make in [Event::LeaseGranted as fn(LeaseLine) -> Event, Event::LeaseFound] {
            let leased = [settings(true), lease_line(make), accepted(3, Some(6)), settled(3, Some(6), true)];
            assert_eq!(kind(&fold(&leased).unwrap()), Some(TokenKind::Lease));
            // A lease that appears later does not change the kind.
            let late = [&own[..], &[lease_line(make)]].concat();
            assert_eq!(kind(&fold(&late).unwrap()), Some(TokenKind::Own));
        }
    }

    /// By its log, or by a lease that was ever granted.
    #[test]
    fn halt_decides_nothing_about_the_kind_of_tokens() {
        use crate::LeaseState::{Halted, Released};
        let halted = lease_line_with(Event::LeaseHalted, Halted);
        let resumed = lease_line_with(Event::LeaseResumed, Released);
        let kind = |events: &[Event]| {
            let state = fold(events).unwrap();
            state.fence(&FenceName::repo()).kind(&crate::Rules::for_repo())
        };
        let own = [settings(true), accepted(2, Some(5)), settled(2, Some(5), true)];
        let leased = [settings(true), lease_line(Event::LeaseGranted)];
        for (before, expected) in [
            (&[settings(true)][..], None),
            (&[settings(false)][..], None),
            (&own[..], Some(TokenKind::Own)),
            (&leased[..], Some(TokenKind::Lease)),
        ] {
            let mut events = before.to_vec();
            for event in [&halted, &resumed, &halted, &lease_line_with(Event::LeaseFound, Halted), &resumed] {
                events.push(event.clone());
                assert_eq!(kind(&events), expected, "{events:?}");
            }
            events.push(lease_line(Event::LeaseGranted));
            let then = expected.or(Some(TokenKind::Lease));
            assert_eq!(kind(&events), then);
        }
    }

    #[test]
    fn halt_of_a_lease_that_is_older_than_the_gate_means_lease_tokens() {
        use crate::{LeaseState::Halted, Reason};
        let mut found = lease_line_with(Event::LeaseFound, Halted);
        for (reason, expected) in [(Reason::First, None), (Reason::Revoked, Some(TokenKind::Lease))] {
            if let Event::LeaseFound(line) = &mut found {
                line.standing.lease.reason = reason;
            }
            assert_eq!(kind(&fold(&[settings(true), found.clone()]).unwrap()), expected);
        }
    }

    /// In that version, a lease closed its fence to other tokens whenever it was granted.
    #[test]
    fn lease_in_a_log_of_an_older_version_means_lease_tokens() {
        let own = [settings(false), accepted(2, Some(5)), settled(2, Some(5), true)];
        assert_eq!(kind(&fold(&own).unwrap()), Some(TokenKind::Own));
        let both = [&own[..], &[lease_line(Event::LeaseGranted)]].concat();
        assert_eq!(kind(&fold(&both).unwrap()), Some(TokenKind::Lease));
        assert_eq!(kind(&fold(&[&both[..], &[settings(true)]].concat()).unwrap()), Some(TokenKind::Lease));
        // The same if only the state of its lines is left.
        for (events, expected) in [(&own[..], TokenKind::Own), (&both[..], TokenKind::Lease)] {
            let mut state = fold(events).unwrap();
            state.kinds.clear();
            let (file, pusher) = (String::new(), String::new());
            let rotated = Event::LogRotated { version: LOG_VERSION, file, state: Box::new(state), pusher };
            assert_eq!(kind(&fold(&[rotated]).unwrap()), Some(expected));
        }
    }

    /// Its refs may belong to another fence by now.
    #[test]
    fn push_admitted_before_a_settings_change_occupies_every_fence() {
        let other = FenceName::parse(b"other").unwrap();
        let changed = |n: u64| Event::SettingsChanged { settings: n.into(), digest: None, heirs: vec![] };
        let state = fold(&[changed(1), accepted(2, Some(5))]).unwrap();
        assert!(!state.fence(&other).is_occupied());
        let state = fold(&[changed(1), accepted(2, Some(5)), changed(2)]).unwrap();
        assert!(state.fence(&other).is_occupied());
    }

    /// A push admitted before the change counts too when it lands later; one admitted after the change does not.
    #[test]
    fn fence_that_takes_over_refs_starts_at_the_givers_mark() {
        let trunk = FenceName::parse(b"trunk").unwrap();
        let given = Event::SettingsChanged {
            settings: 1.into(),
            digest: None,
            heirs: vec![Heir { fence: trunk.clone(), giver: FenceName::repo() }],
        };
        let landed = |seq: u64, token: u64| [accepted(seq, Some(token)), settled(seq, Some(token), true)];
        let marks = |events: &[Event]| {
            let state = fold(events).unwrap();
            (mark(&state), state.fence(&trunk).mark.get())
        };
        let [first, over] = landed(1, 5);
        assert_eq!(marks(&[first.clone(), over.clone(), given.clone()]), (5, 5));
        assert_eq!(marks(&[first.clone(), given.clone(), over.clone()]), (5, 5), "it landed after the change");
        let [later, later_over] = landed(4, 9);
        assert_eq!(marks(&[first, over, given, later, later_over]), (9, 5));
    }

    #[test]
    fn line_that_does_not_fit_the_lines_before_is_an_error() {
        assert_eq!(fold(&[settled(7, None, true)]), Err(FoldError::NotInFlight(PushId(7))));
        assert_eq!(fold(&[accepted(7, None)]), Err(FoldError::WrongId(PushId(7), 1)));
        let future = Event::LogBegun { version: 2, pusher: "x".to_owned() };
        assert_eq!(fold(&[future]), Err(FoldError::Version(2)));
    }

    #[test]
    fn line_is_flat_json_and_round_trips() {
        let line = crate::Line {
            seq: 1,
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            event: accepted(1, Some(u64::try_from(i64::MAX).unwrap())),
            prev: crate::LineHash::none(),
        };
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["event"], "push.accepted");
        assert_eq!(json["fence"], "repo");
        assert_eq!(json["token"], i64::MAX);
        assert_eq!(json["refs"][0]["name"], "refs/heads/a");
        assert_eq!(serde_json::from_str::<crate::Line>(&json.to_string()).unwrap(), line);
    }
}
