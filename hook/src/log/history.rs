//! The whole log: the archives, and the current file.

use crate::log::{
    checkpoint::{Checkpoint, CheckpointFile},
    directory::For,
    files::FenceDir,
    journal::{Damage, Journal, ReadLine, Start},
    mutex::{Unwritten, Witness},
    store::missing_log,
};
use git_fence_core::{Evidence, State};
use std::{fs::File, io, os::unix::fs::FileExt as _, path::PathBuf};

/// Reads every line, oldest first, and checks the chain of hashes, across files. Works without the lock: a line that is
/// being appended is not complete yet, and a line that is being archived is read from its previous file.
///
/// `boot` is the kernel's boot id.
pub(crate) fn read(dir: &FenceDir, boot: &str, each: impl FnMut(ReadLine<'_>)) -> Result<Journal, Damage> {
    Ok(Tail::read(dir, boot, each)?.journal)
}

/// The log as far as it has been read, to continue reading later.
pub(crate) struct Tail {
    /// The current file at that time. It stays open, so that its last lines can be read even if it is renamed.
    current: File,
    pub(crate) journal: Journal,
}

impl Tail {
    /// Reads every line, like [`read`].
    pub(crate) fn read(dir: &FenceDir, boot: &str, mut each: impl FnMut(ReadLine<'_>)) -> Result<Tail, Damage> {
        // The witness is read before the log, which only grows. The current file is opened before the archives are
        // listed: if it is archived now, it is in the list and is skipped.
        let witness = Witness::read_unlocked(dir);
        let current = open(dir)?;
        let archives = archives_before(&current, dir)?;
        let start = read_archives(dir, archives, Start::Beginning, &mut each)?;
        let witness = witness.as_ref().map(|witness| (witness, boot));
        let journal = Journal::read(&current, &dir.log(), start, witness, each)?;
        Ok(Tail { current, journal })
    }

    /// Reads the lines that were written since, each once, even if the log was rotated meanwhile.
    pub(crate) fn read_on(self, dir: &FenceDir, mut each: impl FnMut(ReadLine<'_>)) -> Result<Tail, Damage> {
        let path = dir.log();
        // Checked before reading to the end: a file that is no longer the log gets no more lines.
        let was_moved = !dir.leads_to(&path, &self.current);
        let length = self.current.metadata().map_err(Damage::io("read", &path))?.len();
        let mut journal = self.journal;
        if length != journal.head.end {
            // Starts with the last line that was read: it must be unchanged.
            let start = Start::Checkpoint(Box::new(Checkpoint::of(journal.head, journal.state)));
            journal = Journal::read(&self.current, &path, start, None, &mut each)?;
        }
        if !was_moved {
            return Ok(Tail { current: self.current, journal });
        }
        let current = open(dir)?;
        // There may have been several rotations. Archives are named by their last line.
        let read_to = dir.archive(journal.head.seq);
        let mut archives = archives_before(&current, dir)?;
        archives.retain(|path| *path > read_to);
        let start = read_archives(dir, archives, Start::After(Box::new(journal)), &mut each)?;
        let journal = Journal::read(&current, &path, start, None, each)?;
        Ok(Tail { current, journal })
    }
}

/// Reads archives, and returns where the next file continues.
fn read_archives(
    dir: &FenceDir,
    paths: Vec<PathBuf>,
    mut start: Start,
    mut each: impl FnMut(ReadLine<'_>),
) -> Result<Start, Damage> {
    for path in paths {
        let file = dir.open(&path, For::Reading).map_err(Damage::io("read", &path))?;
        let journal = Journal::read(&file, &path, start, None, &mut each)?;
        if !journal.torn.is_empty() {
            return Err(Damage::Torn { path, line: journal.head.seq + 1 });
        }
        start = Start::After(Box::new(journal));
    }
    Ok(start)
}

/// The log as a push reads it.
pub(crate) struct LiveLog {
    pub(crate) journal: Journal,
    /// The log had to be read from its beginning.
    pub(crate) checkpoint_is_damaged: bool,
}

/// Reads the log from the checkpoint on.
pub(crate) fn current(dir: &FenceDir, boot: &str) -> Result<LiveLog, Damage> {
    let witness = Witness::read_unlocked(dir);
    let checkpoint = CheckpointFile::read(dir)?;
    let checkpoint_is_damaged = matches!(checkpoint, CheckpointFile::Damaged);
    let start = match checkpoint {
        CheckpointFile::Good(checkpoint) => Start::Checkpoint(checkpoint),
        CheckpointFile::Missing | CheckpointFile::Damaged => Start::Beginning,
    };
    let witness = witness.as_ref().map(|witness| (witness, boot));
    let journal = Journal::read(&open(dir)?, &dir.log(), start, witness, |_| {})?;
    Ok(LiveLog { journal, checkpoint_is_damaged })
}

/// The state of all fences, including git's reports that did not fit on the disk.
pub(crate) fn state(dir: &FenceDir, boot: &str) -> Result<State, Damage> {
    let unwritten = Witness::read_unlocked(dir).map(|witness| witness.unwritten);
    let mut state = current(dir, boot)?.journal.state;
    for Unwritten { push, count, settlement } in unwritten.into_iter().flatten() {
        if let Some(flight) = state.flight(push).cloned() {
            state.settle(&flight, settlement, count, Evidence::Reported);
        }
    }
    Ok(state)
}

/// Opens the current file.
pub(crate) fn open(dir: &FenceDir) -> Result<File, Damage> {
    dir.open(&dir.log(), For::Reading).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing_log(dir),
        _ => Damage::io("read", dir.log())(e),
    })
}

/// The archives with lines before those of `current`, which may itself have been archived by now.
fn archives_before(current: &File, dir: &FenceDir) -> Result<Vec<PathBuf>, Damage> {
    let mut archives = dir.archives().map_err(Damage::io("list", dir.path()))?;
    if let Some(at) = archives.iter().position(|path| dir.leads_to(path, current)) {
        archives.truncate(at);
    }
    let left = leftovers_among(&archives, current, dir)?;
    archives.retain(|path| !left.contains(path));
    Ok(archives)
}

/// Files that an interrupted rotation has left: a second name of the log, or, if the repository was copied since, a copy
/// of its beginning. All their lines are also in the next file.
pub(crate) fn leftovers(dir: &FenceDir) -> Result<Vec<PathBuf>, Damage> {
    let current = open(dir)?;
    let archives = dir.archives().map_err(Damage::io("list", dir.path()))?;
    leftovers_among(&archives, &current, dir)
}

fn leftovers_among(archives: &[PathBuf], current: &File, dir: &FenceDir) -> Result<Vec<PathBuf>, Damage> {
    let mut left = Vec::new();
    for (at, path) in archives.iter().enumerate() {
        let begins = || -> io::Result<bool> {
            let file = dir.open(path, For::Reading)?;
            match archives.get(at + 1) {
                Some(next) => is_beginning_of(&file, &dir.open(next, For::Reading)?),
                None => is_beginning_of(&file, current),
            }
        };
        if begins().map_err(Damage::io("read", path))? {
            left.push(path.clone());
        }
    }
    Ok(left)
}

/// Whether `next` begins with the content of `file`. The files of a rotated log differ in their first line.
fn is_beginning_of(file: &File, next: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    if length == 0 || length > next.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut at = 0;
    while at < length {
        let some = usize::try_from(length - at).unwrap_or(usize::MAX).min(ours.len());
        file.read_exact_at(&mut ours[..some], at)?;
        next.read_exact_at(&mut theirs[..some], at)?;
        if ours[..some] != theirs[..some] {
            return Ok(false);
        }
        at += some as u64;
    }
    Ok(true)
}
