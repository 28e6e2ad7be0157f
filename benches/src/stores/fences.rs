//! Acquire in a store with many fences, over acquire in a store with one.

use super::{
    engine::Engine,
    helper::Helper,
    lease::{FenceLease, Records as _},
};
use crate::{
    Outcome,
    options::{EngineKind, StoreOptions},
    row::Row,
    sampling::{Subject, interleaved},
};
use std::time::Instant;

const LIMIT: Option<f64> = Some(1.1);
const NAME: &str = "git.example.com/team/app/repo";

pub(super) fn measure(kind: EngineKind, options: &StoreOptions) -> Outcome<Row> {
    let (one, many) = (Engine::start(kind, 100)?, Engine::start(kind, 100)?);
    let template = FenceLease::body_of_first(Helper::at(&one.url)?, NAME)?;
    let mut filling = Helper::at(&many.url)?;
    for n in 0..options.fences {
        let name = format!("git.example.com/team/app-{n}/repo");
        filling.swap(&name, None, &template.replace(NAME, &name), true)?;
    }
    let mut subjects = [acquire(&many)?, acquire(&one)?];
    let samples = interleaved(options.samples.count(250, 1500), 40, &mut subjects)?;
    let what = format!("acquire in a store with {} fences", options.fences);
    Ok(Row::ratio(kind.name(), &what, "in a store with one", samples.ratio(0, 1)?, LIMIT))
}

/// Only the acquisition counts, not the release after it.
fn acquire(engine: &Engine) -> Outcome<Subject<'static>> {
    let mut lease = FenceLease::new(Helper::at(&engine.url)?, NAME);
    Ok(Box::new(move || {
        let start = Instant::now();
        lease.acquire()?;
        let took = start.elapsed();
        lease.release()?;
        Ok(took)
    }))
}
