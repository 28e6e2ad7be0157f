//! The whole log: the files that lines were moved to, and the one that is written to.

use crate::{
    checkpoint::CheckpointFile,
    files::{FenceDir, is_same_file},
    journal::{Damage, Journal, ReadLine, Start},
    mutex::Witness,
    store::missing_log,
};
use git_fence_core::State;
use std::{fs::File, io, path::PathBuf};

/// Reads every line there is, oldest first, and checks that each follows from the one before, across
/// files. Works without the lock: a line that is being appended right now is not a whole line yet,
/// and one that is being moved to another file right now is read where it was.
///
/// `boot` is the kernel's boot id.
pub(crate) fn read(dir: &FenceDir, boot: &str, mut each: impl FnMut(ReadLine<'_>)) -> Result<Journal, Damage> {
    // What others know of the log is read before the log, which only grows. So is the file that is
    // written to opened before the others are listed: if it is moved now, it is listed and skipped.
    let witness = Witness::look_up(dir);
    let current = open(dir)?;
    let mut start = Start::Beginning;
    for path in archives_before(&current, dir)? {
        let file = File::open(&path).map_err(Damage::io("read", &path))?;
        let journal = Journal::read(&file, &path, start, None, &mut each)?;
        if !journal.torn.is_empty() {
            return Err(Damage::Torn { path, line: journal.head.seq + 1 });
        }
        start = Start::After(Box::new(journal));
    }
    Journal::read(&current, &dir.log(), start, witness.as_ref().map(|witness| (witness, boot)), each)
}

/// Where all fences stand, read from the checkpoint on.
pub(crate) fn state(dir: &FenceDir, boot: &str) -> Result<State, Damage> {
    let witness = Witness::look_up(dir);
    let start = match CheckpointFile::read(dir)? {
        CheckpointFile::Good(checkpoint) => Start::Checkpoint(Box::new(checkpoint)),
        CheckpointFile::Missing | CheckpointFile::Damaged => Start::Beginning,
    };
    let witness = witness.as_ref().map(|witness| (witness, boot));
    Ok(Journal::read(&open(dir)?, &dir.log(), start, witness, |_| {})?.state)
}

/// The file that is written to.
pub(crate) fn open(dir: &FenceDir) -> Result<File, Damage> {
    File::open(dir.log()).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing_log(dir),
        _ => Damage::io("read", dir.log())(e),
    })
}

fn archives_before(current: &File, dir: &FenceDir) -> Result<Vec<PathBuf>, Damage> {
    let mut archives = dir.archives().map_err(Damage::io("list", dir.path()))?;
    if let Some(at) = archives.iter().position(|path| is_same_file(current, path)) {
        archives.truncate(at);
    }
    Ok(archives)
}
