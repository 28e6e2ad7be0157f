//! Complete scenarios of leases on a store in memory: the client's two state machines against the rules of the gate.
//!
//! Each runs with and without a gate, unless it says otherwise, because the same rules protect a lease.

use super::memory::{MemoryStore, SwapFate};
use crate::{
    Beat, Format, HolderMove, Lease, LeaseId, LeasePart, LeaseSnapshot, LeaseState, LeaseStore, Mark, Note, Purpose,
    Pushing, PushingAnswer, PushingEnd, PushingNext, Record, Secret, Sight, Swap, SwapRefused, Swapped, Taking,
    TakingAnswer, TakingEnd, TakingNext, TakingRefusal, Token, Ttl, Version, Whereabouts, nonce_of,
};
use std::{cell::Cell, time::Duration};

const TTL: u64 = 90;
const SKEW: Duration = Duration::from_secs(10);

thread_local! {
    static NONCE: Cell<u128> = const { Cell::new(0) };
}

fn nonce() -> String {
    NONCE.with(|nonce| {
        nonce.set(nonce.get() + 1);
        nonce_of(nonce.get().to_be_bytes())
    })
}

/// A run that wants the lease: a thin loop around the machines, as in the client.
struct TestRun<'a> {
    store: &'a MemoryStore,
    name: u8,
    held: Option<Holding>,
    made: Option<(Holding, Vec<Swap>)>,
    seen: LeaseSnapshot,
    refused: SwapRefused,
    /// The version to which the last push was to move the lease.
    sent: Option<Version>,
}

#[derive(Debug, Clone)]
struct Holding {
    lease: Lease,
    at: Version,
    parent: Option<Version>,
    pending: Option<(Lease, Version)>,
    settled_at: Option<(Lease, Version)>,
}

impl<'a> TestRun<'a> {
    fn new(store: &'a MemoryStore, name: u8) -> TestRun<'a> {
        let (seen, refused) = (LeaseSnapshot::default(), SwapRefused::default());
        TestRun { store, name, held: None, made: None, seen, refused, sent: None }
    }

    fn key(&self) -> Secret {
        Secret::of([self.name; 32])
    }

    fn take(&mut self, purpose: Purpose) -> TakingEnd {
        let (mut taking, mut next) = Taking::start(purpose);
        loop {
            let answer = match next {
                TakingNext::Read => self.see(None),
                TakingNext::RestThenRead => {
                    let before = std::mem::take(&mut self.seen);
                    self.see(Some(&before))
                }
                TakingNext::AskGate => TakingAnswer::from(&self.store.ask_gate("run").unwrap()),
                TakingNext::Propose => self.propose(Mark::default(), purpose),
                TakingNext::ProposeAboveMark => {
                    self.propose(self.refused.gate.as_ref().and_then(|gate| gate.mark).unwrap(), purpose)
                }
                TakingNext::SwapAgain => self.swap(),
                TakingNext::Check => {
                    let now = self.store.read().unwrap().lease.map(|lease| lease.at);
                    TakingAnswer::IsThere(now == self.made.as_ref().map(|(made, _)| made.at.clone()))
                }
                TakingNext::End(end) => {
                    self.held = self.made.take().map(|(made, _)| made).filter(|_| end == TakingEnd::Ours);
                    return end;
                }
            };
            (taking, next) = taking.step(answer);
        }
    }

    fn see(&mut self, before: Option<&LeaseSnapshot>) -> TakingAnswer {
        self.seen = self.store.read().unwrap();
        TakingAnswer::Seen(Sight::of(&self.seen, before, &self.store.now(), SKEW, Duration::ZERO))
    }

    fn propose(&mut self, mark: Mark, purpose: Purpose) -> TakingAnswer {
        let before = self.seen.lease.clone();
        let (reason, state) = purpose.begins(before.as_ref().map(|before| &before.lease));
        let last = before.as_ref().map(|before| &before.lease).filter(|_| mark == Mark::default());
        let (nonce, beat_nonce) = (nonce(), nonce());
        let lease = Lease {
            format: Format::OneUse,
            id: LeaseId::of([self.name; 16]),
            token: purpose.token(last, mark).unwrap(),
            owner: format!("run {}", self.name),
            state,
            ttl: Ttl::of_seconds(TTL).unwrap(),
            reason,
            words: None,
            since: None,
            jobs: before.as_ref().map(|before| before.lease.jobs.carried()).unwrap_or_default(),
            holder: self.key().of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        };
        let beat = Beat {
            lease: lease.id.clone(),
            deadline: Beat::deadline_at(self.store.now().unix_ms + TTL * 1000),
            progress: None,
            gate: false,
            holder: Some(self.key().of_record(LeasePart::Beat, &beat_nonce).holder()),
            nonce: beat_nonce,
        };
        let parent = before.map(|before| before.at);
        let at = self.store.prepare(&Record::Lease { lease: &lease, parent: parent.as_ref(), proof: None }).unwrap();
        let pulse = self.store.prepare(&Record::Beat { beat: &beat, owner: &lease.owner, proof: None }).unwrap();
        let swaps = vec![
            Swap { part: LeasePart::Lease, from: parent.clone(), to: at.clone() },
            Swap { part: LeasePart::Beat, from: self.seen.beat_at.clone(), to: pulse },
        ];
        self.made = Some((Holding { lease, at, parent, pending: None, settled_at: None }, swaps));
        self.swap()
    }

    fn swap(&mut self) -> TakingAnswer {
        match self.store.swap(&self.made.as_ref().unwrap().1).unwrap() {
            Swapped::Won => TakingAnswer::Won,
            Swapped::Refused(refused) => {
                self.refused = *refused;
                TakingAnswer::Refused(TakingRefusal::of(&self.refused))
            }
            Swapped::Unknown { .. } => TakingAnswer::Unknown { most: 3 },
            Swapped::NotSent(_) => TakingAnswer::NotSent { most: 3 },
        }
    }

    fn push(&mut self, wanted: HolderMove) -> PushingEnd {
        let lost = self.held.as_ref().unwrap().pending.as_ref().map(|(lease, _)| HolderMove::of(lease));
        let (mut pushing, mut note, mut next) = Pushing::start(wanted, lost);
        loop {
            self.write_down(note);
            let answer = match next {
                PushingNext::Send => self.send(wanted, false),
                PushingNext::Settle => self.send(HolderMove::Advance, true),
                PushingNext::Read => {
                    self.seen = self.store.read().unwrap();
                    let held = self.held.as_ref().unwrap();
                    let after = held.pending.as_ref().map(|(_, at)| at);
                    PushingAnswer::At(Whereabouts::of(self.seen.lease.as_ref(), &held.lease.id, &held.at, after))
                }
                PushingNext::ReadHistory => {
                    let (lease, at) = self.held.as_ref().unwrap().pending.clone().unwrap();
                    let history = self.store.history(self.seen.lease.as_ref(), lease.token).unwrap();
                    PushingAnswer::InHistory(history.iter().any(|then| then.at == at))
                }
                // The store moves all parts or none.
                PushingNext::ReadRefs => PushingAnswer::AllThere(true),
                PushingNext::End(end) => return end,
            };
            (pushing, note, next) = pushing.step(answer);
        }
    }

    fn send(&mut self, wanted: HolderMove, settles: bool) -> PushingAnswer {
        let key = self.key();
        let held = self.held.as_mut().unwrap();
        let nonce = nonce();
        let holder = key.of_record(LeasePart::Lease, &nonce).holder();
        let proof = key.of_record(LeasePart::Lease, &held.lease.nonce);
        let lease = wanted.next(&held.lease, nonce, holder).unwrap();
        let record = Record::Lease { lease: &lease, parent: held.parent.as_ref(), proof: Some(&proof) };
        let at = self.store.prepare(&record).unwrap();
        let swap = Swap { part: LeasePart::Lease, from: Some(held.at.clone()), to: at.clone() };
        if !settles {
            self.sent = Some(at.clone());
        }
        *(if settles { &mut held.settled_at } else { &mut held.pending }) = Some((lease, at));
        match self.store.swap(&[swap]).unwrap() {
            Swapped::Won => PushingAnswer::Landed,
            Swapped::Refused(refused) => PushingAnswer::from(&*refused),
            Swapped::Unknown { .. } => PushingAnswer::Unknown,
            Swapped::NotSent(_) => PushingAnswer::NotSent,
        }
    }

    fn write_down(&mut self, note: Note) {
        let Some(held) = &mut self.held else { return };
        let moved_to = match note {
            Note::Nothing => return,
            Note::Unmoved => None,
            Note::MovedByPush => held.pending.clone(),
            Note::MovedBySettling => held.settled_at.clone(),
            Note::MovedToSeen => self.seen.lease.clone().map(|now| (now.lease, now.at)),
        };
        if let Some((lease, at)) = moved_to {
            (held.lease, held.at) = (lease, at);
        }
        (held.pending, held.settled_at) = (None, None);
    }

    fn token(&self) -> u64 {
        self.held.as_ref().unwrap().lease.token.get()
    }
}

fn with_and_without_gate(journey: impl Fn(&MemoryStore)) {
    for has_gate in [false, true] {
        journey(&MemoryStore::new(has_gate));
    }
}

#[test]
fn second_run_gets_the_lease_only_after_the_release_and_with_a_higher_token() {
    with_and_without_gate(|store| {
        let (mut one, mut two) = (TestRun::new(store, 1), TestRun::new(store, 2));
        assert_eq!(one.take(Purpose::Hold), TakingEnd::Ours);
        assert!(matches!(two.take(Purpose::Hold), TakingEnd::Theirs | TakingEnd::TheirsByGate));
        assert_eq!(one.push(HolderMove::Advance), PushingEnd::Landed);
        assert_eq!((one.token(), one.push(HolderMove::Release)), (2, PushingEnd::Landed));
        assert_eq!((two.take(Purpose::Hold), two.token()), (TakingEnd::Ours, 3));
    });
}

#[test]
fn push_of_a_paused_holder_is_refused_after_a_takeover() {
    with_and_without_gate(|store| {
        let (mut zombie, mut next) = (TestRun::new(store, 1), TestRun::new(store, 2));
        assert_eq!(zombie.take(Purpose::Hold), TakingEnd::Ours);
        store.wait(TTL + 11);
        assert_eq!(next.take(Purpose::Hold), TakingEnd::Ours);
        assert_eq!(zombie.push(HolderMove::Advance), PushingEnd::Lost { gate_is_unaware: true });
        assert_eq!(next.push(HolderMove::Advance), PushingEnd::Landed);
    });
}

#[test]
fn late_holder_may_push_until_the_lease_is_taken_over() {
    with_and_without_gate(|store| {
        let mut run = TestRun::new(store, 1);
        assert_eq!(run.take(Purpose::Hold), TakingEnd::Ours);
        store.wait(10 * TTL);
        assert_eq!(run.push(HolderMove::Advance), PushingEnd::Landed);
    });
}

#[test]
fn live_lease_is_revoked_unless_a_gate_forbids_it() {
    let store = MemoryStore::new(false);
    let (mut holder, mut operator) = (TestRun::new(&store, 1), TestRun::new(&store, 2));
    assert_eq!(operator.take(Purpose::Revoke), TakingEnd::NothingHeld);
    assert_eq!(holder.take(Purpose::Hold), TakingEnd::Ours);
    assert_eq!(operator.take(Purpose::Revoke), TakingEnd::Ours);
    assert!(matches!(holder.push(HolderMove::Advance), PushingEnd::Lost { .. }));
    let store = MemoryStore::new(true);
    let (mut holder, mut stranger) = (TestRun::new(&store, 1), TestRun::new(&store, 2));
    assert_eq!(holder.take(Purpose::Hold), TakingEnd::Ours);
    assert_eq!(stranger.take(Purpose::Revoke), TakingEnd::MayNotRevoke);
    assert_eq!(holder.push(HolderMove::Advance), PushingEnd::Landed);
}

#[test]
fn halted_fence_admits_nobody_until_it_is_resumed() {
    with_and_without_gate(|store| {
        let (mut holder, mut boss) = (TestRun::new(store, 1), TestRun::new(store, 9));
        assert_eq!(holder.take(Purpose::Hold), TakingEnd::Ours);
        store.let_revoke(true);
        assert_eq!(TestRun::new(store, 8).take(Purpose::Resume), TakingEnd::NotHalted);
        assert_eq!((boss.take(Purpose::Halt), boss.token()), (TakingEnd::Ours, 2));
        assert_eq!(TestRun::new(store, 8).take(Purpose::Halt), TakingEnd::Halted, "twice is harmless");
        assert_eq!(TestRun::new(store, 8).take(Purpose::Revoke), TakingEnd::NothingHeld);
        store.let_revoke(false);
        assert!(matches!(holder.push(HolderMove::Advance), PushingEnd::Lost { .. }));
        for seconds in [0, TTL + 11, 100_000] {
            store.wait(seconds);
            assert_eq!(TestRun::new(store, 2).take(Purpose::Hold), TakingEnd::Halted);
        }
        store.let_revoke(true);
        let mut other = TestRun::new(store, 7);
        assert_eq!((other.take(Purpose::Resume), other.token()), (TakingEnd::Ours, 2));
        store.let_revoke(false);
        assert!(matches!(holder.push(HolderMove::Advance), PushingEnd::Lost { .. }), "it stays lost");
        let mut next = TestRun::new(store, 3);
        assert_eq!((next.take(Purpose::Hold), next.token()), (TakingEnd::Ours, 3));
        assert_eq!(next.push(HolderMove::Advance), PushingEnd::Landed);
    });
}

#[test]
fn fence_that_was_never_held_can_be_halted() {
    with_and_without_gate(|store| {
        store.let_revoke(true);
        assert_eq!(TestRun::new(store, 9).take(Purpose::Halt), TakingEnd::Ours);
        assert_eq!(TestRun::new(store, 1).take(Purpose::Hold), TakingEnd::Halted);
        assert_eq!(TestRun::new(store, 8).take(Purpose::Resume), TakingEnd::Ours);
        assert_eq!(TestRun::new(store, 2).take(Purpose::Hold), TakingEnd::Ours);
    });
}

#[test]
fn gate_lets_only_those_who_may_halt_and_resume() {
    let store = MemoryStore::new(true);
    let mut holder = TestRun::new(&store, 1);
    assert_eq!(holder.take(Purpose::Hold), TakingEnd::Ours);
    assert_eq!(TestRun::new(&store, 2).take(Purpose::Halt), TakingEnd::MayNotRevoke);
    assert_eq!(holder.push(HolderMove::Advance), PushingEnd::Landed);
    store.let_revoke(true);
    assert_eq!(TestRun::new(&store, 3).take(Purpose::Halt), TakingEnd::Ours);
    store.let_revoke(false);
    assert_eq!(TestRun::new(&store, 4).take(Purpose::Resume), TakingEnd::MayNotRevoke);
    assert_eq!(TestRun::new(&store, 5).take(Purpose::Hold), TakingEnd::Halted);
}

/// Who halts finds out whether the fence is halted, or reports that it could not; and so does who resumes.
#[test]
fn halt_that_is_reported_stands_whatever_replies_are_lost() {
    for (has_gate, purpose, fates) in [false, true].into_iter().flat_map(|has_gate| {
        [Purpose::Halt, Purpose::Resume]
            .into_iter()
            .flat_map(move |purpose| all_fates().map(move |fates| (has_gate, purpose, fates)))
    }) {
        let store = MemoryStore::new(has_gate);
        store.let_revoke(true);
        assert_eq!(TestRun::new(&store, 1).take(Purpose::Hold), TakingEnd::Ours);
        if purpose == Purpose::Resume {
            assert_eq!(TestRun::new(&store, 2).take(Purpose::Halt), TakingEnd::Ours);
        }
        store.expect(fates);
        let end = TestRun::new(&store, 9).take(purpose);
        store.expect([]);
        store.deliver_late();
        let now = store.read().unwrap().halt().is_some();
        match end {
            TakingEnd::Ours => assert_eq!(now, purpose == Purpose::Halt, "{purpose:?} {fates:?}"),
            TakingEnd::MayBeOurs => assert!(!fates.contains(&SwapFate::Answered), "{fates:?}"),
            other => panic!("{other:?} of {purpose:?} with {fates:?}"),
        }
    }
}

const FATES: [SwapFate; 4] = [SwapFate::Answered, SwapFate::AnswerLost, SwapFate::RequestLost, SwapFate::Late];

/// Every combination of fates of four swaps in a row.
fn all_fates() -> impl Iterator<Item = [SwapFate; 4]> {
    (0..FATES.len().pow(4))
        .map(|n| std::array::from_fn(|at| FATES[n / FATES.len().pow(u32::try_from(at).unwrap()) % 4]))
}

/// A run whose replies are lost finds out whether it holds the lease, or reports that it could not.
#[test]
fn run_that_reports_to_hold_the_lease_holds_it() {
    with_and_without_gate(|template| {
        for fates in all_fates() {
            let store = MemoryStore::new(template.ask_gate("").unwrap() != crate::GateSays::NoGate);
            store.expect(fates);
            let mut run = TestRun::new(&store, 1);
            let end = run.take(Purpose::Hold);
            store.expect([]);
            store.deliver_late();
            let now = store.read().unwrap().lease.map(|now| now.lease.id);
            match end {
                TakingEnd::Ours => assert_eq!(now, Some(LeaseId::of([1; 16])), "{fates:?}"),
                TakingEnd::MayBeOurs => assert!(!fates.contains(&SwapFate::Answered), "{fates:?}"),
                other => panic!("{other:?} with {fates:?}"),
            }
        }
    });
}

/// The reported outcome of a push whose reply was lost is true, and stays true when late swaps arrive: if the holder
/// continues, and if the lease is taken over at once.
#[test]
fn reported_outcome_of_a_lost_push_is_true() {
    for (has_gate, wanted, is_taken_over, fates) in [false, true].into_iter().flat_map(|has_gate| {
        [HolderMove::Advance, HolderMove::Release].into_iter().flat_map(move |wanted| {
            [false, true]
                .into_iter()
                .flat_map(move |taken| all_fates().map(move |fates| (has_gate, wanted, taken, fates)))
        })
    }) {
        let store = MemoryStore::new(has_gate);
        let mut run = TestRun::new(&store, 1);
        assert_eq!(run.take(Purpose::Hold), TakingEnd::Ours);
        store.expect(fates);
        let mut end = run.push(wanted);
        let tried = |end| matches!(end, PushingEnd::Unknown | PushingEnd::EarlierUnknown);
        if tried(end) && is_taken_over {
            store.expect([]);
            store.wait(TTL + 11);
            assert!(matches!(TestRun::new(&store, 2).take(Purpose::Hold), TakingEnd::Ours));
        }
        for _ in 0..4 {
            if !tried(end) {
                break;
            }
            end = run.push(wanted);
        }
        let at_the_end = store.read().unwrap();
        store.expect([]);
        store.deliver_late();
        let at = run.sent.as_ref().unwrap();
        match end {
            PushingEnd::DidNotLand | PushingEnd::Lost { .. } => {
                assert!(!store.has_been_at(at), "{end:?} {fates:?}");
            }
            PushingEnd::Landed | PushingEnd::LandedThenLost | PushingEnd::ReleasedBefore => {
                assert!(store.has_been_at(at), "{end:?} {fates:?}");
            }
            _ => {}
        }
        if !tried(end) {
            assert_eq!(store.read().unwrap(), at_the_end, "nothing late lands: {end:?} {fates:?}");
        }
        let tokens = store.tokens();
        let grows = |pair: &[(Token, LeaseState)]| {
            pair[0].0 < pair[1].0 || (pair[0].0 == pair[1].0 && pair[1].1 == LeaseState::Released)
        };
        assert!(tokens.windows(2).all(grows), "{tokens:?} {fates:?}");
    }
}
