//! Taking the slots: the push is admitted, and from now on all others wait until its refs have moved.

use crate::{
    host::{
        clock,
        process::{self, Liveness},
    },
    log::store::{Durability, Store},
    push::{
        gate::Gate,
        plan::{Guarded, unreadable},
        verdict::{Admission, Objection, Refusal},
    },
};
use git_fence_core::{
    Claim, Event, FenceName, LeaseChange, LeaseMove, Mark, Place, Plan, Reject, Stake, Token, moved_marks, outdated,
};

impl Gate<'_> {
    /// Takes the slots and records the push as accepted. `overruled` is what an enforcing fence would have refused it for.
    /// `reread` has the current values of the refs, with which settling will compare.
    pub(super) fn enter(
        &self,
        store: Store,
        overruled: Option<Reject>,
        leases: Vec<LeaseChange>,
        reread: Option<Guarded>,
    ) -> Result<Admission, Objection> {
        let overruled = self.flaw.clone().or(overruled);
        let guarded = match reread {
            Some(reread) => reread,
            None => self.read_refs()?,
        };
        if let Some(reject) = self.final_check(&guarded) {
            return Err(self.object(store, reject));
        }
        store.keep_plan(&guarded.refs).map_err(|e| self.broken(&e))?;
        let granted = granted_leases(&leases, &store);
        let accepted = self.acceptance(&store, overruled.as_ref(), leases, guarded);
        self.recorder.commit(store, accepted, Durability::Synced).map_err(Objection::off_record)?;
        let overruled = overruled.map(|reject| {
            let token = reject.fence().and_then(|fence| self.token_for(fence));
            Refusal { token, ..Refusal::from(reject) }
        });
        Ok(Admission { overruled, granted, waited: None })
    }

    fn read_refs(&self) -> Result<Guarded, Objection> {
        let guarded = Guarded::part_of(&self.arrival.push, self.settings, &self.arrival.repository);
        guarded.map_err(|e| Objection::off_record(unreadable(e)))
    }

    /// Why a push that would be admitted gets no slot: its refs are not those that were judged, or its receive-pack is
    /// gone.
    fn final_check(&self, guarded: &Guarded) -> Option<Reject> {
        if !guarded.moves_same_refs_as(self.guarded) {
            return Some(Reject::malformed("a symbolic ref changed during the push: try again"));
        }
        if let Some(reject) = outdated(&self.claims, &guarded.refs) {
            return Some(reject);
        }
        // Hooks outlive a receive-pack that is killed. Its refs will never move, so it gets no slot.
        let receive_pack = self.arrival.receive_pack(self.settings);
        let gone = receive_pack.filter(|it| matches!(process::liveness_of(it), Liveness::Dead))?;
        Some(Reject::Unseen { why: format!("the receive-pack of this push (pid {}) has exited", gone.pid) })
    }

    /// The line that records the push as accepted.
    fn acceptance(
        &self,
        store: &Store,
        overruled: Option<&Reject>,
        leases: Vec<LeaseChange>,
        guarded: Guarded,
    ) -> Event {
        let mut stakes = self.stakes(store);
        let marks = moved_marks(store.state(), &self.claims, &clock::stamp(&self.arrival.here));
        Event::PushAccepted {
            push: store.next_push(),
            stake: stakes.remove(0),
            also: stakes,
            leases,
            marks,
            code: overruled.map(Reject::code),
            reason: overruled.map(ToString::to_string),
            source: self.source,
            who: self.recorder.who.clone(),
            plan: Plan::of(guarded.refs),
            receive_pack: self.arrival.receive_pack(self.settings),
            place: Place { uptime_ms: clock::uptime_ms(), ..self.arrival.here.clone() },
            elapsed_us: self.recorder.elapsed_us(),
        }
    }

    fn stakes(&self, store: &Store) -> Vec<Stake> {
        let stake = |claim: &Claim<'_>| Stake {
            fence: claim.rules.fence.clone(),
            token: claim.token,
            mark: store.state().fence(&claim.rules.fence).mark,
        };
        self.claims.iter().map(stake).collect()
    }
}

/// The leases that the push is granted, each with the new mark of its fence.
fn granted_leases(leases: &[LeaseChange], store: &Store) -> Vec<(FenceName, Token, Mark)> {
    let grants = leases.iter().filter(|change| change.change == LeaseMove::Grant);
    let granted = |change: &LeaseChange| {
        let mark = store.state().fence(&change.fence).mark.max(change.raises_to);
        (change.fence.clone(), change.standing.lease.token, mark)
    };
    grants.map(granted).collect()
}
