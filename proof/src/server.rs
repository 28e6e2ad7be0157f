//! Git and the machine: refs move, receive-packs report and die, the power fails.

use crate::{
    log::{SETTLED, id_of},
    numbers::{NONE, NOWHERE, Object, Ref, fence_of},
    protocol::Protocol,
    scenarios::Kind,
    world::{Answer, Move, Phase, Rec, World},
};
use git_fence_core::{InFlight, Reject};
use std::sync::Arc;

impl Protocol {
    /// Moves at most `most` refs of push `p`, from `first` on, as far as git's own check allows.
    pub(crate) fn update(&self, world: &mut World, p: usize, first: usize, most: usize) {
        let claimed = world.pushes[p].claimed.clone();
        let commands = self.commands(world, p).into_iter().zip(claimed).enumerate();
        for (n, ((on, new), claimed)) in commands.skip(first).take(most) {
            let before = world.refs[on];
            if !git_allows(before, new, claimed) {
                world.pushes[p].declined = true;
                continue;
            }
            world.pushes[p].listed |= 1 << n;
            if before != new {
                world.refs[on] = new;
                world.moves[fence_of(on)].push(Move { on, by: p, before });
            }
        }
    }

    pub(crate) fn git_allows_all(&self, world: &World, p: usize) -> bool {
        let commands = self.commands(world, p).into_iter().zip(&world.pushes[p].claimed);
        commands.into_iter().all(|((on, new), claimed)| git_allows(world.refs[on], new, *claimed))
    }

    /// A receive-pack whose client is gone dies while it reports, and does not run `post-receive`.
    pub(crate) fn report(&self, world: &mut World, p: usize) {
        let push = &world.pushes[p];
        let has_report = self.scenario.companion && push.listed != 0 && !self.scenario.pushes[p].is_beat();
        let is_alone = push.answer == Answer::Lost;
        world.pushes[p].phase = if has_report && !is_alone { Phase::Post } else { Phase::Gone };
        if is_alone {
            self.mark_unreported(world, p);
        }
        let answer = if world.pushes[p].declined { Answer::No } else { Answer::Landed };
        self.receive_answer(world, p, answer);
    }

    /// Git will never report what push `p` has moved. If a local writer has reset that, and it is not recorded, this is a
    /// case that is not promised.
    pub(crate) fn mark_unreported(&self, world: &mut World, p: usize) {
        world.pushes[p].unreported = true;
        world.excused |= world.reset_pushes & (1 << p) != 0 && !is_known(world, p);
    }

    /// The last move of a ref, if a local writer may reset it. Not while another push plans to move the ref, because the
    /// reset would look like its move; and not if the move is not recorded and never will be.
    pub(crate) fn resettable_move(&self, world: &World, on: Ref) -> Option<Move> {
        let last = *world.moves[fence_of(on)].iter().rfind(|moved| moved.on == on)?;
        let is_there = world.refs[on] != last.before && world.pushes[last.by].listed != 0;
        let name = &self.names[on];
        let mut others = world.now().state.in_flight.iter().filter(|flight| flight.push.0 != id_of(last.by));
        let is_planned = others.any(|flight| flight.plan.refs.iter().any(|planned| planned.name == *name));
        let will_be_known = is_known(world, last.by) || !world.pushes[last.by].unreported;
        (is_there && !is_planned && will_be_known).then_some(last)
    }

    pub(crate) fn restart(&self, world: &mut World, kept: usize, lost: u8) {
        // After a power loss the surviving refs count, and a local writer has reset some of them.
        world.excused |= world.resets > 0 && kept + 1 < world.log.len();
        world.log.truncate(kept + 1);
        world.log.drain(..kept);
        for on in (0..5).filter(|on| lost & (1 << on) != 0) {
            let moves = &mut world.moves[fence_of(on)];
            if let Some(last) = moves.iter().rposition(|moved| moved.on == on) {
                world.refs[on] = moves.remove(last).before;
                world.has_lost_moves = true;
            }
        }
        world.boots += 1;
        world.booted_at = world.ticks;
        for p in 0..world.pushes.len() {
            if world.pushes[p].phase != Phase::Idle {
                world.pushes[p].phase = Phase::Gone;
                self.mark_unreported(world, p);
                self.receive_answer(world, p, Answer::Lost);
            }
        }
    }

    /// A grant whose token is too low is tried once more, above the mark in the refusal.
    pub(crate) fn refused(&self, world: &mut World, p: usize, reject: &Reject) {
        let is_orphan = world.pushes[p].phase == Phase::Orphan;
        let is_first_try = self.scenario.pushes[p].kind == Kind::Acquire && !world.pushes[p].again && !is_orphan;
        if let (Reject::Stale { mark, .. }, true) = (reject, is_first_try) {
            let token = u8::try_from(mark.get() + 1).unwrap_or(u8::MAX);
            world.pushes[p].rec = world.pushes[p].rec.map(|rec| Rec { token, ..rec });
            world.pushes[p].again = true;
            let log = world.now().forgetting(p);
            world.log.push(Arc::new(log));
            return;
        }
        world.pushes[p].declined = true;
        if is_orphan {
            world.pushes[p].phase = Phase::Gone;
        } else if self.scenario.pushes[p].kind == Kind::Plain {
            self.report(world, p);
        } else {
            world.pushes[p].phase = Phase::Refused;
        }
    }
}

/// Git's own check of the old value, under its lock on the ref. A deletion with an old value that does not exist deletes
/// whatever is there.
fn git_allows(now: Object, new: Object, claimed: Object) -> bool {
    now == claimed || (new == NONE && now != NONE && claimed == NOWHERE)
}

/// Whether the log has what push `p` has moved, for all its fences.
fn is_known(world: &World, p: usize) -> bool {
    let flight = world.now().state.in_flight.iter().find(|flight| flight.push.0 == id_of(p));
    let has_landed = |flight: &InFlight| flight.stakes.iter().all(|stake| flight.landed.spent.contains(&stake.fence));
    world.now().recorded[p] & SETTLED != 0 || flight.is_some_and(has_landed)
}
