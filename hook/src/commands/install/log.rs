//! The log during installation: created, or repaired if something was interrupted.

use crate::{
    commands::install::takeover::Raise,
    failure::{self, CommandError},
    host::{clock::WaitBudget, surroundings::os_user},
    log::{
        files::FenceDir,
        history::{self, LiveLog},
        journal::Damage,
        store::{Durability, Store, StoreError},
    },
};
use git_fence_core::{Event, MarkLine, State};
use std::time::{Duration, Instant};

/// The condition of the log.
#[derive(Debug)]
pub(crate) enum LogCondition {
    /// Not created yet.
    Missing(State),
    Whole(State),
    /// A torn last line or a damaged checkpoint.
    Interrupted(State),
    /// Damage that cannot be repaired here: the log stays as it is, and pushes are refused.
    Damaged(Damage, State),
}

impl LogCondition {
    pub(crate) fn at(dir: &FenceDir) -> Result<LogCondition, CommandError> {
        let boot = failure::here()?.boot;
        Ok(match read(dir, &boot) {
            Ok(whole) => whole,
            Err(Damage::NoLog(_)) => LogCondition::Missing(State::default()),
            Err(damage) => LogCondition::Damaged(damage, State::default()),
        })
    }

    pub(crate) fn state(&self) -> &State {
        match self {
            LogCondition::Missing(state)
            | LogCondition::Whole(state)
            | LogCondition::Interrupted(state)
            | LogCondition::Damaged(_, state) => state,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, LogCondition::Whole(_))
    }

    pub(crate) fn word<'a>(&self, done: &'a str) -> &'a str {
        match self {
            LogCondition::Missing(_) => done,
            LogCondition::Whole(_) => "already there",
            LogCondition::Interrupted(_) => "already there, repaired",
            LogCondition::Damaged(..) => "damaged, not changed",
        }
    }
}

fn read(dir: &FenceDir, boot: &str) -> Result<LogCondition, Damage> {
    let LiveLog { journal, checkpoint_is_damaged } = history::current(dir, boot)?;
    let is_interrupted = checkpoint_is_damaged || !journal.torn.is_empty();
    Ok(if is_interrupted { LogCondition::Interrupted(journal.state) } else { LogCondition::Whole(journal.state) })
}

/// Readers must not be able to take the lock. Opening the lock files restricts them, without waiting for the lock.
fn close_locks(dir: &FenceDir) -> Result<(), CommandError> {
    for path in [dir.mutex(), dir.writer()].into_iter().filter(|path| dir.has(path)) {
        dir.lock_file(&path).map_err(CommandError::io("open", path))?;
    }
    Ok(())
}

/// Creates or repairs the log, and raises marks. Damage is returned, not an error: it is no reason to leave the
/// repository without a hook.
pub(crate) fn create_or_repair(
    dir: &FenceDir,
    log: LogCondition,
    raises: Vec<Raise>,
    marks: Vec<MarkLine>,
) -> Result<Option<Damage>, CommandError> {
    let boot = failure::here()?.boot;
    let budget = WaitBudget::of(Duration::from_secs(30), Instant::now());
    close_locks(dir)?;
    match log {
        LogCondition::Damaged(damage, _) => return Ok(Some(damage)),
        LogCondition::Whole(_) if raises.is_empty() && marks.is_empty() => return Ok(None),
        LogCondition::Missing(_) => Store::begin(dir, &os_user(), &boot, &budget)?,
        LogCondition::Whole(_) | LogCondition::Interrupted(_) => {}
    }
    let mut store = match Store::lock(dir, &boot, &budget) {
        Err(StoreError::Damage(damage)) => return Ok(Some(damage)),
        locked => locked?,
    };
    for raise in raises {
        if !raise.is_done(store.state()) {
            store.append(raise.on_record(os_user()))?;
        }
    }
    for MarkLine { fence, at, pusher, .. } in marks {
        // A push may have come first.
        if let Some(line) = store.state().mark_found(&fence, at, &pusher) {
            store.append(Event::MarkFound(line))?;
        }
    }
    store.commit(Durability::Synced)?;
    Ok(None)
}
