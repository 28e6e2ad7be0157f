//! Where our hooks go: each kind of host has its own places for them.

use crate::{
    failure::CommandError,
    host::{
        hook_file::{HookFile, Part, calls, is_executable},
        kept_hook,
    },
    log::files,
    repository::{Repository, git},
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Layout {
    /// A repository of one's own: hooks/pre-receive, and a hook that is there runs first
    Bare,
    /// Gitea, Forgejo and the like: hooks/pre-receive runs all of hooks/pre-receive.d
    Dispatcher,
    /// Under gitolite, which has its own 'update' and leaves 'pre-receive' free
    Gitolite,
}

/// The places of our hooks in one repository.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) layout: Layout,
    hooks: PathBuf,
}

impl Site {
    /// Where the hooks of `repository` are, or where they are to go.
    pub(crate) fn of(repository: &Repository, asked: Option<Layout>) -> Result<Site, CommandError> {
        let hooks = hooks_dir(repository)?;
        let site = |layout| Site { layout, hooks: hooks.clone() };
        let there = [Layout::Bare, Layout::Dispatcher].into_iter().map(site);
        let mut there = there.filter(|site| matches!(HookFile::at(&site.hook(Part::Gate)), Ok(HookFile::Ours(_))));
        let layout = match (there.next(), asked) {
            (None, None) => guess(&hooks)?,
            (None, Some(asked)) => asked,
            // A second one would wait for the first.
            (Some(there), Some(asked)) if there.hook(Part::Gate) != site(asked).hook(Part::Gate) => {
                return Err(CommandError::Other {
                    what: format!("the gate is already installed as '{}'", there.hook(Part::Gate).display()),
                    hint: "git-fence-hook uninstall  first".to_owned(),
                });
            }
            (Some(there), _) if there.layout == Layout::Bare && guess(&hooks)? == Layout::Gitolite => Layout::Gitolite,
            (Some(there), _) => there.layout,
        };
        Ok(site(layout))
    }

    /// The file of our hook. The companion goes where its own kind of hook has a place for it: a host may have a
    /// dispatcher for the one and not for the other.
    pub(crate) fn hook(&self, part: Part) -> PathBuf {
        let behind_dispatcher = match part {
            Part::Gate => self.layout == Layout::Dispatcher,
            Part::Companion => self.layout != Layout::Gitolite && is_dispatcher(&self.hooks, part).unwrap_or(false),
        };
        self.hooks.join(if behind_dispatcher { part.in_dispatcher() } else { part.name() })
    }

    /// The directory where git looks.
    pub(crate) fn hooks(&self) -> &Path {
        &self.hooks
    }

    /// The hook that git starts: ours, or the dispatcher that starts ours.
    pub(crate) fn door(&self, part: Part) -> PathBuf {
        self.hooks.join(part.name())
    }

    /// Where our hook would be a second time.
    pub(crate) fn second_hook(&self) -> Option<PathBuf> {
        let second = self.hooks.join(Part::Gate.in_dispatcher());
        let is_ours = second != self.hook(Part::Gate) && matches!(HookFile::at(&second), Ok(HookFile::Ours(_)));
        is_ours.then_some(second)
    }

    /// Why our hook cannot go here, or would not stay.
    pub(crate) fn objection(&self, part: Part) -> Result<Option<CommandError>, CommandError> {
        let (hook, door) = (self.hook(part), self.door(part));
        let is_behind_dispatcher = hook != door;
        let found = HookFile::at(&hook)?;
        let other = |what: String, hint: &str| Ok(Some(CommandError::Other { what, hint: hint.to_owned() }));
        let shown = hook.display();
        if fs::symlink_metadata(&self.hooks).is_ok_and(|found| found.is_symlink()) {
            return other(
                format!("'{}' is a link, which is not followed, and nothing was changed", self.hooks.display()),
                "say where hooks are with  git config core.hooksPath  and the directory that it leads to",
            );
        }
        if found == HookFile::NoHook {
            return other(
                format!("'{shown}' is neither a file nor a link, and nothing was changed"),
                "move it away and install again",
            );
        }
        if is_behind_dispatcher && !is_executable(&door) {
            return other(
                format!("there is no dispatcher '{}' that git could run, and nothing was changed", door.display()),
                "let the forge write its hooks first, or use  --layout bare",
            );
        }
        if found != HookFile::Others {
            return Ok(None);
        }
        if is_behind_dispatcher {
            return other(
                format!("'{shown}' is somebody else's, and nothing was changed"),
                "give that hook another name and install again",
            );
        }
        self.objection_to_keeping(part, &hook)
    }

    /// Why ours cannot go where somebody else's hook is, which would be kept.
    fn objection_to_keeping(&self, part: Part, hook: &Path) -> Result<Option<CommandError>, CommandError> {
        let other = |what: String, hint: &str| Ok(Some(CommandError::Other { what, hint: hint.to_owned() }));
        let shown = hook.display();
        // A companion that somebody else's hook calls is there.
        if part == Part::Companion && calls(part, hook) {
            return Ok(None);
        }
        if calls(part, hook) {
            return other(
                format!("the hook '{shown}' calls the gate itself, and nothing was changed"),
                "leave it so, or take that call out of it and install again: twice would be once too often",
            );
        }
        if self.layout == Layout::Gitolite && fs::read_link(hook).is_ok() {
            return other(
                format!(
                    "'{shown}' is a link of gitolite's, which would put it back over ours, and nothing was changed"
                ),
                "take that hook out of gitolite's common hooks, or use  --layout bare  and install again after each 'gitolite setup'",
            );
        }
        let kept = kept_hook::place_of(hook);
        let is_kept = !kept_hook::is_helper(&kept) && HookFile::at(&kept)? != HookFile::Nothing;
        if is_kept && !kept_hook::is_the_same(hook) {
            return other(
                format!("there are two hooks to keep, '{shown}' and '{}', and nothing was changed", kept.display()),
                "somebody has replaced ours since. Remove the one that is not wanted and install again",
            );
        }
        Ok(None)
    }
}

/// Where git looks for hooks: `core.hooksPath` counts, a relative one from where hooks run, and wherever links lead
/// on the way there. The repository's own hooks are in the repository: a link in their place is not followed.
fn hooks_dir(repository: &Repository) -> Result<PathBuf, CommandError> {
    if repository.setting("core.hooksPath").is_none() {
        let common_dir = fs::canonicalize(&repository.common_dir);
        return Ok(common_dir.map_err(CommandError::io("find", &repository.common_dir))?.join("hooks"));
    }
    let asked = git::ask(&repository.git_dir, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"])?;
    let path = PathBuf::from(OsStr::from_bytes(asked.strip_suffix(b"\n").unwrap_or(&asked)));
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

fn guess(hooks: &Path) -> Result<Layout, CommandError> {
    if is_dispatcher(hooks, Part::Gate)? {
        return Ok(Layout::Dispatcher);
    }
    let update = fs::read_link(hooks.join("update")).unwrap_or_default();
    let is_gitolites = update.components().any(|part| part.as_os_str() == ".gitolite");
    Ok(if is_gitolites { Layout::Gitolite } else { Layout::Bare })
}

/// Whether what git starts is a script that runs all of a directory.
fn is_dispatcher(hooks: &Path, part: Part) -> Result<bool, CommandError> {
    let door = hooks.join(part.name());
    if HookFile::at(&door)? != HookFile::Others || !is_executable(&door) || !door.with_extension("d").is_dir() {
        return Ok(false);
    }
    Ok(speaks_of_a_directory(&files::read_hook(&door).map_err(CommandError::io("read", &door))?))
}

/// `pre-receive.d/*`, `"${hookname}.d"/*` and the like.
fn speaks_of_a_directory(script: &[u8]) -> bool {
    script.starts_with(b"#!") && [&b".d/"[..], b".d\"", b".d'", b".d "].iter().any(|end| contains(script, end))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
