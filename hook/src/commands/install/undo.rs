//! What installing has changed besides the hook: taken back if it fails, and by `uninstall`.

use crate::{
    commands::failure::CommandError,
    host::clock::Patience,
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

/// Nobody else installs or uninstalls here: two at once would take back each other's work.
#[must_use = "others may install again when this is dropped"]
pub(crate) struct Alone {
    dir: FenceDir,
    /// Whether there was no `fence/` before.
    made: bool,
    _locked: File,
}

/// Waits until nobody else installs or uninstalls here. A file in `fence/` is locked for that, which others cannot
/// open, and not the repository's directory, which every reader can; it is gone again when it is let go.
pub(crate) fn alone_in(dir: &FenceDir) -> Result<Alone, CommandError> {
    let patience = Patience::of(Duration::from_secs(60), Instant::now());
    loop {
        let made = dir.make().map_err(CommandError::io("make", dir.path()))?;
        match lock_file(dir, &dir.installing(), &patience) {
            Ok(locked) => return Ok(Alone { dir: dir.clone(), made, _locked: locked }),
            Err(LockError::Held(held)) => {
                return Err(CommandError::Other {
                    what: format!("somebody else is installing here: {held}"),
                    hint: "try again when they are done".to_owned(),
                });
            }
            // Whoever was here has failed, and has taken the directory away again.
            Err(LockError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !patience.left().is_zero() => {}
            Err(LockError::Io { path, source }) => return Err(CommandError::io("lock", path)(source)),
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.dir.remove(&self.dir.installing());
        if self.made {
            self.dir.remove_if_empty();
        }
    }
}

/// Takes back what was done so far, unless all of it was.
#[must_use = "everything is taken back when this is dropped"]
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

    /// Writes the changes down for `uninstall`.
    pub(crate) fn write_down(&self) -> Result<(), CommandError> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut all = read_changes(self.fence_dir)?;
        all.extend(self.changes.iter().cloned());
        let path = self.fence_dir.changes();
        let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
        self.fence_dir.replace(&path, &bytes, false).map_err(CommandError::io("write", path))
    }

    /// All is done, and stays.
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

/// What installing has changed so far.
pub(crate) fn read_changes(dir: &FenceDir) -> Result<Vec<Change>, CommandError> {
    let path = dir.changes();
    let bytes = match dir.read(&path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        read => read.map_err(CommandError::io("read", &path))?,
    };
    serde_json::from_slice(&bytes).map_err(|e| CommandError::Other {
        what: format!("'{}' cannot be read: {e}", path.display()),
        hint: "it says which settings installing has changed. Remove it, and look at  git config --local --list"
            .to_owned(),
    })
}
