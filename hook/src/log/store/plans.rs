//! The lists of refs that are too long for a line: each lies in a file beside the log until its push is settled.

use crate::log::{
    files::FenceDir,
    journal::Damage,
    store::{Store, StoreError},
};
use git_fence_core::{InFlight, Plan, PlannedRef};

impl Store {
    /// All refs that a push in flight is to move.
    pub(crate) fn plan_of(&self, flight: &InFlight) -> Result<Vec<PlannedRef>, StoreError> {
        read_plan(&self.dir, flight)
    }

    /// Keeps a plan that is too long for a line; call before appending the push's acceptance.
    pub(crate) fn keep_plan(&self, refs: &[PlannedRef]) -> Result<(), StoreError> {
        if refs.len() <= Plan::IN_LINE {
            return Ok(());
        }
        let path = self.dir.plan_of(self.next_push());
        // With its name: a synced line that speaks of a file whose name went with the power would close the fence.
        let kept = self.dir.replace(&path, &Plan::write_out(refs), true).and_then(|()| self.dir.sync());
        Ok(kept.map_err(Damage::io("write", path))?)
    }

    /// The plan of `flight` is not needed any more once its settlement is written.
    pub(super) fn forget_plan_of(&mut self, flight: &InFlight) {
        if !flight.plan.is_whole() {
            self.obsolete.push(self.dir.plan_of(flight.push));
        }
    }
}

/// All refs that a push in flight is to move, from its record or from the file beside the log.
pub(crate) fn read_plan(dir: &FenceDir, flight: &InFlight) -> Result<Vec<PlannedRef>, StoreError> {
    if flight.plan.is_whole() {
        return Ok(flight.plan.refs.clone());
    }
    let path = dir.plan_of(flight.push);
    let whole = dir.read(&path).ok().and_then(|bytes| flight.plan.read_back(&bytes));
    whole.ok_or(StoreError::PlanLost { push: flight.push, path })
}
