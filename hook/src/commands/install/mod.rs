//! `install` and `uninstall`: installs the gate in a repository and removes it again.
//!
//! Inspects the repository, plans the changes, reports them, and makes all of them or none. Existing hooks are kept and
//! restored exactly.

pub(crate) mod log;
pub(crate) mod takeover;
pub(crate) mod undo;
pub(crate) mod uninstall;

use crate::{
    commands::{
        fleet::{self, OneOrAll},
        install::{
            log::LogCondition,
            takeover::{Leases, Raise},
            undo::{InstallLock, Undo, lock_installing},
        },
    },
    failure::CommandError,
    host::{
        hook_file::{self, HookFile, Part, Staged, is_executable},
        kept_hook,
        layout::{Layout, Site},
        surroundings::Environment,
    },
    log::files::FenceDir,
    push::catch_up,
    repository::{
        Repository,
        git::{self, WantedSetting},
        settings,
    },
};
use gix::bstr::BString;
use std::{
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
}

fn name_and_pattern(text: &str) -> Result<(String, String), &'static str> {
    let (name, pattern) = text.split_once('=').ok_or("expected NAME=PATTERN, as in deploy=refs/heads/deploy/*")?;
    Ok((name.to_owned(), pattern.to_owned()))
}

impl InstallArgs {
    fn wanted(&self) -> Vec<WantedSetting> {
        let mut wanted = vec![WantedSetting::one("receive.advertisePushOptions", "true")];
        wanted.extend(self.observe.then(|| WantedSetting::one("fence.mode", "observe")));
        wanted.extend(self.allow_tokenless.then(|| WantedSetting::one("fence.tokenless", "allow")));
        wanted.extend(self.refs.iter().map(|pattern| WantedSetting::many("fence.refs", pattern)));
        wanted.extend(self.exempt.iter().map(|name| WantedSetting::many("fence.exempt", name)));
        wanted.extend(
            self.fence.iter().map(|(name, pattern)| WantedSetting::many(format!("fence.{name}.refs"), pattern)),
        );
        wanted.dedup();
        wanted
    }
}

/// `git-fence-hook install`.
pub(crate) fn run(args: &InstallArgs, environment: &Environment) -> Result<(), CommandError> {
    if args.place.recursive {
        return fleet::each_below(&args.place.repository, |dir| {
            let job = Job::plan(dir, args, environment)?;
            let (changes, warnings) = (job.changes(), job.warnings.clone());
            if !args.dry_run {
                job.apply()?;
            }
            let word = match (&changes[..], args.dry_run) {
                ([], _) => "already there".to_owned(),
                (_, true) => format!("would change: {}", changes.join(", ")),
                (_, false) => "installed".to_owned(),
            };
            Ok(warnings.iter().fold(word, |word, warning| format!("{word}  (warning: {warning})")))
        });
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
        let _ = writeln!(io::stderr(), "warning: {warning}");
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
    raises: Vec<Raise>,
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
        let wanted = args.wanted();
        // Settings that do not parse would refuse every push, so they are refused now.
        let settings = settings::read(&with(&wanted, &repository)?)?;
        let site = Site::of(&repository, args.layout)?;
        let pieces = Part::BOTH.into_iter().map(|part| HookPlan::of(part, &site)).collect::<Result<_, _>>()?;
        let log = LogCondition::at(&fence_dir)?;
        let Leases { mut raises, unreadable, exhausted } = takeover::read(&repository, &settings)?;
        if let Some((lease, token)) = exhausted.first() {
            let dir = git::shell_quoted(&repository.common_dir.display().to_string());
            return Err(CommandError::Other {
                what: format!("the lease '{lease}' {}", catch_up::no_tokens_left(*token)),
                hint: format!(
                    "nothing was changed. Remove it with  git -C {dir} {}  and install again",
                    catch_up::removal_arguments(lease)
                ),
            });
        }
        raises.retain(|raise| !raise.is_done(log.state()));
        let mut warnings = Vec::new();
        warnings.extend(unreadable.iter().map(|lease| {
            format!(
                "'{lease}' is not a git-fence lease, so pushes to its fence are refused: remove it with  git {}",
                catch_up::removal_arguments(lease)
            )
        }));
        warnings.extend(shared_hooks(&repository, &site));
        Ok(Job { _lock: lock, repository, fence_dir, log, wanted, raises, pieces, warnings })
    }

    /// One line for each part, whether it was already there or not.
    fn lines(&self, done: &str) -> Vec<String> {
        let word = |was_there: bool| if was_there { "already there" } else { done };
        let mut lines = vec![format!("log           {}  {}", self.fence_dir.log().display(), self.log.word(done))];
        for setting in &self.wanted {
            let what = if setting.key.starts_with("fence.") { "setting" } else { "push options" };
            let is_there = word(setting.is_fulfilled(&self.repository));
            lines.push(format!("{what:<12}  {} = {}  {is_there}", setting.key, setting.value));
        }
        for Raise { fence, mark, lease } in &self.raises {
            lines.push(format!("mark          of fence '{fence}' at least {mark}, from '{lease}'  {done}"));
        }
        for piece in &self.pieces {
            let (what, order) = match piece.part {
                Part::Gate => ("hook", "runs first"),
                Part::Companion => ("companion", "runs after it"),
            };
            if piece.keeps_existing() {
                let kept = kept_hook::kept_path(&piece.hook);
                lines.push(format!("kept          {}  {order}  {done}", kept.display()));
            }
            lines.push(format!("{what:<12}  {}  {}", piece.hook.display(), word(piece.is_there())));
        }
        lines
    }

    /// The names of the parts that will change.
    fn changes(&self) -> Vec<String> {
        let settings = self.wanted.iter().filter(|setting| !setting.is_fulfilled(&self.repository));
        let log = (!self.log.is_whole()).then_some("log");
        let mark = (!self.raises.is_empty()).then_some("mark");
        let hooks = self.pieces.iter().filter(|piece| !piece.is_there()).map(|piece| match piece.part {
            Part::Gate => "hook",
            Part::Companion => "companion",
        });
        let changes = log.into_iter().chain(settings.map(|setting| setting.key.as_str())).chain(mark).chain(hooks);
        changes.map(str::to_owned).collect()
    }

    /// The log comes first: a hook without its log refuses every push, a log without its hook refuses none. The hooks come
    /// last, each by a single rename. If anything fails before that, everything is undone.
    fn apply(self) -> Result<(), CommandError> {
        let missing = self.pieces.iter().filter(|piece| !piece.is_there());
        let staged = missing.map(HookPlan::stage).collect::<Result<Vec<_>, _>>()?;
        let mut undo = Undo::of(&self.repository, &self.fence_dir);
        let damage = log::create_or_repair(&self.fence_dir, self.log, self.raises)?;
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

    fn keeps_existing(&self) -> bool {
        self.found == HookFile::Others && !self.is_there()
    }

    fn stage(&self) -> Result<(&HookPlan, Staged), CommandError> {
        Ok((self, Staged::beside(&self.hook, &self.content)?))
    }
}

/// The configuration after the changes.
fn with(wanted: &[WantedSetting], repository: &Repository) -> Result<gix::config::File, CommandError> {
    let mut config = repository.config.clone();
    for setting in wanted.iter().filter(|setting| !setting.is_fulfilled(repository)) {
        let (section, rest) = setting.key.split_once('.').unwrap_or((&setting.key, ""));
        let (subsection, name) = rest.rsplit_once('.').map_or((None, rest), |(sub, name)| (Some(sub), name));
        let added = config.new_section(section, subsection.map(BString::from)).and_then(|mut section| {
            section.push(name, Some(setting.value.as_str().into()))?;
            Ok(())
        });
        added.map_err(|e| CommandError::Other {
            what: format!("'{}' is not a valid setting: {e}", setting.key),
            hint: "the name of a fence consists of a-z, 0-9, '.', '_' and '-'".to_owned(),
        })?;
    }
    Ok(config)
}

/// Every repository that shares the hooks directory gets the hook, and refuses pushes until it has a log.
fn shared_hooks(repository: &Repository, site: &Site) -> Option<String> {
    let scope = git::scope_of(&repository.git_dir, "core.hooksPath")?;
    matches!(scope.as_str(), "global" | "system").then(|| {
        format!(
            "core.hooksPath is set for all repositories ({scope}): every repository that uses '{}' refuses pushes until git-fence is installed in it too",
            site.hooks().display()
        )
    })
}
