//! The rule for leases: who may change a fence's lease, and how.
//!
//! A lease lives in two refs of the repository. A push to them proposes the next record, and
//! [`judge_lease`] decides what that is: a grant, an advance, a release, a renewal, or not allowed.
//! Without a gate, git's own compare-and-swap on these refs still decides who comes first; the rule
//! adds the server's clock, the holder's proof, and that the counter never goes back.
//!
//! A proof can be used once. Each record has the hash of the proof that the next record must carry. A refused record
//! is not published, and a proof that landed is used up. Lease and beat each have a chain of their own.

pub(crate) mod mark;
#[cfg(test)]
mod mark_tests;
mod ownership;
mod proof;
#[cfg(test)]
mod tests;

use crate::{
    Format, HeldBy, Lease, LeaseAsk, LeaseChange, LeaseId, LeaseMove, LeaseState, Mark, Proposal, Reject, Rules, Stamp,
    Standing, next_token, rule::hint::command, text,
};

/// Judges what a push asks of the lease of the fence with these `rules`; `current` is the lease at `now`.
/// Pure: the result depends only on the arguments.
pub fn judge_lease(
    rules: &Rules,
    current: Option<&Standing>,
    mark: Mark,
    asked: &LeaseAsk,
    now: &Stamp,
) -> Result<LeaseChange, Reject> {
    let judge = Judge { rules, current, mark, asked, now };
    match (&asked.lease, current) {
        _ if asked.only_asks => Err(judge.answer()),
        (None, _) => judge.renewal(),
        (Some(proposal), Some(current)) if proposal.lease.id == current.lease.id => judge.next_step(proposal, current),
        (Some(proposal), _) => judge.new_ownership(proposal),
    }
}

/// The refusal of whoever wants a lease that is alive.
fn held_by_another(rules: &Rules, current: &Standing, now: &Stamp) -> Option<Reject> {
    let left = current.left_at(now)?;
    let Lease { id: lease, owner, token, .. } = current.lease.clone();
    let by = HeldBy {
        owner,
        lease,
        token,
        since: Some(current.since.written()),
        expires_in_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        progress: current.progress.clone(),
    };
    Some(Reject::LeaseHeld { fence: rules.fence.clone(), by: Box::new(by) })
}

/// The refusal of whoever wants a lease that is halted, or writes to its fence.
pub(crate) fn halted(rules: &Rules, current: &Standing) -> Option<Reject> {
    Some(Reject::Halted { fence: rules.fence.clone(), halt: Box::new(current.halt()?) })
}

struct Judge<'a> {
    rules: &'a Rules,
    current: Option<&'a Standing>,
    mark: Mark,
    asked: &'a LeaseAsk,
    now: &'a Stamp,
}

impl Judge<'_> {
    /// The answer to a push that only asks: always a refusal, which says who holds the lease. One that reports a push
    /// that git has stopped gets what that push would have got.
    fn answer(&self) -> Reject {
        let holds = |id: &LeaseId| self.current.is_some_and(|current| current.is_held() && current.lease.id == *id);
        if self.asked.stopped.as_ref().is_some_and(|stopped| !holds(&stopped.lease)) {
            return self.lost();
        }
        if let Some(halted) = self.halted() {
            return halted;
        }
        let acquire = || command("acquire", &self.rules.fence);
        self.held_by_another()
            .unwrap_or_else(|| self.invalid(format!("the lease is free: acquire it with  {}", acquire())))
    }

    /// A heartbeat: from the holder, as long as nobody else has the lease. It may come late.
    fn renewal(&self) -> Result<LeaseChange, Reject> {
        let Some(beat) = &self.asked.beat else { return Err(self.invalid("the push does not change the lease")) };
        let current = self.current.filter(|current| current.lease.id == beat.lease).ok_or_else(|| self.lost())?;
        if !current.is_held() {
            return Err(self.lost());
        }
        self.is_of_its_format(beat, current)?;
        match &beat.holder {
            None => self.has_the_secret(current)?,
            Some(next) => {
                let before = self.asked.beat_now.as_ref().filter(|before| before.lease == current.lease.id);
                let expected = before.and_then(|before| before.holder.as_ref()).or(current.beat.as_ref());
                self.shows(self.asked.beat_proof.as_ref(), expected, next)?;
            }
        }
        let standing = Standing {
            heard: self.now.clone(),
            progress: beat.progress.clone(),
            beat: beat.holder.clone(),
            ..current.clone()
        };
        Ok(self.change(LeaseMove::Renew, standing))
    }

    /// The holder advances to the next token, or releases the lease.
    fn next_step(&self, proposal: &Proposal, current: &Standing) -> Result<LeaseChange, Reject> {
        if !current.is_held() {
            return Err(self.lost());
        }
        match current.lease.format {
            Format::OneSecret => self.has_the_secret(current)?,
            Format::OneUse => {
                self.shows(proposal.proof.as_ref(), Some(&current.lease.holder), &proposal.lease.holder)?;
            }
        }
        let change = match proposal.lease.state {
            LeaseState::Held => LeaseMove::Advance,
            LeaseState::Released => LeaseMove::Release,
            LeaseState::Halted => return Err(self.invalid("a halt is a new record, with an id of its own")),
            LeaseState::Moved => return Err(self.invalid("a lease moves to a store only together with the mark")),
        };
        let token = match change {
            LeaseMove::Advance => next_token(Some(current.lease.token), Mark::default()),
            _ => Some(current.lease.token),
        };
        let jobs = match change {
            LeaseMove::Release => current.lease.jobs.released(&proposal.lease.jobs).map(|()| &proposal.lease.jobs),
            _ => Ok(&current.lease.jobs),
        };
        let jobs = jobs.map_err(|fault| self.invalid(fault.to_string()))?.clone();
        let Lease { nonce, state, holder, .. } = proposal.lease.clone();
        let holder = if current.lease.format == Format::OneUse { holder } else { current.lease.holder.clone() };
        // A gate of an older version has recorded no `since`.
        let since = current.lease.since.clone().or_else(|| proposal.lease.since.clone());
        let expected = token.map(|token| Lease { token, nonce, state, since, jobs, holder, ..current.lease.clone() });
        if expected.as_ref() != Some(&proposal.lease) || !proposal.continues(current.parent.as_ref()) {
            return Err(self.invalid("an advance may change only the token, by one, and a release only the state"));
        }
        let beat = self.asked.beat.as_ref();
        if beat.is_some_and(|beat| beat.lease != current.lease.id) {
            return Err(self.invalid("lease and beat belong to different ownerships"));
        }
        // The proof of the lease also covers a beat that moves with it.
        beat.map_or(Ok(()), |beat| self.is_of_its_format(beat, current))?;
        let standing = Standing {
            commit: Some(proposal.commit.clone()),
            lease: proposal.lease.clone(),
            heard: self.now.clone(),
            beat: beat.and_then(|beat| beat.holder.clone()).or_else(|| current.beat.clone()),
            ..current.clone()
        };
        Ok(self.change(change, standing))
    }

    fn change(&self, change: LeaseMove, standing: Standing) -> LeaseChange {
        let fence = self.rules.fence.clone();
        let raises_to = match change {
            LeaseMove::Grant | LeaseMove::Advance | LeaseMove::Revoke | LeaseMove::Halt | LeaseMove::Resume => {
                self.rules.accept.mark_before(standing.lease.token)
            }
            LeaseMove::Release | LeaseMove::Renew => Mark::default(),
        };
        LeaseChange { fence, change, standing, raises_to }
    }

    fn held_by_another(&self) -> Option<Reject> {
        held_by_another(self.rules, self.current?, self.now)
    }

    fn halted(&self) -> Option<Reject> {
        halted(self.rules, self.current?)
    }

    /// The pusher does not hold the lease that the push names.
    fn lost(&self) -> Reject {
        if let Some(halted) = self.halted() {
            return halted;
        }
        let now = self.current.map(|current| match current.lease.state {
            LeaseState::Held => {
                format!("{} holds it, with token {}", text::in_quotes(&current.lease.owner), current.lease.token)
            }
            LeaseState::Released => format!("{} held it last and released it", text::in_quotes(&current.lease.owner)),
            LeaseState::Halted => "it is halted".to_owned(),
            LeaseState::Moved => "the leases of this fence are kept elsewhere".to_owned(),
        });
        let now = now.unwrap_or_else(|| "nobody holds it".to_owned());
        Reject::LeaseLost { fence: self.rules.fence.clone(), now }
    }

    fn unproven(&self, why: &str) -> Reject {
        Reject::LeaseRequired { fence: self.rules.fence.clone(), why: why.to_owned() }
    }

    fn invalid(&self, why: impl Into<String>) -> Reject {
        Reject::LeaseInvalid { fence: self.rules.fence.clone(), why: why.into() }
    }
}
