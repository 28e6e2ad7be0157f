//! Reading the log: from a checkpoint or from the beginning, checking every line.

use crate::log::{
    checkpoint::{CHECKPOINT_VERSION, Checkpoint, Head},
    mutex::Witness,
};
use git_fence_core::{Event, FoldError, Line, LineHash, State, hash_line};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// Where reading starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// At the first line of the file, whatever its number.
    Beginning,
    /// At the first line of the file, which must continue another file.
    After(Box<Journal>),
    /// After the last line of a checkpoint.
    Checkpoint(Box<Checkpoint>),
}

/// The log, read to its end.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) head: Head,
    pub(crate) state: State,
    /// The number of the first line that was read.
    pub(crate) first_seq: u64,
    /// Bytes after the last complete line, from an interrupted append.
    pub(crate) torn: Vec<u8>,
}

/// What is wrong with the fence's files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("log '{}' does not exist", .0.display())]
    NoLog(PathBuf),
    #[error("the log '{}' is lost: other files refer to it", .0.display())]
    LostLog(PathBuf),
    #[error("the checkpoint '{}' is damaged", .0.display())]
    Checkpoint(PathBuf),
    #[error("the log '{}' is empty", .0.display())]
    Empty(PathBuf),
    #[error("line {line} of the log '{}' {why}", path.display())]
    Line { path: PathBuf, line: u64, why: String },
    #[error(
        "the log '{}' ends at byte {found}, but it had {expected} bytes: its end, up to line {seq}, has been cut off",
        path.display()
    )]
    Cut { path: PathBuf, found: u64, expected: u64, seq: u64 },
    #[error("the checkpoint '{}' has version {version}, but this git-fence-hook supports version {CHECKPOINT_VERSION}", path.display())]
    CheckpointVersion { path: PathBuf, version: u64 },
    #[error("line {line} of the log '{}' is torn: its writer was interrupted", path.display())]
    Torn { path: PathBuf, line: u64 },
    #[error("cannot {doing} '{}': {cause}", path.display())]
    Io { doing: &'static str, path: PathBuf, cause: io::Error },
}

impl Damage {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Damage {
        let path = path.into();
        move |cause| Damage::Io { doing, path, cause }
    }
}

/// A line of the log as it was read.
pub(crate) struct ReadLine<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) line: &'a Line,
}

impl Journal {
    /// Reads a file of the log and calls `each` for every line.
    ///
    /// `witness` tells how far the log must reach. Beyond what it guarantees under the boot id `boot`, unreadable lines
    /// count as torn: a machine crash leaves such lines.
    pub(crate) fn read(
        log: &File,
        path: &Path,
        start: Start,
        witness: Option<(&Witness, &str)>,
        mut each: impl FnMut(ReadLine<'_>),
    ) -> Result<Journal, Damage> {
        let crashed_after = witness.filter(|(witness, boot)| witness.boot != *boot).map(|(witness, _)| witness.synced);
        let length = log.metadata().map_err(Damage::io("read", path))?.len();
        if length == 0 {
            return Err(Damage::Empty(path.to_owned()));
        }
        let mut reader = Reader::from(start, length, path)?;
        let mut input = BufReader::with_capacity(64 * 1024, log);
        input.seek(SeekFrom::Start(reader.next_start())).map_err(Damage::io("read", path))?;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            input.read_until(b'\n', &mut bytes).map_err(Damage::io("read", path))?;
            let Some(whole) = bytes.strip_suffix(b"\n") else { break };
            match reader.take(whole) {
                Ok(Some(line)) => {
                    // The line that the last writer recorded in the witness must be unchanged.
                    let is_another = |(witness, boot): (&Witness, &str)| {
                        witness.boot == boot && witness.seq == line.seq && witness.hash != hash_line(whole)
                    };
                    if witness.is_some_and(is_another) {
                        let why = "is not the line that was written".to_owned();
                        return Err(Damage::Line { path: path.to_owned(), line: line.seq, why });
                    }
                    each(ReadLine { bytes: whole, line: &line });
                }
                Ok(None) => {}
                Err(_) if crashed_after.is_some_and(|synced| reader.next_start() >= synced) => {
                    input.read_to_end(&mut bytes).map_err(Damage::io("read", path))?;
                    break;
                }
                Err(Flaw::Damage(damage)) => return Err(damage),
                Err(Flaw::Unchained { seq }) => {
                    let mut next = Vec::new();
                    input.read_until(b'\n', &mut next).map_err(Damage::io("read", path))?;
                    return Err(find_changed_line(seq, whole, &next, path));
                }
            }
        }
        let Some(head) = reader.head else {
            let line = reader.resumes_with.map_or(1, |head| head.seq);
            return Err(Damage::Line { path: path.to_owned(), line, why: "is not complete".to_owned() });
        };
        let first_seq = reader.first_seq.unwrap_or(head.seq);
        let journal = Journal { head, state: reader.state, first_seq, torn: bytes };
        if let Some((witness, boot)) = witness {
            journal.check(witness, boot, path)?;
        }
        Ok(journal)
    }

    /// Checks that the log reaches as far as the witness guarantees.
    fn check(&self, witness: &Witness, boot: &str, path: &Path) -> Result<(), Damage> {
        if witness.seq < self.first_seq {
            // The witness is older than the rotation that moved its lines.
            return Ok(());
        }
        // Both lines and bytes: an older log in place of a rotated one may be longer and end earlier.
        let (expected, last) = witness.required_end(boot);
        if expected > self.head.end || last > self.head.seq {
            let (path, found) = (path.to_owned(), self.head.end);
            return Err(Damage::Cut { path, found, expected, seq: last });
        }
        Ok(())
    }
}

/// Line `seq` does not have the hash of the previous line. If the next line has the hash of this one, this one is
/// unchanged, so the previous line was changed. Otherwise this one was.
fn find_changed_line(seq: u64, bytes: &[u8], next: &[u8], path: &Path) -> Damage {
    let named_by_next = serde_json::from_slice::<Line>(next).map(|next| next.prev == hash_line(bytes));
    let (line, why) = match named_by_next {
        _ if seq == 1 => (1, "has been changed".to_owned()),
        Ok(true) => (seq - 1, "has been changed".to_owned()),
        Ok(false) => (seq, "has been changed".to_owned()),
        Err(_) => (seq - 1, format!("or line {seq} has been changed")),
    };
    Damage::Line { path: path.to_owned(), line, why }
}

/// What can be wrong with a line.
enum Flaw {
    Damage(Damage),
    /// It does not have the hash of the previous line.
    Unchained {
        seq: u64,
    },
}

struct Reader<'p> {
    path: &'p Path,
    state: State,
    /// The last line that was read.
    head: Option<Head>,
    first_seq: Option<u64>,
    /// The last line of the previous file.
    follows: Option<Head>,
    /// The checkpoint's last line, which is read again: it must be unchanged.
    resumes_with: Option<Head>,
}

impl<'p> Reader<'p> {
    fn from(start: Start, length: u64, path: &'p Path) -> Result<Reader<'p>, Damage> {
        let (state, follows, resumes_with) = match start {
            Start::Beginning => (State::default(), None, None),
            Start::After(before) => (before.state, Some(before.head), None),
            Start::Checkpoint(checkpoint) => (checkpoint.state, None, Some(checkpoint.head)),
        };
        if let Some(head) = resumes_with.as_ref().filter(|head| length < head.end) {
            return Err(Damage::Cut { path: path.to_owned(), found: length, expected: head.end, seq: head.seq });
        }
        Ok(Reader { path, state, head: None, first_seq: None, follows, resumes_with })
    }

    fn next_start(&self) -> u64 {
        self.resumes_with.as_ref().map_or_else(|| self.head.as_ref().map_or(0, |head| head.end), |head| head.start)
    }

    /// Reads the next complete line; returns it, unless it is the last line of the checkpoint.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Line>, Flaw> {
        let start = self.next_start();
        let hash = hash_line(bytes);
        if let Some(head) = self.resumes_with.take() {
            // Its offset too: all later offsets depend on it.
            if hash != head.hash || head.end != start + bytes.len() as u64 + 1 {
                let why = "is not the last line of the checkpoint".to_owned();
                return Err(Flaw::Damage(Damage::Line { path: self.path.to_owned(), line: head.seq, why }));
            }
            self.head = Some(head);
            return Ok(None);
        }
        let before = self.head.as_ref().or(self.follows.as_ref());
        let expected = before.map_or(1, |head| head.seq + 1);
        let damaged = |why: String| Flaw::Damage(Damage::Line { path: self.path.to_owned(), line: expected, why });
        let line: Line = serde_json::from_slice(bytes).map_err(|e| damaged(format!("cannot be read: {e}")))?;
        // A rotated log does not start with line 1; its first line has the state before it.
        let starts_after_rotation = before.is_none() && matches!(line.event, Event::LogRotated { .. });
        if !starts_after_rotation {
            if line.prev != before.map_or_else(LineHash::none, |head| head.hash.clone()) {
                return Err(Flaw::Unchained { seq: expected });
            }
            if line.seq != expected {
                return Err(damaged(format!("has the number {}", line.seq)));
            }
        }
        let is_beginning = matches!(line.event, Event::LogBegun { .. } | Event::LogRotated { .. });
        if is_beginning != self.head.is_none() {
            return Err(damaged("is a first line, but not the first in its file, or the other way round".to_owned()));
        }
        if let Event::LogRotated { state, .. } = &line.event
            && self.follows.is_some()
            && **state != self.state
        {
            return Err(damaged("does not have the state that results from the lines before it".to_owned()));
        }
        if line.seq == u64::MAX {
            return Err(damaged("has the highest possible number: no line can follow".to_owned()));
        }
        let applied = self.state.apply(line.seq, &line.time, &line.event);
        applied.map_err(|e: FoldError| damaged(format!("is not allowed: {e}")))?;
        self.first_seq.get_or_insert(line.seq);
        self.head = Some(Head { seq: line.seq, start, end: start + bytes.len() as u64 + 1, hash });
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_fence_core::LOG_VERSION;
    use std::io::Write as _;

    fn line(seq: u64, event: Event, prev: LineHash) -> Vec<u8> {
        let time = "2026-01-01T00:00:00.000Z".to_owned();
        let mut bytes = serde_json::to_vec(&Line { seq, time, event, prev }).unwrap();
        bytes.push(b'\n');
        bytes
    }

    fn read(bytes: &[u8], start: Start) -> Result<Journal, Damage> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Journal::read(&file, Path::new("log"), start, None, |_| {})
    }

    #[test]
    fn line_with_the_highest_number_is_damaged() {
        let rotated = |seq| {
            let (file, pusher) = ("x".to_owned(), "anna".to_owned());
            let event = Event::LogRotated { version: LOG_VERSION, file, state: Box::default(), pusher };
            line(seq, event, LineHash::none())
        };
        assert!(read(&rotated(u64::MAX - 1), Start::Beginning).is_ok());
        assert!(matches!(read(&rotated(u64::MAX), Start::Beginning), Err(Damage::Line { .. })));
    }

    #[test]
    fn checkpoint_with_a_wrong_offset_is_not_used() {
        let event = Event::LogBegun { version: LOG_VERSION, pusher: "anna".to_owned() };
        let mut bytes = line(1, event, LineHash::none());
        let (end, hash) = (bytes.len() as u64, hash_line(bytes.trim_ascii_end()));
        bytes.extend(line(2, Event::LogRecovered { reason: String::new() }, hash.clone()));
        for (end, is_good) in [(end, true), (end - 1, false), (end + 1, false)] {
            let head = Head { seq: 1, start: 0, end, hash: hash.clone() };
            let checkpoint = Checkpoint::of(head, State::default());
            assert_eq!(read(&bytes, Start::Checkpoint(Box::new(checkpoint))).is_ok(), is_good, "{end}");
        }
    }
}
