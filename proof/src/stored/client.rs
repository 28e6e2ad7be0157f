//! The client when it takes, releases or revokes a lease, halts the fence or resumes it.

use super::{
    Op, Stored, promises,
    remote::mark_nonce,
    store::{ownership_in, token_in},
    world::{
        Carries, Flight, HaltFacts, MarkVersion, OwnerFacts, Progress, Proof, Stage, StoreHeld, StoredWorld, Unsettled,
    },
};
use git_fence_core::{
    HolderMove, LeaseState, Life, MarkRecord, Ownership, Purpose, Sight, Taking, TakingAnswer, TakingEnd, TakingNext,
    Token,
};

/// The reply to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It has landed.
    Landed,
    /// It was refused.
    Refused,
    /// There is none.
    Lost,
}

impl Stored {
    /// The operation that run `r` is at.
    pub(super) fn op(&self, world: &StoredWorld, r: usize) -> Option<Op> {
        self.scenario.programs[r].get(world.runs[r].at).copied()
    }

    /// The next thing that the client of run `r` does: one access to the store, to the mark, or a push.
    pub(super) fn act(&self, world: &mut StoredWorld, r: usize) {
        match world.runs[r].stage {
            Stage::Ready => self.begin(world, r),
            Stage::ReadStore(record) => world.runs[r].stage = Stage::ReadBoth(record, world.tip()),
            Stage::ReadBoth(record, mark) => self.take(world, r, record, mark),
            Stage::RaiseFrom(mark) => self.raise(world, r, mark),
            Stage::LookAfterRaising { expected, refused } => self.look_after_raising(world, r, expected, refused),
            Stage::Clear => self.clear(world, r),
            Stage::GiveUp => self.give_back(world, r),
            Stage::LeaveBarrier => self.leave_barrier(world, r),
            Stage::Release => self.release(world, r),
            Stage::Advance => self.advance(world, r),
            Stage::ReadMark => self.read_mark(world, r),
            Stage::PushFrom(mark) => self.push(world, r, mark),
            Stage::Touch => self.touch(world, r),
            Stage::Look { settles } => self.look(world, r, settles),
            Stage::JustLook => self.just_look(world, r),
            Stage::Raising(_) | Stage::Pushing | Stage::Touching => unreachable!("it waits for a reply"),
        }
    }

    /// The client of run `r` receives the reply it waits for.
    pub(super) fn receive(&self, world: &mut StoredWorld, r: usize, reply: Reply) {
        world.runs[r].awaits = None;
        match (world.runs[r].stage, reply) {
            (Stage::Raising(_), Reply::Landed) => self.barrier_is_up(world, r),
            (Stage::Raising(expected), reply) => {
                let refused = reply == Reply::Refused;
                world.runs[r].stage = Stage::LookAfterRaising { expected, refused };
            }
            _ => self.receive_in_push(world, r, reply),
        }
    }

    fn begin(&self, world: &mut StoredWorld, r: usize) {
        match self.op(world, r) {
            Some(Op::Acquire | Op::Revoke | Op::Halt | Op::Resume) => world.runs[r].stage = Stage::ReadStore(world.now),
            Some(Op::Push) => self.begin_push(world, r, HolderMove::Advance),
            Some(Op::Release) => self.begin_push(world, r, HolderMove::Release),
            None => {}
        }
    }

    fn take(&self, world: &mut StoredWorld, r: usize, record: Option<usize>, mark: usize) {
        let Some(purpose) = self.op(world, r).and_then(Op::purpose) else { return };
        match self.taking(world, record, purpose) {
            TakingNext::Propose => {}
            // "It is halted already": whoever is told so relies on it.
            TakingNext::End(TakingEnd::Halted) if purpose == Purpose::Halt => {
                if let Some(halt) = record.map(|record| world.records[record].owner) {
                    world.owners[halt].is_done = true;
                }
                return self.finish(world, r);
            }
            _ => return self.finish(world, r),
        }
        let at = world.marks[mark].record.get().token;
        let Some(now) = self.swap_owner(world, record, at, purpose) else { return self.finish(world, r) };
        let before = record.map(|record| world.records[record].owner);
        let first = token_in(world.entry(now)).map_or(0, Token::get);
        world.owners.push(OwnerFacts {
            first,
            overtakes: before.map_or(0, |owner| (1 << owner) | world.owners[owner].overtakes),
            is_done: false,
            is_lost: false,
            wrote: false,
            is_revived: false,
            after_rollback: world.rollbacks > 0,
            halt: (purpose == Purpose::Halt).then_some(HaltFacts::Stands),
            after_halt: world.owners.iter().any(|owner| owner.halt == Some(HaltFacts::Resumed)),
        });
        match purpose {
            // Nobody works under the token of a halt, so that it also ends the halt.
            Purpose::Resume => world.owners.iter_mut().for_each(|owner| {
                owner.halt = owner.halt.map(|_| HaltFacts::Resumed);
            }),
            Purpose::Hold | Purpose::Revoke | Purpose::Halt => promises::granted(world, first, mark),
        }
        let owner = world.owners.len() - 1;
        let held = StoreHeld { owner, record: now, read: mark, known: mark, is_used: false, unsettled: None };
        world.runs[r].held = Some(held);
        self.begin_under(world, r, held);
    }

    /// What the client does with the lease in `record`: by the state machine of the core, with a clock by which every lease has
    /// expired. There is no gate that grants leases, so it asks none.
    fn taking(&self, world: &StoredWorld, record: Option<usize>, purpose: Purpose) -> TakingNext {
        let entry = record.map(|record| world.entry(record));
        let lease = entry.and_then(|entry| entry.lease.as_ref()).map(|stored| &stored.lease);
        let is_held = lease.is_some_and(|lease| lease.state == LeaseState::Held);
        let is_due = entry.is_some_and(|entry| entry.barrier.is_some());
        let is_again = purpose == Purpose::Halt && is_due && self.rules.completes_halts;
        let heeds = purpose != Purpose::Hold || self.rules.heeds_halts;
        let sight = Sight {
            life: if is_held { Life::Expired } else { Life::Free },
            is_held,
            is_halted: lease.is_some_and(|lease| lease.halt().is_some()) && !is_again && heeds,
            exists: lease.is_some(),
            gate: false,
            is_unchanged: false,
        };
        let (taking, _) = Taking::start(purpose);
        match taking.step(TakingAnswer::Seen(sight)) {
            (taking, TakingNext::AskGate) => taking.step(TakingAnswer::NoGate).1,
            (_, next) => next,
        }
    }

    /// The run may begin to work, or says that it has revoked the lease or halted the fence. Who resumes leaves a barrier that
    /// is due to the next holder, so it promises nothing.
    pub(super) fn began(&self, world: &mut StoredWorld, r: usize) {
        let op = self.op(world, r);
        if let Some(held) = world.runs[r].held.filter(|_| op != Some(Op::Resume)) {
            world.owners[held.owner].is_done = true;
        }
        match op {
            Some(Op::Revoke) => promises::see(world, promises::Sight::Revoked),
            Some(Op::Halt) => promises::see(world, promises::Sight::Halted),
            _ => {}
        }
        if op.is_some_and(Op::takes_away) {
            world.runs[r].held = None;
        }
        self.finish(world, r);
    }

    fn release(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        let is_released = self.swap_on(world, held.record, HolderMove::Release).is_some();
        // An unsettled push may still land, until the successor's barrier is up. The run is told so, and not just "lost".
        if !is_released && held.unsettled.is_none() {
            return self.lose(world, r);
        }
        world.runs[r].held = None;
        self.finish(world, r);
    }

    /// The run is told that its lease is lost.
    pub(super) fn lose(&self, world: &mut StoredWorld, r: usize) {
        if let Some(held) = world.runs[r].held.take() {
            world.owners[held.owner].is_lost = true;
            promises::told_lost(world, held);
        }
        self.finish(world, r);
    }

    /// On to the next operation. Without a lease there is nothing to push or to release.
    pub(super) fn finish(&self, world: &mut StoredWorld, r: usize) {
        let run = &mut world.runs[r];
        (run.stage, run.machine) = (Stage::Ready, None);
        let program = &self.scenario.programs[r];
        run.at += 1;
        while run.held.is_none() && matches!(program.get(run.at), Some(Op::Push | Op::Release)) {
            run.at += 1;
        }
    }

    /// Sends a push that makes the version `next` of the mark from the one at `mark`.
    pub(super) fn send(
        &self,
        world: &mut StoredWorld,
        r: usize,
        mark: usize,
        carries: Carries,
        proof: Option<Proof>,
        next: impl Fn(&MarkRecord, Ownership, String) -> MarkRecord,
    ) {
        let Some(held) = world.runs[r].held else { return };
        let Some(by) = ownership_in(world.entry(held.record)) else { return };
        let push = 32 * r + world.runs[r].sent;
        world.runs[r].sent += 1;
        world.runs[r].awaits = Some(push);
        if carries == Carries::Refs
            && let Some(held) = &mut world.runs[r].held
        {
            held.unsettled = Some(Unsettled { push, before: mark });
            held.is_used = true;
        }
        let record = next(world.marks[mark].record.get(), by, mark_nonce(push));
        let makes = MarkVersion::new(record, push, r, Some(held.owner), carries, proof);
        world.flights.push(Flight { makes, expects: mark, progress: Progress::Arrived });
        world.flights.sort_by_key(|flight| flight.makes.push);
    }
}
