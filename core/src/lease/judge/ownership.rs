//! Grants, revocations, halts and resumptions: the changes that give a lease a new owner, take it from its holder, or say
//! whether anybody may hold it.

use super::Judge;
use crate::{
    Accept, Beat, Format, JobFault, Jobs, Lease, LeaseChange, LeaseMove, LeaseState, ObjectId, Proposal, Reason,
    Reject, Standing, TickAhead, Token, TokenKind, next_token,
};

impl Judge<'_> {
    /// A new record with an id of its own: the lease is free, or is revoked, halted or resumed.
    pub(super) fn new_ownership(&self, proposal: &Proposal) -> Result<LeaseChange, Reject> {
        if self.asked.secret.is_some() || proposal.proof.is_some() {
            // A pusher with a proof means a lease that it held before.
            return Err(self.lost());
        }
        let lease = &proposal.lease;
        let change = self.beginning_of(lease);
        self.may_have_it(change)?;
        let parent = self.current.and_then(|current| current.commit.as_ref());
        if !proposal.continues(parent) {
            return Err(self.invalid("the record does not follow the current one: read the lease again"));
        }
        self.has_the_reason(lease, change)?;
        let beat = self.beat_of(lease)?;
        self.is_within_the_longest_ttl(lease)?;
        self.has_its_token(lease, change)?;
        self.carries_the_jobs(lease)?;
        let standing = self.standing_of_new(proposal, parent, beat);
        Ok(self.change(change, standing))
    }

    /// What the record does. One that ends as it begins ends a halt, if there is one.
    fn beginning_of(&self, lease: &Lease) -> LeaseMove {
        match lease.state {
            LeaseState::Halted => LeaseMove::Halt,
            _ if lease.is_revocation() && self.halted().is_some() => LeaseMove::Resume,
            _ if lease.is_revocation() => LeaseMove::Revoke,
            LeaseState::Held | LeaseState::Released | LeaseState::Moved => LeaseMove::Grant,
        }
    }

    /// A live lease goes to nobody else, and a halted one to nobody, unless somebody who may says so.
    fn may_have_it(&self, change: LeaseMove) -> Result<(), Reject> {
        let verb = match change {
            LeaseMove::Halt => "halt",
            LeaseMove::Resume => "resume",
            LeaseMove::Revoke => "revoke",
            _ => return self.halted().or_else(|| self.held_by_another()).map_or(Ok(()), Err),
        };
        if !self.asked.may_revoke {
            return Err(self.invalid(format!(
                "only the server's operator (git-fence-hook {verb}) and the pushers in fence.allowRevoke may {verb} leases"
            )));
        }
        self.halted().filter(|_| change == LeaseMove::Halt).map_or(Ok(()), Err)
    }

    /// The record gives the reason why the previous ownership ended.
    fn has_the_reason(&self, lease: &Lease, change: LeaseMove) -> Result<(), Reject> {
        let state = match change {
            LeaseMove::Halt => LeaseState::Halted,
            LeaseMove::Revoke | LeaseMove::Resume => LeaseState::Released,
            _ => LeaseState::Held,
        };
        let reason = match self.current {
            None => Reason::First,
            Some(_) if state == LeaseState::Released => Reason::Revoked,
            // The ref is gone, so the client cannot know that there was one.
            Some(Standing { commit: None, .. }) => Reason::First,
            Some(current) if !current.is_held() => Reason::Released,
            Some(_) if change == LeaseMove::Halt => Reason::Revoked,
            Some(_) => Reason::Expired,
        };
        if lease.reason != reason || lease.state != state {
            let (reason, state) = (reason.as_str(), state.as_str());
            return Err(self.invalid(format!("the record must have the reason '{reason}' and the state '{state}'")));
        }
        Ok(())
    }

    /// The first beat comes with the lease, in the current format.
    fn beat_of(&self, lease: &Lease) -> Result<&Beat, Reject> {
        let beat = self.asked.beat.as_ref().filter(|beat| beat.lease == lease.id);
        let beat =
            beat.ok_or_else(|| self.invalid("lease and beat must move together and belong to the same ownership"))?;
        if lease.format == Format::OneSecret || beat.holder.is_none() {
            return Err(self.invalid("the record has format 1, whose secret others can read: update git-fence"));
        }
        Ok(beat)
    }

    fn is_within_the_longest_ttl(&self, lease: &Lease) -> Result<(), Reject> {
        if lease.ttl > self.rules.lease_max_ttl {
            return Err(self.invalid(format!(
                "the TTL {} is longer than fence.leaseMaxTtl, which is {}",
                lease.ttl, self.rules.lease_max_ttl
            )));
        }
        Ok(())
    }

    /// The next one. Nobody has worked under the token of a halt, so it also ends the halt: on a fence with tokens of its
    /// own, none is used up.
    fn has_its_token(&self, lease: &Lease, change: LeaseMove) -> Result<(), Reject> {
        let last = self.current.map(|current| current.lease.token);
        let next = if change == LeaseMove::Resume { last } else { next_token(last, self.mark) };
        match next {
            Some(next) if lease.token == next => Ok(()),
            Some(next) if lease.token < next => Err(Reject::Stale {
                fence: self.rules.fence.clone(),
                token: lease.token,
                mark: Accept::Above.mark_before(next),
                kind: Some(TokenKind::Lease),
            }),
            Some(_) => Err(self.invalid(format!("token {} is not the next token", lease.token))),
            None => Err(self.invalid(format!("there is no token after {}, the largest", Token::MAX))),
        }
    }

    /// The jobs go on, and a tick starts only if it was not started before.
    fn carries_the_jobs(&self, lease: &Lease) -> Result<(), Reject> {
        let none = Jobs::default();
        let before = self.current.map_or(&none, |current| &current.lease.jobs);
        let fence = || self.rules.fence.clone();
        before.granted(&lease.jobs, lease.token, &lease.owner, self.now).map_err(|fault| match fault {
            JobFault::Ahead { job, tick, now } => {
                Reject::TickAhead { fence: fence(), ahead: Box::new(TickAhead { job, tick, now }) }
            }
            fault => self.invalid(fault.to_string()),
        })
    }

    fn standing_of_new(&self, proposal: &Proposal, parent: Option<&ObjectId>, beat: &Beat) -> Standing {
        Standing {
            commit: Some(proposal.commit.clone()),
            parent: parent.cloned(),
            lease: proposal.lease.clone(),
            since: self.now.clone(),
            heard: self.now.clone(),
            progress: beat.progress.clone(),
            beat: beat.holder.clone(),
        }
    }
}
