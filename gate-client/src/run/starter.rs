//! Which process started this program. For `git fence` it is git: a supervisor knows git's pid, and a SIGKILL
//! to git does not reach us. So we watch git, and treat its end as SIGTERM.

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

/// How often to check whether git is still our parent, if the system has no process handles.
const POLL: Duration = Duration::from_millis(200);

/// Which process started this program.
#[derive(Debug)]
pub(crate) enum Starter {
    /// Git, which waits for us.
    Git { pid: Pid, handle: Option<ProcessHandle> },
    /// Git, but it had exited before we checked.
    GitThatIsGone,
    /// Another program, such as a shell or a timer: its end means nothing, as with `nohup` and `&`.
    Other,
}

impl Starter {
    /// Finds the starter. Must be called first of all. `name` is the name this program was called by.
    pub(crate) fn find(name: &OsStr, environment: &Environment) -> Starter {
        // A parent outside of the pid namespace has no pid here.
        let Some(pid) = parent_pid() else { return Starter::Other };
        let handle = ProcessHandle::open(pid).ok();
        let is_git = is_git(pid);
        // Checked again after opening: the pid of a process that has exited may be reused.
        let is_parent = parent_pid() == Some(pid);
        match (is_git, is_parent) {
            (true, true) => Starter::Git { pid, handle },
            (true, false) => Starter::GitThatIsGone,
            (false, _) if is_called_as_by_git(name, environment) && is_orphan() => Starter::GitThatIsGone,
            (false, _) => Starter::Other,
        }
    }

    /// Calls `tell` when git is gone, on a thread of its own.
    pub(crate) fn when_gone(self, tell: impl FnOnce() + Send + 'static) {
        match self {
            Starter::Other => {}
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
            thread::sleep(POLL);
        }
    }
}

/// Whether the process is `git`, by the name it was called by.
fn is_git(pid: Pid) -> bool {
    let arguments = process::arguments(pid).unwrap_or_default();
    let name = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    Path::new(OsStr::from_bytes(name)).file_name() == Some(OsStr::new("git"))
}

/// Whether this program was started the way git does it: by its absolute path, and with git's own programs
/// first in PATH.
fn is_called_as_by_git(name: &OsStr, environment: &Environment) -> bool {
    let first = environment.get(env::PATH).and_then(|path| std::env::split_paths(path).next());
    let own = environment.get(env::GIT_EXEC_PATH).map(PathBuf::from);
    let is_of_git = |dir: PathBuf| dir.file_name() == Some(OsStr::new("git-core")) || Some(&dir) == own.as_ref();
    name.as_bytes().contains(&b'/') && first.is_some_and(is_of_git)
}

/// Whether our parent is not the process that started us, but one that adopted us: init, or a process of
/// another session. A child starts in the session of its parent; git creates none, and if we lead a session we
/// were not started by git.
fn is_orphan() -> bool {
    let Ok(own) = Process::own() else { return false };
    let Some(parent) = own.parent else { return false };
    let leads_session = own.session == Some(own_pid());
    let session_of_parent = Process::read(parent).map(|parent| parent.session);
    !leads_session && (parent == Pid::INIT || session_of_parent.is_some_and(|session| session != own.session))
}
