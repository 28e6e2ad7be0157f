//! The state of all fences: the fold of the log's lines.

use crate::{
    FenceName, Heir, InFlight, KnownSettings, LeaseLine, LeaseState, Mark, MarkStanding, PushId, Reason, Renewed,
    Standing, TokenKind,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The state of all fences of a repository.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// The marks of the fences that have been written to.
    pub marks: BTreeMap<FenceName, Mark>,
    /// The current leases of the fences that have granted one.
    #[serde(default)]
    pub leases: BTreeMap<FenceName, Standing>,
    /// The marks in the repository, of the fences that have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub written: BTreeMap<FenceName, MarkStanding>,
    /// The kind of tokens that each fence takes, if decided.
    #[serde(default)]
    pub kinds: BTreeMap<FenceName, TokenKind>,
    /// The fences whose lease was never granted: its record is a halt, or the end of one. It says nothing about the kind
    /// of their tokens.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub never_granted: BTreeSet<FenceName>,
    /// The pushes that were admitted and not settled yet, oldest first.
    pub in_flight: Vec<InFlight>,
    /// The settings of the last push.
    pub settings: Option<KnownSettings>,
    /// The number of the line that put them in force.
    pub settings_since: u64,
    /// The fences that took over refs of others while pushes were in flight: what those pushes move counts for the
    /// heirs as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heirs: Vec<Heir>,
}

impl State {
    /// Each heir starts at the giver's mark, or at the token of its lease if that is higher.
    pub(super) fn inherit(&mut self, heirs: &[Heir]) {
        for Heir { fence, giver } in heirs {
            let granted = self.leases.get(giver).map_or(Mark::default(), |standing| standing.lease.token.into());
            let mark = self.fence(giver).mark.max(granted);
            self.raise(fence, mark);
        }
        // Earlier heirs are needed as long as a push from before may land.
        if self.in_flight.is_empty() {
            self.heirs.clear();
        }
        self.heirs.extend_from_slice(heirs);
    }

    /// Raises the mark of a fence that `push` wrote to. If the push was admitted under earlier settings, its refs may
    /// belong to an heir by now, whose mark rises too.
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

    /// Records a heartbeat, unless the lease has another owner by now.
    pub(super) fn renew_lease(&mut self, renewed: &Renewed) {
        let Renewed { fence, lease, heard, progress, holder, .. } = renewed;
        if let Some(standing) = self.leases.get_mut(fence).filter(|standing| standing.lease.id == *lease) {
            standing.heard = heard.clone();
            standing.progress.clone_from(progress);
            standing.beat.clone_from(holder);
        }
    }

    /// Records a change of a lease. A beat may have come between the push that changed it and the settlement.
    pub(super) fn move_lease(&mut self, line: &LeaseLine) {
        let mut standing = line.standing.clone();
        if let Some(before) = self.leases.get(&line.fence).filter(|before| before.lease.id == standing.lease.id) {
            standing.heard = standing.heard.or_later(&before.heard);
        }
        self.find_lease(&LeaseLine { standing, ..line.clone() });
    }

    /// Records a lease as it was found, even if the log has a later heartbeat by a wrong clock.
    pub(super) fn find_lease(&mut self, line: &LeaseLine) {
        let decides = self.decides_the_kind(line);
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
        // The lease of a push that is still in flight may have moved before its other refs.
        if let Some(flight) = self.in_flight.iter_mut().find(|flight| Some(flight.push) == line.push) {
            flight.leases.retain(|change| change.fence != line.fence);
        }
        if decides {
            self.kinds.insert(line.fence.clone(), TokenKind::Lease);
        }
    }

    /// Whether a line about a lease decides that the fence takes lease tokens.
    fn decides_the_kind(&mut self, line: &LeaseLine) -> bool {
        let (fence, state) = (&line.fence, line.standing.lease.state);
        let (is_new, is_first) = (!self.leases.contains_key(fence), line.standing.lease.reason == Reason::First);
        let is_halt = state == LeaseState::Halted && (!is_new || is_first);
        if is_halt || (state == LeaseState::Released && self.never_granted.contains(fence)) {
            if is_new {
                self.never_granted.insert(fence.clone());
            }
            return false;
        }
        // Also the halt of a lease that is older than the gate.
        self.never_granted.remove(fence);
        let is_decided = self.kinds.contains_key(fence) && self.knows_kinds();
        // A lease that has moved says nothing about the tokens that come from elsewhere.
        !is_decided && state != LeaseState::Moved
    }

    /// Whether the lines were written by a gate that limits a fence to one kind of tokens. The first line of such
    /// a gate records the new settings. Before that, a lease closed its fence to other tokens at any time.
    fn knows_kinds(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.one_kind)
    }

    /// Derives the kinds of a state from a version without kinds, in which a raised mark cannot be told from one
    /// that was written.
    pub(super) fn with_kinds(mut self) -> State {
        if !self.knows_kinds() {
            let written = self.marks.iter().filter(|(_, mark)| **mark > Mark::default());
            let own = written.map(|(fence, _)| (fence.clone(), TokenKind::Own));
            let granted = self.leases.keys().filter(|fence| !self.never_granted.contains(fence));
            let lease = granted.map(|fence| (fence.clone(), TokenKind::Lease));
            self.kinds = own.chain(lease).chain(self.kinds.clone()).collect();
        }
        self
    }
}
