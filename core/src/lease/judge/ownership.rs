//! The move by which a lease gets a new owner, or is taken away from the one it has.

use super::Judge;
use crate::{
    Accept, Beat, Format, Lease, LeaseChange, LeaseMove, LeaseState, ObjectId, Proposal, Reason, Reject, Standing,
    Token, TokenKind, next_token,
};

impl Judge<'_> {
    /// Somebody else's turn: where the lease is free, or where it is taken away.
    pub(super) fn new_ownership(&self, proposal: &Proposal) -> Result<LeaseChange, Reject> {
        if self.asked.secret.is_some() || proposal.proof.is_some() {
            // Who proves to be a holder speaks of a lease that it had.
            return Err(self.lost());
        }
        let lease = &proposal.lease;
        let revokes = lease.is_revocation();
        self.may_have_it(revokes)?;
        let parent = self.current.and_then(|current| current.commit.as_ref());
        if !proposal.continues(parent) {
            return Err(self.invalid("it does not continue the lease as it stands: read it again"));
        }
        self.has_the_reason(lease, revokes)?;
        let beat = self.beat_of(lease)?;
        self.is_within_the_longest_ttl(lease)?;
        self.has_the_next_token(lease)?;
        let standing = self.standing_of_new(proposal, parent, beat);
        Ok(self.change(if revokes { LeaseMove::Revoke } else { LeaseMove::Grant }, standing))
    }

    /// A lease that is alive goes to nobody else, unless it is taken away by those who may.
    fn may_have_it(&self, revokes: bool) -> Result<(), Reject> {
        if revokes && !self.asked.may_revoke {
            return Err(self.invalid(
                "only the server's operator (git-fence-hook revoke) and the pushers in fence.allowRevoke take leases away",
            ));
        }
        if let Some(held) = self.held_by_another().filter(|_| !revokes) {
            return Err(held);
        }
        Ok(())
    }

    /// Its record says why the ownership before ended.
    fn has_the_reason(&self, lease: &Lease, revokes: bool) -> Result<(), Reject> {
        let reason = match self.current {
            None => Reason::First,
            Some(_) if revokes => Reason::Revoked,
            // Whoever finds no ref cannot know that there was one.
            Some(Standing { commit: None, .. }) => Reason::First,
            Some(current) if current.lease.state == LeaseState::Released => Reason::Released,
            Some(_) => Reason::Expired,
        };
        if lease.reason != reason || (lease.state == LeaseState::Released) != revokes {
            return Err(
                self.invalid(format!("the lease is free because of '{}', and held from then on", reason.as_str()))
            );
        }
        Ok(())
    }

    /// The first heartbeat comes with the lease, and in the format of today.
    fn beat_of(&self, lease: &Lease) -> Result<&Beat, Reject> {
        let beat = self.asked.beat.as_ref().filter(|beat| beat.lease == lease.id);
        let beat = beat.ok_or_else(|| self.invalid("lease and beat must move together, for the same ownership"))?;
        if lease.format == Format::OneSecret || beat.holder.is_none() {
            return Err(self.invalid("its record is of format 1, whose secret others can read: update git-fence"));
        }
        Ok(beat)
    }

    fn is_within_the_longest_ttl(&self, lease: &Lease) -> Result<(), Reject> {
        if lease.ttl > self.rules.lease_max_ttl {
            return Err(self.invalid(format!(
                "a TTL of {} is longer than fence.leaseMaxTtl allows, {}",
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
            Some(_) => Err(self.invalid(format!("token {} is not the next one", lease.token))),
            None => Err(self.invalid(format!("there is no token after {}, the last one", Token::MAX))),
        }
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
