//! The client when it takes, releases or revokes a lease.

use super::{
    Op, Stored,
    promises::{self, Sight},
    remote::mark_nonce,
    store::{ownership_in, token_in},
    world::{Carries, Flight, MarkVersion, OwnerFacts, Progress, Proof, Stage, StoreHeld, StoredWorld, Unsettled},
};
use git_fence_core::{HolderMove, LeaseState, MarkRecord, Ownership, Purpose, Token};

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
            Some(Op::Acquire | Op::Revoke) => world.runs[r].stage = Stage::ReadStore(world.now),
            Some(Op::Push) => self.begin_push(world, r, HolderMove::Advance),
            Some(Op::Release) => self.begin_push(world, r, HolderMove::Release),
            None => {}
        }
    }

    fn take(&self, world: &mut StoredWorld, r: usize, record: Option<usize>, mark: usize) {
        let is_held = |record: usize| {
            world.entry(record).lease.as_ref().is_some_and(|stored| stored.lease.state == LeaseState::Held)
        };
        let was_held = record.is_some_and(is_held);
        let purpose = if self.op(world, r) == Some(Op::Revoke) { Purpose::Revoke } else { Purpose::Hold };
        if purpose == Purpose::Revoke && !was_held {
            return self.finish(world, r);
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
        });
        promises::granted(world, first, mark);
        let owner = world.owners.len() - 1;
        let held = StoreHeld { owner, record: now, read: mark, known: mark, is_used: false, unsettled: None };
        world.runs[r].held = Some(held);
        self.begin_under(world, r, held);
    }

    /// The run may begin to work, or says that it has revoked the lease.
    pub(super) fn began(&self, world: &mut StoredWorld, r: usize) {
        if let Some(held) = world.runs[r].held {
            world.owners[held.owner].is_done = true;
        }
        if self.op(world, r) == Some(Op::Revoke) {
            promises::see(world, Sight::Revoked);
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
