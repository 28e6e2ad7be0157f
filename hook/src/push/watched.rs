//! The push that somebody waits for: since when, and what wakes who waits.

use crate::repository::{RefStorage, Repository};
use git_fence_core::{PlannedRef, PushId};
use git_fence_system::{
    process::ProcessHandle,
    watch::{FileWatch, Woken, wait_for_any},
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

/// A push that is waited for.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) push: PushId,
    since: Instant,
    /// Where git writes the ref that the push moves last. A hint only: where it cannot be watched, the refs are read again at
    /// intervals, as they are after each hint.
    last_ref: Option<FileWatch>,
}

impl Watched {
    /// Keeps watching if it is the same push; otherwise starts with this one.
    pub(crate) fn go_on(
        watched: Option<Watched>,
        push: PushId,
        plan: &[PlannedRef],
        repository: &Repository,
    ) -> Watched {
        watched.filter(|watched| watched.push == push).unwrap_or_else(|| Watched {
            push,
            since: Instant::now(),
            last_ref: plan.last().and_then(|planned| watch_on(planned, repository)),
        })
    }

    /// Which push, and for how long.
    pub(crate) fn for_how_long(&self) -> (PushId, Duration) {
        (self.push, self.since.elapsed())
    }

    /// Waits until the receive-pack exits, or the last ref was written, or `most` has passed.
    pub(crate) fn wait(&self, receive_pack: Option<&ProcessHandle>, most: Duration) -> Woken {
        wait_for_any(receive_pack, self.last_ref.as_ref(), most)
    }
}

/// Many users of one machine can only have so many watches: without one, it is waited for by the clock.
fn watch_on(planned: &PlannedRef, repository: &Repository) -> Option<FileWatch> {
    let written = match repository.ref_storage {
        RefStorage::Files => repository.common_dir.join(OsStr::from_bytes(planned.name.as_bytes())),
        RefStorage::Reftable => repository.common_dir.join("reftable/tables.list"),
    };
    FileWatch::on(&written).ok()
}
