//! Many leases that one machine renews at the same time, each with a helper of its own, as `git fence run` keeps it: what
//! that takes of the processor and of connections, on both sides.

use super::{engine::Engine, helper::Helper, lease::FenceLease, usage};
use crate::{
    Outcome,
    options::{EngineKind, StoreOptions},
    row::Row,
};
use std::{
    error::Error,
    thread,
    time::{Duration, Instant},
};

/// How often each lease is renewed: a third of a TTL of 30 s.
const PERIOD: Duration = Duration::from_secs(10);
/// Renewals that wait for an answer at the same time, at most.
const THREADS: usize = 4;

type Renewing = Vec<FenceLease<Helper>>;

pub(super) fn measure(kind: EngineKind, options: &StoreOptions) -> Outcome<Vec<Row>> {
    let engine = Engine::start(kind, options.leases + 100)?;
    let (mut renewing, mut helpers) = (Vec::new(), Vec::new());
    for n in 0..options.leases {
        let helper = Helper::at(&engine.url)?;
        helpers.push(helper.pid());
        let mut lease = FenceLease::new(helper, &format!("git.example.com/team/app-{n}/repo"));
        lease.acquire()?;
        renewing.push(lease);
    }
    let rounds = u32::try_from(options.samples.count(2, 12))?;
    let before = (usage::of(&helpers)?, usage::of_tree(engine.pid())?);
    let late = renew(&mut renewing, rounds)?;
    let after = (usage::of(&helpers)?, usage::of_tree(engine.pid())?);
    let connections = usage::connections(engine.port)?;

    let renewals = f64::from(rounds * options.leases);
    let leases = format!("{} leases renewed every {} s", options.leases, PERIOD.as_secs());
    let row = |what: &str, value, unit| Row::figure(kind.name(), &format!("{leases}: {what}"), value, unit);
    let of_a_core = |used: Duration| 100.0 * used.as_secs_f64() / (PERIOD * rounds).as_secs_f64();
    let (here, there) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    Ok(vec![
        row("helpers", of_a_core(here), "% of a core"),
        row("engine", of_a_core(there), "% of a core"),
        row("a helper, per renewal", here.as_secs_f64() * 1000.0 / renewals, "ms"),
        row("memory of a helper's own", usage::memory_kib(&helpers)? / 1024.0, "MiB"),
        row("connections, as the machine has them", connections.of_clients as f64, "connections"),
        row("connections, as the engine has them", connections.of_server as f64, "connections"),
        row("longest delay of a renewal", late.as_secs_f64() * 1000.0, "ms"),
    ])
}

/// Renews all leases in each period, evenly spread. Returns the longest that a renewal was finished after it was due.
fn renew(renewing: &mut Renewing, rounds: u32) -> Outcome<Duration> {
    let (all, start) = (renewing.len(), Instant::now());
    let part = all.div_ceil(THREADS);
    let late: Vec<Result<Duration, String>> = thread::scope(|scope| {
        let running: Vec<_> = renewing
            .chunks_mut(part)
            .enumerate()
            .map(|(n, leases)| scope.spawn(move || renew_part(leases, n * part, all, rounds, start)))
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread crashed".to_owned()))).collect()
    });
    // The last period is waited for, too: what is measured is a share of whole ones.
    thread::sleep((start + PERIOD * rounds).saturating_duration_since(Instant::now()));
    Ok(late.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default())
}

fn renew_part(
    leases: &mut [FenceLease<Helper>],
    first: usize,
    all: usize,
    rounds: u32,
    start: Instant,
) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        for (n, lease) in leases.iter_mut().enumerate() {
            // Neighbours are in different parts, so that the parts take turns.
            let place = n * THREADS + first * THREADS / all;
            let due = start + PERIOD * round + PERIOD.mul_f64(place as f64 / (all + THREADS) as f64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            lease.renew().map_err(|e: Box<dyn Error>| e.to_string())?;
            longest = longest.max(due.elapsed());
        }
    }
    Ok(longest)
}
