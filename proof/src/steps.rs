//! Every step that somebody can take, and what comes of it.

use crate::{
    gate::Ruling,
    numbers::Ref,
    protocol::Protocol,
    world::{Answer, ModelPush, Phase, World},
};
use git_fence_core::Reject;
use std::sync::Arc;

/// One step of somebody. A push that is stalled is one that takes none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStep {
    /// The client connects, reads what the refs are at, and sends its push.
    Connect(usize),
    /// The hook takes the lock, decides, and writes.
    Judge(usize),
    /// The hook has waited for as long as it may.
    GiveUp(usize),
    /// The hook syncs what it has written, and exits.
    Sync(usize),
    /// Git updates the next ref, or all in one transaction.
    Update(usize),
    /// Git declines to: an update hook, a deny rule.
    Decline(usize),
    /// Receive-pack tells its client, and ends unless it has something for `post-receive`.
    Exit(usize),
    /// The companion writes down what git has updated.
    Companion(usize),
    /// A local writer, who asks no gate, puts a ref back to where it was before its last move.
    PutBack(Ref),
    /// The client's connection is gone. The server goes on.
    Lose(usize),
    /// The hook is killed.
    KillHook(usize),
    /// Receive-pack is killed.
    KillReceivePack(usize),
    /// Receive-pack is killed in the midst of a transaction, when so many refs have been renamed.
    Tear(usize, usize),
    /// The machine loses power. So many of the lines that were not synced are there afterwards, and
    /// these refs (as bits) are not.
    Restart(usize, u8),
    /// Time passes: every lease that is not renewed from here on expires.
    Tick,
}

impl Protocol {
    /// What comes of a step; nothing where it cannot be taken.
    pub(crate) fn take(&self, world: &mut World, step: &ModelStep) -> Option<()> {
        match *step {
            ModelStep::Connect(p) => match self.connect(world, p) {
                Some(push) => world.pushes[p] = push,
                None => world.pushes[p] = ModelPush { phase: Phase::Gone, answer: Answer::No, ..ModelPush::idle() },
            },
            ModelStep::Judge(p) => self.take_judge(world, p)?,
            ModelStep::GiveUp(p) => self.take_give_up(world, p)?,
            ModelStep::Sync(p) => {
                let last = world.log.len() - 1;
                world.log.drain(..last);
                let is_orphan = world.pushes[p].phase == Phase::OrphanWritten;
                world.pushes[p].phase = if is_orphan { Phase::Gone } else { Phase::Update(0) };
            }
            ModelStep::Update(p) => self.take_update(world, p)?,
            ModelStep::Decline(p) => {
                let Phase::Update(next) = world.pushes[p].phase else { return None };
                world.declines += 1;
                world.pushes[p].declined = true;
                let is_last = self.scenario.pushes[p].atomic || next + 1 == world.pushes[p].said.len();
                world.pushes[p].phase = if is_last { Phase::Report } else { Phase::Update(next + 1) };
            }
            ModelStep::Exit(p) => self.report(world, p),
            ModelStep::Companion(p) => {
                let appended = self.companion(world, p);
                world.log.extend(appended);
                world.pushes[p].phase = Phase::Gone;
            }
            ModelStep::PutBack(on) => {
                let last = self.to_put_back(world, on)?;
                world.undone += 1;
                world.put_back |= 1 << last.by;
                world.refs[on] = last.before;
            }
            ModelStep::Lose(p) => {
                world.lost += 1;
                self.hear_answer(world, p, Answer::Lost);
            }
            ModelStep::KillHook(p) => self.kill_hook(world, p),
            ModelStep::KillReceivePack(p) => self.kill_receive_pack(world, p),
            ModelStep::Tear(p, renamed) => {
                world.crashes += 1;
                self.update(world, p, 0, renamed);
                world.pushes[p].torn = true;
                world.pushes[p].phase = Phase::Gone;
                self.no_word(world, p);
                self.hear_answer(world, p, Answer::Lost);
            }
            ModelStep::Restart(kept, lost) => {
                world.crashes += 1;
                self.restart(world, kept, lost);
            }
            ModelStep::Tick => world.ticks += 1,
        }
        Some(())
    }

    fn take_judge(&self, world: &mut World, p: usize) -> Option<()> {
        let (appended, ruling) = self.judge(world, p);
        let is_beat = self.scenario.pushes[p].is_beat();
        match ruling {
            Ruling::Wait if appended.is_empty() => return None,
            // What has landed is synced.
            Ruling::Wait => world.log = appended.last().cloned().into_iter().collect(),
            Ruling::Accepted => {
                world.log.extend(appended);
                if world.pushes[p].rec.is_some() {
                    world.pushes[p].judged = world.ticks;
                }
                world.pushes[p].phase = match world.pushes[p].phase {
                    // A heartbeat is not synced, and nobody asks whether its receive-pack lives.
                    Phase::Orphan if is_beat => Phase::Gone,
                    _ if is_beat => Phase::Update(0),
                    _ => Phase::Written,
                };
            }
            Ruling::Refused(reject) => {
                world.log.extend(appended);
                self.refused(world, p, &reject);
            }
        }
        Some(())
    }

    fn take_give_up(&self, world: &mut World, p: usize) -> Option<()> {
        let (_, Ruling::Wait) = self.judge(world, p) else { return None };
        let busy = Reject::Busy { fence: None, holder: String::new(), waited: std::time::Duration::ZERO };
        let log = world.now().refusing(p, &busy);
        world.log.push(Arc::new(log));
        self.refused(world, p, &busy);
        Some(())
    }

    fn take_update(&self, world: &mut World, p: usize) -> Option<()> {
        let Phase::Update(next) = world.pushes[p].phase else { return None };
        let count = world.pushes[p].said.len();
        if !self.scenario.pushes[p].atomic {
            self.update(world, p, next, 1);
            world.pushes[p].phase = if next + 1 == count { Phase::Report } else { Phase::Update(next + 1) };
            return Some(());
        }
        if self.git_allows_all(world, p) {
            self.update(world, p, 0, count);
        } else {
            world.pushes[p].declined = true;
        }
        world.pushes[p].phase = Phase::Report;
        Some(())
    }

    fn kill_hook(&self, world: &mut World, p: usize) {
        world.crashes += 1;
        if matches!(world.pushes[p].phase, Phase::Post | Phase::OrphanPost) {
            world.pushes[p].phase = Phase::Gone;
            self.no_word(world, p);
            return;
        }
        world.pushes[p].declined = true;
        match world.pushes[p].phase {
            Phase::Hook => self.report(world, p),
            Phase::Written => world.pushes[p].phase = Phase::Report,
            _ => world.pushes[p].phase = Phase::Gone,
        }
    }

    fn kill_receive_pack(&self, world: &mut World, p: usize) {
        world.crashes += 1;
        world.pushes[p].phase = match world.pushes[p].phase {
            Phase::Hook => Phase::Orphan,
            Phase::Written => Phase::OrphanWritten,
            Phase::Post => Phase::OrphanPost,
            _ => Phase::Gone,
        };
        self.no_word(world, p);
        self.hear_answer(world, p, Answer::Lost);
    }
}
