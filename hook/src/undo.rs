//! What installing has changed besides the hook: taken back if it fails, and by `uninstall`.

use crate::{
    clock::Patience,
    failure::Failure,
    files::FenceDir,
    git::Change,
    mutex::{LockError, wait_for_flock},
    repository::Repository,
};
use std::{
    fs::{self, File},
    io,
    time::{Duration, Instant},
};

/// Lets nobody else install or uninstall here for as long as the file is held: two at once would take
/// back each other's work. The directory itself is locked, so that no file is left behind; where a file
/// system cannot do that, there are no two at once either, as far as anybody knows.
pub(crate) fn alone_in(repository: &Repository) -> Result<Option<File>, Failure> {
    let Ok(dir) = File::open(&repository.common_dir) else { return Ok(None) };
    match wait_for_flock(&dir, &Patience::of(Duration::from_secs(60), Instant::now())) {
        Err(LockError::Held) => Err(Failure::Other {
            what: format!("somebody else is installing in '{}'", repository.common_dir.display()),
            hint: "try again when they are done".to_owned(),
        }),
        Err(LockError::Io(_)) => Ok(None),
        Ok(()) => Ok(Some(dir)),
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
        let fence_was_there = fence_dir.path().exists();
        Undo { repository, fence_dir, fence_was_there, changes: Vec::new(), is_over: false }
    }

    /// Writes the changes down for `uninstall`.
    pub(crate) fn write_down(&self) -> Result<(), Failure> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut all = read_changes(self.fence_dir)?;
        all.extend(self.changes.iter().cloned());
        let path = self.fence_dir.changes();
        let bytes = serde_json::to_vec_pretty(&all).unwrap_or_default();
        self.fence_dir.replace(&path, &bytes, false).map_err(Failure::io("write", path))
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
            let _ = fs::remove_dir_all(self.fence_dir.path());
        }
    }
}

/// What installing has changed so far.
pub(crate) fn read_changes(dir: &FenceDir) -> Result<Vec<Change>, Failure> {
    let path = dir.changes();
    let bytes = match fs::read(&path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        read => read.map_err(Failure::io("read", &path))?,
    };
    serde_json::from_slice(&bytes).map_err(|e| Failure::Other {
        what: format!("'{}' cannot be read: {e}", path.display()),
        hint: "it says which settings installing has changed. Remove it, and look at  git config --local --list"
            .to_owned(),
    })
}
