//! `install` and `uninstall`: putting the gate into a repository and taking it out again.
//!
//! Look, say what is to be done, do it, or leave all as it was. What was there before is kept and given back to the byte.

pub(crate) mod log;
pub(crate) mod takeover;
pub(crate) mod undo;
pub(crate) mod uninstall;

use crate::{
    commands::{
        failure::CommandError,
        fleet::{self, OneOrAll},
        install::{
            log::LogIs,
            takeover::{Leases, Raise},
            undo::{Alone, Undo, alone_in},
        },
    },
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

/// What `install` is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    place: OneOrAll,
    /// Show every change and make none
    #[arg(long)]
    dry_run: bool,
    /// Where the hook goes, if guessing it goes wrong
    #[arg(long)]
    layout: Option<Layout>,
    /// Refuse nothing, record what would have been refused (fence.mode = observe)
    #[arg(long)]
    observe: bool,
    /// Guard these refs instead of branches and tags (fence.refs)
    #[arg(long, value_name = "PATTERN")]
    refs: Vec<String>,
    /// Let everybody push without a token; a stale one is still refused (fence.tokenless = allow)
    #[arg(long)]
    allow_tokenless: bool,
    /// Let this pusher push without a token (fence.exempt)
    #[arg(long, value_name = "NAME")]
    exempt: Vec<String>,
    /// Make a fence of its own for these refs (fence.NAME.refs)
    #[arg(long, value_name = "NAME=PATTERN", value_parser = name_and_pattern)]
    fence: Vec<(String, String)>,
}

fn name_and_pattern(text: &str) -> Result<(String, String), &'static str> {
    let (name, pattern) = text.split_once('=').ok_or("expected NAME=PATTERN, as in deploy=refs/heads/deploy/*")?;
    Ok((name.to_owned(), pattern.to_owned()))
}

impl InstallArgs {
    fn wishes(&self) -> Vec<WantedSetting> {
        let mut wishes = vec![WantedSetting::one("receive.advertisePushOptions", "true")];
        wishes.extend(self.observe.then(|| WantedSetting::one("fence.mode", "observe")));
        wishes.extend(self.allow_tokenless.then(|| WantedSetting::one("fence.tokenless", "allow")));
        wishes.extend(self.refs.iter().map(|pattern| WantedSetting::many("fence.refs", pattern)));
        wishes.extend(self.exempt.iter().map(|name| WantedSetting::many("fence.exempt", name)));
        wishes.extend(
            self.fence.iter().map(|(name, pattern)| WantedSetting::many(format!("fence.{name}.refs"), pattern)),
        );
        wishes.dedup();
        wishes
    }
}

/// `git-fence-hook install`.
pub(crate) fn run(asked: &InstallArgs, environment: &Environment) -> Result<(), CommandError> {
    if asked.place.recursive {
        return fleet::each_below(&asked.place.repository, |dir| {
            let job = Job::look(dir, asked, environment)?;
            let (changes, warnings) = (job.changes(), job.warnings.clone());
            if !asked.dry_run {
                job.carry_out()?;
            }
            let word = match (&changes[..], asked.dry_run) {
                ([], _) => "already there".to_owned(),
                (_, true) => format!("would change: {}", changes.join(", ")),
                (_, false) => "installed".to_owned(),
            };
            Ok(warnings.iter().fold(word, |word, warning| format!("{word}  (warning: {warning})")))
        });
    }
    let job = Job::look(&asked.place.repository, asked, environment)?;
    let (lines, warnings) = (job.lines(if asked.dry_run { "would be done" } else { "done" }), job.warnings.clone());
    let done = if asked.dry_run { Ok(()) } else { job.carry_out() };
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

/// Everything that is to be done in one repository, found out without changing anything.
struct Job {
    _alone: Option<Alone>,
    repository: Repository,
    fence_dir: FenceDir,
    log: LogIs,
    wishes: Vec<WantedSetting>,
    raises: Vec<Raise>,
    pieces: Vec<HookPlan>,
    warnings: Vec<String>,
}

impl Job {
    fn look(dir: &Path, asked: &InstallArgs, environment: &Environment) -> Result<Job, CommandError> {
        let repository = Repository::find(dir, environment)?;
        git::trusts(&repository)?;
        let fence_dir = FenceDir::at(repository.fence_dir());
        let alone = if asked.dry_run { None } else { Some(alone_in(&fence_dir)?) };
        // Read again: whoever was here just now has changed it.
        let repository = Repository::find(dir, environment)?;
        let wishes = asked.wishes();
        // Settings that do not parse would refuse every push: say so now.
        let settings = settings::read(&with(&wishes, &repository)?)?;
        let site = Site::of(&repository, asked.layout)?;
        let pieces = Part::BOTH.into_iter().map(|part| HookPlan::look(part, &site)).collect::<Result<_, _>>()?;
        let log = LogIs::at(&fence_dir)?;
        let Leases { mut raises, unreadable, at_the_end } = takeover::read(&repository, &settings)?;
        if let Some((lease, token)) = at_the_end.first() {
            let dir = git::shell_quoted(&repository.common_dir.display().to_string());
            return Err(CommandError::Other {
                what: format!("the lease '{lease}' {}", catch_up::no_tokens_left(*token)),
                hint: format!(
                    "nothing was changed. Remove it,  git -C {dir} {},  and install",
                    catch_up::removal_arguments(lease)
                ),
            });
        }
        raises.retain(|raise| !raise.is_done(log.state()));
        let mut warnings = Vec::new();
        warnings.extend(unreadable.iter().map(|lease| {
            format!(
                "'{lease}' is no lease of git-fence, and closes its fence: remove it,  git {}",
                catch_up::removal_arguments(lease)
            )
        }));
        warnings.extend(shared_hooks(&repository, &site));
        Ok(Job { _alone: alone, repository, fence_dir, log, wishes, raises, pieces, warnings })
    }

    /// What is there and what is not, a line each.
    fn lines(&self, done: &str) -> Vec<String> {
        let word = |was_there: bool| if was_there { "already there" } else { done };
        let mut lines = vec![format!("log           {}  {}", self.fence_dir.log().display(), self.log.word(done))];
        for wish in &self.wishes {
            let what = if wish.key.starts_with("fence.") { "setting" } else { "push options" };
            let is_there = word(wish.is_fulfilled(&self.repository));
            lines.push(format!("{what:<12}  {} = {}  {is_there}", wish.key, wish.value));
        }
        for Raise { fence, mark, lease } in &self.raises {
            lines.push(format!("mark          of fence '{fence}' at least {mark}, from '{lease}'  {done}"));
        }
        for piece in &self.pieces {
            let (what, order) = match piece.part {
                Part::Gate => ("hook", "runs first"),
                Part::Companion => ("companion", "runs after it"),
            };
            if piece.keeps_another() {
                let kept = kept_hook::place_of(&piece.hook);
                lines.push(format!("kept          {}  {order}  {done}", kept.display()));
            }
            lines.push(format!("{what:<12}  {}  {}", piece.hook.display(), word(piece.is_there())));
        }
        lines
    }

    /// What is to be changed, in a word each.
    fn changes(&self) -> Vec<String> {
        let settings = self.wishes.iter().filter(|wish| !wish.is_fulfilled(&self.repository));
        let log = (!self.log.is_whole()).then_some("log");
        let mark = (!self.raises.is_empty()).then_some("mark");
        let hooks = self.pieces.iter().filter(|piece| !piece.is_there()).map(|piece| match piece.part {
            Part::Gate => "hook",
            Part::Companion => "companion",
        });
        let changes = log.into_iter().chain(settings.map(|wish| wish.key.as_str())).chain(mark).chain(hooks);
        changes.map(str::to_owned).collect()
    }

    /// The log first: a hook without its log refuses every push, a log without its hook refuses none.
    /// The hooks last, each by one rename. Whatever fails before that is as if it had never been tried.
    fn carry_out(self) -> Result<(), CommandError> {
        let missing = self.pieces.iter().filter(|piece| !piece.is_there());
        let staged = missing.map(HookPlan::stage).collect::<Result<Vec<_>, _>>()?;
        let mut undo = Undo::of(&self.repository, &self.fence_dir);
        let damage = log::begin_or_mend(&self.fence_dir, self.log, self.raises)?;
        for wish in self.wishes.into_iter().filter(|wish| !wish.is_fulfilled(&self.repository)) {
            undo.changes.push(wish.plan(&self.repository)?);
        }
        // Written down before they are made: whoever is killed in between can still be undone.
        undo.write_down()?;
        for change in &undo.changes {
            change.make(&self.repository)?;
        }
        let keep = |(piece, staged): (&HookPlan, Staged)| {
            let keeping = if piece.keeps_another() { Some(kept_hook::keep(&piece.hook)?) } else { None };
            Ok((staged, keeping))
        };
        for (staged, keeping) in staged.into_iter().map(keep).collect::<Result<Vec<_>, CommandError>>()? {
            staged.put_in_place()?;
            if let Some(keeping) = keeping {
                keeping.for_good();
            }
        }
        undo.forget();
        // A damaged log closes the gate, and that is better than no hook. It must be said all the same.
        damage.map_or(Ok(()), |damage| Err(damage.into()))
    }
}

/// One of our hooks, and what stands in its place.
struct HookPlan {
    part: Part,
    hook: PathBuf,
    found: HookFile,
    content: Vec<u8>,
}

impl HookPlan {
    fn look(part: Part, site: &Site) -> Result<HookPlan, CommandError> {
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

    fn keeps_another(&self) -> bool {
        self.found == HookFile::Others && !self.is_there()
    }

    fn stage(&self) -> Result<(&HookPlan, Staged), CommandError> {
        Ok((self, Staged::beside(&self.hook, &self.content)?))
    }
}

/// The configuration as it will be.
fn with(wishes: &[WantedSetting], repository: &Repository) -> Result<gix::config::File, CommandError> {
    let mut config = repository.config.clone();
    for wish in wishes.iter().filter(|wish| !wish.is_fulfilled(repository)) {
        let (section, rest) = wish.key.split_once('.').unwrap_or((&wish.key, ""));
        let (subsection, name) = rest.rsplit_once('.').map_or((None, rest), |(sub, name)| (Some(sub), name));
        let added = config.new_section(section, subsection.map(BString::from)).and_then(|mut section| {
            section.push(name, Some(wish.value.as_str().into()))?;
            Ok(())
        });
        added.map_err(|e| CommandError::Other {
            what: format!("'{}' cannot be a setting: {e}", wish.key),
            hint: "a fence's name is made of a-z, 0-9, '.', '_' and '-'".to_owned(),
        })?;
    }
    Ok(config)
}

/// Every repository that shares the directory gets the hook, and is closed until it has a log.
fn shared_hooks(repository: &Repository, site: &Site) -> Option<String> {
    let scope = git::scope_of(&repository.git_dir, "core.hooksPath")?;
    matches!(scope.as_str(), "global" | "system").then(|| {
        format!(
            "core.hooksPath is set for all repositories ({scope}): each that uses '{}' is closed until it is installed there too",
            site.hooks().display()
        )
    })
}
