//! The figures of a repository, as programs read them and the other forms show them.

use git_fence_core::{Code, FenceName, Mark, Mode, Settings, State, Tally};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) repository: String,
    /// What was written before then is not counted; marks are what they are.
    pub(crate) since: Option<String>,
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    pub(crate) lines: u64,
    pub(crate) pushes: Pushes,
    pub(crate) waits_us: Waits,
    /// The busiest first.
    pub(crate) fences: Vec<FenceFigures>,
    pub(crate) observed: ObservedFigures,
}

#[derive(Serialize)]
pub(crate) struct Pushes {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) refused_by_code: BTreeMap<&'static str, u64>,
    pub(crate) moved: u64,
    pub(crate) unmoved: u64,
    /// Let through, and the line that says what became of it is not written yet.
    pub(crate) unsettled: usize,
}

#[derive(Serialize)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) median: Option<u64>,
    pub(crate) p95: Option<u64>,
    pub(crate) max: u64,
}

#[derive(Serialize)]
pub(crate) struct FenceFigures {
    pub(crate) fence: FenceName,
    /// Nothing where the settings do not know it any more.
    pub(crate) mode: Option<Mode>,
    pub(crate) mark: Mark,
    pub(crate) pushes: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) moved: u64,
}

#[derive(Serialize)]
pub(crate) struct ObservedFigures {
    pub(crate) count: u64,
    pub(crate) by_code: BTreeMap<&'static str, u64>,
    /// The most frequent first.
    pub(crate) by_pusher: Vec<PusherFigures>,
    /// By pushers that are too many to be named.
    pub(crate) by_others: u64,
    pub(crate) last: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct PusherFigures {
    pub(crate) pusher: String,
    pub(crate) count: u64,
}

impl Figures {
    pub(crate) fn of(
        repository: &Path,
        since: Option<String>,
        tally: &Tally,
        state: &State,
        settings: &Settings,
    ) -> Figures {
        let (first, last) = tally.times.clone().unzip();
        let mut by_pusher: Vec<PusherFigures> = tally
            .observed
            .pushers
            .iter()
            .map(|(pusher, count)| PusherFigures { pusher: pusher.clone(), count: *count })
            .collect();
        by_pusher.sort_by_key(|by| Reverse(by.count));
        Figures {
            repository: repository.display().to_string(),
            since,
            first,
            last,
            lines: tally.lines,
            pushes: Pushes {
                accepted: tally.accepted,
                refused: tally.refusals(),
                refused_by_code: with_every_code(&tally.refused),
                moved: tally.moved,
                unmoved: tally.unmoved,
                unsettled: state.in_flight.len(),
            },
            waits_us: Waits {
                count: tally.waits.count(),
                sum: tally.waits.sum(),
                median: tally.waits.percentile(50),
                p95: tally.waits.percentile(95),
                max: tally.waits.max(),
            },
            fences: fences(tally, state, settings),
            observed: ObservedFigures {
                count: tally.observed.count(),
                by_code: with_every_code(&tally.observed.codes),
                by_pusher,
                by_others: tally.observed.other_pushers,
                last: tally.observed.last.clone(),
            },
        }
    }
}

/// All fences that the settings, the marks or the lines know, the busiest first.
fn fences(tally: &Tally, state: &State, settings: &Settings) -> Vec<FenceFigures> {
    let configured = settings.fences.iter().map(|rules| &rules.fence);
    let names: BTreeSet<&FenceName> = configured.chain(tally.fences.keys()).chain(state.marks.keys()).collect();
    let figures = |fence: &FenceName| {
        let counts = tally.fences.get(fence).copied().unwrap_or_default();
        FenceFigures {
            fence: fence.clone(),
            mode: settings.rules(fence).map(|rules| rules.mode),
            mark: state.fence(fence).mark,
            pushes: counts.pushes(),
            accepted: counts.accepted,
            refused: counts.refused,
            moved: counts.moved,
        }
    };
    let mut fences: Vec<FenceFigures> = names.into_iter().map(figures).collect();
    fences.sort_by_key(|fence| Reverse(fence.pushes));
    fences
}

/// A code that has not been met counts 0: an alert on the first refusal needs a series that rises from there.
fn with_every_code(met: &BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    let mut all: BTreeMap<&'static str, u64> = Code::ALL.iter().map(|code| (code.as_str(), 0)).collect();
    all.extend(met);
    all
}
