//! The current state of one fence.

use crate::{
    FenceName, InFlight, LeaseAsk, LeaseChange, LeaseState, Mark, MarkStanding, Reject, Rules, Stamp, Standing, State,
    TokenKind, judge_lease,
};

/// A fence: its mark, its lease, and the push in its slot.
#[derive(Debug, Clone)]
pub struct Fence<'a> {
    /// The newest token that has moved one of its refs.
    pub mark: Mark,
    /// Its lease, if it ever granted one.
    pub lease: Option<&'a Standing>,
    /// Its mark in the repository, and whose write was the last, if it ever had one.
    pub written: Option<&'a MarkStanding>,
    /// Whether that lease was ever granted, and is not only a halt or the end of one.
    pub was_granted: bool,
    /// The kind of tokens it takes, by its log.
    pub kind: Option<TokenKind>,
    /// The admitted pushes that are not settled yet. At most one in enforce mode; observe mode keeps nobody
    /// out, so there can be more.
    pub slot: Vec<&'a InFlight>,
}

impl Fence<'_> {
    /// Whether the refs of a push in the slot may still be moving.
    pub fn is_occupied(&self) -> bool {
        !self.slot.is_empty()
    }

    /// The kind of tokens it takes under these `rules`; `None` if not decided yet.
    pub fn kind(&self, rules: &Rules) -> Option<TokenKind> {
        // Leases that are kept in a store, which the gate asks, are leases. Those that have moved elsewhere are not its own.
        let asks = rules.store.as_ref().map(|_| TokenKind::Lease);
        let is_its_own = |standing: &&Standing| self.was_granted && standing.lease.state != LeaseState::Moved;
        let grants = self.lease.filter(is_its_own).map(|_| TokenKind::Lease);
        asks.or(rules.tokens).or(self.kind).or(grants)
    }

    /// Judges what a push asks of its lease. A fence with tokens of its own grants no leases.
    pub fn judge(&self, rules: &Rules, asked: &LeaseAsk, now: &Stamp) -> Result<LeaseChange, Reject> {
        if self.kind(rules) == Some(TokenKind::Own) {
            return Err(Reject::OwnTokens { fence: rules.fence.clone() });
        }
        if let Some(reject) = self.is_elsewhere(rules, asked) {
            return Err(reject);
        }
        judge_lease(rules, self.lease, self.mark, asked, now)
    }
}

impl State {
    /// The current state of fence `name`. A fence that was never written to has the mark 0.
    pub fn fence(&self, name: &FenceName) -> Fence<'_> {
        Fence {
            mark: self.marks.get(name).copied().unwrap_or_default(),
            lease: self.leases.get(name),
            written: self.written.get(name),
            was_granted: self.leases.contains_key(name) && !self.never_granted.contains(name),
            kind: self.kinds.get(name).copied(),
            slot: self.in_flight.iter().filter(|flight| self.is_in_the_way(flight, name)).collect(),
        }
    }

    /// Whether `flight` occupies the slot of fence `name`. A push that was admitted under other settings
    /// occupies every slot: its refs may belong to any fence by now.
    pub fn is_in_the_way(&self, flight: &InFlight, name: &FenceName) -> bool {
        flight.touches(name) || flight.push.0 < self.settings_since
    }
}
