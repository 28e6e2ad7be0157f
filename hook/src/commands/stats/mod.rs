//! `stats`: summarizes the log as a table, as JSON and for Prometheus. It writes nothing.

pub(crate) mod figures;
pub(crate) mod prometheus;

use crate::{
    commands::{
        audit::{moment::Moment, select::fence},
        stats::figures::{FenceFigures, Figures, JobFigures, LeaseFigures},
    },
    failure::{self, CommandError},
    host::{clock, surroundings::Environment},
    log::{files::FenceDir, history},
    repository::{Repository, settings},
};
use clap::Args;
use git_fence_core::{FenceName, Filter, Mode, Tally, text};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

/// How many fences and pushers the table shows; the other formats have all.
const MOST_SHOWN: usize = 10;

#[derive(Args)]
pub(crate) struct StatsArgs {
    /// The repository
    #[arg(default_value = ".")]
    repository: PathBuf,
    /// Only lines since then: 2026-01-31T12:00:00Z, 2026-01-31 (UTC), or how long ago, as in 2h or 7d
    // Not with --prometheus: a counter must not decrease, and Prometheus itself calculates with periods of time.
    #[arg(long, value_name = "T", value_parser = Moment::parse, conflicts_with = "prometheus")]
    since: Option<Moment>,
    /// Only lines that name this fence, this member of a family, or any member of this family; the members are shown each
    #[arg(long, value_name = "NAME", value_parser = fence, conflicts_with = "prometheus")]
    fence: Option<FenceName>,
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print metrics for the textfile collector of Prometheus' node exporter
    #[arg(long)]
    prometheus: bool,
}

/// `git-fence-hook stats`.
pub(crate) fn run(args: &StatsArgs, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(&args.repository, environment)?;
    let settings = settings::read(&repository.config)?;
    let here = failure::here()?;
    let since = args.since.as_ref().map(|since| since.beginning(clock::timestamp()));
    let filter = Filter { since: since.clone(), fence: args.fence.clone(), ..Filter::default() };
    let mut tally = Tally::default();
    let journal = history::read(&FenceDir::at(repository.fence_dir()), &here.boot, |read| {
        if filter.matches(read.line) {
            tally.add(read.line);
        }
    })?;
    let figures = Figures::of(&repository.common_dir, since, &tally, (&journal.state, &settings), args.fence.as_ref());
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&figures).unwrap_or_default())?;
    } else if args.prometheus {
        out.write_all(prometheus::text(&figures).as_bytes())?;
    } else {
        show(&figures, &mut out)?;
    }
    Ok(())
}

/// Prints the table. Numbers come before names, so that long names do not disturb it on a narrow terminal.
fn show(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    let Figures { repository, since, first, last, lines, pushes, waits_us, fences, .. } = figures;
    writeln!(out, "{}", text::one_line(repository.as_bytes(), 300))?;
    for (word, time) in [("since", since), ("first", first), ("last", last)] {
        if let Some(time) = time {
            writeln!(out, "{word:<8}  {time}")?;
        }
    }
    writeln!(out, "{lines:>8}  lines\n")?;
    writeln!(out, "{:>8}  pushes accepted", pushes.accepted)?;
    writeln!(out, "{:>8}    settled: moved refs", pushes.moved)?;
    writeln!(out, "{:>8}    settled: moved none", pushes.unmoved)?;
    writeln!(out, "{:>8}    not settled yet", pushes.unsettled)?;
    writeln!(out, "{:>8}  pushes refused", pushes.refused)?;
    show_codes(&pushes.refused_by_code, out)?;
    if let (Some(median), Some(p95)) = (waits_us.median, waits_us.p95) {
        writeln!(out, "\ntime to decide, including waits")?;
        for (length_us, word) in [(median, "median"), (p95, "p95"), (waits_us.max, "longest")] {
            writeln!(out, "{:>8}  {word}", length(length_us))?;
        }
    }
    writeln!(out, "\n  pushes   refused      mark  fence")?;
    for fence in fences.iter().take(MOST_SHOWN) {
        let mode = match fence.mode {
            Some(Mode::Enforce) => "",
            Some(Mode::Observe) => "  (observe mode)",
            Some(Mode::Off) => "  (off)",
            None => "  (not configured)",
        };
        writeln!(out, "{:>8}  {:>8}  {:>8}  {}{mode}", fence.pushes, fence.refused, fence.mark, fence.fence)?;
    }
    and_more(fences.len(), "fences", out)?;
    show_leases(&figures.leases, out)?;
    show_scheduled(&figures.scheduled, out)?;
    show_ttls(fences, out)?;
    show_observed(figures, out)
}

/// Each job with the figures that are not 0.
fn show_scheduled(jobs: &[JobFigures], out: &mut impl Write) -> io::Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nscheduled jobs")?;
    for job in jobs.iter().take(MOST_SHOWN) {
        let met = job.all().into_iter().filter(|(.., count)| *count > 0);
        let met: Vec<String> = met.map(|(name, _, count)| format!("{count} {}", name.replace('_', " "))).collect();
        writeln!(out, "  {} of {}: {}", job.job, job.fence, met.join(", "))?;
    }
    and_more(jobs.len(), "jobs", out)
}

fn show_leases(leases: &LeaseFigures, out: &mut impl Write) -> io::Result<()> {
    if leases.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>8}  leases asked for", leases.asked)?;
    writeln!(out, "{:>8}  leases granted", leases.granted)?;
    for (reason, count) in leases.granted_by_reason.iter().filter(|(_, count)| **count > 0) {
        let why = match *reason {
            "first" => "the first one of a fence",
            "released" => "after the previous one was released",
            "expired" => "after the previous one expired",
            _ => "after the previous one was revoked",
        };
        writeln!(out, "{count:>8}    {why}")?;
    }
    writeln!(out, "{:>8}  leases refused", leases.refused)?;
    show_codes(&leases.refused_by_code, out)?;
    for (count, word) in [(leases.renewed, "renewals"), (leases.released, "releases"), (leases.revoked, "revocations")]
    {
        writeln!(out, "{count:>8}  {word}")?;
    }
    if leases.halted > 0 {
        writeln!(out, "{:>8}  halts\n{:>8}  resumptions", leases.halted, leases.resumed)?;
    }
    if let (Some(median), Some(p95)) = (leases.holds_us.median, leases.holds_us.p95) {
        writeln!(out, "time held, of those that ended")?;
        for (length_us, word) in [(median, "median"), (p95, "p95"), (leases.holds_us.max, "longest")] {
            writeln!(out, "{:>8}  {word}", length(length_us))?;
        }
    }
    match leases.beat_gap_p95_percent.filter(|_| leases.wants_longer_ttl) {
        Some(percent) => writeln!(
            out,
            "renewals are late: one in twenty comes after {percent} % of the TTL. With a longer TTL, fewer leases are lost"
        ),
        None => Ok(()),
    }
}

/// Shows the TTL that each fence's healthy runs suggest.
fn show_ttls(fences: &[FenceFigures], out: &mut impl Write) -> io::Result<()> {
    for fence in fences.iter().take(MOST_SHOWN) {
        let (Some(longest), Some(ttl)) = (fence.longest_run_ms, fence.suggested_ttl_s) else { continue };
        writeln!(
            out,
            "fence '{}': the longest of {} runs that ended well took {}. With  --ttl {ttl},  such a run needs no heartbeat",
            fence.fence,
            fence.healthy_runs,
            length(longest.saturating_mul(1000))
        )?;
    }
    Ok(())
}

/// Shows whether enforce mode would refuse pushes.
fn show_observed(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    let observed = &figures.observed;
    let observes = figures.fences.iter().any(|fence| fence.mode == Some(Mode::Observe));
    if observed.count == 0 {
        return if observes { writeln!(out, "\nno push would have been refused") } else { Ok(()) };
    }
    writeln!(out, "\npushes that would have been refused")?;
    writeln!(out, "{:>8}  admitted because of observe mode", observed.count)?;
    show_codes(&observed.by_code, out)?;
    for by in observed.by_pusher.iter().take(MOST_SHOWN) {
        writeln!(out, "{:>8}    by {}", by.count, text::in_quotes(&by.pusher))?;
    }
    and_more(observed.by_pusher.len(), "pushers", out)?;
    if observed.by_others > 0 {
        writeln!(out, "{:>8}    by other pushers", observed.by_others)?;
    }
    if let Some(last) = &observed.last {
        writeln!(out, "last      {last}")?;
    }
    if observes { writeln!(out, "to refuse such pushes, set  fence.mode = enforce") } else { Ok(()) }
}

fn show_codes(codes: &BTreeMap<&'static str, u64>, out: &mut impl Write) -> io::Result<()> {
    let mut met = codes.iter().filter(|(_, count)| **count > 0);
    met.try_for_each(|(code, count)| writeln!(out, "{count:>8}    {code}"))
}

fn and_more(all: usize, what: &str, out: &mut impl Write) -> io::Result<()> {
    if all > MOST_SHOWN { writeln!(out, "          and {} more {what}", all - MOST_SHOWN) } else { Ok(()) }
}

/// A duration with three significant digits.
fn length(us: u64) -> String {
    let parts = |unit: u64, name: &str| match us {
        _ if us < 10 * unit => format!("{}.{:02} {name}", us / unit, us % unit * 100 / unit),
        _ if us < 100 * unit => format!("{}.{} {name}", us / unit, us % unit * 10 / unit),
        _ => format!("{} {name}", us / unit),
    };
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => parts(1_000, "ms"),
        _ => parts(1_000_000, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_suitable_unit() {
        for (us, shown) in [
            (0, "0 us"),
            (999, "999 us"),
            (1_000, "1.00 ms"),
            (5_317, "5.31 ms"),
            (53_170, "53.1 ms"),
            (531_700, "531 ms"),
            (30_000_000, "30.0 s"),
            (3_600_000_000, "3600 s"),
        ] {
            assert_eq!(length(us), shown);
        }
    }
}
