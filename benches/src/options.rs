//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Measures git-fence. Prints a table; a limit that is missed is in the table and no error.
#[derive(Debug, Parser)]
#[command(name = "git-fence-benches")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) group: Group,
}

/// What is measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// Leases in stores.
    Stores(StoreOptions),
}

impl Group {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Group::Stores(_) => "stores",
        }
    }
}

/// How many samples, and what becomes of the rows.
#[derive(Debug, Args)]
pub(crate) struct SampleOptions {
    /// About three minutes; this is the default
    #[arg(long)]
    short: bool,
    /// About ten minutes
    #[arg(long, conflicts_with = "short")]
    full: bool,
    /// So many samples of each, instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,
    /// Writes the rows to this file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Does not build the programs that are measured, but takes those beside this one
    #[arg(long)]
    pub(crate) built: bool,
}

impl SampleOptions {
    pub(crate) fn form(&self) -> String {
        match (self.samples, self.full) {
            (Some(samples), _) => format!("{samples} samples"),
            (None, true) => "full".to_owned(),
            (None, false) => "short".to_owned(),
        }
    }

    /// How many samples, of something that takes so many in the short and in the full form.
    pub(crate) fn count(&self, short: usize, full: usize) -> usize {
        let asked = self.samples.map(|samples| samples as usize);
        asked.unwrap_or(if self.full { full } else { short })
    }
}

/// The command line of the group `stores`.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    #[command(flatten)]
    pub(crate) samples: SampleOptions,
    /// Only these engines
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(crate) engine: Vec<EngineKind>,
    /// Only these rows
    #[arg(long, value_enum, value_name = "ROWS")]
    pub(crate) only: Vec<StoreRows>,
    /// How many leases are renewed at the same time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) leases: u32,
    /// How many fences are in the crowded store
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fences: u32,
}

/// An engine that keeps leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    Etcd,
    Postgres,
    Redis,
}

/// The rows of the group `stores`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreRows {
    /// Acquire, renew and release
    Lease,
    /// Many fences in one store
    Fences,
    /// A push to a gate that asks its store
    Gate,
    /// Many leases that are renewed at the same time
    Many,
}

impl StoreOptions {
    pub(crate) fn engines(&self) -> Vec<EngineKind> {
        if self.engine.is_empty() { EngineKind::value_variants().to_vec() } else { self.engine.clone() }
    }

    pub(crate) fn wants(&self, rows: StoreRows) -> bool {
        self.only.is_empty() || self.only.contains(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(arguments: &[&str]) -> Result<StoreOptions, clap::Error> {
        let all = ["git-fence-benches", "stores"].iter().chain(arguments);
        Options::try_parse_from(all).map(|Options { group: Group::Stores(stores) }| stores)
    }

    #[test]
    fn short_is_the_default() {
        for (arguments, form, count) in [
            (&[][..], "short", 10),
            (&["--short"], "short", 10),
            (&["--full"], "full", 50),
            (&["--samples", "3"], "3 samples", 3),
        ] {
            let samples = stores(arguments).unwrap().samples;
            assert_eq!((samples.form().as_str(), samples.count(10, 50)), (form, count));
        }
        assert!(stores(&["--short", "--full"]).is_err() && stores(&["--samples", "0"]).is_err());
    }

    #[test]
    fn all_engines_and_rows_unless_some_are_named() {
        let all = stores(&[]).unwrap();
        assert_eq!(all.engines().len(), 3);
        assert!(all.wants(StoreRows::Many));
        let some = stores(&["--engine", "redis", "--only", "lease", "--only", "gate"]).unwrap();
        assert_eq!(some.engines(), [EngineKind::Redis]);
        assert!(some.wants(StoreRows::Gate) && !some.wants(StoreRows::Many));
    }
}
