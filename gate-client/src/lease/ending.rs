//! Taking a lease away from whoever has it: revoking it, halting the fence, and resuming it.
//!
//! All three move the lease as a grant does, and then put up the barrier in the remote, if one is due: only then is it done.

use crate::{
    client::Client,
    failure::Failure,
    lease::taking::{LeaseRequest, Taken, Taker},
    run::watch::note,
};
use git_fence_core::{Halt, Lease, LeaseId, MOST_TRIES, Purpose, TakingEnd};

/// What came of a halt.
#[derive(Debug)]
pub(crate) enum Halted {
    /// It was made.
    Now {
        halt: Halt,
        /// Who held the lease, and whether its last token has written.
        held_by: Option<(Box<Lease>, bool)>,
        /// Why a push in flight may still land.
        open: Option<String>,
    },
    /// The fence was halted already.
    Before(Halt),
}

const CHANGES_HANDS: &str = "the lease keeps changing hands";

impl Client {
    /// Revokes the lease. Returns the revoked record; none if nobody held it.
    pub(crate) fn revoke(&self, request: &LeaseRequest) -> Result<Option<Lease>, Failure> {
        let (end, taker) = self.take(request, Purpose::Revoke)?;
        let theirs = taker.seen.lease.clone().map(|seen| seen.lease);
        let barrier = taker.barrier_if(end);
        match end {
            TakingEnd::NothingHeld => Ok(None),
            TakingEnd::ChangesHands => Err(self.busy(CHANGES_HANDS)),
            end => {
                self.is_taken(end, taker)?;
                if let Err(failure) = barrier {
                    note(&format!("revoked in the store; a push in flight may still land: {}", failure.in_one_line()));
                }
                Ok(theirs)
            }
        }
    }

    /// Halts the fence. A lost answer is no reason to stop: to halt twice is harmless.
    pub(crate) fn halt(&self, request: &LeaseRequest) -> Result<Halted, Failure> {
        let (mut held_by, mut ours): (Option<Lease>, Vec<LeaseId>) = (None, Vec::new());
        let mut why = String::new();
        for _ in 0..MOST_TRIES {
            let (end, mut taker) = self.take(request, Purpose::Halt)?;
            let before = taker.seen.lease.clone().map(|seen| seen.lease);
            held_by = before.clone().filter(|_| taker.seen.is_held()).or(held_by);
            let barrier = taker.barrier_if(end);
            let open = barrier.err().map(|failure| failure.in_one_line());
            let with_last = |taker: &Taker<'_>, held: Lease| {
                let has_written = taker.attempt.store.has_written(&held);
                (Box::new(held), has_written)
            };
            match end {
                TakingEnd::Halted => {
                    let is_ours = before.as_ref().is_some_and(|lease| ours.contains(&lease.id));
                    let halt = taker.halt.take().or_else(|| taker.seen.halt());
                    let halt = halt.ok_or_else(|| self.busy(CHANGES_HANDS))?;
                    let held_by = held_by.map(|held| with_last(&taker, held));
                    return Ok(if is_ours { Halted::Now { halt, held_by, open: None } } else { Halted::Before(halt) });
                }
                TakingEnd::ChangesHands => return Err(self.busy(CHANGES_HANDS)),
                // Whether it landed is seen at the next try.
                TakingEnd::MayBeOurs => {
                    ours.push(taker.attempt.id.clone());
                    why.clone_from(&taker.why);
                }
                end => {
                    let held_by = held_by.map(|held| with_last(&taker, held));
                    let halt = taker.attempt.dir.held().ok().and_then(|held| held.lease.halt());
                    self.is_taken(end, taker)?;
                    let halt = halt.ok_or_else(|| self.busy(CHANGES_HANDS))?;
                    return Ok(Halted::Now { halt, held_by, open });
                }
            }
        }
        Err(Failure::Unknown { why: format!("the fence may be halted, and to halt it again is harmless: {why}") })
    }

    /// Resumes the fence. Returns the halt that has ended; none if it was not halted. A barrier that is due stays due for
    /// the next holder, where it cannot be put up now. A lost answer is tried again, as for a halt.
    pub(crate) fn resume(&self, request: &LeaseRequest) -> Result<Option<Halt>, Failure> {
        let (mut sent, mut why) = (None, String::new());
        for _ in 0..MOST_TRIES {
            let (end, taker) = self.take(request, Purpose::Resume)?;
            let halt = taker.seen.halt();
            let _ = taker.barrier_if(end);
            match end {
                // Ours may be what has ended it.
                TakingEnd::NotHalted => return Ok(sent),
                TakingEnd::ChangesHands => return Err(self.busy(CHANGES_HANDS)),
                TakingEnd::MayBeOurs => {
                    sent = halt;
                    why.clone_from(&taker.why);
                }
                end => return self.is_taken(end, taker).map(|()| halt),
            }
        }
        Err(Failure::Unknown { why: format!("the fence may be resumed, and to resume it again is harmless: {why}") })
    }

    /// The record is ours. Nobody works under it, so nothing of it is kept here.
    fn is_taken(&self, end: TakingEnd, taker: Taker<'_>) -> Result<(), Failure> {
        match taker.taken(end)? {
            Taken::Ours(dir) => {
                dir.remove();
                Ok(())
            }
            Taken::Theirs(by, _) => Err(Failure::Held { fence: self.fence.clone(), by: Box::new(by) }),
            Taken::NothingDue(_) => Err(self.busy("no tick is due")),
        }
    }
}
