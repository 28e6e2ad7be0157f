//! The checkpoint: so that not every line of the log needs to be read.

use crate::log::{files::FenceDir, journal::Damage};
use git_fence_core::{LineHash, State, hash_line};
use serde::{Deserialize, Serialize};
use std::{io, path::PathBuf};

/// The version of the checkpoint's format. In the first, a state does not say which kind of tokens a fence takes.
pub(crate) const CHECKPOINT_VERSION: u32 = 2;

/// The last line that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Its number.
    pub(crate) seq: u64,
    /// The offset of its first byte.
    pub(crate) start: u64,
    /// The offset after its line feed.
    pub(crate) end: u64,
    /// Its hash.
    pub(crate) hash: LineHash,
}

/// The state as it was after a line that had been synced, so that not all lines need to be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    version: u32,
    pub(crate) head: Head,
    pub(crate) state: State,
    /// The hash of the two: nothing else would show that a digit of a mark is not what it was.
    check: LineHash,
}

impl Checkpoint {
    pub(crate) fn of(head: Head, state: State) -> Checkpoint {
        let check = Checkpoint::hash(&head, &state);
        Checkpoint { version: CHECKPOINT_VERSION, head, state, check }
    }

    fn is_sound(&self) -> bool {
        let Head { seq, start, end, .. } = self.head;
        start < end && seq < u64::MAX && self.check == Checkpoint::hash(&self.head, &self.state)
    }

    fn hash(head: &Head, state: &State) -> LineHash {
        hash_line(&serde_json::to_vec(&(head, state)).unwrap_or_default())
    }
}

/// What a checkpoint file turned out to be.
#[derive(Debug)]
pub(crate) enum CheckpointFile {
    Good(Box<Checkpoint>),
    Missing,
    /// Not readable as one: the log is read from the beginning instead.
    Damaged,
}

impl CheckpointFile {
    pub(crate) fn read(dir: &FenceDir) -> Result<CheckpointFile, Damage> {
        let path = dir.checkpoint();
        let bytes = match dir.read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(CheckpointFile::Missing),
            Err(e) => return Err(Damage::io("read", path)(e)),
        };
        CheckpointFile::of(&bytes, path)
    }

    /// What the bytes of a checkpoint file turn out to be.
    pub(crate) fn of(bytes: &[u8], path: PathBuf) -> Result<CheckpointFile, Damage> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        match serde_json::from_slice(bytes) {
            // Of the version before: what it leaves out is read from the log itself.
            Ok(Versioned { version: 1 }) => Ok(CheckpointFile::Missing),
            Ok(Versioned { version }) if version != u64::from(CHECKPOINT_VERSION) => {
                Err(Damage::CheckpointVersion { path, version })
            }
            _ => Ok(match serde_json::from_slice::<Checkpoint>(bytes) {
                Ok(checkpoint) if checkpoint.is_sound() => CheckpointFile::Good(Box::new(checkpoint)),
                _ => CheckpointFile::Damaged,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its hash is right, but no line was ever there, or none can follow.
    #[test]
    fn a_checkpoint_whose_head_is_impossible_is_damaged() {
        for (seq, start, end, is_good) in [(1, 0, 9, true), (1, 9, 9, false), (1, 9, 0, false), (u64::MAX, 0, 9, false)]
        {
            let head = Head { seq, start, end, hash: LineHash::none() };
            let bytes = serde_json::to_vec(&Checkpoint::of(head, State::default())).unwrap();
            let read = CheckpointFile::of(&bytes, PathBuf::new()).unwrap();
            assert_eq!(matches!(read, CheckpointFile::Good(_)), is_good, "{seq} {start} {end}");
        }
    }
}
