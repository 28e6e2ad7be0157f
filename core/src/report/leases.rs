//! Statistics of leases.

use crate::{Code, Event, FenceName, HealthyRuns, LeaseId, LeaseLine, LeaseState, Reason, Renewed, Spread, Stamp, Ttl};
use std::{collections::BTreeMap, time::Duration};

/// The fewest gaps between heartbeats from which to report anything.
const ENOUGH_GAPS: u64 = 20;
/// Gaps of at least this part of the TTL, in thousandths, are too long: a holder renews after a third.
const CLOSE: u64 = 800;

/// Counts of lease events in the lines so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseTally {
    /// How often a lease was granted, by how the previous ownership ended.
    pub granted: BTreeMap<Reason, u64>,
    /// Requests that were refused, by code. Those that found the lease held are among them.
    pub refused: BTreeMap<&'static str, u64>,
    /// Heartbeats without a push.
    pub renewed: u64,
    /// Advances to the next token.
    pub advanced: u64,
    /// Releases.
    pub released: u64,
    /// Revocations.
    pub revoked: u64,
    /// Halts.
    pub halted: u64,
    /// Resumptions.
    pub resumed: u64,
    /// How long ended ownerships lasted, in microseconds.
    pub holds: Spread,
    /// The runs of each fence that ended well.
    pub healthy: BTreeMap<FenceName, HealthyRuns>,
    /// The time between two heartbeats of one ownership, in thousandths of its TTL.
    gaps: Spread,
    /// The last heartbeat of each fence's lease.
    heard: BTreeMap<FenceName, (LeaseId, Ttl, Stamp)>,
}

impl LeaseTally {
    /// How often a lease was granted.
    pub fn grants(&self) -> u64 {
        self.granted.values().sum()
    }

    /// How often a request was refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// How often a request found the lease held.
    pub fn found_held(&self) -> u64 {
        self.refused.get(Code::LeaseHeld.as_str()).copied().unwrap_or(0)
    }

    /// The 95th percentile of the time between two heartbeats, in per cent of the TTL.
    pub fn gap_p95_percent(&self) -> Option<u64> {
        let p95 = self.gaps.percentile(95).filter(|_| self.gaps.count() >= ENOUGH_GAPS)?;
        Some(p95 / 10)
    }

    /// Whether heartbeats come so late that the TTL should be longer.
    pub fn wants_longer_ttl(&self) -> bool {
        self.gap_p95_percent().is_some_and(|percent| percent >= CLOSE / 10)
    }

    pub(crate) fn add(&mut self, event: &Event) {
        if let Some(refused) = event.refused_lease() {
            *self.refused.entry(refused.code.as_str()).or_default() += 1;
        }
        match event {
            Event::LeaseGranted(line) => {
                *self.granted.entry(line.standing.lease.reason).or_default() += 1;
                self.heartbeat(line);
            }
            Event::LeaseAdvanced(line) => {
                self.advanced += 1;
                self.heartbeat(line);
            }
            Event::LeaseReleased(line) => {
                self.released += 1;
                // Leases that move to another place and back are no runs.
                if let Some(ms) = line.held_ms.filter(|_| line.standing.lease.state == LeaseState::Released) {
                    self.healthy.entry(line.fence.clone()).or_default().add(Duration::from_millis(ms));
                }
                self.heartbeat(line);
            }
            Event::LeaseRevoked(line) => {
                self.revoked += 1;
                self.heartbeat(line);
            }
            Event::LeaseHalted(line) => {
                self.halted += 1;
                self.heartbeat(line);
            }
            Event::LeaseResumed(_) => self.resumed += 1,
            Event::LeaseFound(line) => self.heartbeat(line),
            Event::LeaseRenewed(Renewed { fence, lease, heard, .. }) => {
                self.renewed += 1;
                if let Some((_, ttl, _)) = self.heard.get(fence).filter(|(id, ..)| id == lease) {
                    let ttl = *ttl;
                    self.gap(fence, lease, ttl, heard);
                }
            }
            _ => {}
        }
    }

    fn heartbeat(&mut self, line: &LeaseLine) {
        if let Some(ms) = line.held_ms {
            self.holds.add(ms.saturating_mul(1000));
        }
        let lease = &line.standing.lease;
        self.gap(&line.fence, &lease.id, lease.ttl, &line.standing.heard);
    }

    /// Lines of advances are written when they have landed, and a heartbeat may have come in between, so only
    /// later stamps count.
    fn gap(&mut self, fence: &FenceName, lease: &LeaseId, ttl: Ttl, now: &Stamp) {
        if let Some((id, _, before)) = self.heard.get(fence)
            && id == lease
        {
            let gap = before.age_at(now);
            if gap.is_zero() {
                return;
            }
            let part = gap.as_millis().saturating_mul(1000) / ttl.duration().as_millis().max(1);
            self.gaps.add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        self.heard.insert(fence.clone(), (lease.clone(), ttl, now.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseState, Mark, Standing, Who, lease::record::tests::lease};

    fn at(seconds: u64) -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: 0 }
    }

    fn line(id: u8, heard: u64, held_ms: Option<u64>) -> LeaseLine {
        let lease = lease(id, 5, LeaseState::Held);
        let standing =
            Standing { commit: None, parent: None, lease, since: at(0), heard: at(heard), progress: None, beat: None };
        LeaseLine {
            fence: FenceName::repo(),
            push: None,
            mark: Mark::default(),
            standing,
            ticks: Vec::new(),
            held_ms,
            pusher: String::new(),
        }
    }

    fn renewed(id: u8, heard: u64) -> Event {
        let standing = line(id, heard, None).standing;
        Event::LeaseRenewed(Renewed {
            fence: FenceName::repo(),
            lease: standing.lease.id,
            token: standing.lease.token,
            heard: standing.heard,
            progress: None,
            holder: None,
            who: Who::default(),
        })
    }

    fn tally(events: &[Event]) -> LeaseTally {
        let mut tally = LeaseTally::default();
        events.iter().for_each(|event| tally.add(event));
        tally
    }

    #[test]
    fn lease_events_are_counted() {
        let tally = tally(&[
            Event::LeaseGranted(line(1, 0, None)),
            renewed(1, 30),
            Event::LeaseAdvanced(line(1, 31, None)),
            Event::LeaseReleased(line(1, 60, Some(60_000))),
            Event::LeaseGranted(line(2, 61, None)),
            Event::LeaseRevoked(line(3, 70, Some(9_000))),
        ]);
        assert_eq!((tally.grants(), tally.granted[&Reason::First]), (2, 2));
        assert_eq!((tally.renewed, tally.advanced, tally.released, tally.revoked), (1, 1, 1, 1));
        assert_eq!((tally.holds.count(), tally.holds.max()), (2, 60_000_000));
        assert_eq!(tally.gap_p95_percent(), None, "three gaps are too few");
    }

    /// The TTL is 90 s.
    #[test]
    fn late_heartbeats_ask_for_a_longer_ttl() {
        let beats = |every: u64| {
            let granted = Event::LeaseGranted(line(1, 0, None));
            let beats = (1..=30).map(|n| renewed(1, n * every));
            tally(&std::iter::once(granted).chain(beats).collect::<Vec<_>>())
        };
        assert_eq!((beats(30).gap_p95_percent(), beats(30).wants_longer_ttl()), (Some(33), false));
        assert_eq!((beats(81).gap_p95_percent(), beats(81).wants_longer_ttl()), (Some(90), true));
        // The time between two ownerships is not a gap.
        let others = [Event::LeaseGranted(line(1, 0, None)), Event::LeaseGranted(line(2, 5_000, None))];
        assert_eq!(tally(&others).gaps.count(), 0);
    }
}
