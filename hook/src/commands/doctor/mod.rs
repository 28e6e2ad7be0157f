//! `doctor`: finds everything that would make the fence silently absent, weaker or stuck, and how to fix it.
//!
//! One file per subject. A check reads and reports; it changes nothing.

pub(crate) mod fence;
pub(crate) mod finding;
pub(crate) mod gate;
mod halted;
pub(crate) mod lock;
pub(crate) mod settings;
mod store;
pub(crate) mod stray;
mod tree;

use crate::{
    commands::{
        doctor::finding::{Finding, Severity},
        fleet::{self, OneOrAll},
    },
    failure::CommandError,
    host::surroundings::Environment,
    repository::Repository,
};
use serde::Serialize;
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// The options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: OneOrAll,
    /// Print a line of JSON for each repository
    #[arg(long)]
    json: bool,
    /// With --recursive: the findings of each repository, instead of the same finding once for all
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Serialize)]
struct Diagnosis {
    repository: String,
    /// The same, as findings name it.
    #[serde(skip)]
    git_dir: String,
    /// Whether there is nothing worse than a note.
    sound: bool,
    findings: Vec<Finding>,
}

/// `git-fence-hook doctor`.
pub(crate) fn run(args: &DoctorArgs, environment: &Environment) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    let mut all = Vec::new();
    let dirs =
        if args.place.recursive { fleet::below(&args.place.repository)? } else { vec![args.place.repository.clone()] };
    for dir in dirs {
        let diagnosis = diagnose(&dir, args.place.recursive, environment)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&diagnosis).unwrap_or_default())?;
        } else if args.verbose || !args.place.recursive {
            diagnosis.show(&mut out)?;
        }
        all.push(diagnosis);
    }
    if args.place.recursive && !args.json {
        if !args.verbose {
            tree::show(&all, &mut out)?;
        }
        writeln!(out, "{}", tree::summary(&all))?;
    }
    if all.iter().all(|diagnosis| diagnosis.sound) { Ok(()) } else { Err(CommandError::Unsound) }
}

/// With several repositories, one that cannot be opened is a finding. Alone, it is an error.
fn diagnose(dir: &Path, is_one_of_many: bool, environment: &Environment) -> Result<Diagnosis, CommandError> {
    let findings = match examine(dir, environment) {
        Err(failure) if is_one_of_many => vec![Finding {
            name: "repository-unreadable",
            severity: Severity::Error,
            sentence: failure.in_one_line(),
            fix: None,
        }],
        examined => examined?,
    };
    let sound = findings.iter().all(|finding| finding.severity == Severity::Note);
    let git_dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string();
    Ok(Diagnosis { repository: dir.display().to_string(), git_dir, sound, findings })
}

/// All findings, the most severe first.
fn examine(dir: &Path, environment: &Environment) -> Result<Vec<Finding>, CommandError> {
    let repository = Repository::find(dir, environment)?;
    let (settings, mut findings) = settings::check(&repository);
    findings.extend(gate::check(&repository)?);
    findings.extend(fence::check(&repository, &settings)?);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(findings)
}

impl Diagnosis {
    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:<8}{}", if self.sound { "ok" } else { "unsound" }, self.repository)?;
        self.findings.iter().try_for_each(|finding| finding.show(out))
    }
}
