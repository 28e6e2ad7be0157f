//! The one lock of a repository's fence.
//!
//! `fence/mutex` is `flock`ed for as long as the log is read and written, never while waiting for a
//! push. Somebody will delete it: after locking, its name must still lead to the file that was
//! locked. And because it may be deleted while it is held, whoever holds it locks `fence/writer`,
//! too; that is where two holders of two mutexes meet.
//!
//! Whoever can open a file can lock it, writer or not. So these two can be opened by nobody who may not write
//! here, and nothing else is ever locked: neither the log nor a directory.
//!
//! The mutex's content is a [`Witness`]: how far the log had been written when the lock was last let go.

use crate::{
    host::clock::Patience,
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
#[must_use = "the lock is let go when this is dropped"]
pub(crate) struct Mutex {
    file: File,
    _writer: File,
}

/// Why the lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Somebody holds it, for longer than this push may wait.
    #[error(transparent)]
    Held(#[from] LockIsHeld),
    #[error("cannot lock '{}'", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Which lock is held, and by whom.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the lock '{}' is held by {holder}", path.display())]
pub(crate) struct LockIsHeld {
    path: PathBuf,
    holder: LockHolder,
}

/// Where the log ended when the lock was last let go.
///
/// While the machine runs, `end` is exact, and a log that is shorter has been cut. After a crash of
/// the machine lines that were never synced may rightly be missing, but none before `synced`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    pub(crate) boot: String,
    pub(crate) seq: u64,
    pub(crate) end: u64,
    pub(crate) hash: LineHash,
    pub(crate) synced: u64,
    pub(crate) synced_seq: u64,
    /// What git said of pushes when there was no room left in the log for it. The next holder writes it there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unwritten: Vec<Unwritten>,
    /// Who waits for a slot to become free and goes before pushes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<Turn>,
}

/// An operator's command that waits for a slot. Pushes come one after the other without end: it would never be free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) fence: FenceName,
    pub(crate) place: Place,
    pub(crate) process: ReceivePack,
}

/// What became of a push, on git's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unwritten {
    pub(crate) push: PushId,
    pub(crate) count: usize,
    pub(crate) settlement: Settlement,
}

impl Mutex {
    /// Takes the lock, waiting as long as patience lasts.
    pub(crate) fn lock(dir: &FenceDir, patience: &Patience) -> Result<Mutex, LockError> {
        let file = lock_file(dir, &dir.mutex(), patience)?;
        Ok(Mutex { file, _writer: lock_file(dir, &dir.writer(), patience)? })
    }

    /// Tries the lock without making anything, and lets it go again: who holds it for longer than `patience` lasts?
    /// Says nothing to those who may not open it.
    pub(crate) fn is_held(dir: &FenceDir, patience: &Patience) -> Option<LockIsHeld> {
        [dir.mutex(), dir.writer()].into_iter().find_map(|path| match dir.open(&path, For::Writing) {
            Ok(file) => match wait_for_lock(&file, &path, patience) {
                Err(LockError::Held(held)) => Some(held),
                _ => None,
            },
            Err(_) => None,
        })
    }

    /// What the last holder left, if it can be read.
    pub(crate) fn witness(&self) -> Option<Witness> {
        Witness::read(&self.file)
    }

    /// Leaves word of where the log ends. Failing to is not worth a push: the witness only loses reach. Says whether
    /// the word is there: a write over what is there needs no room on the disk.
    pub(crate) fn leave(&self, witness: &Witness) -> bool {
        let mut line = serde_json::to_vec(witness).unwrap_or_default();
        line.push(b'\n');
        self.file.write_all_at(&line, 0).is_ok()
    }
}

impl Witness {
    /// What the last holder of the lock left, looked up without taking it.
    pub(crate) fn look_up(dir: &FenceDir) -> Option<Witness> {
        Witness::read(&dir.open(&dir.mutex(), For::Reading).ok()?)
    }

    /// Of a log that is one synced line, `seq`, with its line feed.
    pub(crate) fn of_first_line(boot: &str, seq: u64, line: &[u8]) -> Witness {
        let end = line.len() as u64;
        let hash = hash_line(line.strip_suffix(b"\n").unwrap_or(line));
        Witness { boot: boot.to_owned(), seq, end, hash, synced: end, synced_seq: seq, ..Witness::of_nothing() }
    }

    /// That of nobody: it vouches for no line at all.
    pub(crate) fn of_nothing() -> Witness {
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

    /// Up to which byte, and which line, the log must be whole when it is read under the boot id `boot`.
    pub(crate) fn vouches_for(&self, boot: &str) -> (u64, u64) {
        if self.boot == boot { (self.end, self.seq) } else { (self.synced, self.synced_seq) }
    }

    fn read(mutex: &File) -> Option<Witness> {
        let mut buffer = vec![0; 4096];
        let length = mutex.read_at(&mut buffer, 0).ok()?;
        if !buffer[..length].contains(&b'\n') {
            // Only where much is unwritten.
            buffer.resize(usize::try_from(mutex.metadata().ok()?.len()).ok()?, 0);
            mutex.read_exact_at(&mut buffer, 0).ok()?;
            return Witness::parse(&buffer);
        }
        Witness::parse(&buffer[..length])
    }

    /// What the mutex begins with: what stands behind the first line is left over from a longer one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Witness> {
        let line = bytes.split(|b| *b == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }
}

/// Opens the lock file at `path`, making it where it is missing, and locks it.
pub(crate) fn lock_file(dir: &FenceDir, path: &Path, patience: &Patience) -> Result<File, LockError> {
    loop {
        let opened = dir.lock_file(path);
        let file = opened.map_err(|source| LockError::Io { path: path.to_owned(), source })?;
        wait_for_lock(&file, path, patience)?;
        if dir.leads_to(path, &file) {
            return Ok(file);
        }
        // Deleted or replaced between opening and locking: this lock locks nobody out.
        if patience.left().is_zero() {
            return Err(LockIsHeld { path: path.to_owned(), holder: LockHolder::Unknown }.into());
        }
    }
}

/// Takes an exclusive lock, trying again and again: there is none with a timeout.
fn wait_for_lock(file: &File, path: &Path, patience: &Patience) -> Result<(), LockError> {
    let mut pause = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(LockError::Io { path: path.to_owned(), source }),
        }
        let left = patience.left();
        if left.is_zero() {
            return Err(LockIsHeld { path: path.to_owned(), holder: lock_holder::of(file) }.into());
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "somebody else deletes and replaces files here")]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::MetadataExt, time::Instant};

    fn patience(most: Duration) -> Patience {
        Patience::of(most, Instant::now())
    }

    #[test]
    fn the_lock_keeps_others_out_until_it_is_let_go() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FenceDir::at(temp.path().to_owned());
        let held = Mutex::lock(&dir, &patience(Duration::ZERO)).unwrap();
        assert!(matches!(Mutex::lock(&dir, &patience(Duration::ZERO)), Err(LockError::Held(_))));
        drop(held);
        let _again = Mutex::lock(&dir, &patience(Duration::ZERO)).unwrap();
    }

    #[test]
    fn whoever_locked_a_file_that_was_then_replaced_starts_over() {
        let temp = tempfile::tempdir().unwrap();
        let dir = FenceDir::at(temp.path().to_owned());
        let held = Mutex::lock(&dir, &patience(Duration::ZERO)).unwrap();
        let waiter = {
            let dir = dir.clone();
            thread::spawn(move || Mutex::lock(&dir, &patience(Duration::from_secs(600))))
        };
        // It has the old one open, and waits for it.
        let times_open = || {
            let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            links.filter(|path| *path == dir.mutex()).count()
        };
        while times_open() < 2 {
            thread::yield_now();
        }
        // Away, and another one in its place: whoever got the old one would lock nobody out.
        fs::remove_file(dir.mutex()).unwrap();
        fs::write(dir.mutex(), "").unwrap();
        drop(held);
        let theirs = waiter.join().unwrap().unwrap();
        assert_eq!(theirs.file.metadata().unwrap().ino(), fs::metadata(dir.mutex()).unwrap().ino());
    }

    #[test]
    fn a_shorter_witness_over_a_longer_one_reads_as_itself() {
        let temp = tempfile::tempdir().unwrap();
        let mutex = Mutex::lock(&FenceDir::at(temp.path().to_owned()), &patience(Duration::ZERO)).unwrap();
        assert_eq!(mutex.witness(), None);
        for end in [123_456_789, 7] {
            let witness = Witness { boot: "b".to_owned(), seq: 1, end, ..Witness::of_nothing() };
            mutex.leave(&witness);
            assert_eq!(mutex.witness(), Some(witness));
        }
    }
}
