//! Where the hook goes: each kind of host has its own place for it.

use crate::{
    failure::Failure,
    git,
    hook_file::{Found, calls_the_gate, is_executable},
    kept_hook,
    repository::Repository,
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

/// The place of the hook in one repository.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) layout: Layout,
    hooks: PathBuf,
}

/// The last in sorting order: the fence decides as close to the write as it can.
const IN_DISPATCHER: &str = "pre-receive.d/zz-git-fence";

impl Site {
    /// Where the hook of `repository` is, or where it is to go.
    pub(crate) fn of(repository: &Repository, asked: Option<Layout>) -> Result<Site, Failure> {
        let hooks = hooks_dir(repository)?;
        let site = |layout| Site { layout, hooks: hooks.clone() };
        let there = [Layout::Bare, Layout::Dispatcher].into_iter().map(site);
        let mut there = there.filter(|site| matches!(Found::at(&site.hook()), Ok(Found::Ours(_))));
        let layout = match (there.next(), asked) {
            (None, None) => guess(&hooks)?,
            (None, Some(asked)) => asked,
            // A second one would wait for the first.
            (Some(there), Some(asked)) if there.hook() != site(asked).hook() => {
                return Err(Failure::Other {
                    what: format!("the gate is already installed as '{}'", there.hook().display()),
                    hint: "git-fence-hook uninstall  first".to_owned(),
                });
            }
            (Some(there), _) if there.layout == Layout::Bare && guess(&hooks)? == Layout::Gitolite => Layout::Gitolite,
            (Some(there), _) => there.layout,
        };
        Ok(site(layout))
    }

    /// The file of our hook.
    pub(crate) fn hook(&self) -> PathBuf {
        self.hooks.join(match self.layout {
            Layout::Bare | Layout::Gitolite => "pre-receive",
            Layout::Dispatcher => IN_DISPATCHER,
        })
    }

    /// The directory where git looks.
    pub(crate) fn hooks(&self) -> &Path {
        &self.hooks
    }

    /// The hook that git starts: ours, or the dispatcher that starts ours.
    pub(crate) fn door(&self) -> PathBuf {
        self.hooks.join("pre-receive")
    }

    /// Where our hook would be a second time.
    pub(crate) fn second_hook(&self) -> Option<PathBuf> {
        let second = self.hooks.join(IN_DISPATCHER);
        let is_ours = second != self.hook() && matches!(Found::at(&second), Ok(Found::Ours(_)));
        is_ours.then_some(second)
    }

    /// Why our hook cannot go here, or would not stay.
    pub(crate) fn objection(&self) -> Result<Option<Failure>, Failure> {
        let hook = self.hook();
        let found = Found::at(&hook)?;
        let other = |what: String, hint: &str| Ok(Some(Failure::Other { what, hint: hint.to_owned() }));
        let shown = hook.display();
        if found == Found::NoHook {
            return other(
                format!("'{shown}' is neither a file nor a link, and nothing was changed"),
                "move it away and install again",
            );
        }
        if self.layout == Layout::Dispatcher && !is_executable(&self.door()) {
            return other(
                format!(
                    "there is no dispatcher '{}' that git could run, and nothing was changed",
                    self.door().display()
                ),
                "let the forge write its hooks first, or use  --layout bare",
            );
        }
        if found != Found::Others {
            return Ok(None);
        }
        if self.layout == Layout::Dispatcher {
            return other(
                format!("'{shown}' is somebody else's, and nothing was changed"),
                "give that hook another name and install again",
            );
        }
        if calls_the_gate(&hook) {
            return other(
                format!("the hook '{shown}' calls the gate itself, and nothing was changed"),
                "leave it so, or take that call out of it and install again: twice would be once too often",
            );
        }
        if self.layout == Layout::Gitolite && fs::read_link(&hook).is_ok() {
            return other(
                format!(
                    "'{shown}' is a link of gitolite's, which would put it back over ours, and nothing was changed"
                ),
                "take that hook out of gitolite's common hooks, or use  --layout bare  and install again after each 'gitolite setup'",
            );
        }
        let kept = kept_hook::place_of(&hook);
        if Found::at(&kept)? != Found::Nothing && !kept_hook::is_the_same(&hook) {
            return other(
                format!("there are two hooks to keep, '{shown}' and '{}', and nothing was changed", kept.display()),
                "somebody has replaced ours since. Remove the one that is not wanted and install again",
            );
        }
        Ok(None)
    }
}

/// Where git looks for hooks: `core.hooksPath` counts, and a relative one from where hooks run.
fn hooks_dir(repository: &Repository) -> Result<PathBuf, Failure> {
    let asked = git::ask(&repository.git_dir, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"])?;
    let path = asked.strip_suffix(b"\n").unwrap_or(&asked);
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

fn guess(hooks: &Path) -> Result<Layout, Failure> {
    let door = hooks.join("pre-receive");
    if Found::at(&door)? == Found::Others && is_executable(&door) && hooks.join("pre-receive.d").is_dir() {
        let content = fs::read(&door).map_err(Failure::io("read", &door))?;
        if speaks_of_a_directory(&content) {
            return Ok(Layout::Dispatcher);
        }
    }
    let update = fs::read_link(hooks.join("update")).unwrap_or_default();
    let is_gitolites = update.components().any(|part| part.as_os_str() == ".gitolite");
    Ok(if is_gitolites { Layout::Gitolite } else { Layout::Bare })
}

/// `pre-receive.d/*`, `"${hookname}.d"/*` and the like.
fn speaks_of_a_directory(script: &[u8]) -> bool {
    script.starts_with(b"#!") && [&b".d/"[..], b".d\"", b".d'", b".d "].iter().any(|end| contains(script, end))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
