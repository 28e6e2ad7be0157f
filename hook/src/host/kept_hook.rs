//! The previous hook: kept next to the gate's hook, run first, and restored exactly.
//!
//! It is in a separate directory, so that it is still called `pre-receive`: some hooks depend on their own name. Other
//! files next to the hook are linked there, so that it finds its helpers where it expects them. The gate's hook finds it
//! relative to its own file; nothing has to be configured.
//!
//! It runs before anything is read, locked or decided: the fence decides last, as close to the ref update as possible,
//! and no push waits for the hook of another.

use crate::{
    failure::CommandError,
    host::hook_file::{HookFile, Part, beside, is_executable},
    log::files::{self, KEPT},
};
use git_fence_core::Reject;
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

const UP: &str = "../";

/// The target of a link, seen from one directory further down. Byte for byte, because it will be restored.
fn from_below(target: &Path) -> PathBuf {
    if target.is_absolute() {
        return target.to_owned();
    }
    OsString::from_vec([UP.as_bytes(), target.as_os_str().as_bytes()].concat()).into()
}

/// Where the previous hook of `hook` is kept.
pub(crate) fn kept_path(hook: &Path) -> PathBuf {
    let dir = hook.parent().unwrap_or(Path::new("."));
    dir.join(KEPT).join(hook.file_name().unwrap_or_default())
}

/// The result of the previous hook.
#[derive(Debug)]
pub(crate) enum HookOutcome {
    /// It admitted the push, or there is none that git would run.
    Continue,
    /// It refused, with this exit code.
    Refused(u8),
}

/// Runs the hook that is kept for `own_file`, if there is one, as git would have run it: with the same arguments,
/// environment, directory and standard input.
pub(crate) fn run(own_file: &Path, args: &[OsString], input: &[u8]) -> Result<HookOutcome, Reject> {
    let kept = kept_path(own_file);
    // Like git: a hook that is not executable is ignored.
    if is_helper(&kept) || !is_executable(&kept) {
        return Ok(HookOutcome::Continue);
    }
    let cannot = |e: io::Error| Reject::Broken {
        what: format!("cannot run the hook that was installed before git-fence, '{}': {e}", kept.display()),
        fix: "nothing was written. Ask the server's operator to fix that file".to_owned(),
    };
    let mut child = start(&kept, args).map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // Not joined: a hook need not read its input, and may leave a process that holds the pipe open.
        thread::spawn(move || stdin.write_all(&input));
    }
    let ended = child.wait().map_err(cannot)?;
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    Ok(if ended.success() {
        HookOutcome::Continue
    } else {
        HookOutcome::Refused(u8::try_from(code).unwrap_or(1).max(1))
    })
}

fn start(kept: &Path, args: &[OsString]) -> io::Result<Child> {
    match Command::new(kept).args(args).stdin(Stdio::piped()).spawn() {
        // A script without an interpreter line: git runs it with the shell.
        Err(e) if git_fence_system::program::has_no_interpreter(&e) => {
            Command::new("/bin/sh").arg(kept).args(args).stdin(Stdio::piped()).spawn()
        }
        started => started,
    }
}

/// Keeps the hook at `hook`. It stays in place until the gate's hook replaces it, so that there is always a hook.
pub(crate) fn keep(hook: &Path) -> Result<Keeping, CommandError> {
    let kept = kept_path(hook);
    let dir = kept.parent().unwrap_or(Path::new("."));
    files::make_hooks_dir(dir).map_err(CommandError::io("make", dir))?;
    if is_helper(&kept) {
        files::remove(&kept).map_err(CommandError::io("remove", &kept))?;
    }
    let keeping = Keeping(Some(kept.clone()));
    let made = match files::read_link(hook) {
        Ok(target) => files::symlink(&from_below(&target), &kept),
        Err(_) => match files::hard_link(hook, &kept) {
            // If there are no hard links, or none to files of other users.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => files::copy(hook, &kept),
            linked => linked,
        },
    };
    match made {
        // The same file: an earlier run was interrupted here.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(CommandError::io("keep", hook))?,
    }
    link_helpers(hook, dir).map_err(CommandError::io("link to", dir))?;
    Ok(keeping)
}

/// A hook that is kept, before the gate's hook has replaced it.
#[must_use = "the copy is removed when this is dropped"]
pub(crate) struct Keeping(Option<PathBuf>);

impl Keeping {
    /// The gate's hook is in place.
    pub(crate) fn for_good(mut self) {
        self.0 = None;
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(kept) = &self.0 {
            let _ = files::remove(kept);
            remove_helpers(kept);
        }
    }
}

/// Whether the hook at `hook` is identical to the kept one: an earlier run was interrupted.
pub(crate) fn is_identical(hook: &Path) -> bool {
    let kept = kept_path(hook);
    let target = |path: &Path| files::read_link(path).ok();
    match (target(hook), target(&kept)) {
        (Some(link), Some(kept)) => from_below(&link).as_os_str() == kept.as_os_str(),
        (None, None) => files::read_hook(hook).ok().is_some_and(|bytes| files::read_hook(&kept).ok() == Some(bytes)),
        _ => false,
    }
}

/// Restores the previous hook of `hook`, replacing the gate's. Returns whether there was one.
pub(crate) fn restore(hook: &Path) -> Result<bool, CommandError> {
    let kept = kept_path(hook);
    if is_helper(&kept) || HookFile::at(&kept)? == HookFile::Nothing {
        return Ok(false);
    }
    let target = files::read_link(&kept).ok();
    let relative = target.as_ref().and_then(|target| target.as_os_str().as_bytes().strip_prefix(UP.as_bytes()));
    let back = match relative {
        Some(target) => {
            let new = beside(hook);
            let linked = files::symlink(Path::new(OsStr::from_bytes(target)), &new);
            linked.and_then(|()| files::rename(&new, hook)).and_then(|()| files::remove(&kept))
        }
        None => files::rename(&kept, hook),
    };
    back.map_err(CommandError::io("restore", hook))?;
    remove_helpers(&kept);
    Ok(true)
}

/// Whether it is a link to the file of the same name next to the gate's hook. A kept hook cannot be: it would link to itself.
pub(crate) fn is_helper(kept: &Path) -> bool {
    let name = Path::new(kept.file_name().unwrap_or_default());
    files::read_link(kept).is_ok_and(|target| target == from_below(name))
}

/// Removes the directory and the links in it. Other files in it are not ours and stay.
fn remove_helpers(kept: &Path) {
    let Some(dir) = kept.parent() else { return };
    let is_kept = |part: &Part| {
        let other = dir.join(part.name());
        !is_helper(&other) && fs::symlink_metadata(&other).is_ok()
    };
    // The other kept hook needs its helpers, too.
    if Part::BOTH.iter().any(is_kept) {
        return;
    }
    for path in files::names_in(dir).unwrap_or_default().iter().map(|name| dir.join(name)) {
        if is_helper(&path) {
            let _ = files::remove(&path);
        }
    }
    files::remove_dir(dir);
}

/// Links to the files next to the hook, under the same names.
fn link_helpers(hook: &Path, dir: &Path) -> io::Result<()> {
    for name in files::names_in(hook.parent().unwrap_or(Path::new(".")))? {
        // The gate's hooks are not helpers: the kept hook would run them again.
        let is_ours = Part::BOTH.iter().any(|part| name == part.name());
        let is_helper = Some(name.as_os_str()) != hook.file_name()
            && name != KEPT
            && !is_ours
            && !Path::new(&name).extension().is_some_and(|end| end == "sample" || end == "git-fence-new");
        if is_helper && fs::symlink_metadata(dir.join(&name)).is_err() {
            files::symlink(&from_below(Path::new(&name)), &dir.join(&name))?;
        }
    }
    Ok(())
}
