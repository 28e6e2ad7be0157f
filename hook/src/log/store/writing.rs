//! Writing the appended lines, and releasing the lock.

use crate::log::{
    checkpoint::{Checkpoint, Head},
    files::check_size_limit,
    journal::Damage,
    mutex::{Turn, Unwritten, Witness},
    store::{Durability, Store, StoreError},
};
use git_fence_core::{Evidence, InFlight, Line, Settlement};
use std::io::{self, Write as _};

/// A checkpoint is written when this much of the log is after the last one.
const CHECKPOINT_EVERY: u64 = 32 * 1024;

/// Only synced lines get into a checkpoint. If only refusals and heartbeats are written for this long, they are synced
/// once, or every reader would have to read all of them.
const UNSYNCED_AT_MOST: u64 = 8 * CHECKPOINT_EVERY;

impl Store {
    /// Writes the appended lines, releases the lock, and returns the written lines.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<Vec<Line>, StoreError> {
        let is_long = self.head.end - self.checkpointed > UNSYNCED_AT_MOST;
        self.write_out(if is_long { Durability::Synced } else { durability })?;
        let is_due = self.synced.0 == self.head.end && self.head.end - self.checkpointed > CHECKPOINT_EVERY;
        if is_due {
            self.write_checkpoint();
        }
        Ok(self.appended)
    }

    /// Writes the appended lines, announces a command that waits for a slot, and releases the lock.
    pub(crate) fn announce(mut self, turn: Turn) -> Result<(), StoreError> {
        self.left.turns.push(turn);
        self.write_out(Durability::Lazy)?;
        self.mutex.write_witness(&self.left);
        Ok(())
    }

    /// Settles a push on git's report and releases the lock. If the disk is full, the settlement is stored in the mutex,
    /// which needs no space, and the next holder of the lock writes it to the log.
    pub(crate) fn settle_or_defer(
        mut self,
        flight: &InFlight,
        settlement: Settlement,
        count: usize,
        evidence: Evidence,
    ) -> Result<Vec<Line>, StoreError> {
        let mut left = self.left.clone();
        left.unwritten.push(Unwritten { push: flight.push, count, settlement: settlement.clone() });
        self.settle(flight, settlement, count, evidence)?;
        match self.write_out(Durability::Lazy) {
            Ok(()) => self.commit(Durability::Lazy),
            Err(_) if self.mutex.write_witness(&left) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Writes the appended lines and the witness.
    pub(super) fn write_out(&mut self, durability: Durability) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // The line that makes a file unnecessary must be synced before the file is removed.
        let durability = if self.obsolete.is_empty() { durability } else { Durability::Synced };
        if let Err(damage) = self.write_pending(durability) {
            // The push will be refused, so no line may say otherwise. If even this fails, a torn line is moved to a separate
            // file, and an accepted push is settled as having moved nothing.
            let _ = self.log.set_len(self.written_end);
            return Err(damage.into());
        }
        let Head { seq, end, ref hash, .. } = self.head;
        if durability == Durability::Synced {
            self.synced = (end, seq);
        }
        let (synced, synced_seq) = self.synced;
        let boot = self.boot.clone();
        let turns = std::mem::take(&mut self.left.turns);
        self.left = Witness { boot, seq, end, hash: hash.clone(), synced, synced_seq, unwritten: Vec::new(), turns };
        self.mutex.write_witness(&self.left);
        self.pending.clear();
        self.written_end = end;
        for path in self.obsolete.drain(..) {
            let _ = self.dir.remove(&path);
        }
        Ok(())
    }

    fn write_pending(&mut self, durability: Durability) -> Result<(), Damage> {
        let path = self.dir.log();
        check_size_limit(self.head.end).map_err(Damage::io("append to", &path))?;
        if !self.torn.is_empty() {
            // Only now: a waiting push reads the log repeatedly, and writes nothing.
            let aside = self.torn_path();
            self.dir.replace(&aside, &self.torn, false).map_err(Damage::io("write", aside))?;
            self.log.set_len(self.written_end).map_err(Damage::io("truncate", &path))?;
            self.torn.clear();
        }
        // A single write, so that a line is either complete or torn at the end of the file.
        match (&self.log).write(&self.pending) {
            Ok(n) if n == self.pending.len() => {}
            Ok(_) => return Err(Damage::io("append to", path)(io::ErrorKind::StorageFull.into())),
            Err(e) => return Err(Damage::io("append to", path)(e)),
        }
        if durability == Durability::Synced {
            self.log.sync_data().map_err(Damage::io("sync", path))?;
        }
        Ok(())
    }

    /// Failure to write a checkpoint only costs the next push time.
    fn write_checkpoint(&self) {
        let checkpoint = Checkpoint::of(self.head.clone(), self.state.clone());
        if let Ok(bytes) = serde_json::to_vec(&checkpoint) {
            let _ = self.dir.replace(&self.dir.checkpoint(), &bytes, false);
        }
    }
}
