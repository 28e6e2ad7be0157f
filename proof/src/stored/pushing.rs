//! The client when it pushes: its own state machine, and what it sees when it looks at the mark.

use super::{
    Op, Stored,
    client::Reply,
    promises,
    rules::CountingRule,
    store::{ownership_in, token_in},
    world::{Carries, Stage, StoreHeld, StoredWorld},
};
use git_fence_core::{
    HolderMove, MarkRecord, Note, Ownership, Pushing, PushingAnswer, PushingEnd, PushingNext, PushingStep, Token,
    Whereabouts,
};

impl Stored {
    /// Whether a push with `token` counts when the mark is `mark`.
    pub(super) fn admits(&self, mark: &MarkRecord, token: Token, by: &Ownership) -> bool {
        let is_named = mark.by.as_ref().is_some_and(|last| last.lease == by.lease);
        match self.rules.counting {
            CountingRule::Number => mark.admits(token, None),
            CountingRule::Core => mark.admits(token, Some(by)),
            CountingRule::Named => mark.admits(token, Some(by)) && is_named,
        }
    }

    fn admits_holder(&self, world: &StoredWorld, held: StoreHeld) -> bool {
        let entry = world.entry(held.record);
        let (Some(token), Some(by)) = (token_in(entry), ownership_in(entry)) else { return false };
        self.admits(world.mark().record.get(), token, &by)
    }

    /// Begins to push or to release: an earlier push is settled first.
    pub(super) fn begin_push(&self, world: &mut StoredWorld, r: usize, wanted: HolderMove) {
        let unsettled = world.runs[r].held.and_then(|held| held.unsettled);
        self.follow(world, r, Pushing::start(wanted, unsettled.map(|_| HolderMove::Advance)), wanted);
        self.act(world, r);
    }

    /// The next token: the one at hand has written.
    pub(super) fn advance(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        match self.swap_on(world, held.record, HolderMove::Advance) {
            Some(record) => {
                world.runs[r].held = Some(StoreHeld { record, is_used: false, ..held });
                world.runs[r].stage = Stage::ReadMark;
            }
            None => self.lose(world, r),
        }
    }

    pub(super) fn read_mark(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        if self.admits_holder(world, held) {
            world.runs[r].stage = Stage::PushFrom(world.tip());
        } else {
            promises::refused(world, held.owner);
            self.lose(world, r);
        }
    }

    pub(super) fn push(&self, world: &mut StoredWorld, r: usize, mark: usize) {
        let Some(held) = world.runs[r].held else { return };
        let Some(token) = token_in(world.entry(held.record)) else { return };
        let proof = self.rules.gate.is_some().then_some(held.record);
        self.send(world, r, mark, Carries::Refs, proof, |mark, by, nonce| mark.written(token, Some(by), "run", nonce));
        world.runs[r].stage = Stage::Pushing;
    }

    pub(super) fn touch(&self, world: &mut StoredWorld, r: usize) {
        let Some(unsettled) = world.runs[r].held.and_then(|held| held.unsettled) else { return };
        self.send(world, r, unsettled.before, Carries::Touch, None, |mark, _, nonce| mark.touched(nonce));
        world.runs[r].stage = Stage::Touching;
    }

    /// The reply to a push or to a touch.
    pub(super) fn receive_in_push(&self, world: &mut StoredWorld, r: usize, reply: Reply) {
        if reply == Reply::Lost && !self.rules.touches {
            world.runs[r].stage = Stage::JustLook;
            return;
        }
        self.answered(
            world,
            r,
            match reply {
                Reply::Landed => PushingAnswer::Landed,
                Reply::Refused => PushingAnswer::Refused { may_be_lost: true, by_gate: self.rules.gate.is_some() },
                Reply::Lost => PushingAnswer::Unknown,
            },
        );
    }

    /// The client looks at the mark and its history, and at the branch.
    pub(super) fn look(&self, world: &mut StoredWorld, r: usize, settles: bool) {
        let Some(held) = world.runs[r].held else { return };
        let at = self.whereabouts(world, held, settles);
        self.answered(world, r, PushingAnswer::At(at));
    }

    /// The hole: what is not there yet counts as never to come.
    pub(super) fn just_look(&self, world: &mut StoredWorld, r: usize) {
        let Some(unsettled) = world.runs[r].held.and_then(|held| held.unsettled) else { return };
        let note = if world.has_landed(unsettled.push) { Note::MovedByPush } else { Note::Unmoved };
        conclude(world, r, note);
        self.finish(world, r);
    }

    fn whereabouts(&self, world: &StoredWorld, held: StoreHeld, settles: bool) -> Whereabouts {
        let Some(unsettled) = held.unsettled else { return Whereabouts::NotOurs };
        let mark = world.mark();
        let is_ours = mark.record.get().by == ownership_in(world.entry(held.record));
        let has_landed = world.has_landed(unsettled.push);
        if world.tip() == unsettled.before {
            Whereabouts::BeforePush
        } else if mark.push == unsettled.push || (is_ours && has_landed) {
            Whereabouts::AfterPush
        } else if has_landed || !self.admits_holder(world, held) {
            Whereabouts::NotOurs
        } else if settles {
            // Touched, by us or by others: the push expects another version, and never lands.
            Whereabouts::Elsewhere
        } else {
            Whereabouts::BeforePush
        }
    }

    fn answered(&self, world: &mut StoredWorld, r: usize, answer: PushingAnswer) {
        let Some(machine) = world.runs[r].machine else { return };
        let wanted = self.wanted(world, r);
        self.follow(world, r, machine.step(answer), wanted);
    }

    /// Does what the machine says.
    fn follow(&self, world: &mut StoredWorld, r: usize, (machine, note, next): PushingStep, wanted: HolderMove) {
        world.runs[r].machine = Some(machine);
        let was_touching = world.runs[r].stage == Stage::Touching;
        let unsettled = world.runs[r].held.and_then(|held| held.unsettled);
        conclude(world, r, note);
        let is_used = world.runs[r].held.is_some_and(|held| held.is_used);
        world.runs[r].stage = match next {
            PushingNext::Send if wanted == HolderMove::Release => Stage::Release,
            PushingNext::Send if is_used => Stage::Advance,
            PushingNext::Send => Stage::ReadMark,
            PushingNext::Settle if !self.rules.touches => Stage::JustLook,
            PushingNext::Settle => Stage::Touch,
            PushingNext::Read => Stage::Look { settles: was_touching },
            PushingNext::ReadHistory => {
                let is_there = unsettled.is_some_and(|unsettled| world.has_landed(unsettled.push));
                return self.answered(world, r, PushingAnswer::InHistory(is_there));
            }
            PushingNext::ReadRefs => {
                let last = world.marks.iter().rev().find(|mark| mark.carries == Carries::Refs);
                let is_there = last.is_some_and(|last| unsettled.is_some_and(|push| last.push == push.push));
                return self.answered(world, r, PushingAnswer::AllThere(is_there));
            }
            PushingNext::End(end) => return self.ended(world, r, end),
        };
    }

    fn ended(&self, world: &mut StoredWorld, r: usize, end: PushingEnd) {
        let unsettled = world.runs[r].held.and_then(|held| held.unsettled);
        let mut tell = |landed| {
            if let Some(unsettled) = unsettled {
                tell(world, unsettled.push, landed);
            }
        };
        match end {
            PushingEnd::Lost { .. } => {
                tell(false);
                self.lose(world, r);
            }
            PushingEnd::LandedThenLost => {
                tell(true);
                self.lose(world, r);
            }
            PushingEnd::LostOnTheWay => self.lose(world, r),
            _ => self.finish(world, r),
        }
    }

    fn wanted(&self, world: &StoredWorld, r: usize) -> HolderMove {
        match self.op(world, r) {
            Some(Op::Release) => HolderMove::Release,
            _ => HolderMove::Advance,
        }
    }
}

/// Writes down what became of the push.
fn conclude(world: &mut StoredWorld, r: usize, note: Note) {
    let Some(held) = world.runs[r].held else { return };
    let Some(unsettled) = held.unsettled.filter(|_| note != Note::Nothing) else { return };
    let landed = note == Note::MovedByPush;
    tell(world, unsettled.push, landed);
    world.runs[r].held = Some(StoreHeld { is_used: landed, unsettled: None, ..held });
}

fn tell(world: &mut StoredWorld, push: usize, landed: bool) {
    if !world.beliefs.contains(&(push, landed)) {
        world.beliefs.push((push, landed));
        world.beliefs.sort_unstable();
    }
}
