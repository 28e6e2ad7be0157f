//! Checks that the companion is installed: the `post-receive` hook that records what each push has moved.
//!
//! People replace `post-receive` without noticing. A gate without its companion looks intact, but a spent token becomes
//! valid again as soon as a ref is reset. So the gate refuses instead.

use crate::{
    host::{
        hook_file::{HookFile, Part, calls, is_executable},
        layout::CUSTOM_HOOKS,
        surroundings::Environment,
    },
    push::arrival::Arrival,
    repository::Repository,
};
use git_fence_core::{Reject, Settings};
use git_fence_system::env;
use gix::config::path::interpolate;
use std::path::{Path, PathBuf};

/// Refuses the push if the companion is missing, unless the settings make it optional.
pub(crate) fn require(arrival: &Arrival<'_>, settings: &Settings) -> Result<(), Reject> {
    let Arrival { repository, environment, own_file, .. } = arrival;
    if settings.companion_is_optional {
        return Ok(());
    }
    if is_disabled(Part::Companion, repository) {
        return Err(refusal("hook.post-receive.enabled is false"));
    }
    let hooks = own_file.map_or_else(|| configured_hooks_dir(repository, environment), hooks_dir_beside);
    find_problem(&hooks).map_or(Ok(()), |why| Err(refusal(&why)))
}

/// Whether git (2.54 or newer) is configured not to run this hook.
pub(crate) fn is_disabled(part: Part, repository: &Repository) -> bool {
    let key = format!("hook.{}.enabled", part.name());
    repository.config.boolean(key.as_str()).ok().flatten() == Some(false)
}

fn refusal(why: &str) -> Reject {
    Reject::Broken {
        what: format!("{why}, so the gate could not record at once what this push moves"),
        fix: "nothing was written. Ask the server's operator to run  git-fence-hook install  (it keeps the existing hook)"
            .to_owned(),
    }
}

/// The hooks directory, derived from the gate's own file: `pre-receive` in it, or in `pre-receive.d`.
fn hooks_dir_beside(own_file: &Path) -> PathBuf {
    let dir = own_file.parent().unwrap_or(Path::new("."));
    let is_dispatched = dir.file_name().is_some_and(|name| name == "pre-receive.d");
    dir.parent().filter(|_| is_dispatched).unwrap_or(dir).to_owned()
}

/// The hooks directory according to the configuration, for a gate that another hook calls. A relative path is relative
/// to the directory in which git runs hooks, which is the current one.
fn configured_hooks_dir(repository: &Repository, environment: &Environment) -> PathBuf {
    let home = environment.path(env::HOME);
    let context = || interpolate::Context {
        home_dir: home.as_deref(),
        home_for_user: Some(interpolate::home_for_user),
        ..Default::default()
    };
    let configured = repository.config.path("core.hooksPath").and_then(|path| path.interpolate(context()).ok());
    configured.unwrap_or_else(|| repository.common_dir.join("hooks"))
}

/// Whether the host itself runs the directories of hooks, without a dispatcher in git's place for the hook: GitLab.
fn is_started_by_host(hooks: &Path) -> bool {
    let is_dispatched = matches!(HookFile::at(&hooks.join(Part::Gate.in_dispatcher())), Ok(HookFile::Ours(_)));
    is_dispatched && hooks.file_name().is_some_and(|name| name == CUSTOM_HOOKS)
}

/// What is wrong with the companion in this hooks directory; `None` if git runs it.
pub(crate) fn find_problem(hooks: &Path) -> Option<String> {
    let door = hooks.join(Part::Companion.name());
    let dispatched = hooks.join(Part::Companion.in_dispatcher());
    let runs = |path: &Path| matches!(HookFile::at(path), Ok(HookFile::Ours(_))) && is_executable(path);
    if is_started_by_host(hooks) {
        return (!runs(&dispatched))
            .then(|| format!("git-fence's companion '{}' is missing or not executable", dispatched.display()));
    }
    if runs(&door) {
        return None;
    }
    let shown = door.display();
    match HookFile::at(&door) {
        Ok(HookFile::Others) if !is_executable(&door) => {
            Some(format!("git does not run '{shown}': it is not executable"))
        }
        Ok(HookFile::Others) if runs(&dispatched) || calls(Part::Companion, &door) => None,
        Ok(HookFile::Others) => Some(format!("'{shown}' is not git-fence's companion and does not run it")),
        Ok(HookFile::Ours(_)) => Some(format!("git-fence's companion '{shown}' is not executable")),
        Ok(HookFile::Nothing | HookFile::NoHook) => Some(format!("git-fence's companion '{shown}' is missing")),
        Err(failure) => Some(failure.in_one_line()),
    }
}
