//! Rotation: moves the lines so far to an archive.

use crate::{
    host::clock,
    log::{
        history,
        journal::Damage,
        mutex::Witness,
        store::{Durability, Store, StoreError, serialise},
    },
};
use git_fence_core::{Event, LOG_VERSION, Line};
use std::path::PathBuf;

impl Store {
    /// Moves all lines to an archive, continues in a new file, and releases the lock.
    ///
    /// At any time there is a complete log under the log's name. The checkpoint is removed first, because it refers to
    /// offsets in the file that is moved; without it, the log is read from its beginning.
    pub(crate) fn rotate(mut self, by: &str) -> Result<PathBuf, StoreError> {
        self.write_out(Durability::Synced)?;
        let (log, archive) = (self.dir.log(), self.dir.archive(self.head.seq));
        let name = archive.file_name().unwrap_or_default().display().to_string();
        let state = Box::new(self.state.clone());
        let rotated = Event::LogRotated { version: LOG_VERSION, file: name, state, pusher: by.to_owned() };
        let line = Line { seq: self.head.seq + 1, time: clock::now(), event: rotated, prev: self.head.hash.clone() };
        let bytes = serialise(&line);
        self.remove_if_there(self.dir.checkpoint())?;
        self.remove_leftovers()?;
        self.dir.link(&log, &archive).map_err(Damage::io("link", &archive))?;
        self.dir.replace(&log, &bytes, true).map_err(Damage::io("write", &log))?;
        self.dir.sync().map_err(Damage::io("sync", self.dir.path()))?;
        self.mutex.write_witness(&Witness::of_first_line(&self.boot, line.seq, &bytes));
        Ok(archive)
    }

    /// Removes the files of an interrupted rotation.
    pub(crate) fn remove_leftovers(&self) -> Result<(), StoreError> {
        for left in history::leftovers(&self.dir)? {
            self.remove_if_there(left)?;
        }
        Ok(())
    }

    fn remove_if_there(&self, path: PathBuf) -> Result<(), Damage> {
        self.dir.remove(&path).map_err(Damage::io("remove", path))
    }
}
