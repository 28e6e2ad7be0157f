//! Ref lists that are too long for a line: each is in a separate file until its push is settled.

use crate::log::{
    files::FenceDir,
    journal::Damage,
    store::{Store, StoreError},
};
use git_fence_core::{InFlight, Plan, PlannedRef};

impl Store {
    /// All refs that a push in flight may move.
    pub(crate) fn plan_of(&self, flight: &InFlight) -> Result<Vec<PlannedRef>, StoreError> {
        read_plan(&self.dir, flight)
    }

    /// Saves a plan that is too long for a line. Call it before appending the acceptance of the push.
    pub(crate) fn keep_plan(&self, refs: &[PlannedRef]) -> Result<(), StoreError> {
        if refs.len() <= Plan::IN_LINE {
            return Ok(());
        }
        let path = self.dir.plan_of(self.next_push());
        // Its name is synced too: if a synced line referred to a file that a power loss removed, pushes would be refused.
        let kept = self.dir.replace(&path, &Plan::write_out(refs), true).and_then(|()| self.dir.sync());
        Ok(kept.map_err(Damage::io("write", path))?)
    }

    /// Removes the plan of `flight` once its settlement is written.
    pub(super) fn discard_plan_of(&mut self, flight: &InFlight) {
        if !flight.plan.is_whole() {
            self.obsolete.push(self.dir.plan_of(flight.push));
        }
    }
}

/// All refs that a push in flight may move, from its line or from its separate file.
pub(crate) fn read_plan(dir: &FenceDir, flight: &InFlight) -> Result<Vec<PlannedRef>, StoreError> {
    if flight.plan.is_whole() {
        return Ok(flight.plan.refs.clone());
    }
    let path = dir.plan_of(flight.push);
    let whole = dir.read(&path).ok().and_then(|bytes| flight.plan.read_back(&bytes));
    whole.ok_or(StoreError::PlanLost { push: flight.push, path })
}
