//! Which refs are where no recorded push put them.
//!
//! The values of refs are not part of the fence's state: a push is judged by its token. But a ref whose last recorded value
//! is another one was moved past the gate, and that is the best evidence that pushes do not come to it. Where the log cannot
//! know (a long push whose refs are not all in its line, a fence that was off), nothing is claimed.

use crate::{Event, Line, ObjectId, Plan, PushId, RefName};
use std::collections::{HashMap, HashSet};

/// The values of all refs when the gate was installed, and the line of the log at that time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownRefs {
    /// The number of the last line then.
    pub seq: u64,
    /// The refs.
    pub refs: HashMap<RefName, ObjectId>,
}

/// Compares the refs with the log, line by line.
#[derive(Debug)]
pub struct RefWatch {
    refs: HashMap<RefName, Watched>,
    /// Lines up to this one are older than what is known.
    since: u64,
    in_flight: HashMap<PushId, Plan>,
    /// Refs that two pushes were moving at the same time: either may have been the last.
    tangled: HashSet<RefName>,
}

#[derive(Debug, Clone)]
struct Watched {
    now: Option<ObjectId>,
    /// Whether it is where the log has it, if that can be said.
    is_as_recorded: Option<bool>,
}

impl RefWatch {
    /// Starts with the refs as they are now, and as they were when the gate was installed, if that was written down.
    pub fn new(now: &HashMap<RefName, ObjectId>, known: Option<&KnownRefs>) -> RefWatch {
        let mut refs: HashMap<RefName, Watched> = HashMap::new();
        let watched = |name: &RefName| Watched {
            now: now.get(name).cloned(),
            is_as_recorded: known.map(|known| known.refs.get(name) == now.get(name)),
        };
        for name in now.keys().chain(known.iter().flat_map(|known| known.refs.keys())) {
            refs.entry(name.clone()).or_insert_with(|| watched(name));
        }
        RefWatch { refs, since: known.map_or(0, |known| known.seq), in_flight: HashMap::new(), tangled: HashSet::new() }
    }

    /// Takes the next line into account.
    pub fn line(&mut self, line: &Line) {
        let counts = line.seq > self.since;
        match &line.event {
            Event::PushAccepted { push, plan, .. } => self.accept(*push, plan),
            Event::PushSettled { push, moved, count, .. } => self.settle(*push, counts, moved == count),
            Event::PushLanded { push, .. } if counts => self.may_have_moved(*push),
            Event::SettingsChanged { settings, .. } if counts && some_fence_is_off(settings) => self.forget(),
            // Pushes that are not on record may have landed.
            Event::PushObserved(_) | Event::LogRepaired { .. } if counts => self.forget(),
            _ => {}
        }
    }

    /// The refs that are where no push put them, sorted. Call it after the last line.
    pub fn moved_past_the_gate(mut self) -> Vec<RefName> {
        for push in self.in_flight.keys().copied().collect::<Vec<_>>() {
            self.may_have_moved(push);
        }
        let stray = self.refs.into_iter().filter(|(_, watched)| watched.is_as_recorded == Some(false));
        let mut names: Vec<RefName> = stray.map(|(name, _)| name).collect();
        names.sort();
        names
    }

    fn accept(&mut self, push: PushId, plan: &Plan) {
        if !plan.is_whole() {
            self.forget();
        }
        for planned in &plan.refs {
            if self.is_in_flight(&planned.name) {
                self.tangled.insert(planned.name.clone());
            }
        }
        self.in_flight.insert(push, plan.clone());
    }

    fn settle(&mut self, push: PushId, counts: bool, is_complete: bool) {
        if counts && !is_complete {
            self.may_have_moved(push);
        }
        let Some(plan) = self.in_flight.remove(&push) else { return };
        for planned in plan.refs {
            let is_tangled = self.tangled.contains(&planned.name);
            if is_tangled && !self.is_in_flight(&planned.name) {
                self.tangled.remove(&planned.name);
            }
            if !counts || !is_complete {
                continue;
            }
            let watched = self.refs.entry(planned.name).or_insert(Watched { now: None, is_as_recorded: None });
            let is_there = watched.now == planned.new;
            watched.is_as_recorded =
                if is_tangled { watched.is_as_recorded.map(|so_far| so_far || is_there) } else { Some(is_there) };
        }
    }

    /// Some of its refs may have moved: those that are at their new value are accounted for.
    fn may_have_moved(&mut self, push: PushId) {
        for planned in self.in_flight.get(&push).into_iter().flat_map(|plan| &plan.refs) {
            if let Some(watched) = self.refs.get_mut(&planned.name).filter(|watched| watched.now == planned.new) {
                watched.is_as_recorded = Some(true);
            }
        }
    }

    fn is_in_flight(&self, name: &RefName) -> bool {
        self.in_flight.values().any(|plan| plan.refs.iter().any(|planned| planned.name == *name))
    }

    /// Nothing is known from here on. A push that is in flight now may have moved its refs before others did.
    fn forget(&mut self) {
        let in_flight = self.in_flight.values().flat_map(|plan| plan.refs.iter().map(|planned| planned.name.clone()));
        self.tangled.extend(in_flight);
        for watched in self.refs.values_mut() {
            watched.is_as_recorded = None;
        }
    }
}

/// Pushes to a fence that is off are not recorded.
fn some_fence_is_off(settings: &serde_json::Value) -> bool {
    let fences = settings["fences"].as_array();
    fences.into_iter().flatten().any(|fence| fence["mode"] == "off")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MAIN: &str = "refs/heads/main";

    fn id(n: u8) -> String {
        format!("{n:02x}").repeat(20)
    }

    fn refs(at: &[(&str, u8)]) -> HashMap<RefName, ObjectId> {
        let one = |(name, n): &(&str, u8)| (RefName::new(*name), ObjectId::parse(id(*n).as_bytes()).unwrap().unwrap());
        at.iter().map(one).collect()
    }

    fn line(seq: u64, event: &serde_json::Value) -> Line {
        let mut line = json!({ "seq": seq, "time": "T", "prev": "0".repeat(64), "fence": "repo", "token": 1, "mark": 0,
            "pusher": "anna", "elapsed_us": 0 });
        line.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    /// A push that will move `name` to `new` (0 deletes it), and `more` refs that are not in its line.
    fn accepted(seq: u64, name: &str, new: u8, more: usize) -> Line {
        let new = (new > 0).then(|| id(new));
        let place = json!({ "machine": "m", "boot": "b", "pid_ns": 1, "uptime_ms": 1 });
        line(
            seq,
            &json!({ "event": "push.accepted", "push": seq, "source": "option", "count": 1 + more, "digest": "",
                "place": place, "refs": [{ "name": name, "fence": "repo", "old": null, "new": new }] }),
        )
    }

    fn settled(seq: u64, push: u64, moved: usize) -> Line {
        line(
            seq,
            &json!({ "event": "push.settled", "push": push, "spent": [], "moved": moved, "count": 1,
                "evidence": "reported" }),
        )
    }

    fn changed(seq: u64, mode: &str) -> Line {
        line(seq, &json!({ "event": "settings.changed", "settings": { "fences": [{ "mode": mode }] } }))
    }

    #[track_caller]
    fn assert_stray(now: &[(&str, u8)], known: Option<(u64, &[(&str, u8)])>, lines: &[Line], expected: &[&str]) {
        let known = known.map(|(seq, at)| KnownRefs { seq, refs: refs(at) });
        let mut watch = RefWatch::new(&refs(now), known.as_ref());
        lines.iter().for_each(|line| watch.line(line));
        let expected: Vec<RefName> = expected.iter().map(|name| RefName::new(*name)).collect();
        assert_eq!(watch.moved_past_the_gate(), expected);
    }

    #[test]
    fn ref_that_is_not_where_its_last_push_put_it_is_named() {
        let push = |to| vec![accepted(2, MAIN, to, 0), settled(3, 2, 1)];
        assert_stray(&[(MAIN, 1)], None, &push(1), &[]);
        assert_stray(&[(MAIN, 2)], None, &push(1), &[MAIN]);
        assert_stray(&[], None, &push(1), &[MAIN]);
        assert_stray(&[(MAIN, 1)], None, &push(0), &[MAIN]);
        assert_stray(&[], None, &push(0), &[]);
        // Rewound to an earlier value.
        let twice = [push(1), vec![accepted(4, MAIN, 2, 0), settled(5, 4, 1)]].concat();
        assert_stray(&[(MAIN, 1)], None, &twice, &[MAIN]);
        assert_stray(&[(MAIN, 2)], None, &twice, &[]);
    }

    #[test]
    fn without_a_push_the_values_at_installation_count() {
        assert_stray(&[(MAIN, 1)], None, &[], &[]);
        assert_stray(&[(MAIN, 1)], Some((1, &[(MAIN, 1)])), &[], &[]);
        assert_stray(&[(MAIN, 2)], Some((1, &[(MAIN, 1)])), &[], &[MAIN]);
        assert_stray(&[(MAIN, 1), ("refs/heads/new", 1)], Some((1, &[(MAIN, 1)])), &[], &["refs/heads/new"]);
        assert_stray(&[], Some((1, &[(MAIN, 1)])), &[], &[MAIN]);
        let push = [accepted(2, MAIN, 2, 0), settled(3, 2, 1)];
        assert_stray(&[(MAIN, 2)], Some((1, &[(MAIN, 1)])), &push, &[]);
        // The push is older than what was written down.
        assert_stray(&[(MAIN, 1)], Some((3, &[(MAIN, 1)])), &push, &[]);
        assert_stray(&[(MAIN, 2)], Some((2, &[(MAIN, 1)])), &push, &[]);
    }

    #[test]
    fn nothing_is_claimed_where_the_log_cannot_know() {
        let known = Some((1, &[(MAIN, 1)][..]));
        let now = &[(MAIN, 2)];
        assert_stray(now, known, &[], &[MAIN]);
        // In flight, or declined as far as is known, and landed late.
        assert_stray(now, known, &[accepted(2, MAIN, 2, 0)], &[]);
        assert_stray(now, known, &[accepted(2, MAIN, 2, 0), settled(3, 2, 0)], &[]);
        assert_stray(now, known, &[accepted(2, MAIN, 3, 0), settled(3, 2, 0)], &[MAIN]);
        // A long push: main may be among the refs that its line leaves out.
        assert_stray(now, known, &[accepted(2, "refs/heads/a", 3, 100)], &[]);
        assert_stray(now, known, &[changed(2, "off"), changed(3, "enforce")], &[]);
        assert_stray(now, known, &[changed(2, "observe")], &[MAIN]);
        assert_stray(now, known, &[accepted(2, MAIN, 3, 0), changed(3, "off"), settled(4, 2, 1)], &[]);
        // Two at once, in observe mode.
        let both = [accepted(2, MAIN, 2, 0), accepted(3, MAIN, 3, 0), settled(4, 2, 1), settled(5, 3, 1)];
        assert_stray(now, known, &both, &[]);
        let after = [&both[..], &[accepted(6, MAIN, 4, 0), settled(7, 6, 1)]].concat();
        assert_stray(now, known, &after, &[MAIN]);
    }
}
