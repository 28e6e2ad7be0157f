//! What clients do: they make pushes of what they read and hold, and make something of the answers.

use crate::{
    numbers::{BEAT, LEASE, NONE, NOWHERE, Ref, made_by, maker_of},
    protocol::Protocol,
    records::token,
    scenarios::{Claimed, Kind},
    world::{Answer, Held, Phase, Pushing, Rec, Why, World},
};
use git_fence_core::{Mark, next_token};

impl Protocol {
    pub(crate) fn may_connect(&self, world: &World, p: usize) -> bool {
        let client = self.scenario.pushes[p].client;
        let before = (0..p).filter(|q| self.scenario.pushes[*q].client == client);
        world.pushes[p].phase == Phase::Idle && before.into_iter().all(|q| world.pushes[q].answer != Answer::None)
    }

    /// The client makes its push of what it reads and of what it holds; nothing where it cannot.
    pub(crate) fn connect(&self, world: &World, p: usize) -> Option<Pushing> {
        let script = &self.scenario.pushes[p];
        let held = world.held[script.client];
        let mut push = Pushing { phase: Phase::Hook, tokens: script.tokens, ..Pushing::idle() };
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
        let said = |on: Ref| match on {
            LEASE => swaps[0],
            BEAT => swaps[1],
            on => match script.commands.iter().find(|command| command.on == on).map(|command| command.said) {
                Some(Claimed::Nothing) => NONE,
                Some(Claimed::Nonsense) => NOWHERE,
                _ => world.refs[on],
            },
        };
        push.said = self.commands(world, p).into_iter().map(|(on, _)| said(on)).collect();
        // Git's client sends nothing where it sees another value than it expects. Others do.
        Some(push)
    }

    /// What the client makes of an answer.
    pub(crate) fn hear_answer(&self, world: &mut World, p: usize, answer: Answer) {
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
            (Kind::Fenced, Answer::Landed) => {
                held = held.zip(rec).map(|(held, rec)| Held { rec, commit, ..held });
            }
            (Kind::Fenced, Answer::Lost) => {
                if let Some(held) = &mut held {
                    held.pending = Some(p);
                }
            }
            (Kind::Settle, Answer::Landed) => {
                if let Some(lost) = held.and_then(|held| held.pending) {
                    world.pushes[lost].belief = Some(false);
                }
                held = held.zip(rec).map(|(held, rec)| Held { rec, commit, pending: None, ..held });
            }
            (Kind::Settle, Answer::No) => held = self.read_what_became(world, held),
            _ => {}
        }
        world.held[script.client] = held;
    }

    /// The client's `settle`, after its advance was refused: what the lease's ref shows says whether the
    /// push landed whose answer was lost.
    fn read_what_became(&self, world: &mut World, held: Option<Held>) -> Option<Held> {
        let before = held?;
        let lost = before.pending?;
        let at = world.refs[LEASE];
        let rec = Some(at).filter(|at| *at != NONE).and_then(|at| world.pushes[maker_of(at)].rec)?;
        if rec.grant != before.rec.grant {
            return None;
        }
        if at == made_by(lost, LEASE, false) {
            // The lease is there; what else the push was to move is looked at before anything is said.
            let is_whole = self.commands(world, lost).into_iter().all(|(on, new)| world.refs[on] == new);
            world.pushes[lost].belief = is_whole.then_some(true);
        } else if at == before.commit {
            return held;
        } else {
            world.pushes[lost].belief = Some(false);
        }
        Some(Held { rec, commit: at, pending: None, ..before })
    }
}
