//! The changes besides the hooks: undone if the installation fails, and by `uninstall`.

use crate::{
    failure::CommandError,
    host::clock::WaitBudget,
    log::{
        files::FenceDir,
        mutex::{LockError, lock_file},
    },
    repository::{Repository, git::Change},
};
use std::{
    fs::File,
    io,
    time::{Duration, Instant},
};

/// Excludes other installs and uninstalls here: two at once would undo each other's changes.
#[must_use = "others can install again when this is dropped"]
pub(crate) struct InstallLock {
    dir: FenceDir,
    /// Whether `fence/` did not exist before.
    made: bool,
    _locked: File,
}

/// Waits until nobody else installs or uninstalls here. It locks a file in `fence/`, which other users cannot open, and
/// not the repository's directory, which every reader can open. The file is removed afterwards.
pub(crate) fn lock_installing(dir: &FenceDir) -> Result<InstallLock, CommandError> {
    let budget = WaitBudget::of(Duration::from_secs(60), Instant::now());
    loop {
        let made = dir.make().map_err(CommandError::io("make", dir.path()))?;
        match lock_file(dir, &dir.installing(), &budget) {
            Ok(locked) => return Ok(InstallLock { dir: dir.clone(), made, _locked: locked }),
            Err(LockError::Held(held)) => {
                return Err(CommandError::Other {
                    what: format!("another install or uninstall is running here: {held}"),
                    hint: "try again when it has finished".to_owned(),
                });
            }
            // The other process has failed and removed the directory.
            Err(LockError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !budget.left().is_zero() => {}
            Err(LockError::Io { path, source }) => return Err(CommandError::io("lock", path)(source)),
        }
    }
}

impl Drop for InstallLock {
    fn drop(&mut self) {
        let _ = self.dir.remove(&self.dir.installing());
        if self.made {
            self.dir.remove_if_empty();
        }
    }
}

/// Undoes the changes so far, unless all of them succeeded.
#[must_use = "everything is undone when this is dropped"]
pub(crate) struct Undo<'a> {
    repository: &'a Repository,
    fence_dir: &'a FenceDir,
    fence_was_there: bool,
    pub(crate) changes: Vec<Change>,
    is_over: bool,
}

impl<'a> Undo<'a> {
    pub(crate) fn of(repository: &'a Repository, fence_dir: &'a FenceDir) -> Undo<'a> {
        let is_anothers = |name: &std::ffi::OsString| fence_dir.path().join(name) != fence_dir.installing();
        let fence_was_there = fence_dir.names().is_ok_and(|names| names.iter().any(is_anothers));
        Undo { repository, fence_dir, fence_was_there, changes: Vec::new(), is_over: false }
    }

    /// Saves the changes for `uninstall`.
    pub(crate) fn save(&self) -> Result<(), CommandError> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut all = read_changes(self.fence_dir)?;
        all.extend(self.changes.iter().cloned());
        let path = self.fence_dir.changes();
        let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
        self.fence_dir.replace(&path, &bytes, false).map_err(CommandError::io("write", path))
    }

    /// Everything succeeded: keeps the changes.
    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        for change in self.changes.iter().rev() {
            let _ = change.undo(self.repository);
        }
        if !self.fence_was_there {
            self.fence_dir.remove_all();
        }
    }
}

/// The changes of earlier installs.
pub(crate) fn read_changes(dir: &FenceDir) -> Result<Vec<Change>, CommandError> {
    let path = dir.changes();
    let bytes = match dir.read(&path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        read => read.map_err(CommandError::io("read", &path))?,
    };
    serde_json::from_slice(&bytes).map_err(|e| CommandError::Other {
        what: format!("cannot read '{}': {e}", path.display()),
        hint: "it lists the settings that 'install' has changed. Remove it, and check the settings yourself:  git config --local --list"
            .to_owned(),
    })
}
