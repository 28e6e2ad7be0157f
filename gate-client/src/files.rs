//! The files of git-fence in a clone: where they are, and how they are locked and replaced.
//!
//! Called by `lease`, `store` and `run`.

use crate::git::{How, local::Local};
use std::{
    fs::{File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The directory of git-fence, in the git directory that all worktrees share.
pub(crate) fn home(local: &Local) -> PathBuf {
    local.common_dir.join("git-fence")
}

/// Locks `file`, and waits at most as long as `how` allows.
pub(crate) fn wait_for_lock(file: &File, how: &How) -> io::Result<()> {
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if how.is_over(since.elapsed()) => return Err(io::ErrorKind::TimedOut.into()),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            taken => return taken.map_err(io::Error::from),
        }
    }
}

/// Replaces the file at `path` atomically; only the user can read it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Its errors name the temporary file, which says nothing to anybody.
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(without_path)?;
    file.write_all(bytes).map_err(without_path)?;
    file.persist(path)?;
    Ok(())
}

/// The error without the path that `tempfile` appends. It keeps the error of the system to itself, so only the text is left.
fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

/// A URL as one component of a path.
pub(crate) fn name_of_url(url: &str) -> String {
    git_fence_core::hash_line(url.as_bytes()).to_string()[..16].to_owned()
}
