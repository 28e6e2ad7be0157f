//! The log under its lock: the fence itself.
//!
//! Calling order: [`Store::lock`], read [`Store::state`], [`Store::append`] events, and [`Store::commit`]. Nothing is
//! written before `commit`; dropping a store without it changes nothing. A push is accepted by
//! `commit(Durability::Synced)`: when that returns, the line survives a machine crash.
//!
//! The store decides nothing. It keeps the log and checks that it is intact.

mod plans;
mod rotation;
mod writing;

pub(crate) use plans::read_plan;

use crate::{
    host::clock::{self, WaitBudget},
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

/// Whether a commit must survive a machine crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Yes: a push is admitted because of it.
    Synced,
    /// No: losing a refusal changes nothing.
    Lazy,
}

/// What is trusted about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The log, its checkpoint, and the witness of its length.
    Everything,
    /// Only the log itself.
    LogOnly,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Locked(#[from] LockIsHeld),
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error("the list of refs of push {push}, '{}', is missing or damaged", path.display())]
    PlanLost { push: PushId, path: PathBuf },
}

/// The log and its state, under the lock.
#[must_use = "appended lines are written only by commit"]
pub(crate) struct Store {
    dir: FenceDir,
    boot: String,
    log: File,
    state: State,
    /// The last line, including appended ones.
    head: Head,
    /// The end of the last complete line in the file.
    written_end: u64,
    /// The bytes after it, from an interrupted append.
    torn: Vec<u8>,
    /// Appended lines that are not written yet.
    pending: Vec<u8>,
    /// All lines that this store has appended.
    appended: Vec<Line>,
    /// The end of the last checkpoint.
    checkpointed: u64,
    /// The byte and the line up to which the log is known to be synced.
    synced: (u64, u64),
    /// Files that are no longer needed once the appended lines are written.
    obsolete: Vec<PathBuf>,
    /// The witness of the last holder of the lock.
    left: Witness,
    // The last field, so that it is released after everything else.
    mutex: Mutex,
}

impl Store {
    /// Takes the lock and reads the log. `boot` is the kernel's boot id.
    pub(crate) fn lock(dir: &FenceDir, boot: &str, budget: &WaitBudget) -> Result<Store, StoreError> {
        Store::lock_with(dir, boot, budget, Trust::Everything)
    }

    /// The same, for an operator who has decided to keep the readable part of the log: the rest is moved to a separate
    /// file, and files that refer to more lines are ignored.
    pub(crate) fn adopt(dir: &FenceDir, boot: &str, budget: &WaitBudget) -> Result<Store, StoreError> {
        Store::lock_with(dir, boot, budget, Trust::LogOnly)
    }

    fn lock_with(dir: &FenceDir, boot: &str, budget: &WaitBudget, trust: Trust) -> Result<Store, StoreError> {
        let path = dir.log();
        if !dir.path().is_dir() {
            return Err(Damage::NoLog(path).into());
        }
        let mutex = Mutex::lock(dir, budget).map_err(locking)?;
        // Not before: the log may have been rotated by the previous holder, and the old file is then an archive.
        let log = open_log(dir)?;
        let (checkpoint, witness) = match trust {
            Trust::Everything => (CheckpointFile::read(dir)?, mutex.witness()),
            Trust::LogOnly => (CheckpointFile::Missing, Some(Witness::empty())),
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
            appended: Vec::new(),
            checkpointed,
            synced: witness.as_ref().map_or((checkpointed, 0), |witness| (witness.synced, witness.synced_seq)),
            obsolete: Vec::new(),
            left: witness.unwrap_or_else(Witness::empty),
            mutex,
        };
        if trust == Trust::LogOnly {
            store.obsolete.push(dir.checkpoint());
        }
        store.record_recovery(is_damaged)?;
        store.append_unwritten()?;
        Ok(store)
    }

    /// Git's reports that did not fit on the disk go before everything else.
    fn append_unwritten(&mut self) -> Result<(), StoreError> {
        for Unwritten { push, count, settlement } in self.left.unwritten.clone() {
            if let Some(flight) = self.state.flight(push).cloned() {
                self.settle(&flight, settlement, count, Evidence::Reported)?;
            }
        }
        Ok(())
    }

    /// Commands that wait for a slot and go before pushes.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.left.turns
    }

    /// Keeps only the turns for which `stay` is true. Others see this after the next write, or [`Store::announce`].
    pub(crate) fn keep_turns(&mut self, stay: impl FnMut(&Turn) -> bool) {
        self.left.turns.retain(stay);
    }

    /// Appends the settlement of a push in flight.
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
        self.discard_plan_of(flight);
        Ok(())
    }

    /// Creates the log. Under the mutex, so that only one of two first pushes creates it.
    pub(crate) fn begin(dir: &FenceDir, by: &str, boot: &str, budget: &WaitBudget) -> Result<(), StoreError> {
        dir.make().map_err(Damage::io("make", dir.path()))?;
        let mutex = Mutex::lock(dir, budget).map_err(locking)?;
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
        mutex.write_witness(&Witness::of_first_line(boot, 1, &bytes));
        Ok(())
    }

    /// The state of all fences, including appended events.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The id that a push gets if its acceptance is the next line.
    pub(crate) fn next_push(&self) -> PushId {
        PushId(self.head.seq + 1)
    }

    /// Appends an event and applies it to the state.
    pub(crate) fn append(&mut self, event: Event) -> Result<(), StoreError> {
        let line = Line { seq: self.head.seq + 1, time: clock::now(), event, prev: self.head.hash.clone() };
        self.state.apply(line.seq, &line.time, &line.event).map_err(|e| Damage::Line {
            path: self.dir.log(),
            line: line.seq,
            why: format!("would not be allowed: {e}"),
        })?;
        let bytes = serialise(&line);
        let start = self.head.end;
        self.head =
            Head { seq: line.seq, start, end: start + bytes.len() as u64, hash: hash_line(&bytes[..bytes.len() - 1]) };
        self.pending.extend(bytes);
        self.appended.push(line);
        Ok(())
    }

    /// The file for an interrupted append. It is the same as long as the lock is held.
    fn torn_path(&self) -> PathBuf {
        self.dir.free_name_for_torn(self.written_end)
    }

    /// An interrupted append was never acknowledged, and a checkpoint can be rebuilt. Both are repaired, and the repair is
    /// recorded.
    fn record_recovery(&mut self, checkpoint_is_damaged: bool) -> Result<(), StoreError> {
        if !self.torn.is_empty() {
            let name = self.torn_path().file_name().unwrap_or_default().display().to_string();
            let reason = format!("a torn last line of {} bytes was moved to '{name}'", self.torn.len());
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

/// Distinguishes a log that was never created from one that is lost.
pub(crate) fn missing_log(dir: &FenceDir) -> Damage {
    let has_archives = dir.archives().is_ok_and(|archives| !archives.is_empty());
    if has_archives || dir.has(&dir.checkpoint()) || Witness::read_unlocked(dir).is_some() {
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
    let mut bytes = serde_json::to_vec(line).expect("every line can be represented in JSON");
    bytes.push(b'\n');
    bytes
}

fn locking(error: LockError) -> StoreError {
    match error {
        LockError::Held(held) => held.into(),
        LockError::Io { path, source } => Damage::io("lock", path)(source).into(),
    }
}
