//! Leases in stores: what git-fence costs over the engine itself, and what many leases cost.
//!
//! Every engine is started for the run, on a free port of loopback and in a directory of its own, and ended with it.

mod bare;
mod engine;
mod fences;
mod gate;
mod helper;
mod lease;
mod lease_rows;
mod many;
mod random;
mod repository;
mod usage;

use crate::{
    Outcome,
    options::{EngineKind, StoreOptions, StoreRows},
    programs,
    row::Row,
    say,
};
use clap::ValueEnum as _;

/// Measures all rows that are asked for.
pub(crate) fn rows(options: &StoreOptions) -> Outcome<Vec<Row>> {
    if !options.samples.built {
        programs::build()?;
    }
    let mut rows = Vec::new();
    for part in StoreRows::value_variants().iter().filter(|part| options.wants(**part)) {
        for kind in options.engines() {
            say(&format!("{}: {}", kind.name(), part.about()));
            match part {
                StoreRows::Lease => rows.extend(lease_rows::measure(kind, &options.samples)?),
                StoreRows::Fences => rows.push(fences::measure(kind, options)?),
                StoreRows::Gate => rows.push(gate::measure(kind, &options.samples)?),
                StoreRows::Many => rows.extend(many::measure(kind, options)?),
            }
        }
    }
    Ok(rows)
}

impl StoreRows {
    fn about(self) -> &'static str {
        match self {
            StoreRows::Lease => "acquire, renew and release",
            StoreRows::Fences => "many fences in one store",
            StoreRows::Gate => "a push to a gate that asks its store",
            StoreRows::Many => "many leases that are renewed at the same time",
        }
    }
}

impl EngineKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            EngineKind::Etcd => "etcd",
            EngineKind::Postgres => "PostgreSQL",
            EngineKind::Redis => "Redis",
        }
    }
}
