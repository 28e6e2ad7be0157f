//! Removes the gate from a repository.

use crate::{
    commands::{
        fleet::{self, OneOrAll},
        install::undo::{lock_installing, read_changes},
        operator::Operator,
    },
    failure::CommandError,
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

/// The options of `uninstall`.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    place: OneOrAll,
}

/// `git-fence-hook uninstall`.
pub(crate) fn run(args: &UninstallArgs, environment: &Environment) -> Result<(), CommandError> {
    if args.place.recursive {
        return fleet::each_below(&args.place.repository, |dir| {
            let lines = uninstall(dir, environment)?;
            Ok(if lines.is_empty() { "not installed".to_owned() } else { "uninstalled".to_owned() })
        });
    }
    let mut out = io::stdout().lock();
    let lines = uninstall(&args.place.repository, environment)?;
    for line in &lines {
        writeln!(out, "{line}")?;
    }
    if lines.is_empty() {
        writeln!(out, "no gate is installed in '{}'", args.place.repository.display())?;
    }
    Ok(())
}

/// The hooks come first: without them, the rest is no longer needed. The log stays.
fn uninstall(dir: &Path, environment: &Environment) -> Result<Vec<String>, CommandError> {
    let repository = Repository::find(dir, environment)?;
    git::check_trust(&repository)?;
    let fence_dir = FenceDir::at(repository.fence_dir());
    let _lock = if fence_dir.path().exists() { Some(lock_installing(&fence_dir)?) } else { None };
    let site = Site::of(&repository, None)?;
    // Read first: if this cannot be read, nothing may be left half done.
    let changes = read_changes(&fence_dir)?;
    let mut lines = Vec::new();
    settle_first(dir, &fence_dir, environment);
    // The gate goes before its companion: without the companion it would refuse.
    for part in [Part::Gate, Part::Companion] {
        lines.extend(remove_hook(&site.hook(part))?);
    }
    for change in changes.iter().rev() {
        if change.undo(&repository)? {
            lines.push(format!("setting   {} = {}  {}", change.setting.key, change.setting.value, change.undone()));
        }
    }
    for path in [fence_dir.changes(), fence_dir.known_refs()].into_iter().filter(|path| fence_dir.has(path)) {
        fence_dir.remove(&path).map_err(CommandError::io("remove", path))?;
    }
    if !lines.is_empty() && fence_dir.has(&fence_dir.log()) {
        lines.push(format!(
            "log       {}  kept: it has the history, and the marks for the next install",
            fence_dir.log().display()
        ));
    }
    Ok(lines)
}

/// Settles pushes that are over while the gate is still installed: afterwards refs move without it. Failure to settle is
/// no reason to keep the gate.
fn settle_first(dir: &Path, fence_dir: &FenceDir, environment: &Environment) {
    if !fence_dir.has(&fence_dir.log()) {
        return;
    }
    let settled = Operator::at(dir, environment).and_then(|operator| Ok(operator.lock()?.commit(Durability::Lazy)?));
    if let Err(failure) = settled {
        let _ = writeln!(io::stderr(), "warning: could not settle the pushes so far: {}", failure.in_one_line());
    }
}

/// Removes one of the gate's hooks and restores the previous one.
fn remove_hook(hook: &Path) -> Result<Option<String>, CommandError> {
    Ok(match HookFile::at(hook)? {
        // Also if the gate's hook is already gone: the previous one is still kept.
        HookFile::Ours(_) | HookFile::Nothing if kept_hook::restore(hook)? => {
            Some(format!("hook      {}  restored to the previous hook", hook.display()))
        }
        HookFile::Ours(_) => {
            files::remove(hook).map_err(CommandError::io("remove", hook))?;
            Some(format!("hook      {}  removed", hook.display()))
        }
        HookFile::Nothing | HookFile::Others | HookFile::NoHook => None,
    })
}
