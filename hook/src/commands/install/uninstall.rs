//! Taking the gate out of a repository again.

use crate::{
    commands::{
        failure::CommandError,
        fleet::{self, OneOrAll},
        install::undo::{alone_in, read_changes},
        operator::Operator,
    },
    host::{
        hook_file::{HookFile, Part},
        kept_hook,
        layout::Site,
        surroundings::Environment,
    },
    log::{
        files::{self, FenceDir},
        store::Durability,
    },
    repository::{Repository, git},
};
use std::{
    io::{self, Write as _},
    path::Path,
};

/// What `uninstall` is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    place: OneOrAll,
}

/// `git-fence-hook uninstall`.
pub(crate) fn run(asked: &UninstallArgs, environment: &Environment) -> Result<(), CommandError> {
    if asked.place.recursive {
        return fleet::each_below(&asked.place.repository, |dir| {
            let lines = uninstall(dir, environment)?;
            Ok(if lines.is_empty() { "not installed".to_owned() } else { "uninstalled".to_owned() })
        });
    }
    let mut out = io::stdout().lock();
    let lines = uninstall(&asked.place.repository, environment)?;
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    if lines.is_empty() {
        writeln!(out, "there is no gate in '{}'", asked.place.repository.display())?;
    }
    Ok(())
}

/// The hooks first: as soon as they are gone, nothing of the rest is needed. The log stays: it is a record.
fn uninstall(dir: &Path, environment: &Environment) -> Result<Vec<String>, CommandError> {
    let repository = Repository::find(dir, environment)?;
    git::trusts(&repository)?;
    let fence_dir = FenceDir::at(repository.fence_dir());
    let _alone = if fence_dir.path().exists() { Some(alone_in(&fence_dir)?) } else { None };
    let site = Site::of(&repository, None)?;
    // Read before anything is taken away: nothing may be left half done because this cannot be read.
    let changes = read_changes(&fence_dir)?;
    let mut lines = Vec::new();
    settle_first(dir, &fence_dir, environment);
    // The gate before its companion: without one it would refuse.
    for part in [Part::Gate, Part::Companion] {
        lines.extend(take_out(&site.hook(part))?);
    }
    for change in changes.iter().rev() {
        if change.undo(&repository)? {
            lines.push(format!("setting   {} = {}  taken back", change.wish.key, change.wish.value));
        }
    }
    if fence_dir.has(&fence_dir.changes()) {
        fence_dir.remove(&fence_dir.changes()).map_err(CommandError::io("remove", fence_dir.changes()))?;
    }
    if !lines.is_empty() && fence_dir.has(&fence_dir.log()) {
        lines.push(format!(
            "log       {}  stays: it is the record, and where the fence goes on",
            fence_dir.log().display()
        ));
    }
    Ok(lines)
}

/// What is over is settled while the gate still stands: afterwards refs move without it. A fence that cannot be
/// settled is no reason to leave the gate in.
fn settle_first(dir: &Path, fence_dir: &FenceDir, environment: &Environment) {
    if !fence_dir.has(&fence_dir.log()) {
        return;
    }
    let settled = Operator::at(dir, environment).and_then(|operator| Ok(operator.lock()?.commit(Durability::Lazy)?));
    if let Err(failure) = settled {
        let _ = writeln!(io::stderr(), "warning: pushes so far could not be settled: {}", failure.in_one_line());
    }
}

/// Takes one of our hooks away; what was there before comes back.
fn take_out(hook: &Path) -> Result<Option<String>, CommandError> {
    Ok(match HookFile::at(hook)? {
        // Also where somebody has removed ours: the other one is still kept.
        HookFile::Ours(_) | HookFile::Nothing if kept_hook::give_back(hook)? => {
            Some(format!("hook      {}  is the one that was there before", hook.display()))
        }
        HookFile::Ours(_) => {
            files::remove(hook).map_err(CommandError::io("remove", hook))?;
            Some(format!("hook      {}  removed", hook.display()))
        }
        HookFile::Nothing | HookFile::Others | HookFile::NoHook => None,
    })
}
