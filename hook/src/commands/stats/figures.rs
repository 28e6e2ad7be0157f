//! The figures of a repository: the JSON output, and the source of the other formats.

use git_fence_core::{
    Code, FenceName, FenceTally, HealthyRuns, JobName, JobTally, LeaseTally, Mark, Mode, Reason, Settings, Spread,
    State, Tally, Ttl,
};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) repository: String,
    /// Older lines are not counted; marks are always the current ones.
    pub(crate) since: Option<String>,
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    pub(crate) lines: u64,
    pub(crate) pushes: Pushes,
    pub(crate) waits_us: Lengths,
    /// The busiest first.
    pub(crate) fences: Vec<FenceFigures>,
    pub(crate) observed: ObservedFigures,
    pub(crate) leases: LeaseFigures,
    /// By fence and job.
    pub(crate) scheduled: Vec<JobFigures>,
}

/// What happened to the ticks of a scheduled job. A skip is never a failure.
#[derive(Serialize)]
pub(crate) struct JobFigures {
    pub(crate) fence: FenceName,
    pub(crate) job: JobName,
    pub(crate) started: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) missed: u64,
    pub(crate) dropped: u64,
    pub(crate) skipped_held: u64,
    pub(crate) already_done: u64,
    pub(crate) not_due: u64,
    pub(crate) halted: u64,
}

#[derive(Serialize)]
pub(crate) struct LeaseFigures {
    /// Requests: those that were granted and those that were refused.
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    /// By how the previous ownership ended.
    pub(crate) granted_by_reason: BTreeMap<&'static str, u64>,
    /// Requests that were refused; those that found the lease held are among them.
    pub(crate) refused: u64,
    pub(crate) refused_by_code: BTreeMap<&'static str, u64>,
    pub(crate) found_held: u64,
    pub(crate) renewed: u64,
    pub(crate) advanced: u64,
    pub(crate) released: u64,
    pub(crate) revoked: u64,
    pub(crate) halted: u64,
    pub(crate) resumed: u64,
    /// The durations of ownerships that have ended.
    pub(crate) holds_us: Lengths,
    /// The 95th percentile of the time between two renewals, in percent of the TTL.
    pub(crate) beat_gap_p95_percent: Option<u64>,
    /// Whether that is so high that a longer TTL would help.
    pub(crate) wants_longer_ttl: bool,
}

#[derive(Serialize)]
pub(crate) struct Pushes {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) refused_by_code: BTreeMap<&'static str, u64>,
    pub(crate) moved: u64,
    pub(crate) unmoved: u64,
    /// Accepted, but not settled yet.
    pub(crate) unsettled: usize,
}

#[derive(Serialize)]
pub(crate) struct Lengths {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) median: Option<u64>,
    pub(crate) p95: Option<u64>,
    pub(crate) max: u64,
}

#[derive(Serialize)]
pub(crate) struct FenceFigures {
    pub(crate) fence: FenceName,
    /// `None` if the fence is no longer configured.
    pub(crate) mode: Option<Mode>,
    pub(crate) mark: Mark,
    pub(crate) pushes: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) moved: u64,
    /// Runs that ended well: whose owner released the lease.
    pub(crate) healthy_runs: u64,
    /// How long the longest of them held the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_run_ms: Option<u64>,
    /// One and a half times to twice that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggested_ttl_s: Option<Ttl>,
}

#[derive(Serialize)]
pub(crate) struct ObservedFigures {
    pub(crate) count: u64,
    pub(crate) by_code: BTreeMap<&'static str, u64>,
    /// The most frequent first.
    pub(crate) by_pusher: Vec<PusherFigures>,
    /// By pushers that are not listed, because there are too many.
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
        (state, settings): (&State, &Settings),
        only: Option<&FenceName>,
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
                unsettled: state.in_flight.iter().filter(|flight| !flight.plan.is_only_about_leases()).count(),
            },
            waits_us: Lengths::of(&tally.waits),
            fences: fences(tally, state, settings, only),
            observed: ObservedFigures {
                count: tally.observed.count(),
                by_code: with_every_code(&tally.observed.codes),
                by_pusher,
                by_others: tally.observed.other_pushers,
                last: tally.observed.last.clone(),
            },
            leases: LeaseFigures::of(&tally.leases),
            scheduled: tally.scheduled.jobs.iter().map(JobFigures::of).collect(),
        }
    }
}

impl JobFigures {
    /// The name of each figure, what it counts, and its value.
    pub(crate) fn all(&self) -> [(&'static str, &'static str, u64); 10] {
        [
            ("started", "Ticks that were started.", self.started),
            ("done", "Ticks whose command ended with exit code 0.", self.done),
            ("failed", "Ticks whose command failed or was stopped.", self.failed),
            ("lost", "Ticks whose run lost the lease or died.", self.lost),
            ("missed", "Ticks that were not started before the next one came due.", self.missed),
            ("dropped", "Missed ticks that were never started.", self.dropped),
            ("skipped_held", "Runs that found the lease held.", self.skipped_held),
            ("already_done", "Runs whose tick was started already.", self.already_done),
            ("not_due", "Runs that came when no tick was due.", self.not_due),
            ("halted", "Runs that found the fence halted.", self.halted),
        ]
    }

    fn of(((fence, job), tally): (&(FenceName, JobName), &JobTally)) -> JobFigures {
        let JobTally { started, done, failed, lost, missed, dropped, .. } = *tally;
        let JobTally { skipped_held, already_done, not_due, halted, .. } = *tally;
        let (fence, job) = (fence.clone(), job.clone());
        JobFigures {
            fence,
            job,
            started,
            done,
            failed,
            lost,
            missed,
            dropped,
            skipped_held,
            already_done,
            not_due,
            halted,
        }
    }
}

impl Lengths {
    fn of(spread: &Spread) -> Lengths {
        Lengths {
            count: spread.count(),
            sum: spread.sum(),
            median: spread.percentile(50),
            p95: spread.percentile(95),
            max: spread.max(),
        }
    }
}

impl LeaseFigures {
    fn of(tally: &LeaseTally) -> LeaseFigures {
        let reasons = [Reason::First, Reason::Released, Reason::Expired, Reason::Revoked];
        let granted = |reason: Reason| (reason.as_str(), tally.granted.get(&reason).copied().unwrap_or(0));
        LeaseFigures {
            asked: tally.grants() + tally.refusals(),
            granted: tally.grants(),
            granted_by_reason: reasons.into_iter().map(granted).collect(),
            refused: tally.refusals(),
            refused_by_code: with_every_code(&tally.refused),
            found_held: tally.found_held(),
            renewed: tally.renewed,
            advanced: tally.advanced,
            released: tally.released,
            revoked: tally.revoked,
            halted: tally.halted,
            resumed: tally.resumed,
            holds_us: Lengths::of(&tally.holds),
            beat_gap_p95_percent: tally.gap_p95_percent(),
            wants_longer_ttl: tally.wants_longer_ttl(),
        }
    }

    /// Whether the log has nothing about leases.
    pub(crate) fn is_empty(&self) -> bool {
        self.asked + self.renewed + self.advanced + self.released + self.revoked + self.halted == 0
    }
}

/// All fences in the settings, the marks or the log, the busiest first: families as a whole. If only a fence is asked for, it or
/// its members.
fn fences(tally: &Tally, state: &State, settings: &Settings, only: Option<&FenceName>) -> Vec<FenceFigures> {
    let configured = settings.fences.iter().map(|rules| rules.fence.clone());
    let known = tally.fences.keys().chain(state.marks.keys());
    let shown = |fence: &FenceName| if only.is_some() { fence.clone() } else { fence.configured() };
    let names: BTreeSet<FenceName> = configured.chain(known.map(shown)).collect();
    let mut counts: BTreeMap<FenceName, FenceTally> = BTreeMap::new();
    for (fence, more) in &tally.fences {
        counts.entry(shown(fence)).or_default().add(*more);
    }
    let mut healthy: BTreeMap<FenceName, HealthyRuns> = BTreeMap::new();
    for (fence, more) in &tally.leases.healthy {
        healthy.entry(shown(fence)).or_default().include(*more);
    }
    let figures = |fence: FenceName| {
        let counts = counts.get(&fence).copied().unwrap_or_default();
        let runs = healthy.get(&fence).copied().unwrap_or_default();
        let longest = u64::try_from(runs.longest.as_millis()).unwrap_or(u64::MAX);
        FenceFigures {
            healthy_runs: runs.count,
            longest_run_ms: Some(longest).filter(|_| runs.count > 0),
            suggested_ttl_s: runs.suggested_ttl(),
            mode: settings.rules(&fence).map(|rules| rules.mode),
            mark: state.fence(&fence).mark,
            pushes: counts.pushes(),
            accepted: counts.accepted,
            refused: counts.refused,
            moved: counts.moved,
            fence,
        }
    };
    let is_asked_for = |fence: &FenceName| only.is_none_or(|only| fence.is_of(only));
    let mut fences: Vec<FenceFigures> = names.into_iter().filter(is_asked_for).map(figures).collect();
    fences.sort_by_key(|fence| Reverse(fence.pushes));
    fences
}

/// Codes that have not occurred count 0: an alert on the first refusal needs a series that starts there.
fn with_every_code(met: &BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    let mut all: BTreeMap<&'static str, u64> = Code::ALL.iter().map(|code| (code.as_str(), 0)).collect();
    all.extend(met);
    all
}
