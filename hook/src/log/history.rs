//! The whole log: the files that lines were moved to, and the one that is written to.

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

/// Reads every line there is, oldest first, and checks that each follows from the one before, across
/// files. Works without the lock: a line that is being appended right now is not a whole line yet,
/// and one that is being moved to another file right now is read where it was.
///
/// `boot` is the kernel's boot id.
pub(crate) fn read(dir: &FenceDir, boot: &str, each: impl FnMut(ReadLine<'_>)) -> Result<Journal, Damage> {
    Ok(Tail::read(dir, boot, each)?.journal)
}

/// The log as far as it has been read, by somebody who will read on.
pub(crate) struct Tail {
    /// The file that was written to then. Open, so that its last lines can be read wherever it is moved.
    current: File,
    pub(crate) journal: Journal,
}

impl Tail {
    /// Reads every line there is, as [`read`] does.
    pub(crate) fn read(dir: &FenceDir, boot: &str, mut each: impl FnMut(ReadLine<'_>)) -> Result<Tail, Damage> {
        // What others know of the log is read before the log, which only grows. So is the file that is
        // written to opened before the others are listed: if it is moved now, it is listed and skipped.
        let witness = Witness::look_up(dir);
        let current = open(dir)?;
        let archives = archives_before(&current, dir)?;
        let start = read_archives(dir, archives, Start::Beginning, &mut each)?;
        let witness = witness.as_ref().map(|witness| (witness, boot));
        let journal = Journal::read(&current, &dir.log(), start, witness, each)?;
        Ok(Tail { current, journal })
    }

    /// Reads the lines that have come since, each once, also where the log was rotated in between.
    pub(crate) fn read_on(self, dir: &FenceDir, mut each: impl FnMut(ReadLine<'_>)) -> Result<Tail, Damage> {
        let path = dir.log();
        // Asked before reading to the end: a file that is not the log any more gets no more lines.
        let was_moved = !dir.leads_to(&path, &self.current);
        let length = self.current.metadata().map_err(Damage::io("read", &path))?.len();
        let mut journal = self.journal;
        if length != journal.head.end {
            // Begins with the last line that was read: it must still be there, and the same.
            let start = Start::Checkpoint(Box::new(Checkpoint::of(journal.head, journal.state)));
            journal = Journal::read(&self.current, &path, start, None, &mut each)?;
        }
        if !was_moved {
            return Ok(Tail { current: self.current, journal });
        }
        let current = open(dir)?;
        // It may have been rotated more than once. Files are named by their last line.
        let read_to = dir.archive(journal.head.seq);
        let mut archives = archives_before(&current, dir)?;
        archives.retain(|path| *path > read_to);
        let start = read_archives(dir, archives, Start::After(Box::new(journal)), &mut each)?;
        let journal = Journal::read(&current, &path, start, None, each)?;
        Ok(Tail { current, journal })
    }
}

/// Reads files that are not written to any more, and gives where the next one goes on.
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

/// The log as a push would read it.
pub(crate) struct LiveLog {
    pub(crate) journal: Journal,
    /// The log had to be read from its beginning.
    pub(crate) checkpoint_is_damaged: bool,
}

/// Reads the log from the checkpoint on.
pub(crate) fn current(dir: &FenceDir, boot: &str) -> Result<LiveLog, Damage> {
    let witness = Witness::look_up(dir);
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

/// Where all fences stand, with what git said of pushes when there was no room in the log for it.
pub(crate) fn state(dir: &FenceDir, boot: &str) -> Result<State, Damage> {
    let unwritten = Witness::look_up(dir).map(|witness| witness.unwritten);
    let mut state = current(dir, boot)?.journal.state;
    for Unwritten { push, count, settlement } in unwritten.into_iter().flatten() {
        if let Some(flight) = state.flight(push).cloned() {
            state.settle(&flight, settlement, count, Evidence::Reported);
        }
    }
    Ok(state)
}

/// The file that is written to.
pub(crate) fn open(dir: &FenceDir) -> Result<File, Damage> {
    dir.open(&dir.log(), For::Reading).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing_log(dir),
        _ => Damage::io("read", dir.log())(e),
    })
}

/// The files with lines before those of `current`, which may itself be one of them by now.
fn archives_before(current: &File, dir: &FenceDir) -> Result<Vec<PathBuf>, Damage> {
    let mut archives = dir.archives().map_err(Damage::io("list", dir.path()))?;
    if let Some(at) = archives.iter().position(|path| dir.leads_to(path, current)) {
        archives.truncate(at);
    }
    let left = leftovers_among(&archives, current, dir)?;
    archives.retain(|path| !left.contains(path));
    Ok(archives)
}

/// Files that a rotation has left which was interrupted before the log began anew: a second name of the log, or,
/// where the repository has been copied since, a copy of its beginning. All their lines are in the next file, too.
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

/// Whether `next` begins with all that is in `file`. Files of a rotated log differ in their very first line.
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
