//! Leases in stores: what git-fence costs over the engine itself, and what many leases cost.
//!
//! Every engine is started for the run, on a free port of loopback and in a directory of its own, and ended with it.

mod bare;
mod engine;
mod helper;
mod lease;
mod lease_rows;
mod random;

use crate::{
    Outcome,
    options::{EngineKind, StoreOptions, StoreRows},
    programs,
    row::Row,
    say,
};

/// Measures all rows that are asked for.
pub(crate) fn rows(options: &StoreOptions) -> Outcome<Vec<Row>> {
    if !options.samples.built {
        programs::build()?;
    }
    let mut rows = Vec::new();
    for kind in options.engines() {
        if options.wants(StoreRows::Lease) {
            say(&format!("{}: acquire, renew and release", kind.name()));
            rows.extend(lease_rows::measure(kind, &options.samples)?);
        }
    }
    Ok(rows)
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
