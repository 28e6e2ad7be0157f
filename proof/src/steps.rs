//! Every possible step, and its effect.

use crate::{
    gate::Ruling,
    numbers::Ref,
    protocol::Protocol,
    world::{Answer, ModelPush, Phase, World},
};
use git_fence_core::Reject;
use std::sync::Arc;

/// One step of a process, a client or the machine. A stalled push takes no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelStep {
    /// The client connects, reads the refs, and sends its push.
    Connect(usize),
    /// The hook takes the lock, decides, and writes.
    Judge(usize),
    /// The hook has waited as long as it may.
    GiveUp(usize),
    /// The hook syncs what it has written, and exits.
    Sync(usize),
    /// Git updates the next ref, or all in one transaction.
    Update(usize),
    /// Git declines to update a ref: an update hook, a deny rule.
    Decline(usize),
    /// Receive-pack reports to its client, and exits unless it has to run `post-receive`.
    Exit(usize),
    /// The companion records what git has updated.
    Companion(usize),
    /// A local writer, which bypasses the gate, resets a ref to its value before its last move.
    Reset(Ref),
    /// The connection to the client is lost. The server continues.
    Lose(usize),
    /// The hook is killed.
    KillHook(usize),
    /// Receive-pack is killed.
    KillReceivePack(usize),
    /// Receive-pack is killed within a transaction, after renaming this many refs.
    Tear(usize, usize),
    /// The machine loses power. This many of the unsynced lines survive, and the updates of these refs (as bits) are
    /// lost.
    Restart(usize, u8),
    /// Time passes: every lease that is not renewed from now on expires.
    Tick,
}

impl Protocol {
    /// Applies a step; `None` if it is not possible.
    pub(crate) fn apply(&self, world: &mut World, step: &ModelStep) -> Option<()> {
        match *step {
            ModelStep::Connect(p) => match self.connect(world, p) {
                Some(push) => world.pushes[p] = push,
                None => world.pushes[p] = ModelPush { phase: Phase::Gone, answer: Answer::No, ..ModelPush::idle() },
            },
            ModelStep::Judge(p) => self.apply_judge(world, p)?,
            ModelStep::GiveUp(p) => self.apply_give_up(world, p)?,
            ModelStep::Sync(p) => {
                let last = world.log.len() - 1;
                world.log.drain(..last);
                let is_orphan = world.pushes[p].phase == Phase::OrphanWritten;
                world.pushes[p].phase = if is_orphan { Phase::Gone } else { Phase::Update(0) };
            }
            ModelStep::Update(p) => self.apply_update(world, p)?,
            ModelStep::Decline(p) => {
                let Phase::Update(next) = world.pushes[p].phase else { return None };
                world.declines += 1;
                world.pushes[p].declined = true;
                let is_last = self.scenario.pushes[p].atomic || next + 1 == world.pushes[p].claimed.len();
                world.pushes[p].phase = if is_last { Phase::Report } else { Phase::Update(next + 1) };
            }
            ModelStep::Exit(p) => self.report(world, p),
            ModelStep::Companion(p) => {
                let appended = self.companion(world, p);
                world.log.extend(appended);
                world.pushes[p].phase = Phase::Gone;
            }
            ModelStep::Reset(on) => {
                let last = self.resettable_move(world, on)?;
                world.resets += 1;
                world.reset_pushes |= 1 << last.by;
                world.refs[on] = last.before;
            }
            ModelStep::Lose(p) => {
                world.lost += 1;
                self.receive_answer(world, p, Answer::Lost);
            }
            ModelStep::KillHook(p) => self.kill_hook(world, p),
            ModelStep::KillReceivePack(p) => self.kill_receive_pack(world, p),
            ModelStep::Tear(p, renamed) => {
                world.crashes += 1;
                self.update(world, p, 0, renamed);
                world.pushes[p].torn = true;
                world.pushes[p].phase = Phase::Gone;
                self.mark_unreported(world, p);
                self.receive_answer(world, p, Answer::Lost);
            }
            ModelStep::Restart(kept, lost) => {
                world.crashes += 1;
                self.restart(world, kept, lost);
            }
            ModelStep::Tick => world.ticks += 1,
        }
        Some(())
    }

    fn apply_judge(&self, world: &mut World, p: usize) -> Option<()> {
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
                    // A heartbeat is not synced, and the gate does not check whether its receive-pack is alive.
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

    fn apply_give_up(&self, world: &mut World, p: usize) -> Option<()> {
        let (_, Ruling::Wait) = self.judge(world, p) else { return None };
        let busy = Reject::Busy { fence: None, holder: String::new(), waited: std::time::Duration::ZERO };
        let log = world.now().refusing(p, &busy);
        world.log.push(Arc::new(log));
        self.refused(world, p, &busy);
        Some(())
    }

    fn apply_update(&self, world: &mut World, p: usize) -> Option<()> {
        let Phase::Update(next) = world.pushes[p].phase else { return None };
        let count = world.pushes[p].claimed.len();
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
            self.mark_unreported(world, p);
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
        self.mark_unreported(world, p);
        self.receive_answer(world, p, Answer::Lost);
    }
}
