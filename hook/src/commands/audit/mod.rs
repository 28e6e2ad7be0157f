//! `audit`: shows the log and checks it. It writes nothing.

pub(crate) mod columns;
mod csv;
mod detail;
pub(crate) mod moment;
pub(crate) mod select;
mod table;

use crate::{
    commands::audit::select::{AuditArgs, AuditForm},
    failure::{self, CommandError},
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
use git_fence_core::{Filter, Line, Place};
use git_fence_system::descriptor;
use std::{
    collections::VecDeque,
    io::{self, BufWriter, Write},
    path::Path,
    time::Duration,
};

/// How often `--follow` checks for new lines.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// `git-fence-hook audit`: the selected lines, in the selected format.
pub(crate) fn run(args: &AuditArgs, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(&args.repository, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let mut show = Show::to_stdout(args);
    let read = Tail::read(&dir, &here.boot, |read| show.line(&read));
    // The readable lines are shown, even if the log is damaged after them.
    show.end_of_file();
    show.flush()?;
    let tail = read?;
    if args.follow { follow(tail, &dir, &mut show) } else { Ok(()) }
}

/// Shows new lines as they are written, until the reader closes the output.
fn follow(mut tail: Tail, dir: &FenceDir, show: &mut Show) -> Result<(), CommandError> {
    loop {
        wait_for_lines()?;
        let read = tail.read_on(dir, |read| show.line(&read));
        show.flush()?;
        tail = read?;
    }
}

/// Waits briefly, or until the reader of the output closes it: this detects that without writing anything.
fn wait_for_lines() -> Result<(), CommandError> {
    match descriptor::is_closed_within(io::stdout(), POLL_EVERY) {
        Ok(false) => Ok(()),
        Ok(true) => Err(CommandError::ReaderGone),
        Err(e) => Err(CommandError::io("watch", "standard output")(e)),
    }
}

/// Shows lines on standard output, until writing fails.
struct Show {
    form: AuditForm,
    filter: Filter,
    width: Option<usize>,
    /// Whether the columns are still to be named, which is done before the first line.
    wants_headings: bool,
    /// The lines so far, if only the last ones are to be shown.
    last: Option<LastLines>,
    out: BufWriter<io::StdoutLock<'static>>,
    written: io::Result<()>,
}

/// The last lines of those that were read.
struct LastLines {
    most: usize,
    lines: VecDeque<(Vec<u8>, Line)>,
}

impl Show {
    fn to_stdout(args: &AuditArgs) -> Show {
        let (form, filter) = (args.form(), args.filter());
        let mut out = BufWriter::new(io::stdout().lock());
        let has_header = form == AuditForm::Csv && !args.no_headings;
        let written = if has_header { csv::header(&mut out) } else { Ok(()) };
        let last = args.last.map(|most| LastLines { most, lines: VecDeque::new() });
        let wants_headings = form == AuditForm::Table && !args.no_headings;
        Show { form, filter, width: terminal::width(io::stdout()), wants_headings, last, out, written }
    }

    fn line(&mut self, read: &ReadLine<'_>) {
        if self.written.is_err() || !self.filter.matches(read.line) {
            return;
        }
        let Some(LastLines { most, lines }) = &mut self.last else { return self.print(read) };
        lines.push_back((read.bytes.to_vec(), read.line.clone()));
        if lines.len() > *most {
            lines.pop_front();
        }
    }

    /// The lines so far are known: shows the last of them. Those that follow are all shown.
    fn end_of_file(&mut self) {
        for (bytes, line) in self.last.take().map(|last| last.lines).unwrap_or_default() {
            self.print(&ReadLine { bytes: &bytes, line: &line });
        }
    }

    fn print(&mut self, read: &ReadLine<'_>) {
        if std::mem::take(&mut self.wants_headings) {
            self.written = table::headings(self.width, &mut self.out);
        }
        if self.written.is_err() {
            return;
        }
        self.written = match self.form {
            AuditForm::Json => self.out.write_all(read.bytes).and_then(|()| self.out.write_all(b"\n")),
            AuditForm::Csv => csv::row(read, &mut self.out),
            AuditForm::Table => table::row(read, self.width, &mut self.out),
        };
    }

    /// Flushes the output, and reports if writing has failed.
    fn flush(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))?;
        // The terminal may have been resized.
        self.width = terminal::width(io::stdout());
        self.out.flush()
    }
}

/// `git-fence-hook audit verify`: reports the first problem, or how many lines are intact.
pub(crate) fn verify(dir: &Path, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(dir, environment)?;
    let dir = FenceDir::at(repository.fence_dir());
    let here = failure::here()?;
    let journal = check(&dir, &here, |_| {})?;
    if let Err(e) = dir.open(&dir.mutex(), For::Reading)
        && e.kind() == io::ErrorKind::PermissionDenied
    {
        let path = dir.mutex();
        let note = "can be read only by users who may push: could not check whether the last lines are missing";
        let _ = writeln!(io::stderr(), "note: '{}' records the end of the log, but {note}", path.display());
    }
    let mut out = io::stdout().lock();
    let lines = if journal.head.seq == 1 { "line" } else { "lines" };
    writeln!(out, "{} {lines}, all intact; the last has the hash {}", journal.head.seq, journal.head.hash)?;
    if journal.torn.is_empty() {
        return Ok(());
    }
    Err(Damage::Torn { path: dir.log(), line: journal.head.seq + 1 }.into())
}

/// Reads the whole log and everything that refers to it, and returns the first damage. A torn last line is part of the
/// result: it is not damage.
pub(crate) fn check(dir: &FenceDir, here: &Place, each: impl FnMut(ReadLine<'_>)) -> Result<Journal, CommandError> {
    let checkpoint = CheckpointFile::read(dir)?;
    let journal = history::read(dir, &here.boot, each)?;
    match checkpoint {
        CheckpointFile::Missing => {}
        CheckpointFile::Damaged => return Err(Damage::Checkpoint(dir.checkpoint()).into()),
        // Reading from the checkpoint must lead to the same state as reading from the beginning.
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
