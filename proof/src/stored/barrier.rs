//! The barrier: a new version of the mark, before anybody works under a lease that was taken from another.

use super::{
    Op, Stored,
    rules::{BarrierAgain, BarrierRule, CountingRule},
    store::{ownership_in, token_in},
    world::{Carries, Proof, Stage, StoreHeld, StoredWorld},
};
use git_fence_core::{HolderMove, Mark, MarkRecord, Ownership};

impl Stored {
    /// What the new holder of run `r` does first.
    pub(super) fn begin_under(&self, world: &mut StoredWorld, r: usize, held: StoreHeld) {
        if self.is_due(world, held).is_none() {
            self.began(world, r);
        } else if self.rules.clears_first {
            world.runs[r].stage = Stage::Clear;
        } else {
            world.runs[r].stage = Stage::RaiseFrom(held.known);
        }
    }

    /// The mark that the holder of a new lease raises before it begins.
    fn is_due(&self, world: &StoredWorld, held: StoreHeld) -> Option<Mark> {
        let due = world.entry(held.record).barrier?;
        let is_lower = world.marks[held.read].record.get().token < due;
        match self.rules.barrier {
            BarrierRule::Never => None,
            BarrierRule::IfMarkIsLower => is_lower.then_some(due),
            BarrierRule::WhenDue => Some(due),
        }
    }

    pub(super) fn raise(&self, world: &mut StoredWorld, r: usize, mark: usize) {
        let Some(held) = world.runs[r].held else { return };
        world.runs[r].stage = Stage::Raising(mark);
        let falls_back = self.rules.again == BarrierAgain::OnlyByTouch && mark != held.read;
        if self.rules.only_touches() || falls_back {
            return self.send(world, r, mark, Carries::Touch, None, |mark, _, nonce| mark.touched(nonce));
        }
        let to = world.entry(held.record).barrier.unwrap_or_default();
        let raised = |mark: &MarkRecord, by: Ownership, nonce| mark.raised(to, Some(by), "run", nonce);
        let proof = self.rules.gate.map(|gate| match gate.barrier_shows_beat {
            true => Proof::Beat(held.owner),
            false => Proof::Lease(held.record),
        });
        self.send(world, r, mark, Carries::Barrier, proof, raised);
    }

    /// Whether the barrier is there, has to be sent again, or must not be: another holder may have begun after ours.
    pub(super) fn look_after_raising(&self, world: &mut StoredWorld, r: usize, expected: usize, refused: bool) {
        let Some(held) = world.runs[r].held else { return };
        let tip = world.tip();
        let may_try_again = match (tip == expected, refused) {
            // A gate has refused it for another reason than the version: the store shows another holder.
            (true, true) => false,
            (true, false) => true,
            (false, _) => self.may_try_again(world, held),
        };
        if world.is_at_own(held) {
            self.barrier_is_up(world, r);
        } else if may_try_again {
            world.runs[r].stage = Stage::RaiseFrom(tip);
        } else {
            self.give_up(world, r);
        }
    }

    /// Whether the barrier may be sent again from a version that somebody else has made.
    fn may_try_again(&self, world: &StoredWorld, held: StoreHeld) -> bool {
        let (entry, mark) = (world.entry(held.record), world.mark().record.get());
        let by = ownership_in(entry).filter(|_| self.rules.counting != CountingRule::Number);
        let counts = token_in(entry).is_some_and(|token| mark.admits(token, by.as_ref()));
        let is_as_read = mark.by == world.marks[held.read].record.get().by;
        let overtaken = entry.before.first().map(|before| &before.lease.id);
        let is_of_overtaken = mark.by.as_ref().is_some_and(|by| Some(&by.lease) == overtaken);
        counts
            && match self.rules.again {
                BarrierAgain::IfItCounts => true,
                BarrierAgain::AlsoByTouch | BarrierAgain::OnlyByTouch => is_as_read || is_of_overtaken,
                BarrierAgain::IfNoOtherWrote => !self.rules.only_touches() && (is_as_read || is_of_overtaken),
            }
    }

    /// The barrier of run `r` is the mark's current version.
    pub(super) fn barrier_is_up(&self, world: &mut StoredWorld, r: usize) {
        let tip = world.tip();
        if let Some(held) = &mut world.runs[r].held {
            held.known = tip;
        }
        match self.rules.clears_first {
            true => self.began(world, r),
            false => world.runs[r].stage = Stage::Clear,
        }
    }

    /// The barrier is no longer due in the store, unless the lease there is another one.
    pub(super) fn clear(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        Stored::set_barrier(world, held.owner, None);
        match self.rules.clears_first {
            true => world.runs[r].stage = Stage::RaiseFrom(held.known),
            false => self.began(world, r),
        }
    }

    /// The run is told that it does not get the lease. Who revokes, halts or resumes has nothing to give back.
    pub(super) fn give_up(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        world.owners[held.owner].is_lost = true;
        world.runs[r].stage = Stage::GiveUp;
        if self.op(world, r).is_some_and(Op::takes_away) {
            world.runs[r].held = None;
            self.finish(world, r);
        }
    }

    /// The new lease is given back. A barrier that is due stays due.
    pub(super) fn give_back(&self, world: &mut StoredWorld, r: usize) {
        if let Some(held) = world.runs[r].held.take() {
            let _ = self.swap_on(world, held.record, HolderMove::Release);
        }
        self.finish(world, r);
    }

    /// A push of this lease may still be on its way: the next holder puts up a barrier.
    pub(super) fn leave_barrier(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        if self.rules.leaves_barrier {
            let token = token_in(world.entry(held.record)).map(Mark::from);
            Stored::set_barrier(world, held.owner, token);
        }
        world.runs[r].stage = Stage::Release;
    }
}
