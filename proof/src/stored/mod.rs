//! A remote whose leases are kept in a store: a second place, which can forget and roll back.
//!
//! A client reads and swaps the store's record, reads the mark in the remote, and pushes refs together with the mark. Each
//! of these is a step, and between any two of them any step of another client can happen: so a client that stalls or dies
//! is one that makes no step for a while, or none any more. Any run may take the lease at any time, expired or not: clocks
//! only save work. What is swapped in and what counts is decided by the core (`store`, `pushing`).

use crate::report::Latches;
use git_fence_core::{Holder, Mark, MarkRecord, Purpose};
use stateright::{Model, Property};

mod barrier;
mod client;
mod holes;
mod promises;
mod pushing;
mod remote;
mod rules;
mod scenarios;
mod store;
mod words;
mod world;

pub use client::Reply;
pub use holes::{Hole, holes, needless};
pub use promises::{
    ABOVE_THE_MARK, DONE_IS_DONE, FORGOTTEN, HALTED, LOST_FOR_A_REASON, LOST_IS_LOST, NO_LIE, NO_REVIVAL,
    ONE_PER_NUMBER, STORE_BELIEF, Sight, TOKEN_ORDER,
};
pub use remote::Lie;
pub use rules::{BarrierAgain, BarrierRule, CountingRule, GateRules, PushesFrom, StoreRules};
pub use scenarios::{StoredScenario, asking_scenarios, stored_scenarios, unasking_scenarios};
pub use words::line;
pub use world::StoredWorld;

use client::Reply::Lost;
use world::{Carries, MarkVersion, Progress, Proof, Stage, StoreRun};

/// An operation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// It takes the lease, whoever holds it.
    Acquire,
    /// It pushes under its lease.
    Push,
    /// It releases its lease.
    Release,
    /// It takes the lease away from whoever holds it.
    Revoke,
    /// It halts the fence: nobody gets the lease.
    Halt,
    /// It resumes the fence.
    Resume,
}

impl Op {
    /// Why it takes the lease, if it does.
    fn purpose(self) -> Option<Purpose> {
        match self {
            Op::Acquire => Some(Purpose::Hold),
            Op::Revoke => Some(Purpose::Revoke),
            Op::Halt => Some(Purpose::Halt),
            Op::Resume => Some(Purpose::Resume),
            Op::Push | Op::Release => None,
        }
    }

    /// Whether it takes the lease and works under none.
    fn takes_away(self) -> bool {
        matches!(self, Op::Revoke | Op::Halt | Op::Resume)
    }
}

/// A store, a remote, and the runs of a scenario.
#[derive(Debug)]
pub struct Stored {
    /// What the runs do.
    pub scenario: StoredScenario,
    /// What the client, the remote and the gate do.
    pub rules: StoreRules,
    pub(crate) holders: Vec<Vec<Holder>>,
    pub(crate) latches: Latches,
}

/// One step: of a client, of a push that has arrived, of the store, of the liar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredStep {
    /// The client of a run does the next thing.
    Act(usize),
    /// The reply that it waits for is lost.
    Lose(usize),
    /// After a lost reply the client of a run cannot reach the remote any more.
    Unreachable(usize),
    /// The gate asks the store about a push.
    Ask(usize),
    /// The gate decides about it.
    Admit(usize),
    /// Git's transaction.
    Land(usize),
    /// Its receive-pack is killed.
    Kill(usize),
    /// The store shows this earlier record again, or none.
    RollBack(Option<usize>),
    /// The liar pushes.
    Lie(Lie),
}

impl Stored {
    /// A store and a remote with these rules.
    pub fn of(scenario: StoredScenario, rules: StoreRules) -> Stored {
        let ops = scenario.programs.iter().flatten().count();
        let holders = |owner| (0..=3 * ops).map(|record| store::proof_of(owner, record).holder()).collect();
        Stored { holders: (0..=ops).map(holders).collect(), scenario, rules, latches: Latches::default() }
    }

    fn lies(&self, world: &StoredWorld, steps: &mut Vec<StoredStep>) {
        let old = world.marks.iter().enumerate().filter_map(|(at, mark)| match mark.proof? {
            Proof::Lease(_) => Some(Lie::OldProof(at)),
            Proof::Beat(_) => Some(Lie::OldBeat(at)),
        });
        let lies = [Lie::NoProof, Lie::Stranger, Lie::Barrier, Lie::Touch].into_iter().chain(old);
        steps.extend(lies.map(StoredStep::Lie));
    }
}

impl Model for Stored {
    type State = StoredWorld;
    type Action = StoredStep;

    fn init_states(&self) -> Vec<StoredWorld> {
        let begun = MarkRecord::begins(Mark::default(), None, "first", remote::mark_nonce(usize::from(u8::MAX)));
        let run = StoreRun { at: 0, stage: Stage::Ready, held: None, machine: None, awaits: None, sent: 0 };
        vec![StoredWorld {
            records: Vec::new(),
            now: None,
            marks: vec![MarkVersion::new(begun, usize::MAX, 0, None, Carries::Barrier, None)],
            flights: Vec::new(),
            runs: vec![run; self.scenario.programs.len()],
            owners: Vec::new(),
            beliefs: Vec::new(),
            broken: 0,
            seen: 0,
            lost: 0,
            rollbacks: 0,
            lies: 0,
        }]
    }

    fn actions(&self, world: &StoredWorld, steps: &mut Vec<StoredStep>) {
        let may_lose = world.lost < self.scenario.lost;
        for (r, run) in world.runs.iter().enumerate() {
            match run.awaits {
                Some(_) if may_lose => steps.push(StoredStep::Lose(r)),
                None if self.op(world, r).is_some() => {
                    steps.push(StoredStep::Act(r));
                    if matches!(run.stage, Stage::Touch | Stage::LookAfterRaising { refused: false, .. }) {
                        steps.push(StoredStep::Unreachable(r));
                    }
                }
                _ => {}
            }
        }
        let is_slot_free = world.flights.iter().all(|flight| flight.progress != Progress::InSlot);
        for (f, flight) in world.flights.iter().enumerate() {
            if self.is_to_be_asked(flight) {
                steps.push(StoredStep::Ask(f));
            } else if !self.is_to_be_admitted(flight) {
                steps.push(StoredStep::Land(f));
                if may_lose && self.rules.gate.is_some() {
                    steps.push(StoredStep::Kill(f));
                }
            } else if is_slot_free {
                steps.push(StoredStep::Admit(f));
            }
        }
        if world.rollbacks < self.scenario.rollbacks {
            let all = (0..world.records.len()).map(Some).chain([None]);
            steps.extend(all.filter(|to| *to != world.now).map(StoredStep::RollBack));
        }
        if world.lies < self.scenario.lies {
            self.lies(world, steps);
        }
    }

    fn next_state(&self, before: &StoredWorld, step: StoredStep) -> Option<StoredWorld> {
        let mut world = before.clone();
        match step {
            StoredStep::Act(r) => self.act(&mut world, r),
            StoredStep::Lose(r) => {
                world.lost += 1;
                self.receive(&mut world, r, Lost);
            }
            StoredStep::Unreachable(r) => self.unreachable(&mut world, r),
            StoredStep::Ask(f) => world.flights[f].progress = Progress::Asked(world.now),
            StoredStep::Admit(f) => self.admit(&mut world, f),
            StoredStep::Land(f) => self.land(&mut world, f),
            StoredStep::Kill(f) => {
                world.lost += 1;
                self.leave(&mut world, f, Lost);
            }
            StoredStep::RollBack(to) => Stored::roll_back(&mut world, to),
            StoredStep::Lie(lie) => Stored::lie(&mut world, lie)?,
        }
        self.forget_dead(&mut world);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Stored>> {
        promises::of(self)
    }
}
