//! Showing the log, and checking it.

use crate::{
    checkpoint::CheckpointFile,
    failure::Failure,
    files::FenceDir,
    history,
    journal::{Damage, Journal, Start},
    process,
    repository::Repository,
    surroundings::Environment,
};
use git_fence_core::{Event, Line, Refused, Stake, Token};
use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

/// `git-fence-hook audit`: every line, as the log has it or as a table.
pub(crate) fn run(dir: &Path, json: bool, environment: &Environment) -> Result<(), Failure> {
    let repository = Repository::find(dir, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    let here = process::here().map_err(Failure::io("read", "/proc"))?;
    let read = history::read(&dir, &here.boot, |read| {
        if written.is_ok() {
            written = if json {
                out.write_all(read.bytes).and_then(|()| out.write_all(b"\n"))
            } else {
                writeln!(out, "{}", row(read.line))
            };
        }
    });
    // What could be read is shown, also where the log is damaged further on.
    written.and_then(|()| out.flush())?;
    read?;
    Ok(())
}

/// `git-fence-hook audit verify`: says what is wrong, or how much is right.
pub(crate) fn verify(dir: &Path, environment: &Environment) -> Result<(), Failure> {
    let repository = Repository::find(dir, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let path = dir.log();
    let here = process::here().map_err(Failure::io("read", "/proc"))?;
    let checkpoint = CheckpointFile::read(&dir)?;
    let journal = history::read(&dir, &here.boot, |_| {})?;
    match checkpoint {
        CheckpointFile::Missing => {}
        CheckpointFile::Damaged => return Err(Damage::Checkpoint(dir.checkpoint()).into()),
        // From the checkpoint on, the log must add up to the same as from its beginning on.
        CheckpointFile::Good(checkpoint) => {
            let start = Start::Checkpoint(Box::new(checkpoint));
            let resumed = Journal::read(&history::open(&dir)?, &path, start, None, |_| {})?;
            if resumed.head.seq == journal.head.seq && resumed.state != journal.state {
                return Err(Damage::Checkpoint(dir.checkpoint()).into());
            }
        }
    }
    let mut out = io::stdout().lock();
    let lines = if journal.head.seq == 1 { "line" } else { "lines" };
    writeln!(out, "{} {lines}, all as they were written; the last is {}", journal.head.seq, journal.head.hash)?;
    if journal.torn.is_empty() { Ok(()) } else { Err(Damage::Torn { path, line: journal.head.seq + 1 }.into()) }
}

/// One line of the table: when, what, which token, who, and why.
fn row(line: &Line) -> String {
    let Line { seq, time, event, .. } = line;
    let row = |what: &str, token: Option<Token>, who: &str, detail: String| {
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        format!("{seq:>6}  {time}  {what:<10}  {token:>6}  {who:<12}  {detail}").trim_end().to_owned()
    };
    match event {
        Event::LogBegun { pusher, .. } => row("begun", None, pusher, String::new()),
        Event::LogRecovered { reason } => row("recovered", None, "-", reason.clone()),
        Event::LogRotated { file, pusher, .. } => row("rotated", None, pusher, format!("lines before are in '{file}'")),
        Event::LogRepaired { found, reason, pusher } => row("repaired", None, pusher, format!("{found}: {reason}")),
        Event::MarkLowered { fence, from, mark, reason, pusher } => {
            row("lowered", None, pusher, format!("{fence}  mark {from} to {mark}: {reason}"))
        }
        Event::SettingsChanged { settings } => row("settings", None, "-", modes(settings)),
        Event::PushAccepted { stake, also, who, plan, code, .. } => {
            let refs: Vec<String> = plan.refs.iter().take(3).map(|planned| planned.name.to_string()).collect();
            let more = if plan.count > 3 { format!(" and {} more", plan.count - 3) } else { String::new() };
            let would = code.map_or(String::new(), |code| format!("  (would be {code})"));
            row(
                "accepted",
                stake.token,
                &who.pusher,
                format!("{}  {}{more}{would}", fences(stake, also), refs.join(" ")),
            )
        }
        Event::PushRejected(Refused { code, reason, token, who, .. }) => {
            row("rejected", *token, &who.pusher, format!("{code} {reason}"))
        }
        Event::PushObserved(Refused { code, reason, token, who, .. }) => {
            row("observed", *token, &who.pusher, format!("(would be {code}) {reason}"))
        }
        Event::PushSettled { push, stake, also, moved, count, .. } => {
            let detail =
                format!("{}  push {push}: {moved} of {count} refs moved, mark {}", fences(stake, also), stake.mark);
            row("settled", stake.token, "-", detail)
        }
        Event::MarkRaised { fence, mark, reason, pusher } => {
            row("raised", None, pusher, format!("{fence}  mark at least {mark}: {reason}"))
        }
        Event::PushEvicted { push, reason, who } => row("evicted", None, &who.pusher, format!("push {push}: {reason}")),
    }
}

/// The fences of a push; where there are several, each with its token.
fn fences(stake: &Stake, also: &[Stake]) -> String {
    if also.is_empty() {
        return stake.fence.to_string();
    }
    let named = |stake: &Stake| match stake.token {
        Some(token) => format!("{}:{token}", stake.fence),
        None => stake.fence.to_string(),
    };
    std::iter::once(stake).chain(also).map(named).collect::<Vec<_>>().join(" + ")
}

/// What settings say in a word: each fence and its mode.
fn modes(settings: &serde_json::Value) -> String {
    let fences = settings["fences"].as_array().into_iter().flatten();
    let mode = |fence: &serde_json::Value| {
        let does = match fence["mode"].as_str()? {
            "enforce" => "enforces",
            "observe" => "observes",
            _ => "is off",
        };
        Some(format!("{} {does}", fence["fence"].as_str()?))
    };
    let modes: Vec<String> = fences.filter_map(mode).collect();
    format!("changed: {}", modes.join(", "))
}
