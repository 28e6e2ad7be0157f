//! Repairs the fence's own files: shows the problems and their repairs, and makes them with `--yes`.
//!
//! The next push itself repairs the results of an interruption (a torn line, a damaged checkpoint, a missing mutex). A
//! damaged or truncated log is different: only its operator can decide, with a reason, that the rest of it is valid. The
//! repair is recorded, and newer tokens may be lost.

use crate::{
    commands::operator::{Operator, reason_given},
    failure::CommandError,
    host::surroundings::Environment,
    log::{
        directory::For,
        files::FenceDir,
        history,
        journal::{Damage, Journal, Start},
        mutex::Witness,
        store::{Durability, Store},
    },
};
use git_fence_core::{Event, Line, State};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Something that can be repaired.
enum Repairable {
    /// The next process that takes the lock creates it.
    NoMutex,
    /// Rebuilt from the log.
    DamagedCheckpoint,
    /// Moved to a separate file.
    TornLine(usize),
    /// The ref list of a push that is settled.
    LeftoverPlan(PathBuf),
    /// A file from an interrupted rotation.
    LeftoverArchive(PathBuf),
    /// Damage in lines before the checkpoint, which no push reads. They are moved to an archive.
    DamagedBefore(Damage),
    /// A log that cannot be trusted: its readable part is kept.
    Damaged(Damage),
}

impl Repairable {
    fn describe(&self) -> String {
        match self {
            Repairable::NoMutex => "the mutex is missing: it will be created".to_owned(),
            Repairable::DamagedCheckpoint => "the checkpoint is damaged: it will be rebuilt from the log".to_owned(),
            Repairable::TornLine(bytes) => {
                format!(
                    "the last line is torn ({bytes} bytes): it was never acknowledged and will be moved to a separate file"
                )
            }
            Repairable::LeftoverPlan(path) => {
                format!("'{}' belongs to no push in flight: it will be removed", path.display())
            }
            Repairable::LeftoverArchive(path) => format!(
                "'{}' was left by an interrupted rotation, and its lines are also in the next file: it will be removed",
                path.display()
            ),
            Repairable::DamagedBefore(damage) => format!(
                "{damage}: the checkpoint is past that line, so the marks are correct. \
                 The lines so far will be moved unchanged to an archive file"
            ),
            Repairable::Damaged(damage) => format!(
                "{damage}: the log will be kept up to its last good line, and the rest moved to a separate file. \
                 Newer lines are lost: marks may be lower than before"
            ),
        }
    }
}

/// `git-fence-hook repair`.
pub(crate) fn run(dir: &Path, yes: bool, reason: Option<&str>, environment: &Environment) -> Result<(), CommandError> {
    let operator = Operator::at(dir, environment)?;
    let dir = operator.fence_dir();
    let findings = find_problems(&dir, &operator.here.boot)?;
    let mut out = io::stdout().lock();
    for finding in &findings {
        writeln!(out, "{}", finding.describe())?;
    }
    if findings.is_empty() {
        writeln!(out, "nothing to repair")?;
        return Ok(());
    }
    if !yes {
        return Err(CommandError::Other {
            what: "nothing was changed".to_owned(),
            hint: "to make the changes:  git-fence-hook repair --yes  (for a damaged log, add  --reason)".to_owned(),
        });
    }
    let damage = findings.iter().find(|it| matches!(it, Repairable::Damaged(_) | Repairable::DamagedBefore(_)));
    match damage {
        Some(Repairable::Damaged(damage)) => adopt(&operator, damage, reason.unwrap_or_default())?,
        Some(Repairable::DamagedBefore(damage)) => rotate_away(&operator, damage, reason.unwrap_or_default())?,
        _ => drop(operator.lock()?.commit(Durability::Synced)?),
    }
    if findings.iter().any(|finding| matches!(finding, Repairable::LeftoverArchive(_))) {
        operator.lock()?.remove_leftovers()?;
    }
    for finding in &findings {
        if let Repairable::LeftoverPlan(path) = finding {
            dir.remove(path).map_err(CommandError::io("remove", path))?;
        }
    }
    writeln!(out, "done")?;
    Ok(())
}

/// Keeps the readable part of the log.
fn adopt(operator: &Operator, damage: &Damage, reason: &str) -> Result<(), CommandError> {
    let reason = reason_given(reason)?;
    if let Damage::Line { line, .. } = damage {
        set_aside_from(*line, &operator.fence_dir())?;
    }
    let store = Store::adopt(&operator.fence_dir(), &operator.here.boot, &Operator::budget())?;
    let repaired = Event::LogRepaired { found: damage.to_string(), reason, pusher: operator.name.clone() };
    operator.commit(store, repaired)
}

/// Continues in a new file, from the state of the checkpoint and the lines after it.
fn rotate_away(operator: &Operator, damage: &Damage, reason: &str) -> Result<(), CommandError> {
    let reason = reason_given(reason)?;
    let mut store = operator.lock()?;
    store.append(Event::LogRepaired { found: damage.to_string(), reason, pusher: operator.name.clone() })?;
    store.rotate(&operator.name)?;
    Ok(())
}

/// Moves the log from line `seq` on to a separate file: those lines are not as they were written. No other process
/// writes meanwhile, because every push is refused while the log is damaged.
fn set_aside_from(seq: u64, dir: &FenceDir) -> Result<(), CommandError> {
    let log = dir.log();
    let bytes = dir.read(&log).map_err(CommandError::io("read", &log))?;
    let mut start = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let is_it = serde_json::from_slice::<Line>(line).is_ok_and(|line| line.seq == seq);
        if is_it && start > 0 {
            let aside = dir.free_name_for_torn(start as u64);
            dir.replace(&aside, &bytes[start..], true).map_err(CommandError::io("write", &aside))?;
            let file = dir.open(&log, For::Writing).map_err(CommandError::io("open", &log))?;
            return file.set_len(start as u64).map_err(CommandError::io("truncate", &log));
        }
        start += line.len();
    }
    Ok(())
}

/// The problems that can be repaired; changes nothing.
fn find_problems(dir: &FenceDir, boot: &str) -> Result<Vec<Repairable>, CommandError> {
    let mut findings = Vec::new();
    if !dir.has(&dir.mutex()) {
        findings.push(Repairable::NoMutex);
    }
    let witness = Witness::read_unlocked(dir);
    let witness = witness.as_ref().map(|witness| (witness, boot));
    // Read as a push does, and then completely: damage that no push notices is repaired too.
    let seen_by_push = history::current(dir, boot);
    let is_seen = seen_by_push.is_err();
    let read = seen_by_push.and_then(|current| {
        if current.checkpoint_is_damaged {
            findings.push(Repairable::DamagedCheckpoint);
        }
        Journal::read(&history::open(dir)?, &dir.log(), Start::Beginning, witness, |_| {})
    });
    findings.extend(history::leftovers(dir).unwrap_or_default().into_iter().map(Repairable::LeftoverArchive));
    match read {
        Ok(journal) => {
            if !journal.torn.is_empty() {
                findings.push(Repairable::TornLine(journal.torn.len()));
            }
            findings.extend(leftover_plans(dir, &journal.state)?.into_iter().map(Repairable::LeftoverPlan));
        }
        Err(damage @ Damage::Line { .. }) if !is_seen => findings.push(Repairable::DamagedBefore(damage)),
        Err(damage @ (Damage::Line { .. } | Damage::Cut { .. })) => findings.push(Repairable::Damaged(damage)),
        Err(other) => return Err(other.into()),
    }
    Ok(findings)
}

fn leftover_plans(dir: &FenceDir, state: &State) -> Result<Vec<PathBuf>, CommandError> {
    let needed: Vec<PathBuf> = state.in_flight.iter().map(|flight| dir.plan_of(flight.push)).collect();
    let names = dir.names().map_err(CommandError::io("list", dir.path()))?;
    let paths = names.iter().map(|name| dir.path().join(name));
    let is_plan =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with("plan-"));
    Ok(paths.filter(|path| is_plan(path) && !needed.contains(path)).collect())
}
