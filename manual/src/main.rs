//! Writes the manual pages and shell completions of git-fence below a directory.

use clap::Parser;
use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// Write the manual pages and shell completions of git-fence
#[derive(Parser)]
#[command(version)]
struct ManualCli {
    /// Where git-fence is installed: PREFIX/bin has its programs, PREFIX/share gets its manual
    prefix: PathBuf,
}

fn main() -> ExitCode {
    let prefix = ManualCli::parse().prefix;
    match git_fence_manual::write(&prefix) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let share = prefix.join("share");
            let _ = writeln!(
                io::stderr(),
                "error: cannot write the manual below '{}': {e}\nhint: name a directory that you may write",
                share.display()
            );
            ExitCode::FAILURE
        }
    }
}
