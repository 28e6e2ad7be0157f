//! Grants and revocations: the changes that give a lease a new owner or take it from its holder.

use super::Judge;
use crate::{
    Accept, Beat, Format, JobFault, Jobs, Lease, LeaseChange, LeaseMove, LeaseState, ObjectId, Proposal, Reason,
    Reject, Standing, TickAhead, Token, TokenKind, next_token,
};

impl Judge<'_> {
    /// A new ownership: the lease is free, or is revoked.
    pub(super) fn new_ownership(&self, proposal: &Proposal) -> Result<LeaseChange, Reject> {
        if self.asked.secret.is_some() || proposal.proof.is_some() {
            // A pusher with a proof means a lease that it held before.
            return Err(self.lost());
        }
        let lease = &proposal.lease;
        let revokes = lease.is_revocation();
        self.may_have_it(revokes)?;
        let parent = self.current.and_then(|current| current.commit.as_ref());
        if !proposal.continues(parent) {
            return Err(self.invalid("the record does not follow the current one: read the lease again"));
        }
        self.has_the_reason(lease, revokes)?;
        let beat = self.beat_of(lease)?;
        self.is_within_the_longest_ttl(lease)?;
        self.has_the_next_token(lease)?;
        self.carries_the_jobs(lease)?;
        let standing = self.standing_of_new(proposal, parent, beat);
        Ok(self.change(if revokes { LeaseMove::Revoke } else { LeaseMove::Grant }, standing))
    }

    /// A live lease goes to nobody else, unless somebody who may revokes it.
    fn may_have_it(&self, revokes: bool) -> Result<(), Reject> {
        if revokes && !self.asked.may_revoke {
            return Err(self.invalid(
                "only the server's operator (git-fence-hook revoke) and the pushers in fence.allowRevoke may revoke leases",
            ));
        }
        if let Some(held) = self.held_by_another().filter(|_| !revokes) {
            return Err(held);
        }
        Ok(())
    }

    /// The record gives the reason why the previous ownership ended.
    fn has_the_reason(&self, lease: &Lease, revokes: bool) -> Result<(), Reject> {
        let reason = match self.current {
            None => Reason::First,
            Some(_) if revokes => Reason::Revoked,
            // The ref is gone, so the client cannot know that there was one.
            Some(Standing { commit: None, .. }) => Reason::First,
            Some(current) if !current.is_held() => Reason::Released,
            Some(_) => Reason::Expired,
        };
        if lease.reason != reason || (lease.state == LeaseState::Released) != revokes {
            return Err(
                self.invalid(format!("the record must have the reason '{}' and the state 'held'", reason.as_str()))
            );
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

    fn has_the_next_token(&self, lease: &Lease) -> Result<(), Reject> {
        let last = self.current.map(|current| current.lease.token);
        match next_token(last, self.mark) {
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
