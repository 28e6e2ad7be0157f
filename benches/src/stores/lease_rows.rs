//! Acquire, renew and release, over what the engine's own client needs for as many swaps: by the crate that talks to the
//! engine, on one kept connection, and through the program that has this crate, as the client has it. The limit is for the
//! former: a pipe to another process takes as long as a swap in Redis.

use super::{
    bare::{self, BareEtcd},
    engine::Engine,
    helper::Helper,
    lease::{FenceLease, Inside},
};
use crate::{
    Outcome,
    options::{EngineKind, SampleOptions},
    programs,
    row::Row,
    sampling::{Subject, interleaved, timed},
};
use git_fence_stores::Surroundings;
use std::process::Command;

const WHAT: &str = "acquire, renew and release";
const THROUGH_HELPER: &str = "the same through git-fence-store";
const BARE: &str = "its own compare-and-swap";
const LIMIT: Option<f64> = Some(1.5);
/// After so many ownerships the history in a record is full, and its length stays what it is.
const UNTIL_FULL: usize = 20;

pub(super) fn measure(kind: EngineKind, options: &SampleOptions) -> Outcome<Vec<Row>> {
    let mut rows = measure_at(&Engine::start(kind, 100)?, options)?;
    if kind == EngineKind::Postgres {
        // Most of a commit is waiting for the disk. This is the rest.
        let engine = Engine::start_with(kind, 100, &["-c", "fsync=off"])?;
        let unsynced = measure_at(&engine, options)?.into_iter().next();
        rows.extend(unsynced.map(|row| Row { at: format!("{}, fsync=off", row.at), limit: None, ..row }));
    }
    Ok(rows)
}

fn measure_at(engine: &Engine, options: &SampleOptions) -> Outcome<Vec<Row>> {
    let kind = engine.kind;
    let mut held = FenceLease::new(Helper::at(&engine.url)?, "git.example.com/team/app/repo");
    let engine_inside = git_fence_stores::open(&engine.url, &Surroundings::default())?;
    let mut inside = FenceLease::new(Inside(engine_inside), "git.example.com/team/app/inside");
    for _ in 0..UNTIL_FULL {
        held.cycle()?;
        inside.cycle()?;
    }
    let (body, mut bare) = (held.body(), bare::connect(engine)?);
    let length = body.len();
    let bare_cycle = move || bare.cycle(&bare::bodies_like(&body));
    let mut subjects = vec![timed(move || inside.cycle()), timed(bare_cycle), timed(move || held.cycle())];
    if kind == EngineKind::Etcd {
        subjects.extend(locks_of_etcd(engine)?);
    }
    let mut samples = interleaved(options.count(250, 1500), options.count(20, 20).min(20), &mut subjects)?;
    let at = kind.name();
    let mut rows = vec![Row::ratio(at, WHAT, BARE, samples.ratio(0, 1)?, LIMIT)];
    if kind == EngineKind::Etcd {
        let etcdctl = samples.without(4, 5);
        rows.push(Row::ratio(at, WHAT, "etcdctl lock, without its start", samples.ratio(0, etcdctl)?, LIMIT));
        rows.push(Row::ratio(at, WHAT, "its lock over the same gateway", samples.ratio(0, 3)?, None));
    }
    rows.push(Row::ratio(at, THROUGH_HELPER, BARE, samples.ratio(2, 1)?, None));
    rows.push(Row::figure(at, "length of a record with a full history", length as f64, "bytes"));
    Ok(rows)
}

/// The lock over the same gateway; `etcdctl lock` with a command that does nothing; and what starting both costs.
fn locks_of_etcd(engine: &Engine) -> Outcome<[Subject<'static>; 3]> {
    let etcd = BareEtcd::at(engine)?;
    let endpoint = format!("127.0.0.1:{}", engine.port);
    let etcdctl = move |arguments: &[&str]| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint]).args(arguments);
        programs::output(&mut command).map(drop)
    };
    let start = etcdctl.clone();
    Ok([
        timed(move || etcd.lock()),
        timed(move || etcdctl(&["lock", "by-etcdctl", "true"])),
        timed(move || {
            start(&["version"])?;
            programs::output(&mut Command::new("true")).map(drop)
        }),
    ])
}
