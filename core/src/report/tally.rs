//! Statistics of a log: a fold over its lines that needs little memory, however many there are.

use crate::{Code, Event, FenceName, LeaseTally, Line, PushId, Refused, ScheduledTally, Spread, Stake};
use std::collections::{BTreeMap, BTreeSet};

/// How many pushers are counted by name. Names come from outside, so there may be any number.
const MOST_PUSHERS: usize = 1000;

/// The counts of the lines so far. What was asked of leases alone is no push: it is counted in `leases`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of lines.
    pub lines: u64,
    /// When the first and the last line were written.
    pub times: Option<(String, String)>,
    /// Pushes that were admitted, including those admitted only in observe mode.
    pub accepted: u64,
    /// Pushes that were refused, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Pushes that are over and moved a ref.
    pub moved: u64,
    /// Pushes that are over and moved no ref.
    pub unmoved: u64,
    /// How long decisions took, including waiting.
    pub waits: Spread,
    /// The pushes of each fence.
    pub fences: BTreeMap<FenceName, FenceTally>,
    /// What enforcing would have refused.
    pub observed: Observed,
    /// The leases.
    pub leases: LeaseTally,
    /// The scheduled jobs.
    pub scheduled: ScheduledTally,
    /// Admitted pushes that move only leases and are not known to have moved them: what becomes of them is not counted.
    of_leases: BTreeSet<PushId>,
}

/// The pushes of one fence. A push over several fences counts for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FenceTally {
    /// Admitted.
    pub accepted: u64,
    /// Refused because of this fence.
    pub refused: u64,
    /// Over, and moved a ref of this fence.
    pub moved: u64,
}

impl FenceTally {
    /// Adds those of another fence.
    pub fn add(&mut self, more: FenceTally) {
        self.accepted += more.accepted;
        self.refused += more.refused;
        self.moved += more.moved;
    }

    /// All pushes to the fence.
    pub fn pushes(&self) -> u64 {
        self.accepted + self.refused
    }
}

/// Pushes that were admitted in observe mode and would have been refused in enforce mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// By the code that would have refused them.
    pub codes: BTreeMap<&'static str, u64>,
    /// By pusher.
    pub pushers: BTreeMap<String, u64>,
    /// Pushes of further pushers, beyond those counted by name.
    pub other_pushers: u64,
    /// The time of the last one.
    pub last: Option<String>,
}

impl Observed {
    /// The total.
    pub fn count(&self) -> u64 {
        self.codes.values().sum()
    }

    fn add(&mut self, code: Code, pusher: &str, time: &str) {
        *self.codes.entry(code.as_str()).or_default() += 1;
        self.last = Some(time.to_owned());
        if let Some(count) = self.pushers.get_mut(pusher) {
            *count += 1;
        } else if self.pushers.len() < MOST_PUSHERS {
            self.pushers.insert(pusher.to_owned(), 1);
        } else {
            self.other_pushers += 1;
        }
    }
}

impl Tally {
    /// Adds a line.
    pub fn add(&mut self, line: &Line) {
        self.lines += 1;
        match &mut self.times {
            None => self.times = Some((line.time.clone(), line.time.clone())),
            Some((_, last)) => last.clone_from(&line.time),
        }
        self.leases.add(&line.event);
        self.scheduled.add(&line.event);
        if self.is_of_leases(&line.event) {
            return;
        }
        if let Some(Refused { code, fence, elapsed_us, .. }) = line.event.refused_push() {
            *self.refused.entry(code.as_str()).or_default() += 1;
            self.waits.add(*elapsed_us);
            if let Some(fence) = fence {
                self.fence(fence).refused += 1;
            }
        }
        match &line.event {
            Event::PushAccepted { stake, also, code, who, elapsed_us, .. } => {
                self.accepted += 1;
                self.waits.add(*elapsed_us);
                for Stake { fence, .. } in std::iter::once(stake).chain(also) {
                    self.fence(fence).accepted += 1;
                }
                if let Some(code) = code {
                    self.observed.add(*code, &who.pusher, &line.time);
                }
            }
            // Admitted, but nothing is known about what it moves: it has no fence and is never settled.
            Event::PushObserved(Refused { code, who, elapsed_us, .. }) => {
                self.accepted += 1;
                self.waits.add(*elapsed_us);
                self.observed.add(*code, &who.pusher, &line.time);
            }
            Event::PushSettled { spent, moved, .. } => {
                *if *moved > 0 { &mut self.moved } else { &mut self.unmoved } += 1;
                for fence in spent {
                    self.fence(fence).moved += 1;
                }
            }
            // It was settled too early and is counted already.
            Event::PushLanded { spent, settled_as: Some(before), .. } => {
                if *before == 0 {
                    self.unmoved = self.unmoved.saturating_sub(1);
                    self.moved += 1;
                }
                for fence in spent {
                    self.fence(fence).moved += 1;
                }
            }
            // Other lines are not about a push, or are counted when it is settled.
            _ => {}
        }
    }

    /// Whether the line is about an admitted push that moves only leases.
    fn is_of_leases(&mut self, event: &Event) -> bool {
        match event {
            Event::PushAccepted { push, plan, .. } if plan.is_only_about_leases() => {
                self.of_leases.insert(*push);
                true
            }
            // One that was settled as unmoved may land late.
            Event::PushSettled { push, moved, .. } if *moved > 0 => self.of_leases.remove(push),
            Event::PushLanded { push, settled_as: Some(_), .. } => self.of_leases.remove(push),
            Event::PushSettled { push, .. } | Event::PushLanded { push, .. } => self.of_leases.contains(push),
            _ => false,
        }
    }

    /// The total number of refused pushes.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    fn fence(&mut self, name: &FenceName) -> &mut FenceTally {
        // Looked up first: nearly every line names a known fence.
        if !self.fences.contains_key(name) {
            self.fences.insert(name.clone(), FenceTally::default());
        }
        self.fences.get_mut(name).expect("it was just inserted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(events: &[String]) -> Tally {
        let mut tally = Tally::default();
        for (at, event) in events.iter().enumerate() {
            let none = crate::LineHash::none();
            let line = format!(r#"{{"seq":{at},"time":"2026-01-01T00:00:00.{at:03}Z","prev":"{none}",{event}}}"#);
            tally.add(&serde_json::from_str(&line).unwrap());
        }
        tally
    }

    fn accepted(also: &str, more: &str, pusher: &str, us: u64) -> String {
        format!(
            r#""event":"push.accepted","push":7,"fence":"repo","token":5,"mark":4,"also":[{also}],{more}"source":"option",
            "pusher":"{pusher}","refs":[],"count":0,"digest":"","elapsed_us":{us},
            "place":{{"machine":"m","boot":"b","pid_ns":1,"uptime_ms":1}}"#
        )
    }

    fn refused(event: &str, code: &str, fence: &str, us: u64) -> String {
        format!(
            r#""event":"{event}","code":"{code}","reason":"x","fence":{fence},"pusher":"bob","refs":[],"count":0,
            "elapsed_us":{us}"#
        )
    }

    fn settled(spent: &str, moved: usize) -> String {
        format!(
            r#""event":"push.settled","push":7,"fence":"repo","token":5,"mark":5,"spent":[{spent}],"moved":{moved},
            "count":1,"evidence":"refs-moved""#
        )
    }

    #[test]
    fn pushes_are_counted_by_result_and_fence() {
        let deploy = FenceName::parse(b"deploy").unwrap();
        let tally = tally(&[
            r#""event":"log.begun","version":1,"pusher":"root""#.to_owned(),
            accepted(r#"{"fence":"deploy","token":9,"mark":8}"#, "", "anna", 10),
            settled(r#""deploy""#, 1),
            refused("push.rejected", "FENCE-STALE", "\"repo\"", 30),
            refused("push.rejected", "FENCE-STALE", "\"deploy\"", 20),
            refused("push.rejected", "FENCE-MALFORMED", "null", 1),
            accepted("", "", "anna", 10),
            settled("", 0),
        ]);
        assert_eq!((tally.lines, tally.accepted, tally.refusals()), (8, 2, 3));
        assert_eq!(tally.refused, BTreeMap::from([("FENCE-MALFORMED", 1), ("FENCE-STALE", 2)]));
        assert_eq!((tally.moved, tally.unmoved), (1, 1));
        assert_eq!((tally.waits.count(), tally.waits.max(), tally.waits.percentile(50)), (5, 30, Some(10)));
        assert_eq!(tally.fences[&FenceName::repo()], FenceTally { accepted: 2, refused: 1, moved: 0 });
        assert_eq!(tally.fences[&deploy], FenceTally { accepted: 1, refused: 1, moved: 1 });
        assert_eq!(tally.observed, Observed::default());
        let (first, last) = tally.times.unwrap();
        assert_eq!((first.as_str(), last.as_str()), ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.007Z"));
    }

    #[test]
    fn requests_for_leases_are_counted_apart() {
        let of_lease = |event: String| {
            event.replacen(
                r#""refs":[],"count":0"#,
                r#""refs":[{"name":"refs/fence/repo/lease","fence":"repo","old":null,"new":null}],"count":1"#,
                1,
            )
        };
        let tally = tally(&[
            of_lease(refused("lease.refused", "FENCE-LEASE-HELD", "\"repo\"", 30)),
            of_lease(refused("lease.refused", "FENCE-STALE", "\"repo\"", 30)),
            // As an earlier version wrote it.
            of_lease(refused("push.rejected", "FENCE-LEASE-HELD", "\"repo\"", 30)),
            of_lease(accepted("", "", "anna", 10)),
            settled("", 0),
            settled(r#""repo""#, 1),
        ]);
        assert_eq!((tally.accepted, tally.refusals(), tally.waits.count()), (0, 0, 0));
        assert_eq!((tally.moved, tally.unmoved, tally.fences.len()), (0, 0, 0));
        assert_eq!(tally.leases.refused, BTreeMap::from([("FENCE-LEASE-HELD", 2), ("FENCE-STALE", 1)]));
        assert_eq!((tally.leases.refusals(), tally.leases.found_held()), (3, 2));
    }

    #[test]
    fn pushes_admitted_only_in_observe_mode_are_counted_by_code_and_pusher() {
        let tally = tally(&[
            accepted("", r#""code":"FENCE-STALE","reason":"x","#, "anna", 10),
            accepted("", "", "anna", 10),
            refused("push.observed", "FENCE-MALFORMED", "null", 1),
            accepted("", r#""code":"FENCE-STALE","reason":"x","#, "bob", 10),
        ]);
        assert_eq!((tally.accepted, tally.refusals(), tally.observed.count()), (4, 0, 3));
        assert_eq!(tally.observed.codes, BTreeMap::from([("FENCE-MALFORMED", 1), ("FENCE-STALE", 2)]));
        assert_eq!(tally.observed.pushers, BTreeMap::from([("anna".to_owned(), 1), ("bob".to_owned(), 2)]));
        assert_eq!(tally.observed.last.as_deref(), Some("2026-01-01T00:00:00.003Z"));
    }

    #[test]
    fn pushers_beyond_the_limit_are_counted_together() {
        let mut observed = Observed::default();
        for n in 0..MOST_PUSHERS + 5 {
            observed.add(Code::Stale, &n.to_string(), "");
        }
        observed.add(Code::Stale, "0", "");
        assert_eq!((observed.pushers.len(), observed.other_pushers), (MOST_PUSHERS, 5));
        assert_eq!((observed.pushers["0"], observed.count()), (2, MOST_PUSHERS as u64 + 6));
    }
}
