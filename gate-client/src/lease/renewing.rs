//! Renewing a lease: the holder moves its beat, and nothing else.

use crate::{
    client::Client,
    clock,
    failure::Failure,
    lease::held::{HeldLease, LeaseDir, Pulse},
};
use git_fence_core::{Code, LeasePart, LeaseSnapshot, LeaseStore, MOST_TRIES, Record, Stamp, Swap, Swapped};

impl Client {
    /// Moves the beat. Returns the new deadline.
    pub(crate) fn renew(&self, dir: &LeaseDir) -> Result<Stamp, Failure> {
        let client = self.with_store_of(&dir.held()?);
        client.try_to_renew(dir).map_err(|failed| dir.or_gone(failed))
    }

    fn try_to_renew(&self, dir: &LeaseDir) -> Result<Stamp, Failure> {
        let _lock = dir.lock_beat(&self.how())?;
        let (held, mut pulse) = (dir.held()?, dir.pulse()?);
        let store = self.store_of(dir, &held)?;
        for _ in 0..MOST_TRIES {
            let sent = self.clock.now();
            store.learn_clock()?;
            let progress = dir.progress().map(|progress| progress.text);
            let beat = self.beat_of(&held, progress, store.gate(), &store.by_its_clock(sent.clone()));
            let proof = held.key.proof(LeasePart::Beat, &pulse.nonce);
            let owner = &held.lease.owner;
            let to = store.prepare(&Record::Beat { beat: &beat, owner, proof: proof.as_ref() })?;
            let swap = Swap { part: LeasePart::Beat, from: Some(pulse.at.clone()), to: to.clone() };
            match store.swap(&[swap])? {
                Swapped::Won => {
                    let good_until = clock::after(&sent, held.lease.ttl.duration());
                    dir.set_pulse(&Pulse { at: to, nonce: beat.nonce, good_until: good_until.clone() })?;
                    return Ok(good_until);
                }
                Swapped::Unknown { why } => return Err(self.unreachable(why)),
                Swapped::NotSent(failure) => return Err(failure),
                Swapped::Refused(refused) => {
                    if let Some(gate) = &refused.gate {
                        return Err(match gate.code {
                            Some(Code::LeaseLost | Code::Stale) => self.lost(&store.read()?),
                            Some(Code::Halted) => self.lost(&store.read()?).by_halt(gate.halt.as_ref()),
                            _ => self.refused_by(gate, &refused.said),
                        });
                    }
                    let before = pulse.at.clone();
                    self.catch_up_with_beat(&held, &mut pulse, &store.read()?)?;
                    // Nobody has moved it: the remote refuses for a reason of its own.
                    if pulse.at == before && !refused.crowded {
                        return Err(self.refused(&refused));
                    }
                }
            }
        }
        Err(self.unreachable("its beat keeps changing".to_owned()))
    }

    /// The beat has another version than expected: an answer was lost, or the lease.
    fn catch_up_with_beat(&self, held: &HeldLease, pulse: &mut Pulse, seen: &LeaseSnapshot) -> Result<(), Failure> {
        let is_ours = seen.is_held() && seen.lease.as_ref().is_some_and(|now| now.lease.id == held.lease.id);
        pulse.at = seen.beat_at.clone().filter(|_| is_ours).ok_or_else(|| self.lost(seen))?;
        // The proof of the next beat is derived from the current one.
        if let Some(beat) = seen.beat.as_ref().filter(|beat| beat.lease == held.lease.id) {
            pulse.nonce.clone_from(&beat.nonce);
        }
        Ok(())
    }
}
