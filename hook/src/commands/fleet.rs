//! Every repository below a directory: one result line each; a failure does not stop the rest.

use crate::failure::CommandError;
use serde::Serialize;
use std::{
    fs,
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

/// One repository, or all below a directory.
#[derive(Debug, clap::Args)]
pub(crate) struct OneOrAll {
    /// The repository
    #[arg(default_value = ".")]
    pub(crate) repository: PathBuf,
    /// Every repository below this directory, one result line each
    #[arg(long)]
    pub(crate) recursive: bool,
}

/// Runs `work` in each repository below `dir`. It returns a short result.
pub(crate) fn each_below(
    dir: &Path,
    mut work: impl FnMut(&Path) -> Result<String, CommandError>,
) -> Result<(), CommandError> {
    let repositories = below(dir)?;
    let mut progress = ProgressLine::of(repositories.len());
    let mut failed = 0;
    let mut out = io::stdout().lock();
    for path in &repositories {
        progress.at(path);
        let done = work(path);
        progress.clear();
        match done {
            Ok(word) => writeln!(out, "ok      {}  {word}", path.display())?,
            Err(CommandError::ReaderGone) => return Err(CommandError::ReaderGone),
            Err(failure) => {
                failed += 1;
                writeln!(out, "failed  {}  {}", path.display(), failure.in_one_line())?;
            }
        }
    }
    if failed == 0 {
        return Ok(());
    }
    Err(CommandError::Other {
        what: format!("{failed} of {} failed", self::repositories(repositories.len())),
        hint: "the lines above have the reasons. For one of them, the command without --recursive says what to do"
            .to_owned(),
    })
}

/// Writes one line of JSON for each repository of `place`, also for those that failed: what `report` makes of it. Fails in the end unless
/// all of them are done.
pub(crate) fn each_in_json<R: Serialize>(
    place: &OneOrAll,
    report: impl Fn(&Path) -> R,
    is_done: impl Fn(&R) -> bool,
) -> Result<(), CommandError> {
    let dirs = if place.recursive { below(&place.repository)? } else { vec![place.repository.clone()] };
    let mut all_done = true;
    let mut out = io::stdout().lock();
    for dir in dirs {
        let report = report(&dir);
        all_done &= is_done(&report);
        writeln!(out, "{}", serde_json::to_string(&report).unwrap_or_default())?;
    }
    if all_done { Ok(()) } else { Err(CommandError::Unsound) }
}

/// How many repositories, in words.
pub(crate) fn repositories(count: usize) -> String {
    if count == 1 { "1 repository".to_owned() } else { format!("{count} repositories") }
}

/// The repositories below `dir`, bare and non-bare, sorted. Links are not followed, and repositories are not searched.
pub(crate) fn below(dir: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        if looks_like_repository(&next) {
            found.push(next);
            continue;
        }
        let entries = match fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(e) if next == dir => return Err(CommandError::io("read", dir)(e)),
            // There may be a repository inside: opening it will report the error.
            Err(_) => {
                found.push(next);
                continue;
            }
        };
        let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(dirs.map(|entry| entry.path()));
    }
    if found.is_empty() {
        return Err(CommandError::Other {
            what: format!("no repository found below '{}'", dir.display()),
            hint: "name a directory with repositories in it, as in  /srv/git".to_owned(),
        });
    }
    found.sort();
    Ok(found)
}

/// Also true for a broken one: it must be reported, not skipped.
fn looks_like_repository(dir: &Path) -> bool {
    let parts = [dir.join("HEAD").is_file(), dir.join("objects").is_dir(), dir.join("refs").is_dir()];
    parts.into_iter().filter(|it| *it).count() >= 2
}

/// A progress line, only on a terminal.
struct ProgressLine {
    done: usize,
    of: usize,
    is_shown: bool,
}

impl ProgressLine {
    fn of(of: usize) -> ProgressLine {
        ProgressLine { done: 0, of, is_shown: io::stderr().is_terminal() }
    }

    fn at(&mut self, path: &Path) {
        self.done += 1;
        if self.is_shown {
            let filled = self.done * 20 / self.of.max(1);
            let name = path.file_name().unwrap_or_default().display();
            // Cut, so that it stays on one line of a narrow terminal.
            let line: String = format!("[{:<20}] {}/{} {name}", "#".repeat(filled), self.done, self.of);
            let line: String = line.chars().take(39).collect();
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        }
    }

    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
