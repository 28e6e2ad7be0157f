//! Who has started this program. For `git fence` it is git: the pid that a supervisor knows is git's, and
//! what ends git without asking (SIGKILL) does not reach us. So git is watched, and its end is our SIGTERM.

use crate::surroundings::Environment;
use git_fence_system::{
    env,
    process::{self, Pid, Process, ProcessHandle, own_pid, parent_pid},
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// How often to look whether git is still our parent, where the system has no handles.
const LOOK: Duration = Duration::from_millis(200);

/// Who has started this program.
#[derive(Debug)]
pub(crate) enum Starter {
    /// Git, which waits for us.
    Git { pid: Pid, handle: Option<ProcessHandle> },
    /// Git, and it was gone before we looked.
    GitThatIsGone,
    /// Somebody else, a shell or a timer: their end says nothing, `nohup` and `&` are there for that.
    SomebodyElse,
}

impl Starter {
    /// Looks for it, which is to be done first of all. `name` is what this program was called by.
    pub(crate) fn find(name: &OsStr, environment: &Environment) -> Starter {
        // There is no number for a parent outside of the pid namespace.
        let Some(pid) = parent_pid() else { return Starter::SomebodyElse };
        let handle = ProcessHandle::open(pid).ok();
        let is_git = is_git(pid);
        // Asked again after opening: the pid of one that is gone may be somebody else's.
        let is_parent = parent_pid() == Some(pid);
        match (is_git, is_parent) {
            (true, true) => Starter::Git { pid, handle },
            (true, false) => Starter::GitThatIsGone,
            (false, _) if is_called_as_by_git(name, environment) && is_orphan() => Starter::GitThatIsGone,
            (false, _) => Starter::SomebodyElse,
        }
    }

    /// Calls `tell` when git is gone, on a thread of its own.
    pub(crate) fn when_gone(self, tell: impl FnOnce() + Send + 'static) {
        match self {
            Starter::SomebodyElse => {}
            Starter::GitThatIsGone => tell(),
            Starter::Git { pid, handle } => {
                thread::spawn(move || {
                    wait_for_end_of_parent(pid, handle.as_ref());
                    tell();
                });
            }
        }
    }
}

fn wait_for_end_of_parent(pid: Pid, handle: Option<&ProcessHandle>) {
    if handle.is_none_or(|handle| handle.wait().is_err()) {
        while parent_pid() == Some(pid) {
            thread::sleep(LOOK);
        }
    }
}

/// Whether the process is a `git`, by the name that it was called by.
fn is_git(pid: Pid) -> bool {
    let arguments = process::arguments(pid).unwrap_or_default();
    let name = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    Path::new(OsStr::from_bytes(name)).file_name() == Some(OsStr::new("git"))
}

/// Whether this program was started as git does it: by its whole path, and with git's own programs first in
/// the PATH.
fn is_called_as_by_git(name: &OsStr, environment: &Environment) -> bool {
    let first = environment.get(env::PATH).and_then(|path| std::env::split_paths(path).next());
    let own = environment.get(env::GIT_EXEC_PATH).map(PathBuf::from);
    let is_of_git = |dir: PathBuf| dir.file_name() == Some(OsStr::new("git-core")) || Some(&dir) == own.as_ref();
    name.as_bytes().contains(&b'/') && first.is_some_and(is_of_git)
}

/// Whether our parent is one that has taken us in: the first process, or one of another session. A child is
/// born into the session of its parent; git begins none, and with one of our own we were not started by git.
fn is_orphan() -> bool {
    let Ok(own) = Process::own() else { return false };
    let Some(parent) = own.parent else { return false };
    let leads_session = own.session == Some(own_pid());
    let session_of_parent = Process::read(parent).map(|parent| parent.session);
    !leads_session && (parent == Pid::INIT || session_of_parent.is_some_and(|session| session != own.session))
}
