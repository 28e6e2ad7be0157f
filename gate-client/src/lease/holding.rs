//! Keeping a lease: what only its holder does.

use crate::{
    clock,
    failure::Failure,
    lease::{
        client::{Client, MOST_TRIES, reasons, used_up},
        held::{HeldLease, LeaseDir, Pending, Pulse},
    },
    random,
    store::{
        answer::{GateAnswer, PushAnswer, RefAnswer},
        reading::{Mirror, SeenLease},
        sending::{Looked, Sending},
    },
};
use git_fence_core::{Code, Lease, LeasePart, LeaseState, Mark, ObjectId, Stamp, Token, next_token};

/// How far back the history is read for a push of our own.
const LONGEST_HISTORY: usize = 1000;

/// What came of a push of the holder's.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It landed with this token; what became of each ref, where the answer was heard.
    Landed { token: Token, refs: Vec<RefAnswer> },
    /// It did not, and the lease is still ours.
    Refused { why: Vec<String>, verdict: Option<GateAnswer> },
}

/// What the holder does with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// On to the next token.
    Advance,
    /// Give it back.
    Release,
}

impl Client {
    /// Says that the holder is alive: moves the beat, and nothing else. Until when that is good.
    pub(crate) fn renew(&self, dir: &LeaseDir) -> Result<Stamp, Failure> {
        self.try_to_renew(dir).map_err(|failed| dir.or_gone(failed))
    }

    fn try_to_renew(&self, dir: &LeaseDir) -> Result<Stamp, Failure> {
        let _lock = dir.lock_beat(&self.how())?;
        let (held, mut pulse) = (dir.held()?, dir.pulse()?);
        let objects = dir.objects();
        let mut gate = held.gate;
        for _ in 0..MOST_TRIES {
            let sent = self.clock.now();
            let progress = dir.progress().map(|progress| progress.text);
            let beat = self.beat_of(&held, progress, gate, &sent);
            let proof = held.key.proof(LeasePart::Beat, &pulse.nonce);
            let commit = self.write_beat(dir, &beat, &held.lease.owner, proof.as_ref())?;
            let mut push = self.sending(&[&objects]).swap(LeasePart::Beat, Some(&pulse.commit), &commit);
            push.how = self.how();
            push.options.extend(HeldLease { gate, ..held.clone() }.option().map(Into::into));
            match push.send()? {
                PushAnswer::Landed { .. } => {
                    let good_until = clock::after(&sent, held.lease.ttl.duration());
                    dir.set_pulse(&Pulse { commit, nonce: beat.nonce, good_until: good_until.clone() })?;
                    return Ok(good_until);
                }
                PushAnswer::Lost { why } => return Err(self.unreachable(why)),
                PushAnswer::NotSent(why) => return Err(self.not_sent(why)),
                // The gate is gone since the lease was taken: git's own compare-and-swap is left.
                PushAnswer::NoOptions if gate => gate = false,
                PushAnswer::NoOptions => return Err(self.no_options()),
                PushAnswer::NoAtomic => return Err(self.no_atomic()),
                PushAnswer::Refused { verdict: Some(verdict), .. } => match verdict.code {
                    // The gate came after the lease.
                    Some(Code::LeaseRequired) if !gate => gate = true,
                    Some(Code::LeaseLost | Code::Stale) => return Err(self.lost(&self.read()?)),
                    _ => return Err(self.refused_by(&verdict)),
                },
                // The beat is not where we left it: an answer of ours was lost, or the lease is.
                PushAnswer::Refused { verdict: None, .. } => {
                    let seen = self.read()?;
                    let is_ours = seen.lease.as_ref().is_some_and(|seen| is_held_by(seen, &held));
                    match seen.beat_at.clone().filter(|_| is_ours) {
                        Some(at) => pulse.commit = at,
                        None => return Err(self.lost(&seen)),
                    }
                    // What the next one shows is made of the one that is there.
                    if let Some(beat) = seen.beat.filter(|beat| beat.lease == held.lease.id) {
                        pulse.nonce = beat.nonce;
                    }
                }
            }
        }
        Err(self.unreachable("its beat keeps moving".to_owned()))
    }

    /// Goes on to the next token.
    pub(crate) fn advance(&self, dir: &LeaseDir) -> Result<Token, Failure> {
        match self.push_held(dir, Step::Advance, &mut |_| {})? {
            Moved::Landed { .. } => Ok(dir.held()?.lease.token),
            Moved::Refused { why, verdict } => Err(self.refused(verdict.as_ref(), &why)),
        }
    }

    /// Gives the lease back. Where somebody else has it by now, nothing is done, and that is said.
    pub(crate) fn release(&self, dir: &LeaseDir) -> Result<(), Failure> {
        let released = self.push_held(dir, Step::Release, &mut |_| {});
        match released {
            Ok(Moved::Landed { .. }) => {
                dir.remove();
                Ok(())
            }
            Ok(Moved::Refused { why, verdict }) => Err(self.refused(verdict.as_ref(), &why)),
            Err(lost @ Failure::Lost { .. }) => {
                dir.remove();
                Err(lost)
            }
            Err(other) => Err(other),
        }
    }

    /// The holder's push: the lease goes on to the next token or is given back, together with whatever
    /// `along` adds, or not at all. One connection, unless the answer is lost or it is refused.
    pub(crate) fn push_held(
        &self,
        dir: &LeaseDir,
        step: Step,
        along: &mut dyn FnMut(&mut Sending<'_>),
    ) -> Result<Moved, Failure> {
        let _lock = dir.lock_lease(&self.how())?;
        let mut held = dir.held()?;
        if held.pending.is_some() {
            self.settle(dir, &mut held)?;
        }
        let mirror = self.mirror()?;
        let objects = [mirror.objects(), dir.objects()];
        let objects = [&*objects[0], &*objects[1]];
        for _ in 0..MOST_TRIES {
            // It has been found out that a release landed whose answer was lost.
            if held.lease.state == LeaseState::Released {
                return given_back_before(&held, step);
            }
            let token = held.lease.token;
            let (lease, commit) = self.next_record(dir, &held, step)?;
            let mut push = self.sending(&objects).swap(LeasePart::Lease, Some(&held.commit), &commit);
            if held.gate {
                push = push
                    .option(crate::token_option(&self.fence, token))
                    .option(format!("fence-owner={}", held.lease.owner));
            }
            push.options.extend(held.option().map(Into::into));
            along(&mut push);
            push.remember_what_is_meant();
            held.pending = Some(Pending { lease: lease.clone(), commit: commit.clone() });
            dir.set_held(&held)?;
            // What is pending stays on disk until it is known what became of it: whoever dies before finds out.
            match push.send()? {
                PushAnswer::Landed { refs, .. } => {
                    dir.set_held(&held.moved_to(lease, commit))?;
                    return Ok(Moved::Landed { token, refs });
                }
                PushAnswer::Lost { why } => {
                    return match self.settle(dir, &mut held) {
                        Ok(became) => what_to_say(became, &push, token, why),
                        Err(Failure::Unreachable { .. }) => Err(Failure::Unknown { why }),
                        Err(other) => Err(other),
                    };
                }
                // Known not to have landed: there is nothing to find out.
                PushAnswer::NotSent(why) => {
                    dir.set_held(&held.unmoved())?;
                    return Err(self.not_sent(why));
                }
                // The gate is gone since the lease was taken: git's own compare-and-swap is left.
                PushAnswer::NoOptions if held.gate => held = held.with_gate(false),
                PushAnswer::NoOptions => {
                    dir.set_held(&held.unmoved())?;
                    return Err(self.no_options());
                }
                PushAnswer::NoAtomic => {
                    dir.set_held(&held.unmoved())?;
                    return Err(self.no_atomic());
                }
                // The gate came after the lease, or the answer to our acquiring was lost.
                PushAnswer::Refused { verdict: Some(_), .. } if !held.gate => held = held.with_gate(true),
                PushAnswer::Refused { verdict, refs } => {
                    if !may_be_lost(verdict.as_ref(), &refs) {
                        dir.set_held(&held.unmoved())?;
                        return Ok(Moved::Refused { why: reasons(refs), verdict });
                    }
                    let seen = self.read()?;
                    match seen.lease.as_ref().filter(|now| now.lease.id == held.lease.id) {
                        Some(now) if now.commit == held.commit => {
                            dir.set_held(&held.unmoved())?;
                            return Ok(Moved::Refused { why: reasons(refs), verdict });
                        }
                        // A transaction that failed half way: the lease's ref moved, and another could not.
                        Some(now) if now.commit == commit => {
                            dir.set_held(&held.moved_to(lease, commit))?;
                            return what_to_say(Became::Landed, &push, token, reasons(refs).join("; "));
                        }
                        // Ours, and not where we left it: what is written down here is old. From now on it is not;
                        // but to go on as if nothing had been would hide why.
                        Some(now) => {
                            dir.set_held(&held.moved_to(now.lease.clone(), now.commit.clone()))?;
                            let why = "the lease has gone on without it, and what this machine knew of it was old";
                            return Err(Failure::DidNotLand { why: why.to_owned() });
                        }
                        None => {
                            dir.set_held(&held.unmoved())?;
                            // Git itself has stopped it, before the gate heard of it: so it is told.
                            if held.gate {
                                let told = self.sending(&objects).option(crate::token_option(&self.fence, token));
                                let told = told.option(format!("fence-owner={}", held.lease.owner));
                                let _ = told.ask(&self.write_question(dir, &held.lease.owner)?);
                            }
                            return Err(self.lost(&seen));
                        }
                    }
                }
            }
            dir.set_held(&held)?;
        }
        Err(Failure::Refused { why: "the remote's gate refuses the lease".to_owned() })
    }

    /// Finds out what became of a push whose answer was lost. That the lease shows the old commit does
    /// not say that it failed: it can land seconds later. So the lease is moved on from that commit by
    /// a compare-and-swap: if that succeeds, the lost push did not land and never will.
    fn settle(&self, dir: &LeaseDir, held: &mut HeldLease) -> Result<Became, Failure> {
        let Some(pending) = held.pending.clone() else { return Ok(Became::Landed) };
        let mirror = self.mirror()?;
        let objects = [mirror.objects(), dir.objects()];
        for _ in 0..2 {
            let (lease, commit) = self.next_record(dir, held, Step::Advance)?;
            let mut push = self.sending(&[&objects[0], &objects[1]]);
            push = push.swap(LeasePart::Lease, Some(&held.commit), &commit);
            push.options.extend(held.option().map(Into::into));
            match push.send()? {
                PushAnswer::Landed { .. } => {
                    *held = held.moved_to(lease, commit);
                    dir.set_held(held)?;
                    return Ok(Became::Nothing);
                }
                // This very push may be the one that landed: the next settling sees that.
                PushAnswer::Lost { why } => return Err(self.unreachable(why)),
                PushAnswer::NotSent(why) => return Err(self.not_sent(why)),
                PushAnswer::NoOptions if held.gate => held.gate = false,
                PushAnswer::NoOptions => return Err(self.no_options()),
                PushAnswer::NoAtomic => return Err(self.no_atomic()),
                PushAnswer::Refused { verdict: Some(_), .. } if !held.gate => held.gate = true,
                PushAnswer::Refused { refs, .. } => {
                    return self.read_what_became(dir, held, &pending, &mirror, &reasons(refs).join("; "));
                }
            }
            dir.set_held(held)?;
        }
        Err(self.unreachable("its gate comes and goes".to_owned()))
    }

    /// The same where the lease is not at the commit that it was moved on from.
    fn read_what_became(
        &self,
        dir: &LeaseDir,
        held: &mut HeldLease,
        pending: &Pending,
        mirror: &Mirror<'_>,
        why: &str,
    ) -> Result<Became, Failure> {
        let seen = self.read()?;
        let now = seen.lease.as_ref().filter(|now| now.lease.id == held.lease.id);
        let (became, lease, commit) = match now {
            Some(now) if now.commit == pending.commit => (Became::Landed, &pending.lease, &pending.commit),
            // Not moved by either, and the lost push may still be under way.
            Some(now) if now.commit == held.commit => return Err(self.unreachable(why.to_owned())),
            // An earlier attempt at settling landed, and its answer was lost, too.
            Some(now) => (Became::Nothing, &now.lease, &now.commit),
            None => {
                // Tokens grow: what is older than the push is too old to be it.
                let is_older = |then: &SeenLease| then.lease.token < pending.lease.token;
                let history = mirror.history(seen.lease.as_ref(), LONGEST_HISTORY, &self.how(), is_older)?;
                let landed = history.iter().any(|then| then.commit == pending.commit);
                match self.lost(&seen) {
                    // What was given back is somebody else's by now, as it should be.
                    _ if landed && pending.lease.state == LeaseState::Released => {
                        (Became::History, &pending.lease, &pending.commit)
                    }
                    Failure::Lost { fence, now, by } if landed => {
                        return Err(Failure::Lost { fence, now: format!("the push landed; since then, {now}"), by });
                    }
                    lost => return Err(lost),
                }
            }
        };
        *held = held.moved_to(lease.clone(), commit.clone());
        dir.set_held(held)?;
        Ok(became)
    }

    fn next_record(&self, dir: &LeaseDir, held: &HeldLease, step: Step) -> Result<(Lease, ObjectId), Failure> {
        let nonce = random::nonce();
        let holder = held.key.holder(LeasePart::Lease, &nonce).unwrap_or_else(|| held.lease.holder.clone());
        let mut lease = Lease { nonce, holder, ..held.lease.clone() };
        match step {
            Step::Advance => lease.token = next_token(Some(lease.token), Mark::default()).ok_or_else(used_up)?,
            Step::Release => lease.state = LeaseState::Released,
        }
        let commit = self.write_lease(dir, &lease, held.parent.as_ref(), held.proof().as_ref())?;
        Ok((lease, commit))
    }
}

/// What became of a push whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Became {
    /// The lease is where the push was to bring it.
    Landed,
    /// It was there, and others have had it since.
    History,
    /// It did not land, and never will.
    Nothing,
}

/// What to say of a push whose answer was not heard: that it landed, only where all of its refs are seen to be
/// where they were to go.
fn what_to_say(became: Became, push: &Sending<'_>, token: Token, why: String) -> Result<Moved, Failure> {
    if became == Became::Nothing {
        return Err(Failure::DidNotLand { why });
    }
    match push.look() {
        Ok(Looked { undone, there }) if undone.is_empty() => Ok(Moved::Landed { token, refs: there }),
        Ok(Looked { undone, .. }) if became == Became::Landed => Err(Failure::InPart { refs: undone, why }),
        Ok(Looked { undone, .. }) => {
            let names = undone.join(", ");
            Err(Failure::Unknown { why: format!("others have had the lease since, and {names} moved on: {why}") })
        }
        Err(Failure::Unreachable { why, .. }) => Err(Failure::Unknown { why }),
        Err(other) => Err(other),
    }
}

fn given_back_before(held: &HeldLease, step: Step) -> Result<Moved, Failure> {
    match step {
        Step::Release => Ok(Moved::Landed { token: held.lease.token, refs: Vec::new() }),
        Step::Advance => Err(Failure::lost(&held.fence, "it has been given back")),
    }
}

fn is_held_by(seen: &SeenLease, held: &HeldLease) -> bool {
    seen.lease.id == held.lease.id && seen.lease.state == LeaseState::Held
}

/// Whether a refusal can come from a lease that is not ours any more.
fn may_be_lost(verdict: Option<&GateAnswer>, refs: &[RefAnswer]) -> bool {
    match verdict.and_then(|verdict| verdict.code) {
        None => refs.iter().any(|answer| answer.refused.as_deref().is_some_and(may_mean_lost)),
        Some(code) => matches!(code, Code::Stale | Code::LeaseLost | Code::LeaseRequired | Code::LeaseInvalid),
    }
}

/// Whether git's words for a refusal can come from a lease that has moved. What is surely about the
/// user's own refs is not looked into any further.
fn may_mean_lost(why: &str) -> bool {
    !why.contains("(non-fast-forward)")
        && !why.contains("(fetch first)")
        && !why.contains("(atomic push failed)")
        && !why.contains("(already exists)")
}
