//! The clients: they create pushes from what they read and hold, and process the answers.

use crate::{
    numbers::{BEAT, LEASE, NONE, NOWHERE, Object, Ref, made_by, maker_of},
    protocol::Protocol,
    records::token,
    scenarios::{Claimed, Kind},
    world::{Answer, Held, ModelPush, Phase, Rec, Why, World},
};
use git_fence_core::{
    HolderMove, Mark, Note, Pushing, PushingAnswer, PushingEnd, PushingNext, Whereabouts, next_token,
};

impl Protocol {
    pub(crate) fn may_connect(&self, world: &World, p: usize) -> bool {
        let client = self.scenario.pushes[p].client;
        let before = (0..p).filter(|q| self.scenario.pushes[*q].client == client);
        world.pushes[p].phase == Phase::Idle && before.into_iter().all(|q| world.pushes[q].answer != Answer::None)
    }

    /// The client creates its push from what it reads and holds; `None` if it cannot.
    pub(crate) fn connect(&self, world: &World, p: usize) -> Option<ModelPush> {
        let script = &self.scenario.pushes[p];
        let held = world.held[script.client];
        let mut push = ModelPush { phase: Phase::Hook, tokens: script.tokens, ..ModelPush::idle() };
        let mut swaps = [world.refs[LEASE], world.refs[BEAT]];
        match script.kind {
            Kind::Plain => {}
            Kind::Acquire => {
                let seen = Some(world.refs[LEASE]).filter(|at| *at != NONE);
                let before = seen.and_then(|at| world.pushes[maker_of(at)].rec);
                let reason = match before {
                    None => Why::First,
                    Some(before) if before.released => Why::Released,
                    Some(_) => Why::Expired,
                };
                let last = before.map(|before| token(before.token));
                let token = next_token(last, Mark::default())?.get();
                let token = u8::try_from(token).ok()?;
                let parent = world.refs[LEASE];
                push.rec = Some(Rec { grant: p, token, released: false, reason, parent });
            }
            Kind::Beat => {
                let held = held?;
                push.rec = Some(held.rec);
                swaps[1] = held.pulse;
            }
            Kind::Fenced | Kind::Release | Kind::Settle => {
                let held = held.filter(|held| held.pending.is_some() == (script.kind == Kind::Settle))?;
                let released = script.kind == Kind::Release;
                let token = if released { held.rec.token } else { held.rec.token + 1 };
                push.rec = Some(Rec { token, released, ..held.rec });
                if script.kind == Kind::Fenced {
                    push.tokens[0] = Some(held.rec.token);
                }
                swaps[0] = held.commit;
            }
        }
        if script.forced {
            swaps = [world.refs[LEASE], world.refs[BEAT]];
        }
        let claimed = |on: Ref| match on {
            LEASE => swaps[0],
            BEAT => swaps[1],
            on => match script.commands.iter().find(|command| command.on == on).map(|command| command.claimed) {
                Some(Claimed::Nothing) => NONE,
                Some(Claimed::Nonsense) => NOWHERE,
                _ => world.refs[on],
            },
        };
        push.claimed = self.commands(world, p).into_iter().map(|(on, _)| claimed(on)).collect();
        // Git's client sends nothing if it sees a value other than expected. Other clients do.
        Some(push)
    }

    /// The client processes an answer.
    pub(crate) fn receive_answer(&self, world: &mut World, p: usize, answer: Answer) {
        if world.pushes[p].answer != Answer::None {
            return;
        }
        world.pushes[p].answer = answer;
        let script = &self.scenario.pushes[p];
        let push = &world.pushes[p];
        let (rec, own) = (push.rec, |on| made_by(p, on, push.again));
        let (commit, pulse) = (own(LEASE), own(BEAT));
        let mut held = world.held[script.client];
        match (script.kind, answer) {
            (Kind::Acquire, Answer::Landed) => {
                held = rec.map(|rec| Held { rec, commit, pulse, pending: None });
            }
            (Kind::Beat, Answer::Landed) => {
                if let Some(held) = &mut held {
                    held.pulse = pulse;
                }
            }
            (Kind::Release, Answer::Landed) => held = None,
            (Kind::Fenced | Kind::Settle, answer) => held = self.pushed(world, p, held, answer),
            _ => {}
        }
        world.held[script.client] = held;
    }

    /// A holder processes the answer to its push, or to the swap that settles a lost one.
    fn pushed(&self, world: &mut World, p: usize, held: Option<Held>, answer: Answer) -> Option<Held> {
        let held = held?;
        let (rec, again) = (world.pushes[p].rec?, world.pushes[p].again);
        let settles = self.scenario.pushes[p].kind == Kind::Settle;
        let push = if settles { held.pending? } else { p };
        let after = made_by(push, LEASE, again && !settles);
        let observed = Observation {
            at: self.whereabouts(world, held, after),
            in_history: self.is_in_history(world, after),
            all_there: self.commands(world, push).into_iter().all(|(on, new)| world.refs[on] == new),
        };
        let (note, end) = concluded(settles, answer, observed);
        if settles || matches!(end, Some(PushingEnd::DidNotLand | PushingEnd::LandedThenLost)) {
            world.pushes[push].belief = end.and_then(belief);
        }
        let seen = world.refs[LEASE];
        let moved = |rec, commit| Held { rec, commit, pending: None, ..held };
        match (note, end) {
            (_, Some(PushingEnd::Lost { .. } | PushingEnd::LandedThenLost | PushingEnd::LostOnTheWay)) => None,
            (Note::Nothing, None) => Some(Held { pending: Some(push), ..held }),
            (Note::Nothing, Some(_)) => Some(held),
            (Note::Unmoved, _) => Some(Held { pending: None, ..held }),
            (Note::MovedByPush, _) => Some(moved(world.pushes[push].rec?, after)),
            (Note::MovedBySettling, _) => Some(moved(rec, made_by(p, LEASE, again))),
            (Note::MovedToSeen, _) => Some(moved(world.pushes[maker_of(seen)].rec?, seen)),
        }
    }

    /// The state of the lease as its holder sees it, whose push would have moved it to `after`.
    fn whereabouts(&self, world: &World, held: Held, after: Object) -> Whereabouts {
        let at = world.refs[LEASE];
        let rec = Some(at).filter(|at| *at != NONE).and_then(|at| world.pushes[maker_of(at)].rec);
        match rec {
            Some(rec) if rec.grant == held.rec.grant => match at {
                at if at == held.commit => Whereabouts::BeforePush,
                at if at == after => Whereabouts::AfterPush,
                _ => Whereabouts::Elsewhere,
            },
            _ => Whereabouts::NotOurs,
        }
    }

    /// Whether the lease ref was at `version`, according to its history.
    fn is_in_history(&self, world: &World, version: Object) -> bool {
        let mut at = world.refs[LEASE];
        while at != NONE {
            if at == version {
                return true;
            }
            let Some(rec) = world.pushes[maker_of(at)].rec else { return false };
            at = rec.parent;
        }
        false
    }
}

/// What a holder would see if it read the refs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    pub(crate) at: Whereabouts,
    pub(crate) in_history: bool,
    pub(crate) all_there: bool,
}

/// Runs the client's state machine on an answer: returns its last note and its end. No end if a swap has to settle it.
pub(crate) fn concluded(settles: bool, answer: Answer, observed: Observation) -> (Note, Option<PushingEnd>) {
    let (mut pushing, _, _) = Pushing::start(HolderMove::Advance, None);
    if settles {
        (pushing, _, _) = pushing.step(PushingAnswer::Unknown);
    }
    let mut answer = match answer {
        Answer::Landed => PushingAnswer::Landed,
        Answer::Lost => PushingAnswer::Unknown,
        Answer::None => PushingAnswer::Refused { may_be_lost: true, by_gate: false },
        Answer::No => PushingAnswer::Refused { may_be_lost: true, by_gate: true },
    };
    let mut written = Note::Nothing;
    loop {
        let (on, note, next) = pushing.step(answer);
        pushing = on;
        written = if note == Note::Nothing { written } else { note };
        answer = match next {
            PushingNext::Read => PushingAnswer::At(observed.at),
            PushingNext::ReadHistory => PushingAnswer::InHistory(observed.in_history),
            PushingNext::ReadRefs => PushingAnswer::AllThere(observed.all_there),
            PushingNext::Send | PushingNext::Settle => return (written, None),
            PushingNext::End(end) => return (written, Some(end)),
        };
    }
}

/// What the client then reports about a push whose answer was lost: landed, never landed, or neither.
pub(crate) fn belief(end: PushingEnd) -> Option<bool> {
    match end {
        PushingEnd::Landed | PushingEnd::LandedThenLost => Some(true),
        PushingEnd::DidNotLand | PushingEnd::Lost { .. } => Some(false),
        _ => None,
    }
}
