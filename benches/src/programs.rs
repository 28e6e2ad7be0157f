//! The programs that are measured: built first, in the same profile, and found beside this one.

use crate::{Outcome, say};
use std::{
    env::current_exe,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const PACKAGES: [&str; 2] = ["git-fence", "git-fence-stores"];

/// Builds the programs.
pub(crate) fn build() -> Outcome<()> {
    say("building what is measured");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked"]).args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !built.success() {
        return Err("cannot build what is measured".into());
    }
    Ok(())
}

/// A program of git-fence.
pub(crate) fn own(name: &str) -> Outcome<PathBuf> {
    let path = current_exe()?.parent().unwrap_or(Path::new(".")).join(name);
    if !path.is_file() {
        return Err(format!("there is no {}: run without --built", path.display()).into());
    }
    Ok(path)
}

/// Runs a program to its end. What it printed, without the end of its line.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let Output { status, stdout, stderr } = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&stderr)).into());
    }
    Ok(String::from_utf8_lossy(&stdout).trim_end().to_owned())
}
