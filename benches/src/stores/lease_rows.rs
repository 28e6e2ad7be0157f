//! Acquire, renew and release, over what the engine's own client needs for as many swaps.

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
const LIMIT: Option<f64> = Some(1.5);
/// After so many ownerships the history in a record is full, and its length stays what it is.
const UNTIL_FULL: usize = 20;

pub(super) fn measure(kind: EngineKind, options: &SampleOptions) -> Outcome<Vec<Row>> {
    let engine = Engine::start(kind, 100)?;
    let mut held = FenceLease::new(Helper::at(&engine.url)?, "git.example.com/team/app/repo");
    let engine_inside = git_fence_stores::open(&engine.url, &Surroundings::default())?;
    let mut inside = FenceLease::new(Inside(engine_inside), "git.example.com/team/app/inside");
    for _ in 0..UNTIL_FULL {
        held.cycle()?;
        inside.cycle()?;
    }
    let (body, mut bare) = (held.body(), bare::connect(&engine)?);
    let length = body.len();
    let bare_cycle = move || bare.cycle(&bare::bodies_like(&body));
    let mut subjects = vec![timed(move || held.cycle()), timed(move || inside.cycle()), timed(bare_cycle)];
    if kind == EngineKind::Etcd {
        subjects.extend(locks_of_etcd(&engine)?);
    }
    let mut samples = interleaved(options.count(150, 800), options.count(20, 20).min(20), &mut subjects)?;
    let mut rows = vec![
        Row::ratio(kind.name(), WHAT, "its own compare-and-swap", samples.ratio(0, 2)?, LIMIT),
        Row::ratio(kind.name(), "the same without the helper program", "its own compare-and-swap", samples.ratio(1, 2)?, None),
        Row::figure(kind.name(), "length of the record, with a full history", length as f64, "bytes"),
    ];
    if kind == EngineKind::Etcd {
        let etcdctl = samples.without(4, 5);
        rows.push(Row::ratio(kind.name(), WHAT, "its own lock", samples.ratio(0, 3)?, LIMIT));
        let base = "etcdctl lock, without its start";
        rows.push(Row::ratio(kind.name(), WHAT, base, samples.ratio(0, etcdctl)?, LIMIT));
    }
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
