//! `audit`: showing the log, and checking it. It writes nothing.

pub(crate) mod columns;
mod csv;
mod detail;
pub(crate) mod moment;
pub(crate) mod select;
mod table;

use crate::{
    commands::{
        audit::select::{AuditArgs, AuditForm},
        failure::{self, CommandError},
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
use git_fence_core::{Filter, Place};
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
            AuditForm::Csv => csv::row(read, &mut self.out),
            AuditForm::Table => table::row(read, self.width, &mut self.out),
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
