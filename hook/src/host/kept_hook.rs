//! The hook that was there before: kept beside ours, run first, given back to the byte.
//!
//! It lies in a directory of its own, so that it is still called `pre-receive`: there are hooks that
//! go by their own name. What else lies beside a hook is linked there, so that it finds its helpers
//! where it looks for them. Our hook finds it next to its own file; nothing has to be configured.
//!
//! It runs before anything is read, locked or decided: the fence decides last, as close to the
//! write as it can, and nobody waits for somebody else's hook.

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

/// What a link's target is called one directory further down. To the byte: it comes back one day.
fn seen_from_below(target: &Path) -> PathBuf {
    if target.is_absolute() {
        return target.to_owned();
    }
    OsString::from_vec([UP.as_bytes(), target.as_os_str().as_bytes()].concat()).into()
}

/// Where the hook that was at `hook` is kept.
pub(crate) fn place_of(hook: &Path) -> PathBuf {
    let dir = hook.parent().unwrap_or(Path::new("."));
    dir.join(KEPT).join(hook.file_name().unwrap_or_default())
}

/// What became of the hook that was there before.
#[derive(Debug)]
pub(crate) enum Word {
    /// It let the push through, or there is none that git would run.
    GoOn,
    /// It refused, with this exit code.
    Refused(u8),
}

/// Runs the hook that is kept beside `own_file`, if there is one, as git would have run it: the same
/// arguments, environment, directory and standard input.
pub(crate) fn run(own_file: &Path, args: &[OsString], input: &[u8]) -> Result<Word, Reject> {
    let kept = place_of(own_file);
    // As git does: without its run bit, a hook is none.
    if is_helper(&kept) || !is_executable(&kept) {
        return Ok(Word::GoOn);
    }
    let cannot = |e: io::Error| Reject::Broken {
        what: format!("the hook that was here before git-fence, '{}', cannot be run: {e}", kept.display()),
        fix: "nothing was written. The server's operator mends that file".to_owned(),
    };
    let mut child = start(&kept, args).map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // Not waited for: a hook need not read, and may leave somebody behind who holds the pipe.
        thread::spawn(move || stdin.write_all(&input));
    }
    let ended = child.wait().map_err(cannot)?;
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    Ok(if ended.success() { Word::GoOn } else { Word::Refused(u8::try_from(code).unwrap_or(1).max(1)) })
}

fn start(kept: &Path, args: &[OsString]) -> io::Result<Child> {
    match Command::new(kept).args(args).stdin(Stdio::piped()).spawn() {
        // A script without a first line that says who reads it: git lets the shell read it.
        Err(e) if git_fence_system::program::has_no_interpreter(&e) => {
            Command::new("/bin/sh").arg(kept).args(args).stdin(Stdio::piped()).spawn()
        }
        started => started,
    }
}

/// Keeps the hook at `hook`, which stays where it is until ours is put over it: there is no moment
/// without a hook.
pub(crate) fn keep(hook: &Path) -> Result<Keeping, CommandError> {
    let kept = place_of(hook);
    let dir = kept.parent().unwrap_or(Path::new("."));
    files::make_hooks_dir(dir).map_err(CommandError::io("make", dir))?;
    if is_helper(&kept) {
        files::remove(&kept).map_err(CommandError::io("remove", &kept))?;
    }
    let keeping = Keeping(Some(kept.clone()));
    let made = match files::read_link(hook) {
        Ok(target) => files::symlink(&seen_from_below(&target), &kept),
        Err(_) => match files::hard_link(hook, &kept) {
            // Where there are no hard links, or none to other people's files.
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => files::copy(hook, &kept),
            linked => linked,
        },
    };
    match made {
        // The same one: somebody was interrupted right here.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(CommandError::io("keep", hook))?,
    }
    link_helpers(hook, dir).map_err(CommandError::io("link to", dir))?;
    Ok(keeping)
}

/// A hook that is kept, and ours not yet in its place.
#[must_use = "it is kept no longer when this is dropped"]
pub(crate) struct Keeping(Option<PathBuf>);

impl Keeping {
    /// Ours is in its place.
    pub(crate) fn for_good(mut self) {
        self.0 = None;
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(kept) = &self.0 {
            let _ = files::remove(kept);
            clear_away(kept);
        }
    }
}

/// Whether the hook at `hook` is the very one that is kept: somebody was interrupted in between.
pub(crate) fn is_the_same(hook: &Path) -> bool {
    let kept = place_of(hook);
    let target = |path: &Path| files::read_link(path).ok();
    match (target(hook), target(&kept)) {
        (Some(link), Some(kept)) => seen_from_below(&link).as_os_str() == kept.as_os_str(),
        (None, None) => files::read_hook(hook).ok().is_some_and(|bytes| files::read_hook(&kept).ok() == Some(bytes)),
        _ => false,
    }
}

/// Gives back the hook that was at `hook`, over ours. Says whether there was one.
pub(crate) fn give_back(hook: &Path) -> Result<bool, CommandError> {
    let kept = place_of(hook);
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
    back.map_err(CommandError::io("give back", hook))?;
    clear_away(&kept);
    Ok(true)
}

/// Whether it is a link to what lies beside our hook under the same name. No kept hook is: it would be a link to itself.
pub(crate) fn is_helper(kept: &Path) -> bool {
    let name = Path::new(kept.file_name().unwrap_or_default());
    files::read_link(kept).is_ok_and(|target| target == seen_from_below(name))
}

/// Removes the directory and the links in it; anything else in there is somebody's and stays.
fn clear_away(kept: &Path) {
    let Some(dir) = kept.parent() else { return };
    let is_kept = |part: &Part| {
        let other = dir.join(part.name());
        !is_helper(&other) && fs::symlink_metadata(&other).is_ok()
    };
    // The hook that is kept beside it finds its helpers here, too.
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

/// Links to what lies beside the hook, under the same names.
fn link_helpers(hook: &Path, dir: &Path) -> io::Result<()> {
    for name in files::names_in(hook.parent().unwrap_or(Path::new(".")))? {
        // Our own hooks are nobody's helpers: the kept one would run ours once more.
        let is_ours = Part::BOTH.iter().any(|part| name == part.name());
        let is_helper = Some(name.as_os_str()) != hook.file_name()
            && name != KEPT
            && !is_ours
            && !Path::new(&name).extension().is_some_and(|end| end == "sample" || end == "git-fence-new");
        if is_helper && fs::symlink_metadata(dir.join(&name)).is_err() {
            files::symlink(&seen_from_below(Path::new(&name)), &dir.join(&name))?;
        }
    }
    Ok(())
}
