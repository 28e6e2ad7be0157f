//! The state of all fences: what the lines of the log add up to.

use crate::{FenceName, Heir, InFlight, KnownSettings, LeaseLine, Mark, PushId, Renewed, Standing, TokenKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where all fences of a repository stand.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// The marks of the fences that have been written to.
    pub marks: BTreeMap<FenceName, Mark>,
    /// The leases of the fences that have granted one, as they stand.
    #[serde(default)]
    pub leases: BTreeMap<FenceName, Standing>,
    /// The kind of tokens that each fence takes, where that is decided.
    #[serde(default)]
    pub kinds: BTreeMap<FenceName, TokenKind>,
    /// The pushes that have been let through and not settled, oldest first.
    pub in_flight: Vec<InFlight>,
    /// The settings of the last push.
    pub settings: Option<KnownSettings>,
    /// The line since which they are in force.
    pub settings_since: u64,
    /// The fences that were given refs of others since pushes in flight were let through: what these move counts for
    /// the heirs as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heirs: Vec<Heir>,
}

impl State {
    /// Each heir begins where the giver stands: at its mark, and at what it has granted.
    pub(super) fn inherit(&mut self, heirs: &[Heir]) {
        for Heir { fence, giver } in heirs {
            let granted = self.leases.get(giver).map_or(Mark::default(), |standing| standing.lease.token.into());
            let mark = self.fence(giver).mark.max(granted);
            self.raise(fence, mark);
        }
        // Those of before are needed as long as a push of before may land.
        if self.in_flight.is_empty() {
            self.heirs.clear();
        }
        self.heirs.extend_from_slice(heirs);
    }

    /// Raises a mark by what `push` has done. If that was let through under earlier settings, its refs may be somebody
    /// else's by now, whose mark rises with it.
    pub(super) fn raise_by(&mut self, push: PushId, fence: &FenceName, mark: Mark) {
        self.raise(fence, mark);
        if push.0 >= self.settings_since {
            return;
        }
        let mut raised = vec![fence.clone()];
        for Heir { fence, giver } in self.heirs.clone() {
            if raised.contains(&giver) {
                self.raise(&fence, mark);
                raised.push(fence);
            }
        }
    }

    /// A mark never goes down.
    pub(super) fn raise(&mut self, fence: &FenceName, mark: Mark) {
        let old = self.marks.entry(fence.clone()).or_default();
        *old = (*old).max(mark);
    }

    /// The holder of the lease was heard of, unless it is another's by now.
    pub(super) fn renew_lease(&mut self, renewed: &Renewed) {
        let Renewed { fence, lease, heard, progress, holder, .. } = renewed;
        if let Some(standing) = self.leases.get_mut(fence).filter(|standing| standing.lease.id == *lease) {
            standing.heard = heard.clone();
            standing.progress.clone_from(progress);
            standing.beat.clone_from(holder);
        }
    }

    /// A beat may have come between the push that moved the lease and its settlement.
    pub(super) fn move_lease(&mut self, line: &LeaseLine) {
        let mut standing = line.standing.clone();
        if let Some(before) = self.leases.get(&line.fence).filter(|before| before.lease.id == standing.lease.id) {
            standing.heard = standing.heard.or_later(&before.heard);
        }
        self.find_lease(&LeaseLine { standing, ..line.clone() });
    }

    /// What was found counts as it is, also where it was heard of later by a clock that was wrong.
    pub(super) fn find_lease(&mut self, line: &LeaseLine) {
        let mut standing = line.standing.clone();
        if let Some(before) = self.leases.get(&line.fence).filter(|before| before.lease.id == standing.lease.id) {
            standing.progress.clone_from(&before.progress);
            standing.beat = before.beat.clone().or(standing.beat);
        }
        self.leases.insert(line.fence.clone(), standing);
        match line.push {
            Some(push) => self.raise_by(push, &line.fence, line.mark),
            None => self.raise(&line.fence, line.mark),
        }
        // Of a push that is still under way, its lease may have moved before its other refs.
        if let Some(flight) = self.in_flight.iter_mut().find(|flight| Some(flight.push) == line.push) {
            flight.leases.retain(|change| change.fence != line.fence);
        }
        let is_decided = self.kinds.contains_key(&line.fence) && self.knows_kinds();
        if !is_decided {
            self.kinds.insert(line.fence.clone(), TokenKind::Lease);
        }
    }

    /// Whether the lines are those of a gate that holds a fence to one kind of tokens. Its first line is that
    /// the settings have changed: by this one. Before, a lease closed its fence to other tokens at any time.
    fn knows_kinds(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.one_kind)
    }

    /// The kinds of a state that was written before there were any. Whether a mark was raised or written to
    /// cannot be told there.
    pub(super) fn with_kinds(mut self) -> State {
        if !self.knows_kinds() {
            let written = self.marks.iter().filter(|(_, mark)| **mark > Mark::default());
            let own = written.map(|(fence, _)| (fence.clone(), TokenKind::Own));
            let lease = self.leases.keys().map(|fence| (fence.clone(), TokenKind::Lease));
            self.kinds = own.chain(lease).chain(self.kinds.clone()).collect();
        }
        self
    }
}
