//! `git-fence-benches`: measures git-fence, and says which limit holds.
//!
//! Absolute times mean nothing on machines that others use, too. So what is measured and what it is compared with are
//! sampled in turn, in one run ([`sampling`]), and a row of the table ([`row`]) is a ratio of medians. Each group of rows
//! is a folder; what belongs to all of them is here.
//!
//! Nothing of this is part of what is installed.

mod options;
mod programs;
mod row;
mod sampling;
mod spread;
mod stores;
mod table;

use clap::Parser as _;
use options::{Group, Options};
use serde_json::json;
use std::{
    error::Error,
    fs,
    io::{self, Write as _},
    process::ExitCode,
    thread,
};

/// What can go wrong here ends the run, and is told to whoever started it.
type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // One implementation of cryptography for all clients. It fails only if it was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A limit that is missed is a result, and no error.
fn run(options: &Options) -> Outcome<()> {
    let (samples, rows) = match &options.group {
        Group::Stores(stores) => (&stores.samples, stores::rows(stores)?),
    };
    let mut out = io::stdout().lock();
    out.write_all(table::markdown(&rows).as_bytes())?;
    if let Some(path) = &samples.json {
        let run = json!({
            "group": options.group.name(),
            "form": samples.form(),
            "optimized": !cfg!(debug_assertions),
            "cores": thread::available_parallelism().map_or(0, usize::from),
            "version": env!("CARGO_PKG_VERSION"),
        });
        let text = serde_json::to_string_pretty(&table::json(&rows, &run))? + "\n";
        fs::write(path, text).map_err(|e| format!("cannot write '{}': {e}", path.display()))?;
    }
    Ok(())
}

/// Says what is going on: a run takes minutes.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}
