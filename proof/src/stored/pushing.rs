//! The client when it pushes: its own state machine, and what it sees when it looks at the mark.

use super::{
    Op, Stored,
    client::Reply,
    promises,
    rules::{CountingRule, PushesFrom},
    store::{ownership_in, token_in},
    world::{Carries, Proof, Stage, StoreHeld, StoredWorld},
};
use git_fence_core::{
    HolderMove, MarkRecord, Note, Ownership, Pushing, PushingAnswer, PushingEnd, PushingNext, PushingStep, Token,
    Whereabouts,
};

impl Stored {
    /// Whether a push with `token` counts when the mark is `mark`.
    pub(super) fn admits(&self, mark: &MarkRecord, token: Token, by: &Ownership) -> bool {
        match self.rules.counting {
            CountingRule::Number => mark.admits(token, None),
            CountingRule::Core => mark.admits(token, Some(by)),
        }
    }

    fn admits_holder(&self, world: &StoredWorld, held: StoreHeld, mark: usize) -> bool {
        let entry = world.entry(held.record);
        let (Some(token), Some(by)) = (token_in(entry), ownership_in(entry)) else { return false };
        self.admits(world.marks[mark].record.get(), token, &by)
    }

    /// Begins to push or to release: an earlier push is settled first.
    pub(super) fn begin_push(&self, world: &mut StoredWorld, r: usize, wanted: HolderMove) {
        let unsettled = world.runs[r].held.and_then(|held| held.unsettled);
        self.follow(world, r, Pushing::start(wanted, unsettled.map(|_| HolderMove::Advance)), wanted);
        // Whether an earlier push can be settled is open.
        if world.runs[r].stage != Stage::Touch {
            self.act(world, r);
        }
    }

    /// The remote cannot be reached: the push stays unsettled, or the barrier is given up.
    pub(super) fn unreachable(&self, world: &mut StoredWorld, r: usize) {
        match world.runs[r].stage {
            Stage::Touch => self.answered(world, r, PushingAnswer::NotSent),
            _ => self.give_up(world, r),
        }
    }

    /// The next token: the one at hand has written.
    pub(super) fn advance(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        match self.swap_on(world, held.record, HolderMove::Advance) {
            Some(record) => {
                world.runs[r].held = Some(StoreHeld { record, is_used: false, ..held });
                world.runs[r].stage = self.ready(held);
            }
            None => self.lose(world, r),
        }
    }

    /// The client has a token that no push has carried. It pushes from the version that it knows.
    fn ready(&self, held: StoreHeld) -> Stage {
        match self.rules.pushes_from {
            PushesFrom::Known => Stage::PushFrom(held.known),
            PushesFrom::Current => Stage::ReadMark,
        }
    }

    pub(super) fn read_mark(&self, world: &mut StoredWorld, r: usize) {
        let Some(held) = world.runs[r].held else { return };
        let tip = world.tip();
        if self.admits_holder(world, held, tip) {
            world.runs[r].stage = Stage::PushFrom(tip);
        } else {
            promises::refused(world, held.owner);
            self.lose(world, r);
        }
    }

    pub(super) fn push(&self, world: &mut StoredWorld, r: usize, mark: usize) {
        let Some(held) = world.runs[r].held else { return };
        let Some(token) = token_in(world.entry(held.record)) else { return };
        if !self.admits_holder(world, held, mark) {
            return self.lose(world, r);
        }
        let proof = self.rules.gate.map(|_| Proof::Lease(held.record));
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
        if world.tip() == unsettled.before {
            Whereabouts::BeforePush
        } else if world.mark().push == unsettled.push {
            Whereabouts::AfterPush
        } else if self.rules.pushes_from == PushesFrom::Current {
            self.whereabouts_as_designed(world, held, settles)
        } else if self.rules.knows_own_touch && world.is_at_own(held) {
            Whereabouts::Elsewhere
        } else {
            Whereabouts::NotOurs
        }
    }

    /// As first designed: a version that somebody else has made will do.
    fn whereabouts_as_designed(&self, world: &StoredWorld, held: StoreHeld, settles: bool) -> Whereabouts {
        let has_landed = held.unsettled.is_some_and(|unsettled| world.has_landed(unsettled.push));
        let is_ours = world.mark().record.get().by == ownership_in(world.entry(held.record));
        if is_ours && has_landed {
            Whereabouts::AfterPush
        } else if has_landed || !self.admits_holder(world, held, world.tip()) {
            Whereabouts::NotOurs
        } else if settles {
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
        let Some(held) = world.runs[r].held else { return };
        world.runs[r].stage = match next {
            PushingNext::Send if wanted == HolderMove::Release => Stage::Release,
            PushingNext::Send if held.is_used => Stage::Advance,
            PushingNext::Send => self.ready(held),
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
        let Some(held) = world.runs[r].held else { return self.finish(world, r) };
        let mut believe = |landed| {
            if let Some(unsettled) = held.unsettled {
                tell(world, unsettled.push, landed);
            }
        };
        match end {
            PushingEnd::Lost { .. } => {
                believe(false);
                promises::refused(world, held.owner);
                self.lose(world, r);
            }
            PushingEnd::LandedThenLost => {
                believe(true);
                self.lose(world, r);
            }
            PushingEnd::LostOnTheWay => self.lose(world, r),
            PushingEnd::EarlierUnknown if self.wanted(world, r) == HolderMove::Release => {
                world.runs[r].stage = Stage::LeaveBarrier;
            }
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
    let known = match note {
        Note::MovedByPush => world.marks.iter().position(|mark| mark.push == unsettled.push).unwrap_or(held.known),
        // A version of its own: nothing else is taken for ours.
        Note::MovedBySettling | Note::MovedToSeen => world.tip(),
        Note::Unmoved | Note::Nothing => held.known,
    };
    world.runs[r].held = Some(StoreHeld { known, unsettled: None, ..held });
}

fn tell(world: &mut StoredWorld, push: usize, landed: bool) {
    if !world.beliefs.contains(&(push, landed)) {
        world.beliefs.push((push, landed));
        world.beliefs.sort_unstable();
    }
}
