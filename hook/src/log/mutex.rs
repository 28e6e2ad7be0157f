//! The lock of a repository's fence.
//!
//! `fence/mutex` is `flock`ed while the log is read and written, never while waiting for a push. It may be deleted: after
//! locking, its name must still refer to the locked file. Because it may be deleted while it is held, its holder also
//! locks `fence/writer`, which excludes two holders of two mutexes.
//!
//! A process that can open a file can lock it, even without write access. So only users who may write here can open
//! these two files, and nothing else is ever locked: neither the log nor a directory.
//!
//! The mutex contains a [`Witness`]: how far the log had been written when the lock was last released.

use crate::{
    host::clock::WaitBudget,
    log::{
        directory::For,
        files::FenceDir,
        lock_holder::{self, LockHolder},
    },
};
use git_fence_core::{FenceName, LineHash, Place, PushId, ReceivePack, Settlement, hash_line};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The lock, held.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub(crate) struct Mutex {
    file: File,
    _writer: File,
}

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// It is held for longer than the caller may wait.
    #[error(transparent)]
    Held(#[from] LockIsHeld),
    #[error("cannot lock '{}'", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Which lock is held, and by which process.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the lock '{}' is held by {holder}", path.display())]
pub(crate) struct LockIsHeld {
    path: PathBuf,
    holder: LockHolder,
}

/// Where the log ended when the lock was last released.
///
/// While the machine runs, `end` is exact, and a shorter log has been cut. After a machine crash, lines that were never
/// synced may be missing, but none before `synced`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    pub(crate) boot: String,
    pub(crate) seq: u64,
    pub(crate) end: u64,
    pub(crate) hash: LineHash,
    pub(crate) synced: u64,
    pub(crate) synced_seq: u64,
    /// Reports of git that did not fit on the disk. The next holder of the lock writes them to the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unwritten: Vec<Unwritten>,
    /// Commands that wait for a slot and go before pushes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<Turn>,
}

/// An operator's command that waits for a slot. It goes first, because with one push after another the slot might never
/// be free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) fence: FenceName,
    pub(crate) place: Place,
    pub(crate) process: ReceivePack,
}

/// A push that git has reported on, and its settlement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unwritten {
    pub(crate) push: PushId,
    pub(crate) count: usize,
    pub(crate) settlement: Settlement,
}

impl Mutex {
    /// Takes the lock, and waits for it within the budget.
    pub(crate) fn lock(dir: &FenceDir, budget: &WaitBudget) -> Result<Mutex, LockError> {
        let file = lock_file(dir, &dir.mutex(), budget)?;
        Ok(Mutex { file, _writer: lock_file(dir, &dir.writer(), budget)? })
    }

    /// Tries the lock without creating anything, and releases it again. Returns the holder, if it holds the lock for the
    /// whole budget; `None` if the caller may not open it.
    pub(crate) fn is_held(dir: &FenceDir, budget: &WaitBudget) -> Option<LockIsHeld> {
        [dir.mutex(), dir.writer()].into_iter().find_map(|path| match dir.open(&path, For::Writing) {
            Ok(file) => match wait_for_lock(&file, &path, budget) {
                Err(LockError::Held(held)) => Some(held),
                _ => None,
            },
            Err(_) => None,
        })
    }

    /// The witness of the last holder, if it can be read.
    pub(crate) fn witness(&self) -> Option<Witness> {
        Witness::read(&self.file)
    }

    /// Records where the log ends. Failure does not fail a push: the witness only guarantees less. Returns whether it was
    /// written: overwriting needs no disk space.
    pub(crate) fn write_witness(&self, witness: &Witness) -> bool {
        let mut line = serde_json::to_vec(witness).unwrap_or_default();
        line.push(b'\n');
        self.file.write_all_at(&line, 0).is_ok()
    }
}

impl Witness {
    /// The witness of the last holder of the lock, read without taking it.
    pub(crate) fn read_unlocked(dir: &FenceDir) -> Option<Witness> {
        Witness::read(&dir.open(&dir.mutex(), For::Reading).ok()?)
    }

    /// For a log that consists of a single synced line, `seq`, including its line feed.
    pub(crate) fn of_first_line(boot: &str, seq: u64, line: &[u8]) -> Witness {
        let end = line.len() as u64;
        let hash = hash_line(line.strip_suffix(b"\n").unwrap_or(line));
        Witness { boot: boot.to_owned(), seq, end, hash, synced: end, synced_seq: seq, ..Witness::empty() }
    }

    /// A witness that guarantees nothing.
    pub(crate) fn empty() -> Witness {
        Witness {
            boot: String::new(),
            seq: 0,
            end: 0,
            hash: LineHash::none(),
            synced: 0,
            synced_seq: 0,
            unwritten: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// Up to which byte and which line the log must be intact when it is read under the boot id `boot`.
    pub(crate) fn required_end(&self, boot: &str) -> (u64, u64) {
        if self.boot == boot { (self.end, self.seq) } else { (self.synced, self.synced_seq) }
    }

    fn read(mutex: &File) -> Option<Witness> {
        let mut buffer = vec![0; 4096];
        let length = mutex.read_at(&mut buffer, 0).ok()?;
        if !buffer[..length].contains(&b'\n') {
            // Only if there are many unwritten settlements.
            buffer.resize(usize::try_from(mutex.metadata().ok()?.len()).ok()?, 0);
            mutex.read_exact_at(&mut buffer, 0).ok()?;
            return Witness::parse(&buffer);
        }
        Witness::parse(&buffer[..length])
    }

    /// Parses the first line of the mutex: anything after it is the rest of a longer one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Witness> {
        let line = bytes.split(|b| *b == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }
}

/// Opens the lock file at `path`, creating it if it is missing, and locks it.
pub(crate) fn lock_file(dir: &FenceDir, path: &Path, budget: &WaitBudget) -> Result<File, LockError> {
    loop {
        let opened = dir.lock_file(path);
        let file = opened.map_err(|source| LockError::Io { path: path.to_owned(), source })?;
        wait_for_lock(&file, path, budget)?;
        if dir.leads_to(path, &file) {
            return Ok(file);
        }
        // Deleted or replaced between opening and locking: this lock excludes nobody.
        if budget.left().is_zero() {
            return Err(LockIsHeld { path: path.to_owned(), holder: LockHolder::Unknown }.into());
        }
    }
}

/// Takes an exclusive lock by polling: `flock` has no timeout.
fn wait_for_lock(file: &File, path: &Path, budget: &WaitBudget) -> Result<(), LockError> {
    let mut pause = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(LockError::Io { path: path.to_owned(), source }),
        }
        let left = budget.left();
        if left.is_zero() {
            return Err(LockIsHeld { path: path.to_owned(), holder: lock_holder::of(file) }.into());
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "simulates another process that deletes and replaces files")]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::MetadataExt, time::Instant};

    fn budget(most: Duration) -> WaitBudget {
        WaitBudget::of(most, Instant::now())
    }

    #[test]
    fn lock_excludes_others_until_it_is_released() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FenceDir::at(temp.path().to_owned());
        let held = Mutex::lock(&dir, &budget(Duration::ZERO)).unwrap();
        assert!(matches!(Mutex::lock(&dir, &budget(Duration::ZERO)), Err(LockError::Held(_))));
        drop(held);
        let _again = Mutex::lock(&dir, &budget(Duration::ZERO)).unwrap();
    }

    #[test]
    fn lock_on_a_replaced_file_is_taken_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FenceDir::at(temp.path().to_owned());
        let held = Mutex::lock(&dir, &budget(Duration::ZERO)).unwrap();
        let waiter = {
            let dir = dir.clone();
            thread::spawn(move || Mutex::lock(&dir, &budget(Duration::from_secs(600))))
        };
        // The waiter has the old file open, and waits for it.
        let times_open = || {
            let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            links.filter(|path| *path == dir.mutex()).count()
        };
        while times_open() < 2 {
            thread::yield_now();
        }
        // Replaced by another file: a lock on the old one would exclude nobody.
        fs::remove_file(dir.mutex()).unwrap();
        fs::write(dir.mutex(), "").unwrap();
        drop(held);
        let theirs = waiter.join().unwrap().unwrap();
        assert_eq!(theirs.file.metadata().unwrap().ino(), fs::metadata(dir.mutex()).unwrap().ino());
    }

    #[test]
    fn shorter_witness_overwrites_a_longer_one() {
        let temp = tempfile::tempdir().unwrap();
        let mutex = Mutex::lock(&FenceDir::at(temp.path().to_owned()), &budget(Duration::ZERO)).unwrap();
        assert_eq!(mutex.witness(), None);
        for end in [123_456_789, 7] {
            let witness = Witness { boot: "b".to_owned(), seq: 1, end, ..Witness::empty() };
            mutex.write_witness(&witness);
            assert_eq!(mutex.witness(), Some(witness));
        }
    }
}
