//! Writing what was appended, and letting the lock go.

use crate::log::{
    checkpoint::{Checkpoint, Head},
    files::room_for,
    journal::Damage,
    mutex::{Turn, Unwritten, Witness},
    store::{Durability, Store, StoreError},
};
use git_fence_core::{Evidence, InFlight, Line, Settlement};
use std::io::{self, Write as _};

/// A checkpoint is written when this much of the log is not in one.
const CHECKPOINT_EVERY: u64 = 32 * 1024;

/// Only synced lines get into a checkpoint. Where nothing but refusals and heartbeats is written for so long,
/// they are synced once, or everybody would have to read all of them every time.
const LAZY_AT_MOST: u64 = 8 * CHECKPOINT_EVERY;

impl Store {
    /// Writes what was appended, lets the lock go, and gives the lines that were written.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<Vec<Line>, StoreError> {
        let is_long = self.head.end - self.checkpointed > LAZY_AT_MOST;
        self.write_out(if is_long { Durability::Synced } else { durability })?;
        let is_due = self.synced.0 == self.head.end && self.head.end - self.checkpointed > CHECKPOINT_EVERY;
        if is_due {
            self.write_checkpoint();
        }
        Ok(self.said)
    }

    /// Writes what was appended, lets it be known that somebody waits for a slot, and lets the lock go.
    pub(crate) fn announce(mut self, turn: Turn) -> Result<(), StoreError> {
        self.left.turns.push(turn);
        self.write_out(Durability::Lazy)?;
        self.mutex.leave(&self.left);
        Ok(())
    }

    /// Settles a push on git's word and lets the lock go. Where there is no room left in the log, word of it is left
    /// with the lock, which needs none, and the next holder writes it down.
    pub(crate) fn settle_or_leave_word(
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
            Err(_) if self.mutex.leave(&left) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Writes what was appended, and leaves word of it.
    pub(super) fn write_out(&mut self, durability: Durability) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // What makes a file needless must be there to stay before the file goes.
        let durability = if self.obsolete.is_empty() { durability } else { Durability::Synced };
        if let Err(damage) = self.write_pending(durability) {
            // Whoever was to be let through is refused: no line may say otherwise. If even this
            // fails, a torn line is set aside and an accepted one settled as moving nothing.
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
        self.mutex.leave(&self.left);
        self.pending.clear();
        self.written_end = end;
        for path in self.obsolete.drain(..) {
            let _ = self.dir.remove(&path);
        }
        Ok(())
    }

    fn write_pending(&mut self, durability: Durability) -> Result<(), Damage> {
        let path = self.dir.log();
        room_for(self.head.end).map_err(Damage::io("append to", &path))?;
        if !self.torn.is_empty() {
            // Only now: whoever waits for its turn reads the log again and again, and writes nothing.
            let aside = self.aside();
            self.dir.replace(&aside, &self.torn, false).map_err(Damage::io("write", aside))?;
            self.log.set_len(self.written_end).map_err(Damage::io("truncate", &path))?;
            self.torn.clear();
        }
        // One write, so that a line is either whole or torn at the very end.
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

    /// Failing to write a checkpoint costs the next push time and nothing else.
    fn write_checkpoint(&self) {
        let checkpoint = Checkpoint::of(self.head.clone(), self.state.clone());
        if let Ok(bytes) = serde_json::to_vec(&checkpoint) {
            let _ = self.dir.replace(&self.dir.checkpoint(), &bytes, false);
        }
    }
}
