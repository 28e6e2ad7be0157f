//! `doctor`: finds everything that would make the fence silently absent, weaker or stuck, and how to fix it.
//!
//! One file per subject. A check reads and reports; it changes nothing.

pub(crate) mod fence;
pub(crate) mod finding;
pub(crate) mod gate;
pub(crate) mod lock;
pub(crate) mod settings;

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
}

#[derive(Serialize)]
struct Diagnosis {
    repository: String,
    /// Whether there is nothing worse than a note.
    sound: bool,
    findings: Vec<Finding>,
}

/// `git-fence-hook doctor`.
pub(crate) fn run(args: &DoctorArgs, environment: &Environment) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    let mut all_sound = true;
    let dirs =
        if args.place.recursive { fleet::below(&args.place.repository)? } else { vec![args.place.repository.clone()] };
    for dir in dirs {
        let findings = match examine(&dir, environment) {
            // With several repositories, one that cannot be opened is a finding. InstallLock, it is an error.
            Err(failure) if args.place.recursive => vec![Finding {
                name: "repository-unreadable",
                severity: Severity::Error,
                sentence: failure.in_one_line(),
                fix: None,
            }],
            examined => examined?,
        };
        let sound = findings.iter().all(|finding| finding.severity == Severity::Note);
        all_sound &= sound;
        let report = Diagnosis { repository: dir.display().to_string(), sound, findings };
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&report).unwrap_or_default())?;
        } else {
            show(&report, &mut out)?;
        }
    }
    if all_sound { Ok(()) } else { Err(CommandError::Unsound) }
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

fn show(report: &Diagnosis, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:<8}{}", if report.sound { "ok" } else { "unsound" }, report.repository)?;
    for Finding { name, severity, sentence, fix } in &report.findings {
        let severity = match severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        writeln!(out, "{severity}: {name}: {sentence}")?;
        if let Some(fix) = fix {
            writeln!(out, "  fix: {fix}")?;
        }
    }
    Ok(())
}
