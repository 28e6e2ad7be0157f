//! A lease store in memory, for tests: with or without a gate, and with replies that are lost on request.
//!
//! It implements the contract of [`LeaseStore`] and nothing more, so what works with it works with every store.

use crate::{
    Beat, Code, GateAnswer, GateSays, HeldBy, Lease, LeaseAsk, LeasePart, LeaseSnapshot, LeaseStore, Mark, ObjectId,
    Proposal, Record, Reject, Rules, Secret, Stamp, Standing, StoredLease, Swap, SwapRefused, Swapped, Token, Version,
    judge_lease,
};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
};

/// What happens to a swap in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwapFate {
    /// It is carried out and answered.
    Answered,
    /// It is carried out, and its reply is lost.
    AnswerLost,
    /// It is lost before it arrives.
    RequestLost,
    /// Its client gives up, and it arrives later: see [`MemoryStore::deliver_late`].
    Late,
}

#[derive(Debug)]
enum Prepared {
    Lease(Lease, Option<Version>, Option<Secret>),
    Beat(Beat, Option<Secret>),
}

#[derive(Debug, Default)]
struct Contents {
    prepared: HashMap<Version, Prepared>,
    lease: Option<Version>,
    beat: Option<Version>,
    /// The lease as the gate knows it.
    standing: Option<Standing>,
    mark: Mark,
    /// Every version of the lease, in order.
    moves: Vec<Version>,
    /// Whether the gate lets those who swap now revoke, halt and resume.
    may_revoke: bool,
    fates: VecDeque<SwapFate>,
    late: Vec<Vec<Swap>>,
}

/// The lease of one fence, in memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    gate: Option<Rules>,
    now: RefCell<u64>,
    contents: RefCell<Contents>,
}

impl MemoryStore {
    pub(crate) fn new(has_gate: bool) -> MemoryStore {
        let gate = has_gate.then(Rules::for_repo);
        MemoryStore { gate, now: RefCell::new(0), contents: RefCell::default() }
    }

    /// Sets the fates of the next swaps, in order. Later swaps are answered.
    pub(crate) fn expect(&self, fates: impl IntoIterator<Item = SwapFate>) {
        self.contents.borrow_mut().fates = fates.into_iter().collect();
    }

    /// Whether the gate lets those who swap from now on revoke, halt and resume.
    pub(crate) fn let_revoke(&self, may: bool) {
        self.contents.borrow_mut().may_revoke = may;
    }

    pub(crate) fn now(&self) -> Stamp {
        let seconds = *self.now.borrow();
        Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: seconds * 1000 }
    }

    pub(crate) fn wait(&self, seconds: u64) {
        *self.now.borrow_mut() += seconds;
    }

    /// Delivers the late swaps.
    pub(crate) fn deliver_late(&self) {
        let late = std::mem::take(&mut self.contents.borrow_mut().late);
        for swaps in late {
            let _ = self.carry_out(&swaps);
        }
    }

    /// Whether the lease has ever been at `version`.
    pub(crate) fn has_been_at(&self, version: &Version) -> bool {
        self.contents.borrow().moves.contains(version)
    }

    /// The tokens of all ownerships and advances, in the order in which they landed.
    pub(crate) fn tokens(&self) -> Vec<(Token, crate::LeaseState)> {
        let contents = self.contents.borrow();
        contents.moves.iter().filter_map(|at| contents.lease_at(at)).map(|lease| (lease.token, lease.state)).collect()
    }

    fn carry_out(&self, swaps: &[Swap]) -> Result<(), Box<SwapRefused>> {
        let is_expected = |swap: &Swap| swap.from == *self.contents.borrow().part(swap.part);
        if !swaps.iter().all(is_expected) {
            return Err(moved());
        }
        if let Some(rules) = &self.gate {
            self.admit(rules, swaps)?;
        }
        let mut contents = self.contents.borrow_mut();
        for Swap { part, to, .. } in swaps {
            match part {
                LeasePart::Lease => {
                    contents.lease = Some(to.clone());
                    contents.moves.push(to.clone());
                }
                LeasePart::Beat => contents.beat = Some(to.clone()),
                LeasePart::Ask | LeasePart::Mark => {}
            }
        }
        Ok(())
    }

    /// The gate, with the same rules as the hook.
    fn admit(&self, rules: &Rules, swaps: &[Swap]) -> Result<(), Box<SwapRefused>> {
        let asked = self.asked(swaps);
        let mut contents = self.contents.borrow_mut();
        let judged = judge_lease(rules, contents.standing.as_ref(), contents.mark, &asked, &self.now());
        let refused = |reject| SwapRefused { gate: Some(answer(&reject)), ..SwapRefused::default() };
        let change = judged.map_err(|reject| Box::new(refused(reject)))?;
        contents.mark = contents.mark.max(change.raises_to);
        contents.standing = Some(change.standing);
        Ok(())
    }

    fn asked(&self, swaps: &[Swap]) -> LeaseAsk {
        let contents = self.contents.borrow();
        let mut asked = LeaseAsk { may_revoke: contents.may_revoke, ..LeaseAsk::default() };
        for swap in swaps {
            match contents.prepared.get(&swap.to) {
                Some(Prepared::Lease(lease, parent, proof)) => {
                    let parents = parent.iter().map(commit).collect();
                    let (lease, proof) = (lease.clone(), proof.clone());
                    asked.lease = Some(Proposal { commit: commit(&swap.to), parents, lease, proof });
                }
                Some(Prepared::Beat(beat, proof)) => {
                    (asked.beat, asked.beat_proof) = (Some(beat.clone()), proof.clone());
                    asked.beat_now = contents.beat.as_ref().and_then(|at| contents.beat_at(at)).cloned();
                }
                None => {}
            }
        }
        asked
    }
}

impl Contents {
    fn part(&self, part: LeasePart) -> &Option<Version> {
        if part == LeasePart::Beat { &self.beat } else { &self.lease }
    }

    fn lease_at(&self, at: &Version) -> Option<&Lease> {
        match self.prepared.get(at)? {
            Prepared::Lease(lease, ..) => Some(lease),
            Prepared::Beat(..) => None,
        }
    }

    fn beat_at(&self, at: &Version) -> Option<&Beat> {
        match self.prepared.get(at)? {
            Prepared::Beat(beat, _) => Some(beat),
            Prepared::Lease(..) => None,
        }
    }

    fn stored(&self, at: &Version) -> Option<StoredLease> {
        let Prepared::Lease(lease, parent, _) = self.prepared.get(at)? else { return None };
        Some(StoredLease { at: at.clone(), parent: parent.clone(), lease: lease.clone(), time: String::new() })
    }
}

impl LeaseStore for MemoryStore {
    type Error = String;

    fn read(&self) -> Result<LeaseSnapshot, String> {
        let contents = self.contents.borrow();
        let beat = contents.beat.as_ref().and_then(|at| contents.beat_at(at)).cloned();
        let lease = contents.lease.as_ref().and_then(|at| contents.stored(at));
        Ok(LeaseSnapshot { lease, beat_at: contents.beat.clone(), beat, ..LeaseSnapshot::default() })
    }

    /// The nonce is the version.
    fn prepare(&self, record: &Record<'_>) -> Result<Version, String> {
        let (nonce, prepared) = match *record {
            Record::Lease { lease, parent, proof } => {
                (&lease.nonce, Prepared::Lease(lease.clone(), parent.cloned(), proof.cloned()))
            }
            Record::Beat { beat, proof, .. } => (&beat.nonce, Prepared::Beat(beat.clone(), proof.cloned())),
        };
        let version = Version::new(nonce.as_str());
        let before = self.contents.borrow_mut().prepared.insert(version.clone(), prepared);
        assert!(before.is_none(), "two records with the nonce {nonce}");
        Ok(version)
    }

    fn swap(&self, swaps: &[Swap]) -> Result<Swapped<String>, String> {
        let fate = self.contents.borrow_mut().fates.pop_front().unwrap_or(SwapFate::Answered);
        let unknown = Swapped::Unknown { why: "no reply".to_owned() };
        Ok(match fate {
            SwapFate::Answered => match self.carry_out(swaps) {
                Ok(()) => Swapped::Won,
                Err(refused) => Swapped::Refused(refused),
            },
            SwapFate::AnswerLost => {
                let _ = self.carry_out(swaps);
                unknown
            }
            SwapFate::RequestLost => unknown,
            SwapFate::Late => {
                self.contents.borrow_mut().late.push(swaps.to_vec());
                unknown
            }
        })
    }

    fn ask_gate(&self, _owner: &str) -> Result<GateSays, String> {
        let Some(rules) = &self.gate else { return Ok(GateSays::NoGate) };
        let contents = self.contents.borrow();
        let asked = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
        match judge_lease(rules, contents.standing.as_ref(), contents.mark, &asked, &self.now()) {
            Err(Reject::LeaseHeld { by, .. }) => Ok(GateSays::Held(*by)),
            Err(Reject::Halted { halt, .. }) => Ok(GateSays::Halted(*halt)),
            _ => Ok(GateSays::Free),
        }
    }

    fn history(&self, tip: Option<&StoredLease>, token: Token) -> Result<Vec<StoredLease>, String> {
        let contents = self.contents.borrow();
        let before = |then: &StoredLease| contents.stored(then.parent.as_ref()?);
        let is_recent = |then: &StoredLease| then.lease.token >= token;
        Ok(std::iter::successors(tip.cloned(), before).take_while(is_recent).collect())
    }
}

/// The refusal of a swap whose part is at another version than expected.
fn moved() -> Box<SwapRefused> {
    let why = vec!["stale info".to_owned()];
    Box::new(SwapRefused { why, lease_may_have_moved: true, ..SwapRefused::default() })
}

/// The version as the gate names it.
fn commit(version: &Version) -> ObjectId {
    ObjectId::parse(format!("00000000{version}").as_bytes()).ok().flatten().expect("a nonce is 32 hex digits")
}

fn answer(reject: &Reject) -> GateAnswer {
    let holder: Option<HeldBy> = match reject {
        Reject::LeaseHeld { by, .. } => Some(*by.clone()),
        _ => None,
    };
    let mark = reject.compared().map(|(_, mark)| mark);
    let code: Option<Code> = Some(reject.code());
    let now = match reject {
        Reject::TickAhead { ahead, .. } => Some(ahead.now),
        _ => None,
    };
    GateAnswer {
        verdict: "rejected".to_owned(),
        code,
        mark,
        holder,
        halt: None,
        fences: None,
        now,
        sentence: Some(reject.to_string()),
    }
}
