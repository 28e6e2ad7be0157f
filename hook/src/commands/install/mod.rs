//! `install` and `uninstall`: installs the gate in a repository and removes it again.
//!
//! Inspects the repository, plans the changes, reports them, and makes all of them or none. Existing hooks are kept and
//! restored exactly.

mod lines;
pub(crate) mod log;
pub(crate) mod takeover;
pub(crate) mod undo;
pub(crate) mod uninstall;
mod wanted;
mod whose;

use crate::{
    commands::{
        advice,
        doctor::stray::{self, StrayRefs},
        fleet::{self, OneOrAll},
        install::{
            log::LogCondition,
            takeover::{Leases, Raise},
            undo::{InstallLock, Undo, lock_installing},
        },
        mode::{self, plan::ModeInForce},
    },
    failure::{self, CommandError},
    host::{
        hook_file::{self, HookFile, Part, Staged, is_executable},
        kept_hook,
        layout::{Layout, Site},
        surroundings::{Environment, os_user},
    },
    log::{
        files::FenceDir,
        history::{self, LiveLog},
        known_refs,
    },
    push::catch_up,
    repository::{
        Repository,
        git::{self, WantedSetting},
        settings::{self, configured::ConfigLevel},
    },
};
use git_fence_core::{KnownRefs, MarkLine, Settings};
use git_fence_system::colours::say;
use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The options of `install`.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    place: OneOrAll,
    /// Show every change, but make none
    #[arg(long)]
    dry_run: bool,
    /// Where to put the hook, if the detected layout is wrong
    #[arg(long)]
    layout: Option<Layout>,
    /// Refuse nothing, but record what would have been refused (fence.mode = observe)
    #[arg(long)]
    observe: bool,
    /// Guard these refs instead of branches and tags (fence.refs)
    #[arg(long, value_name = "PATTERN")]
    refs: Vec<String>,
    /// Allow pushes without a token; a stale token is still refused (fence.tokenless = allow)
    #[arg(long)]
    allow_tokenless: bool,
    /// Allow this pusher to push without a token (fence.exempt)
    #[arg(long, value_name = "NAME")]
    exempt: Vec<String>,
    /// Add a fence for these refs (fence.NAME.refs)
    #[arg(long, value_name = "NAME=PATTERN", value_parser = name_and_pattern)]
    fence: Vec<(String, String)>,
    /// Give each branch a fence of its own: the family 'branch' (fence.branch.each)
    #[arg(long)]
    per_branch: bool,
}

fn name_and_pattern(text: &str) -> Result<(String, String), &'static str> {
    let (name, pattern) = text.split_once('=').ok_or("expected NAME=PATTERN, as in deploy=refs/heads/deploy/*")?;
    Ok((name.to_owned(), pattern.to_owned()))
}

/// `git-fence-hook install`.
pub(crate) fn run(args: &InstallArgs, environment: &Environment) -> Result<(), CommandError> {
    if args.place.recursive {
        return run_below(args, environment);
    }
    let job = Job::plan(&args.place.repository, args, environment)?;
    let (lines, warnings) = (job.lines(if args.dry_run { "would be done" } else { "done" }), job.warnings.clone());
    let done = if args.dry_run { Ok(()) } else { job.apply() };
    let is_done = matches!(done, Ok(()) | Err(CommandError::Damage(_)));
    let mut out = io::stdout().lock();
    for line in lines.iter().filter(|_| is_done) {
        writeln!(out, "{line}")?;
    }
    for warning in warnings {
        say(&format!("warning: {warning}\n"));
    }
    done
}

/// Every repository, one line each with its mode, and how many have which.
fn run_below(args: &InstallArgs, environment: &Environment) -> Result<(), CommandError> {
    let mut modes: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = false;
    let done = fleet::each_below(&args.place.repository, |dir| {
        let job = Job::plan(dir, args, environment)?;
        let (word, mode) = (job.word(args.dry_run), job.mode().mode);
        left |= !job.left.is_empty();
        if !args.dry_run {
            job.apply()?;
        }
        *modes.entry(mode).or_default() += 1;
        Ok(word)
    });
    let counted: Vec<String> = modes.iter().map(|(mode, count)| format!("{count} in mode {mode}")).collect();
    let all: usize = modes.values().sum();
    let would_be = if args.dry_run { "would be " } else { "" };
    writeln!(io::stdout(), "{}: {would_be}{}", fleet::repositories(all), counted.join(", "))?;
    let below = advice::quoted(&args.place.repository);
    if !args.dry_run && modes.keys().any(|mode| mode != "enforce") {
        say(&format!("hint: to enforce in all of them:  git-fence-hook enforce --recursive {below}\n"));
    }
    if left && args.observe {
        let why = "install weakens no gate that is there";
        say(&format!("hint: {why}; to observe:  git-fence-hook observe --recursive {below}\n"));
    }
    done
}

/// All changes to make in one repository, planned without changing anything.
struct Job {
    _lock: Option<InstallLock>,
    repository: Repository,
    fence_dir: FenceDir,
    log: LogCondition,
    wanted: Vec<WantedSetting>,
    /// What was asked for, but would weaken the gate that is there.
    left: Vec<WantedSetting>,
    /// Whether pushes are checked already.
    gate_is_there: bool,
    /// Whether the refs are written down as they are now.
    notes_refs: bool,
    mode_before: ModeInForce,
    raises: Vec<Raise>,
    marks: Vec<MarkLine>,
    pieces: Vec<HookPlan>,
    warnings: Vec<String>,
}

impl Job {
    fn plan(dir: &Path, args: &InstallArgs, environment: &Environment) -> Result<Job, CommandError> {
        let repository = Repository::find(dir, environment)?;
        git::check_trust(&repository)?;
        let fence_dir = FenceDir::at(repository.fence_dir());
        let lock = if args.dry_run { None } else { Some(lock_installing(&fence_dir)?) };
        // Read again: another process may have changed it before we got the lock.
        let repository = Repository::find(dir, environment)?;
        let site = Site::of(&repository, args.layout)?;
        whose::check(&repository, &site)?;
        let mut wanted = args.wanted(&repository, site.layout);
        // Settings that do not parse would refuse every push, so they are refused now.
        settings::read(&wanted::with(&wanted, &repository)?)?;
        let pieces = Part::BOTH.into_iter().map(|part| HookPlan::of(part, &site)).collect::<Result<Vec<_>, _>>()?;
        let log = LogCondition::at(&fence_dir)?;
        // Without its log, a gate has never decided anything here.
        let gate_is_there = pieces.iter().any(HookPlan::is_old_gate) && !matches!(log, LogCondition::Missing(_));
        let left = match settings::read(&repository.config) {
            Ok(before) if gate_is_there => wanted::take_weakening(&mut wanted, &before, &repository)?,
            _ => Vec::new(),
        };
        let settings = settings::read(&wanted::with(&wanted, &repository)?)?;
        let Leases { mut raises, unreadable, exhausted } = takeover::read(&repository, &settings)?;
        if let Some((lease, token)) = exhausted.first() {
            let remove = advice::git(&repository, &catch_up::removal_arguments(lease));
            return Err(CommandError::Other {
                what: format!("the lease '{lease}' {}", catch_up::no_tokens_left(*token)),
                hint: format!("nothing was changed. Remove it with  {remove}  and install again"),
            });
        }
        raises.retain(|raise| !raise.is_done(log.state()));
        let (marks, unreadable_marks) = takeover::marks(&repository, log.state(), &settings, &os_user());
        let mut warnings = Vec::new();
        warnings.extend(unreadable_marks.iter().map(|(mark, reject)| {
            let remove = advice::git(&repository, &catch_up::removal_arguments(mark));
            format!("{reject}. Pushes to its fence are refused: remove it with  {remove}")
        }));
        warnings.extend(unreadable.iter().map(|lease| {
            let remove = advice::git(&repository, &catch_up::removal_arguments(lease));
            format!("'{lease}' is not a git-fence lease, so pushes to its fence are refused: remove it with  {remove}")
        }));
        warnings.extend(shared_hooks(&repository, &site));
        let stray = if gate_is_there { stray_refs(&repository, &fence_dir, &settings)? } else { None };
        // While the gate is there, the log says what has moved since.
        let notes_refs = !gate_is_there || stray.is_some() || known_refs::read(&fence_dir).is_none();
        warnings.extend(stray);
        let mode_before = mode::of_repo(&repository);
        Ok(Job {
            _lock: lock,
            repository,
            fence_dir,
            log,
            wanted,
            left,
            gate_is_there,
            notes_refs,
            mode_before,
            raises,
            marks,
            pieces,
            warnings,
        })
    }

    /// The log comes first: a hook without its log refuses every push, a log without its hook refuses none. The hooks come
    /// last, each by a single rename. If anything fails before that, everything is undone.
    fn apply(self) -> Result<(), CommandError> {
        let missing = self.pieces.iter().filter(|piece| !piece.is_there());
        let staged = missing.map(HookPlan::stage).collect::<Result<Vec<_>, _>>()?;
        let mut undo = Undo::of(&self.repository, &self.fence_dir);
        let damage = log::create_or_repair(&self.fence_dir, self.log, self.raises, self.marks)?;
        for setting in self.wanted.into_iter().filter(|setting| !setting.is_fulfilled(&self.repository)) {
            undo.changes.push(setting.plan(&self.repository)?);
        }
        // Saved before the changes are made: if this process is killed, they can still be undone.
        undo.save()?;
        for change in &undo.changes {
            change.make(&self.repository)?;
        }
        let keep = |(piece, staged): (&HookPlan, Staged)| {
            let keeping = if piece.keeps_existing() { Some(kept_hook::keep(&piece.hook)?) } else { None };
            Ok((staged, keeping))
        };
        for (staged, keeping) in staged.into_iter().map(keep).collect::<Result<Vec<_>, CommandError>>()? {
            staged.put_in_place()?;
            if let Some(keeping) = keeping {
                keeping.for_good();
            }
        }
        undo.forget();
        if self.notes_refs {
            note_refs(&self.repository, &self.fence_dir)?;
        }
        // With a damaged log, every push is refused, which is better than no hook. But it must be reported.
        damage.map_or(Ok(()), |damage| Err(damage.into()))
    }
}

/// One of the gate's hooks, and the existing file in its place.
struct HookPlan {
    part: Part,
    hook: PathBuf,
    found: HookFile,
    content: Vec<u8>,
}

impl HookPlan {
    fn of(part: Part, site: &Site) -> Result<HookPlan, CommandError> {
        if let Some(objection) = site.objection(part)? {
            return Err(objection);
        }
        let hook = site.hook(part);
        Ok(HookPlan { part, found: HookFile::at(&hook)?, content: hook_file::content(part)?, hook })
    }

    fn is_there(&self) -> bool {
        match &self.found {
            HookFile::Ours(content) => *content == self.content && is_executable(&self.hook),
            HookFile::Others => self.part == Part::Companion && hook_file::calls(self.part, &self.hook),
            HookFile::Nothing | HookFile::NoHook => false,
        }
    }

    /// Whether it is a gate that is there already, of whatever version.
    fn is_old_gate(&self) -> bool {
        self.part == Part::Gate && matches!(self.found, HookFile::Ours(_))
    }

    fn keeps_existing(&self) -> bool {
        self.found == HookFile::Others && !self.is_there()
    }

    fn stage(&self) -> Result<(&HookPlan, Staged), CommandError> {
        Ok((self, Staged::beside(&self.hook, &self.content)?))
    }
}

/// Refs that moved although the gate is there. From now on they count as they are.
fn stray_refs(repository: &Repository, dir: &FenceDir, settings: &Settings) -> Result<Option<String>, CommandError> {
    let mut stray = StrayRefs::of(repository, dir)?;
    // A damaged log is reported elsewhere.
    let Ok(_) = history::read(dir, &failure::here()?.boot, |read| stray.line(read.line)) else { return Ok(None) };
    let found = stray.found(repository, settings)?;
    Ok((!found.is_empty()).then(|| {
        format!(
            "{} moved without the gate since it was installed; install takes the refs as they are now",
            stray::listed(&found)
        )
    }))
}

/// Writes down the refs as they are, so that `doctor` sees which of them move without the gate. The log is read first: a push
/// that lands now is in its later lines.
fn note_refs(repository: &Repository, dir: &FenceDir) -> Result<(), CommandError> {
    let Ok(LiveLog { journal, .. }) = history::current(dir, &failure::here()?.boot) else { return Ok(()) };
    let known = KnownRefs { seq: journal.head.seq, refs: git::refs(repository)? };
    known_refs::write(dir, &known).map_err(CommandError::io("write", dir.known_refs()))
}

/// Every repository that shares the hooks directory gets the hook, and refuses pushes until it has a log.
fn shared_hooks(repository: &Repository, site: &Site) -> Option<String> {
    let level = repository.level_of("core.hooksPath").filter(|level| *level < ConfigLevel::Local)?;
    (site.layout != Layout::Gitlab).then(|| {
        let level = level.word();
        format!(
            "core.hooksPath is set for all repositories ({level}): every repository that uses '{}' refuses pushes until git-fence is installed in it too",
            site.hooks().display()
        )
    })
}
