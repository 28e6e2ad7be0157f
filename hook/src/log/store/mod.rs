//! The log, held under the lock: the fence itself.
//!
//! Calling order: [`Store::lock`], look at [`Store::state`], [`Store::append`] what happened, and
//! [`Store::commit`]. Nothing is written before `commit`; whoever drops a store without it leaves
//! everything as it was. Accepting a push is `commit(Durability::Synced)`: when that returns, the
//! line will survive the machine.
//!
//! What this does not do: decide. It keeps the record and proves that it is unbroken.

mod plans;
mod rotation;
mod writing;

pub(crate) use plans::read_plan;

use crate::{
    host::clock::{self, Patience},
    log::{
        checkpoint::{CheckpointFile, Head},
        directory::For,
        files::FenceDir,
        journal::{Damage, Journal, Start},
        mutex::{LockError, LockIsHeld, Mutex, Turn, Unwritten, Witness},
    },
};
use git_fence_core::{Event, Evidence, InFlight, LOG_VERSION, Line, LineHash, PushId, Settlement, State, hash_line};
use std::{fs::File, io, path::PathBuf};

/// Whether a commit must survive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It must: a push is let through on the strength of it.
    Synced,
    /// It need not: a refusal that is lost moves nothing.
    Lazy,
}

/// What is believed about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    /// The log, its checkpoint, and the witness to its length.
    InAllThatSpeaksOfIt,
    /// Only what can be read in the log itself.
    InTheLogAlone,
}

/// Why the store cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Locked(#[from] LockIsHeld),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error("the list of refs of push {push}, '{}', is missing or damaged", path.display())]
    PlanLost { push: PushId, path: PathBuf },
}

/// The log and what it says, under the lock.
#[must_use = "what was appended is only written by commit"]
pub(crate) struct Store {
    dir: FenceDir,
    boot: String,
    log: File,
    state: State,
    /// The last line, appended ones included.
    head: Head,
    /// Where the file's last whole line ends.
    written_end: u64,
    /// Bytes after it, of an interrupted append.
    torn: Vec<u8>,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// What they say, and what was written before by the same hand.
    said: Vec<Line>,
    /// The end of the last checkpoint.
    checkpointed: u64,
    /// Up to which byte and which line the log is known to be synced.
    synced: (u64, u64),
    /// Files that are not needed any more once what was appended is written.
    obsolete: Vec<PathBuf>,
    /// What the last holder of the lock left.
    left: Witness,
    // Last, so that it is let go after everything else.
    mutex: Mutex,
}

impl Store {
    /// Takes the lock and reads the log. `boot` is the kernel's boot id.
    pub(crate) fn lock(dir: &FenceDir, boot: &str, patience: &Patience) -> Result<Store, StoreError> {
        Store::lock_with(dir, boot, patience, Belief::InAllThatSpeaksOfIt)
    }

    /// The same, for an operator who has declared the log to be the log as far as it can be read:
    /// what cannot is set aside, and nothing that speaks of more lines is believed.
    pub(crate) fn adopt(dir: &FenceDir, boot: &str, patience: &Patience) -> Result<Store, StoreError> {
        Store::lock_with(dir, boot, patience, Belief::InTheLogAlone)
    }

    fn lock_with(dir: &FenceDir, boot: &str, patience: &Patience, belief: Belief) -> Result<Store, StoreError> {
        let path = dir.log();
        if !dir.path().is_dir() {
            return Err(Damage::NoLog(path).into());
        }
        let mutex = Mutex::lock(dir, patience).map_err(locking)?;
        // Not before: whoever held the lock may have rotated, and what was the log is then an archive.
        let log = open_log(dir)?;
        let (checkpoint, witness) = match belief {
            Belief::InAllThatSpeaksOfIt => (CheckpointFile::read(dir)?, mutex.witness()),
            Belief::InTheLogAlone => (CheckpointFile::Missing, Some(Witness::of_nothing())),
        };
        let is_damaged = matches!(checkpoint, CheckpointFile::Damaged);
        let (start, checkpointed) = match checkpoint {
            CheckpointFile::Good(checkpoint) => {
                let end = checkpoint.head.end;
                (Start::Checkpoint(checkpoint), end)
            }
            CheckpointFile::Missing | CheckpointFile::Damaged => (Start::Beginning, 0),
        };
        let journal = Journal::read(&log, &path, start, witness.as_ref().map(|it| (it, boot)), |_| {})?;
        let mut store = Store {
            dir: dir.clone(),
            boot: boot.to_owned(),
            log,
            state: journal.state,
            written_end: journal.head.end,
            head: journal.head,
            torn: journal.torn,
            pending: Vec::new(),
            said: Vec::new(),
            checkpointed,
            synced: witness.as_ref().map_or((checkpointed, 0), |witness| (witness.synced, witness.synced_seq)),
            obsolete: Vec::new(),
            left: witness.unwrap_or_else(Witness::of_nothing),
            mutex,
        };
        if belief == Belief::InTheLogAlone {
            store.obsolete.push(dir.checkpoint());
        }
        store.record_recovery(is_damaged)?;
        store.write_what_was_left()?;
        Ok(store)
    }

    /// What git said of pushes when there was no room for it goes before everything else.
    fn write_what_was_left(&mut self) -> Result<(), StoreError> {
        for Unwritten { push, count, settlement } in self.left.unwritten.clone() {
            if let Some(flight) = self.state.flight(push).cloned() {
                self.settle(&flight, settlement, count, Evidence::Reported)?;
            }
        }
        Ok(())
    }

    /// Who waits for a slot and goes before pushes.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.left.turns
    }

    /// Lets those turns stand that `stay`. Known to others with the next line that is written, or by [`Store::announce`].
    pub(crate) fn keep_turns(&mut self, stay: impl FnMut(&Turn) -> bool) {
        self.left.turns.retain(stay);
    }

    /// Appends what became of a push in flight.
    pub(crate) fn settle(
        &mut self,
        flight: &InFlight,
        settlement: Settlement,
        count: usize,
        evidence: Evidence,
    ) -> Result<(), StoreError> {
        for event in settlement.on_record(flight, &self.state, count, evidence) {
            self.append(event)?;
        }
        self.forget_plan_of(flight);
        Ok(())
    }

    /// Begins the log. Under the mutex: of two first pushes one begins it.
    pub(crate) fn begin(dir: &FenceDir, by: &str, boot: &str, patience: &Patience) -> Result<(), StoreError> {
        dir.make().map_err(Damage::io("make", dir.path()))?;
        let mutex = Mutex::lock(dir, patience).map_err(locking)?;
        let path = dir.log();
        if dir.has(&path) {
            return Ok(());
        }
        if let lost @ Damage::LostLog(_) = missing_log(dir) {
            return Err(lost.into());
        }
        let begun = Event::LogBegun { version: LOG_VERSION, pusher: by.to_owned() };
        let line = Line { seq: 1, time: clock::now(), event: begun, prev: LineHash::none() };
        let bytes = serialise(&line);
        dir.replace(&path, &bytes, true).map_err(Damage::io("write", &path))?;
        dir.sync().map_err(Damage::io("sync", dir.path()))?;
        mutex.leave(&Witness::of_first_line(boot, 1, &bytes));
        Ok(())
    }

    /// Where all fences stand, appended events included.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The id that a push gets if its acceptance is the next line.
    pub(crate) fn next_push(&self) -> PushId {
        PushId(self.head.seq + 1)
    }

    /// Adds what happened to the log and takes it into account.
    pub(crate) fn append(&mut self, event: Event) -> Result<(), StoreError> {
        let line = Line { seq: self.head.seq + 1, time: clock::now(), event, prev: self.head.hash.clone() };
        self.state.apply(line.seq, &line.time, &line.event).map_err(|e| Damage::Line {
            path: self.dir.log(),
            line: line.seq,
            why: format!("would be refused: {e}"),
        })?;
        let bytes = serialise(&line);
        let start = self.head.end;
        self.head =
            Head { seq: line.seq, start, end: start + bytes.len() as u64, hash: hash_line(&bytes[..bytes.len() - 1]) };
        self.pending.extend(bytes);
        self.said.push(line);
        Ok(())
    }

    /// Where an interrupted append goes. The same under one lock, which is held.
    fn aside(&self) -> PathBuf {
        self.dir.free_name_for_torn(self.written_end)
    }

    /// An interrupted append was never acknowledged, and a checkpoint can be made again. Both are
    /// put right, and on record.
    fn record_recovery(&mut self, checkpoint_is_damaged: bool) -> Result<(), StoreError> {
        if !self.torn.is_empty() {
            let name = self.aside().file_name().unwrap_or_default().display().to_string();
            let reason = format!("a torn last line of {} bytes was set aside in '{name}'", self.torn.len());
            self.append(Event::LogRecovered { reason })?;
        }
        if checkpoint_is_damaged {
            let reason = "the damaged checkpoint 'state.json' was rebuilt from the log".to_owned();
            self.append(Event::LogRecovered { reason })?;
            self.obsolete.push(self.dir.checkpoint());
        }
        Ok(())
    }
}

/// A log that was never begun, or one that was and is gone.
pub(crate) fn missing_log(dir: &FenceDir) -> Damage {
    let has_archives = dir.archives().is_ok_and(|archives| !archives.is_empty());
    if has_archives || dir.has(&dir.checkpoint()) || Witness::look_up(dir).is_some() {
        Damage::LostLog(dir.log())
    } else {
        Damage::NoLog(dir.log())
    }
}

fn open_log(dir: &FenceDir) -> Result<File, StoreError> {
    dir.open(&dir.log(), For::Appending).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing_log(dir).into(),
        _ => Damage::io("open", dir.log())(e).into(),
    })
}

fn serialise(line: &Line) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("a line has no value that JSON lacks");
    bytes.push(b'\n');
    bytes
}

fn locking(error: LockError) -> StoreError {
    match error {
        LockError::Held(held) => held.into(),
        LockError::Io { path, source } => Damage::io("lock", path)(source).into(),
    }
}
