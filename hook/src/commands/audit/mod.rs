//! `audit`: showing the log, and checking it. It writes nothing.

pub(crate) mod csv;
pub(crate) mod moment;
pub(crate) mod select;
pub(crate) mod table;

use crate::{
    commands::{
        audit::{
            select::{AuditArgs, AuditForm},
            table::Row,
        },
        failure::{self, CommandError},
        operator::tokens,
    },
    host::{surroundings::Environment, terminal},
    log::{
        checkpoint::CheckpointFile,
        directory::For,
        files::FenceDir,
        history::{self, Tail},
        journal::{Damage, Journal, ReadLine, Start},
    },
    repository::Repository,
};
use git_fence_core::{Event, Filter, Heir, Lease, LeaseLine, Line, Place, Refused, Renewed, Stake, text};
use git_fence_system::descriptor;
use std::{
    io::{self, BufWriter, Write},
    path::Path,
    time::Duration,
};

/// How often somebody who follows the log looks for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `git-fence-hook audit`: the lines that are asked for, in the form that is asked for.
pub(crate) fn run(args: &AuditArgs, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(&args.repository, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let mut show = Show::to_stdout(args.form(), args.filter());
    let read = Tail::read(&dir, &here.boot, |read| show.line(&read));
    // What could be read is shown, also where the log is damaged further on.
    show.flush()?;
    let tail = read?;
    if args.follow { follow(tail, &dir, &mut show) } else { Ok(()) }
}

/// Goes on showing lines as they come, for as long as somebody reads.
fn follow(mut tail: Tail, dir: &FenceDir, show: &mut Show) -> Result<(), CommandError> {
    loop {
        wait_for_lines()?;
        let read = tail.read_on(dir, |read| show.line(&read));
        show.flush()?;
        tail = read?;
    }
}

/// Lets a moment pass, unless whoever reads the output leaves: nothing needs to be written to see that.
fn wait_for_lines() -> Result<(), CommandError> {
    match descriptor::is_closed_within(io::stdout(), LOOK_EVERY) {
        Ok(false) => Ok(()),
        Ok(true) => Err(CommandError::ReaderGone),
        Err(e) => Err(CommandError::io("watch", "standard output")(e)),
    }
}

/// Shows lines on standard output, until that fails.
struct Show {
    form: AuditForm,
    filter: Filter,
    width: Option<usize>,
    out: BufWriter<io::StdoutLock<'static>>,
    written: io::Result<()>,
}

impl Show {
    fn to_stdout(form: AuditForm, filter: Filter) -> Show {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = if form == AuditForm::Csv { csv::header(&mut out) } else { Ok(()) };
        Show { form, filter, width: terminal::width(io::stdout()), out, written }
    }

    fn line(&mut self, read: &ReadLine<'_>) {
        if self.written.is_err() || !self.filter.matches(read.line) {
            return;
        }
        self.written = match self.form {
            AuditForm::Json => self.out.write_all(read.bytes).and_then(|()| self.out.write_all(b"\n")),
            AuditForm::Csv => csv::row(read.bytes, &mut self.out),
            AuditForm::Table => writeln!(self.out, "{}", row(read.line).show(self.width)),
        };
    }

    /// Shows what is there so far; says here if showing has failed.
    fn flush(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))?;
        // It may have been resized since.
        self.width = terminal::width(io::stdout());
        self.out.flush()
    }
}

/// `git-fence-hook audit verify`: says what is wrong, or how much is right.
pub(crate) fn verify(dir: &Path, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(dir, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let journal = check(&dir, &here)?;
    if let Err(e) = dir.open(&dir.mutex(), For::Reading)
        && e.kind() == io::ErrorKind::PermissionDenied
    {
        let path = dir.mutex();
        let note = "only those who may push can read, so nobody has looked whether the last lines are missing";
        let _ = writeln!(io::stderr(), "note: how far the log reached stands in '{}', which {note}", path.display());
    }
    let mut out = io::stdout().lock();
    let lines = if journal.head.seq == 1 { "line" } else { "lines" };
    writeln!(out, "{} {lines}, all as they were written; the last is {}", journal.head.seq, journal.head.hash)?;
    if journal.torn.is_empty() {
        return Ok(());
    }
    Err(Damage::Torn { path: dir.log(), line: journal.head.seq + 1 }.into())
}

/// Reads all of the log and whatever else speaks of it, and finds the first thing that is not as it was
/// written. A torn last line is handed back: it is no damage.
pub(crate) fn check(dir: &FenceDir, here: &Place) -> Result<Journal, CommandError> {
    let checkpoint = CheckpointFile::read(dir)?;
    let journal = history::read(dir, &here.boot, |_| {})?;
    match checkpoint {
        CheckpointFile::Missing => {}
        CheckpointFile::Damaged => return Err(Damage::Checkpoint(dir.checkpoint()).into()),
        // From the checkpoint on, the log must add up to the same as from its beginning on.
        CheckpointFile::Good(checkpoint) => {
            let start = Start::Checkpoint(checkpoint);
            let resumed = Journal::read(&history::open(dir)?, &dir.log(), start, None, |_| {})?;
            if resumed.head.seq == journal.head.seq && resumed.state != journal.state {
                return Err(Damage::Checkpoint(dir.checkpoint()).into());
            }
        }
    }
    Ok(journal)
}

/// Whose lease it is and why.
fn of_lease(line: &LeaseLine) -> String {
    let Lease { owner, reason, words, .. } = &line.standing.lease;
    let words = words.as_deref().map_or(String::new(), |words| format!(": {}", text::in_quotes(words)));
    format!("{}  {} ({}{words})", line.fence, text::in_quotes(owner), reason.as_str())
}

/// One line of the table: when, what, which token, who, and why.
fn row(line: &Line) -> Row<'_> {
    let Line { seq, time, event, .. } = line;
    let row = |what, token, who, detail| Row { seq: *seq, time, what, token, who, detail };
    match event {
        Event::LogBegun { pusher, .. } => row("begun", None, pusher, String::new()),
        Event::LogRecovered { reason } => row("recovered", None, "-", reason.clone()),
        Event::LogRotated { file, pusher, .. } => row("rotated", None, pusher, format!("lines before are in '{file}'")),
        Event::LogRepaired { found, reason, pusher } => row("repaired", None, pusher, format!("{found}: {reason}")),
        Event::MarkLowered { fence, from, mark, reason, pusher } => {
            row("lowered", None, pusher, format!("{fence}  mark {from} to {mark}: {reason}"))
        }
        Event::SettingsChanged { settings, heirs, .. } => {
            let inherits = |heir: &Heir| format!("; {} inherits the mark of {}", heir.fence, heir.giver);
            let heirs: String = heirs.iter().map(inherits).collect();
            row("settings", None, "-", modes(settings) + &heirs)
        }
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
        Event::PushLanded { push, stake, also, moved, count, settled_as, .. } => {
            let when = if settled_as.is_some() { "after it was settled" } else { "so far" };
            let fences = fences(stake, also);
            let detail = format!("{fences}  push {push}: {moved} of {count} refs moved {when}, mark {}", stake.mark);
            row("landed", stake.token, "-", detail)
        }
        Event::TokensChanged { fence, tokens, mark, reason, pusher, .. } => {
            let detail = format!("{fence}  {}, mark at least {mark}: {reason}", tokens::in_words(Some(*tokens)));
            row("tokens", None, pusher, detail)
        }
        Event::MarkRaised { fence, mark, reason, pusher } => {
            row("raised", None, pusher, format!("{fence}  mark at least {mark}: {reason}"))
        }
        Event::LeaseGranted(line) => row("granted", Some(line.standing.lease.token), &line.pusher, of_lease(line)),
        Event::LeaseAdvanced(line) => row("advanced", Some(line.standing.lease.token), &line.pusher, of_lease(line)),
        Event::LeaseReleased(line) => row("released", Some(line.standing.lease.token), &line.pusher, of_lease(line)),
        Event::LeaseRevoked(line) => row("revoked", Some(line.standing.lease.token), &line.pusher, of_lease(line)),
        Event::LeaseFound(line) => row("found", Some(line.standing.lease.token), &line.pusher, of_lease(line)),
        Event::LeaseRenewed(Renewed { fence, token, progress, who, .. }) => {
            let progress = progress.as_deref().map_or(String::new(), text::in_quotes);
            row("renewed", Some(*token), &who.pusher, format!("{fence}  {progress}"))
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
