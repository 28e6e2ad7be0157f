//! The log at installing: begun, or put right where only an interruption is to blame.

use crate::{
    commands::{
        failure::{self, CommandError},
        install::takeover::Raise,
    },
    host::{clock::Patience, surroundings::os_user},
    log::{
        files::FenceDir,
        history::{self, LiveLog},
        journal::Damage,
        store::{Durability, Store, StoreError},
    },
};
use git_fence_core::State;
use std::time::{Duration, Instant};

/// What the log was found to be.
#[derive(Debug)]
pub(crate) enum LogIs {
    /// Not begun yet.
    Missing(State),
    Whole(State),
    /// A torn last line or a damaged checkpoint.
    Interrupted(State),
    /// Nothing that can be mended from here: it stays as it is, and closed.
    Damaged(Damage, State),
}

impl LogIs {
    pub(crate) fn at(dir: &FenceDir) -> Result<LogIs, CommandError> {
        let boot = failure::here()?.boot;
        Ok(match read(dir, &boot) {
            Ok(whole) => whole,
            Err(Damage::NoLog(_)) => LogIs::Missing(State::default()),
            Err(damage) => LogIs::Damaged(damage, State::default()),
        })
    }

    pub(crate) fn state(&self) -> &State {
        match self {
            LogIs::Missing(state) | LogIs::Whole(state) | LogIs::Interrupted(state) | LogIs::Damaged(_, state) => state,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, LogIs::Whole(_))
    }

    pub(crate) fn word<'a>(&self, done: &'a str) -> &'a str {
        match self {
            LogIs::Missing(_) => done,
            LogIs::Whole(_) => "already there",
            LogIs::Interrupted(_) => "already there, put right",
            LogIs::Damaged(..) => "damaged, left as it is",
        }
    }
}

fn read(dir: &FenceDir, boot: &str) -> Result<LogIs, Damage> {
    let LiveLog { journal, checkpoint_is_damaged } = history::current(dir, boot)?;
    let is_interrupted = checkpoint_is_damaged || !journal.torn.is_empty();
    Ok(if is_interrupted { LogIs::Interrupted(journal.state) } else { LogIs::Whole(journal.state) })
}

/// Nobody who may only read may hold the lock. Opening it is enough for that, and needs no waiting for who does.
fn close_locks(dir: &FenceDir) -> Result<(), CommandError> {
    for path in [dir.mutex(), dir.writer()].into_iter().filter(|path| dir.has(path)) {
        dir.lock_file(&path).map_err(CommandError::io("open", path))?;
    }
    Ok(())
}

/// Begins the log or puts it right, and raises marks. Damage is handed back: it is no reason to leave
/// the repository without a hook.
pub(crate) fn begin_or_mend(dir: &FenceDir, log: LogIs, raises: Vec<Raise>) -> Result<Option<Damage>, CommandError> {
    let boot = failure::here()?.boot;
    let patience = Patience::of(Duration::from_secs(30), Instant::now());
    close_locks(dir)?;
    match log {
        LogIs::Damaged(damage, _) => return Ok(Some(damage)),
        LogIs::Whole(_) if raises.is_empty() => return Ok(None),
        LogIs::Missing(_) => Store::begin(dir, &os_user(), &boot, &patience)?,
        LogIs::Whole(_) | LogIs::Interrupted(_) => {}
    }
    let mut store = match Store::lock(dir, &boot, &patience) {
        Err(StoreError::Damage(damage)) => return Ok(Some(damage)),
        locked => locked?,
    };
    for raise in raises {
        if !raise.is_done(store.state()) {
            store.append(raise.on_record(os_user()))?;
        }
    }
    store.commit(Durability::Synced)?;
    Ok(None)
}
