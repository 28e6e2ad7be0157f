//! Where the gate's hooks go: each kind of host has its own layout.

use crate::{
    failure::CommandError,
    host::{
        hook_file::{HookFile, Part, calls, is_executable},
        kept_hook,
    },
    log::files,
    repository::{Repository, git::shell_quoted},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Layout {
    /// A plain repository: hooks/pre-receive; an existing hook runs first
    Bare,
    /// Gitea, Forgejo and similar: hooks/pre-receive runs everything in hooks/pre-receive.d
    Dispatcher,
    /// GitLab: Gitaly runs everything in custom_hooks/pre-receive.d, and never looks into hooks
    Gitlab,
    /// Gitolite, which has its own 'update' hook and does not use 'pre-receive'
    Gitolite,
}

/// The hook paths of one repository.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) layout: Layout,
    hooks: PathBuf,
}

impl Site {
    /// Where the hooks of `repository` are, or will be installed.
    pub(crate) fn of(repository: &Repository, requested: Option<Layout>) -> Result<Site, CommandError> {
        let hooks = hooks_dir(repository)?;
        let custom = repository.common_dir.join(CUSTOM_HOOKS);
        let dir_of = |layout| if layout == Layout::Gitlab { custom.clone() } else { hooks.clone() };
        let site = |layout| Site { layout, hooks: dir_of(layout) };
        let there = [Layout::Bare, Layout::Dispatcher, Layout::Gitlab].into_iter().map(site);
        let mut there = there.filter(|site| matches!(HookFile::at(&site.hook(Part::Gate)), Ok(HookFile::Ours(_))));
        let layout = match (there.next(), requested) {
            (None, None) if is_gitlabs(repository) => Layout::Gitlab,
            (None, None) => detect(&hooks)?,
            (None, Some(requested)) => requested,
            // A second gate would wait for the first.
            (Some(there), Some(requested)) if there.hook(Part::Gate) != site(requested).hook(Part::Gate) => {
                return Err(CommandError::Other {
                    what: format!("the gate is already installed as '{}'", there.hook(Part::Gate).display()),
                    hint: format!(
                        "uninstall it first:  git-fence-hook uninstall {}",
                        shell_quoted(&repository.common_dir.display().to_string())
                    ),
                });
            }
            (Some(there), _) if there.layout == Layout::Bare && detect(&hooks)? == Layout::Gitolite => Layout::Gitolite,
            (Some(there), _) => there.layout,
        };
        Ok(site(layout))
    }

    /// The path of the gate's hook. The companion depends on its own kind of hook: a host may have a dispatcher for one and
    /// not for the other.
    pub(crate) fn hook(&self, part: Part) -> PathBuf {
        let behind_dispatcher = match part {
            _ if self.layout == Layout::Gitlab => true,
            Part::Gate => self.layout == Layout::Dispatcher,
            Part::Companion => self.layout != Layout::Gitolite && is_dispatcher(&self.hooks, part).unwrap_or(false),
        };
        self.hooks.join(if behind_dispatcher { part.in_dispatcher() } else { part.name() })
    }

    /// The directory in which git looks for hooks.
    pub(crate) fn hooks(&self) -> &Path {
        &self.hooks
    }

    /// The hook that git starts: the gate's, or the dispatcher that starts it.
    pub(crate) fn door(&self, part: Part) -> PathBuf {
        self.hooks.join(part.name())
    }

    /// The path of a second installation of the gate's hook, if there is one.
    pub(crate) fn second_hook(&self) -> Option<PathBuf> {
        let second = self.hooks.join(Part::Gate.in_dispatcher());
        let is_ours = second != self.hook(Part::Gate) && matches!(HookFile::at(&second), Ok(HookFile::Ours(_)));
        is_ours.then_some(second)
    }

    /// Why the gate's hook cannot be installed here, or would be overwritten.
    pub(crate) fn objection(&self, part: Part) -> Result<Option<CommandError>, CommandError> {
        let (hook, door) = (self.hook(part), self.door(part));
        let is_behind_dispatcher = hook != door;
        let found = HookFile::at(&hook)?;
        let other = |what: String, hint: &str| Ok(Some(CommandError::Other { what, hint: hint.to_owned() }));
        let shown = hook.display();
        if fs::symlink_metadata(&self.hooks).is_ok_and(|found| found.is_symlink()) {
            return other(
                format!("'{}' is a link, and links are not followed here: nothing was changed", self.hooks.display()),
                "set the hooks directory to the target of the link:  git config core.hooksPath DIR",
            );
        }
        if found == HookFile::NoHook {
            return other(
                format!("'{shown}' is not a file or link: nothing was changed"),
                "move it elsewhere and install again",
            );
        }
        if is_behind_dispatcher && self.layout != Layout::Gitlab && !is_executable(&door) {
            return other(
                format!("dispatcher '{}' is missing or not executable: nothing was changed", door.display()),
                "let the forge write its hooks first, or use  --layout bare",
            );
        }
        if found != HookFile::Others {
            return Ok(None);
        }
        if is_behind_dispatcher {
            return other(
                format!("'{shown}' exists and is not git-fence's: nothing was changed"),
                "rename that hook and install again",
            );
        }
        self.objection_to_keeping(part, &hook)
    }

    /// Why the gate's hook cannot replace an existing hook, which would be kept.
    fn objection_to_keeping(&self, part: Part, hook: &Path) -> Result<Option<CommandError>, CommandError> {
        let other = |what: String, hint: &str| Ok(Some(CommandError::Other { what, hint: hint.to_owned() }));
        let shown = hook.display();
        // A companion that the existing hook calls is installed.
        if part == Part::Companion && calls(part, hook) {
            return Ok(None);
        }
        if calls(part, hook) {
            return other(
                format!("the hook '{shown}' already calls the gate: nothing was changed"),
                "leave it as it is, or remove that call and install again; the gate must not run twice",
            );
        }
        if self.layout == Layout::Gitolite && fs::read_link(hook).is_ok() {
            return other(
                format!(
                    "'{shown}' is a link of gitolite's, which would replace the gate's hook again: nothing was changed"
                ),
                "remove that hook from gitolite's common hooks, or use  --layout bare  and install again after each 'gitolite setup'",
            );
        }
        let kept = kept_hook::kept_path(hook);
        let is_kept = !kept_hook::is_helper(&kept) && HookFile::at(&kept)? != HookFile::Nothing;
        if is_kept && !kept_hook::is_identical(hook) {
            return other(
                format!("there are two hooks to keep, '{shown}' and '{}': nothing was changed", kept.display()),
                "the gate's hook has been replaced since it was installed. Remove the hook that is not needed and install again",
            );
        }
        Ok(None)
    }
}

/// The directory in which git looks for hooks: `core.hooksPath`, relative to where hooks run, with links resolved; or
/// else the repository's own `hooks`, where a link is not followed.
fn hooks_dir(repository: &Repository) -> Result<PathBuf, CommandError> {
    if repository.setting("core.hooksPath").is_none() {
        let common_dir = fs::canonicalize(&repository.common_dir);
        return Ok(common_dir.map_err(CommandError::io("find", &repository.common_dir))?.join("hooks"));
    }
    // Git itself would answer by the configuration of whoever runs this.
    let path = repository.hooks_path().ok_or_else(|| CommandError::Other {
        what: "cannot tell the directory that core.hooksPath means".to_owned(),
        hint: "set it to an absolute path:  git config core.hooksPath DIR".to_owned(),
    })?;
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

/// Where Gitaly looks for the hooks of one repository.
pub(crate) const CUSTOM_HOOKS: &str = "custom_hooks";

/// Whether GitLab serves the repository: it has custom hooks, or GitLab's name for it.
fn is_gitlabs(repository: &Repository) -> bool {
    repository.common_dir.join(CUSTOM_HOOKS).is_dir() || repository.setting("gitlab.fullpath").is_some()
}

fn detect(hooks: &Path) -> Result<Layout, CommandError> {
    if is_dispatcher(hooks, Part::Gate)? {
        return Ok(Layout::Dispatcher);
    }
    let update = fs::read_link(hooks.join("update")).unwrap_or_default();
    let is_gitolites = update.components().any(|part| part.as_os_str() == ".gitolite");
    Ok(if is_gitolites { Layout::Gitolite } else { Layout::Bare })
}

/// Whether git starts a script that runs all hooks in a directory.
fn is_dispatcher(hooks: &Path, part: Part) -> Result<bool, CommandError> {
    let door = hooks.join(part.name());
    if HookFile::at(&door)? != HookFile::Others || !is_executable(&door) || !door.with_extension("d").is_dir() {
        return Ok(false);
    }
    Ok(mentions_a_directory(&files::read_hook(&door).map_err(CommandError::io("read", &door))?))
}

/// `pre-receive.d/*`, `"${hookname}.d"/*` and the like.
fn mentions_a_directory(script: &[u8]) -> bool {
    script.starts_with(b"#!") && [&b".d/"[..], b".d\"", b".d'", b".d "].iter().any(|end| contains(script, end))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
