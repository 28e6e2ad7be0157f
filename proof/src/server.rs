//! What git and the machine do: refs move, receive-packs report and die, the power fails.

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
    /// Moves the refs of push `p` from `first` on, as long as `most` and git's own check allow.
    pub(crate) fn update(&self, world: &mut World, p: usize, first: usize, most: usize) {
        let said = world.pushes[p].said.clone();
        let commands = self.commands(world, p).into_iter().zip(said).enumerate();
        for (n, ((on, new), said)) in commands.skip(first).take(most) {
            let before = world.refs[on];
            if !git_allows(before, new, said) {
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
        let commands = self.commands(world, p).into_iter().zip(&world.pushes[p].said);
        commands.into_iter().all(|((on, new), said)| git_allows(world.refs[on], new, *said))
    }

    /// A receive-pack whose client is gone dies while it reports, and runs nothing.
    pub(crate) fn report(&self, world: &mut World, p: usize) {
        let push = &world.pushes[p];
        let has_word = self.scenario.companion && push.listed != 0 && !self.scenario.pushes[p].is_beat();
        let is_alone = push.answer == Answer::Lost;
        world.pushes[p].phase = if has_word && !is_alone { Phase::Post } else { Phase::Gone };
        if is_alone {
            self.no_word(world, p);
        }
        let answer = if world.pushes[p].declined { Answer::No } else { Answer::Landed };
        self.hear_answer(world, p, answer);
    }

    /// Git will never say what push `p` has moved. If somebody has put that back and nobody has written it down, that
    /// is what is not promised.
    pub(crate) fn no_word(&self, world: &mut World, p: usize) {
        world.pushes[p].wordless = true;
        world.excused |= world.put_back & (1 << p) != 0 && !is_known(world, p);
    }

    /// The push whose work a local writer may put back, and where to. Not under the hands of a push that is still to move
    /// the ref, whose own doing it would then seem to be; and not what nobody knows or will know of.
    pub(crate) fn to_put_back(&self, world: &World, on: Ref) -> Option<Move> {
        let last = *world.moves[fence_of(on)].iter().rfind(|moved| moved.on == on)?;
        let is_there = world.refs[on] != last.before && world.pushes[last.by].listed != 0;
        let name = &self.names[on];
        let mut others = world.now().state.in_flight.iter().filter(|flight| flight.push.0 != id_of(last.by));
        let is_planned = others.any(|flight| flight.plan.refs.iter().any(|planned| planned.name == *name));
        let will_be_known = is_known(world, last.by) || !world.pushes[last.by].wordless;
        (is_there && !is_planned && will_be_known).then_some(last)
    }

    pub(crate) fn restart(&self, world: &mut World, kept: usize, lost: u8) {
        // After a power loss it is as the surviving refs show, and those somebody has put back.
        world.excused |= world.undone > 0 && kept + 1 < world.log.len();
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
                self.no_word(world, p);
                self.hear_answer(world, p, Answer::Lost);
            }
        }
    }

    /// A grant whose token is too low is tried once more, with what the refusal says.
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

/// Git's own check of the old value, under its lock on the ref. A deletion with an old value that it
/// does not know deletes whatever is there.
fn git_allows(now: Object, new: Object, said: Object) -> bool {
    now == said || (new == NONE && now != NONE && said == NOWHERE)
}

/// Whether what push `p` has moved is on record, of all its fences.
fn is_known(world: &World, p: usize) -> bool {
    let flight = world.now().state.in_flight.iter().find(|flight| flight.push.0 == id_of(p));
    let has_landed = |flight: &InFlight| flight.stakes.iter().all(|stake| flight.landed.spent.contains(&stake.fence));
    world.now().said[p] & SETTLED != 0 || flight.is_some_and(has_landed)
}
