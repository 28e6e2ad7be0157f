//! A heartbeat: the holder of a lease renews it, and does nothing else.
//!
//! It takes no slot and does not wait for one: git's own compare-and-swap on the beat's ref is enough, and a lease must
//! not expire because another push is stalled. It is not synced either: a renewal that is lost in a crash only makes the
//! lease expire a little sooner.

use crate::{
    host::clock,
    log::store::{Durability, Store},
    push::{
        gate::Gate,
        plan::unreadable,
        slot::Viewpoint,
        verdict::{Admission, Objection},
    },
};
use git_fence_core::{Event, LeasePart, RefName, Reject, Renewed};

impl Gate<'_> {
    /// Records the renewals, or returns an objection. Of several renewals, all are recorded or none.
    pub(crate) fn renew(&self) -> Result<Admission, Objection> {
        if let Some(flaw) = self.flaw.clone() {
            return Err(flaw.into());
        }
        let mut store = self.open()?;
        // Landings are committed with the renewal, or found again later.
        let _ = self.settle_finished(&mut store, Viewpoint { here: &self.arrival.here, watched: None })?;
        match self.append_renewals(&mut store) {
            Ok(()) => {
                self.recorder.commit_appended(store, Durability::Lazy).map_err(Objection::off_record)?;
                Ok(Admission::default())
            }
            Err(reject) => Err(self.object(store, reject)),
        }
    }

    fn append_renewals(&self, store: &mut Store) -> Result<(), Reject> {
        let leases: Vec<RefName> = self.claims.iter().map(|claim| LeasePart::Lease.of(&claim.rules.fence)).collect();
        let seen = self.arrival.repository.resolve_refs(&leases).map_err(unreadable)?;
        self.catch_up(store, &seen)?;
        let now = clock::stamp(&self.arrival.here);
        let mut renewed = Vec::new();
        for claim in &self.claims {
            let fence = store.state().fence(&claim.rules.fence);
            let asked = claim.lease.ok_or_else(|| Reject::malformed("the push moves nothing of the lease"))?;
            let standing = fence.judge(claim.rules, asked, &now)?.standing;
            renewed.push(Renewed {
                fence: claim.rules.fence.clone(),
                lease: standing.lease.id,
                token: standing.lease.token,
                heard: standing.heard,
                progress: standing.progress,
                holder: standing.beat,
                who: self.recorder.who.clone(),
            });
        }
        for renewed in renewed {
            store.append(Event::LeaseRenewed(renewed)).map_err(|e| self.recorder.broken(&e))?;
        }
        Ok(())
    }
}
