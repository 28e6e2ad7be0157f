//! `enforce` and `observe`: changes the mode of a repository's fences, and says what counts before and after.
//!
//! Where a setting overrides another, the one that counts is changed. The log records the new mode at the next push.

pub(crate) mod plan;
mod report;

use crate::{
    commands::{
        advice,
        doctor::{finding::Severity, gate},
        fleet::{self, OneOrAll},
        install::undo::lock_installing,
        mode::{
            plan::{Edit, Extent, ModeInForce, WantedMode},
            report::{FenceChange, ModeReport},
        },
    },
    failure::CommandError,
    host::{
        hook_file::{self, HookFile, Part},
        layout::Site,
        surroundings::Environment,
    },
    log::files::FenceDir,
    repository::{
        Repository, git,
        settings::{
            self,
            configured::{ConfiguredSetting, configured},
        },
    },
};
use git_fence_core::FenceName;
use std::{
    io::{self, Write as _},
    path::Path,
};

/// The options of `enforce` and `observe`.
#[derive(Debug, clap::Args)]
pub(crate) struct ModeArgs {
    #[command(flatten)]
    place: OneOrAll,
    /// Only this fence
    #[arg(long, value_name = "NAME", value_parser = fence)]
    fence: Option<FenceName>,
    /// Every fence, also those with a mode of their own
    #[arg(long, conflicts_with = "fence")]
    all: bool,
    /// Show every change, but make none
    #[arg(long)]
    dry_run: bool,
    /// Print a line of JSON for each repository
    #[arg(long)]
    json: bool,
}

fn fence(name: &str) -> Result<FenceName, String> {
    match FenceName::read(name.as_bytes()) {
        Ok(member) if member.is_member() => {
            Err(format!("the members of a family have one mode: name the family, '{}'", member.configured()))
        }
        read => read.map_err(|e| e.to_string()),
    }
}

impl ModeArgs {
    fn extent(&self) -> Extent {
        match &self.fence {
            Some(fence) => Extent::One(fence.clone()),
            None if self.all => Extent::All,
            None => Extent::Shared,
        }
    }
}

/// `git-fence-hook enforce` and `git-fence-hook observe`.
pub(crate) fn run(wanted: WantedMode, args: &ModeArgs, environment: &Environment) -> Result<(), CommandError> {
    let one = |dir: &Path| change(dir, wanted, args, environment);
    if args.json {
        let report = |dir: &Path| one(dir).unwrap_or_else(|failure| ModeReport::failed(dir, &failure));
        return fleet::each_in_json(&args.place, report, |report| report.error.is_none());
    }
    if args.place.recursive {
        let (mut changed, mut all) = (0, 0);
        let done = fleet::each_below(&args.place.repository, |dir| {
            let report = one(dir)?;
            changed += usize::from(report.is_changed());
            all += 1;
            Ok(report.line(args.dry_run))
        });
        let would = if args.dry_run { "would change" } else { "changed" };
        writeln!(io::stdout(), "{} {}: {changed} {would}", fleet::repositories(all), wanted.word())?;
        return done;
    }
    let report = one(&args.place.repository)?;
    writeln!(io::stdout(), "{}  {}", report.repository, report.line(args.dry_run))?;
    Ok(())
}

fn change(
    dir: &Path,
    wanted: WantedMode,
    args: &ModeArgs,
    environment: &Environment,
) -> Result<ModeReport, CommandError> {
    let repository = Repository::find(dir, environment)?;
    git::check_trust(&repository)?;
    require_gate(&repository)?;
    let fence_dir = FenceDir::at(repository.fence_dir());
    let _lock = if args.dry_run { None } else { Some(lock_installing(&fence_dir)?) };
    // Read again: another process may have changed it before we got the lock.
    let repository = Repository::find(dir, environment)?;
    let before = configured(&repository.config);
    let extent = args.extent();
    let named = fences(&repository, &before);
    known(&extent, &named)?;
    let edits = plan::edits(&before, &extent, wanted, &named);
    let after = if args.dry_run {
        with(&before, &edits)
    } else {
        for edit in &edits {
            make(edit, &repository)?;
        }
        configured(&Repository::find(dir, environment)?.config)
    };
    let fences = named.iter().map(|fence| FenceChange::of(fence, &before, &after)).collect();
    let mut report = ModeReport::of(&repository, fences, wanted, &extent);
    report.require_wanted(args.dry_run)?;
    report.warnings = gate_errors(&repository)?;
    Ok(report)
}

/// A mode without a gate would look like protection.
fn require_gate(repository: &Repository) -> Result<(), CommandError> {
    let hook = Site::of(repository, None)?.hook(Part::Gate);
    let is_there = match HookFile::at(&hook)? {
        HookFile::Ours(_) => true,
        HookFile::Others => hook_file::calls(Part::Gate, &hook),
        HookFile::Nothing | HookFile::NoHook => false,
    };
    if is_there {
        return Ok(());
    }
    Err(CommandError::Other {
        what: format!("no gate is installed in '{}': nothing was changed", repository.common_dir.display()),
        hint: format!("install it first:  {}", advice::install(repository)),
    })
}

/// The fences, `repo` first. A setting that cannot be read is no obstacle: it may be the one that is changed.
fn fences(repository: &Repository, configured: &[ConfiguredSetting]) -> Vec<FenceName> {
    let named = match settings::read(&repository.config) {
        Ok(settings) => settings.fences.into_iter().map(|rules| rules.fence).collect(),
        Err(_) => plan::with_own_mode(configured),
    };
    let others = named.into_iter().filter(|fence| *fence != FenceName::repo());
    std::iter::once(FenceName::repo()).chain(others).collect()
}

fn known(extent: &Extent, fences: &[FenceName]) -> Result<(), CommandError> {
    match extent {
        Extent::One(fence) if !fences.contains(fence) => Err(CommandError::Other {
            what: format!("there is no fence '{fence}' here: nothing was changed"),
            hint: "show the fences:  git-fence-hook status".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn make(edit: &Edit, repository: &Repository) -> Result<(), CommandError> {
    match edit {
        Edit::Set { key, value } => git::edit(repository, &["--replace-all", key, value]),
        Edit::Unset { key } => git::edit(repository, &["--unset-all", key]),
    }
}

/// The settings as they would be.
fn with(all: &[ConfiguredSetting], edits: &[Edit]) -> Vec<ConfiguredSetting> {
    use crate::repository::settings::configured::ConfigLevel::Local;
    let mut all = all.to_vec();
    for edit in edits {
        let (Edit::Set { key, .. } | Edit::Unset { key }) = edit;
        all.retain(|one| !(one.level == Local && one.key.eq_ignore_ascii_case(key)));
        if let Edit::Set { key, value } = edit {
            let (key, value, origin) = (key.clone(), (*value).to_owned(), String::new());
            all.push(ConfiguredSetting { key, value, origin, level: Local, overridden_by: None });
        }
    }
    all
}

/// Why pushes are not checked, whatever the mode.
fn gate_errors(repository: &Repository) -> Result<Vec<String>, CommandError> {
    let found = gate::check(repository)?;
    Ok(found.into_iter().filter(|it| it.severity == Severity::Error).map(|it| it.sentence).collect())
}

/// The mode of the fence `repo`, for others who show it.
pub(crate) fn of_repo(repository: &Repository) -> ModeInForce {
    ModeInForce::of(&FenceName::repo(), &configured(&repository.config))
}
