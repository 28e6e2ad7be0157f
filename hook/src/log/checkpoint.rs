//! The checkpoint, which avoids reading every line of the log.

use crate::log::{files::FenceDir, journal::Damage};
use git_fence_core::{LineHash, State, hash_line};
use serde::{Deserialize, Serialize};
use std::{io, path::PathBuf};

/// The version of the checkpoint format. In version 1, the state does not have the kind of tokens of a fence.
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

/// The state after a line that was synced, so that earlier lines need not be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    version: u32,
    pub(crate) head: Head,
    pub(crate) state: State,
    /// The hash of head and state: without it, a changed digit in a mark would go unnoticed.
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

/// The result of reading a checkpoint file.
#[derive(Debug)]
pub(crate) enum CheckpointFile {
    Good(Box<Checkpoint>),
    Missing,
    /// Unreadable: the log is read from the beginning instead.
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

    /// Parses the bytes of a checkpoint file.
    pub(crate) fn of(bytes: &[u8], path: PathBuf) -> Result<CheckpointFile, Damage> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        match serde_json::from_slice(bytes) {
            // The previous version: the missing data is read from the log.
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

    /// Its hash is correct, but there cannot be such a line, or none could follow.
    #[test]
    fn checkpoint_with_an_impossible_head_is_damaged() {
        for (seq, start, end, is_good) in [(1, 0, 9, true), (1, 9, 9, false), (1, 9, 0, false), (u64::MAX, 0, 9, false)]
        {
            let head = Head { seq, start, end, hash: LineHash::none() };
            let bytes = serde_json::to_vec(&Checkpoint::of(head, State::default())).unwrap();
            let read = CheckpointFile::of(&bytes, PathBuf::new()).unwrap();
            assert_eq!(matches!(read, CheckpointFile::Good(_)), is_good, "{seq} {start} {end}");
        }
    }
}
