//! Processes: their ancestors and descendants, whether they run, waiting for them and signalling them.
//!
//! A pid is only a number, which another process may have by now. So a process is remembered with its start, and waited
//! for and signalled through a [`ProcessHandle`] that was verified to be the same process. To find it again later, from
//! data in a file, keep its [`Identity`].
//!
//! Another Unix: parent, group, session, state and start from `sysctl KERN_PROC_PID`, all processes from `KERN_PROC_ALL`,
//! arguments from `KERN_PROCARGS2` (FreeBSD: `KERN_PROC_ARGS`); a handle is a `kqueue` with `EVFILT_PROC` and `NOTE_EXIT`,
//! which signals by pid after checking the start. On FreeBSD, orphans are adopted with `procctl PROC_REAP_ACQUIRE`; macOS
//! has nothing similar, so process group and session have to suffice.

pub use crate::identity::{Identity, Liveness};
use crate::os;
pub use os::handle::{NoHandle, ProcessHandle};
pub use rustix::process::{Pid, Signal};
use rustix::{
    io::Errno,
    process::{
        WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, test_kill_process, waitid, waitpid,
    },
};
use std::io;

/// A snapshot of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: Pid,
    /// Its start, as shown here: it distinguishes two processes with the same pid.
    pub start: u64,
    /// Its parent. These three are `None` if they are outside the PID namespace, in a container for example.
    pub parent: Option<Pid>,
    /// Its group.
    pub group: Option<Pid>,
    /// Its session.
    pub session: Option<Pid>,
    /// Whether it runs: false for a zombie.
    pub alive: bool,
}

impl Process {
    /// This process. `getsid` and `getpgrp` cannot be used: they may return 0, which is not a [`Pid`].
    pub fn own() -> io::Result<Process> {
        os::process::own()
    }

    /// The process with this pid, if it is visible.
    pub fn read(pid: Pid) -> Option<Process> {
        os::process::read(pid)
    }

    /// Whether this process still runs, rather than another one with its pid.
    pub fn is_still_alive(&self) -> bool {
        Process::read(self.pid).is_some_and(|now| now.start == self.start && now.alive)
    }

    /// Whether this process may not be signalled: it belongs to another user, through sudo for example.
    pub fn is_out_of_reach(&self) -> bool {
        test_kill_process(self.pid) == Err(Errno::PERM)
    }

    /// Sends a signal. Has no effect if the process has ended or may not be signalled.
    pub fn signal(&self, signal: Signal) {
        let handle = ProcessHandle::open(self.pid);
        // Checked after opening: the handle then belongs to the checked process.
        if !self.is_still_alive() {
            return;
        }
        let _ = match handle {
            Ok(handle) => handle.signal(signal),
            // Some sandboxes have no handles.
            Err(_) => kill_process(self.pid, signal).map_err(io::Error::from),
        };
    }

    /// Its identity, to find it again later.
    pub fn identity(&self) -> Identity {
        Identity {
            pid: self.pid.as_raw_pid().unsigned_abs(),
            start: os::process::start_since_boot(self.start),
            incarnation: ProcessHandle::open(self.pid).ok().and_then(|handle| handle.incarnation()),
        }
    }
}

/// The pid of this process.
pub fn own_pid() -> Pid {
    rustix::process::getpid()
}

/// The pid of its parent; `None` if that is outside the PID namespace.
pub fn parent_pid() -> Option<Pid> {
    rustix::process::getppid()
}

/// The ancestors of this process, nearest first, found lazily.
pub fn ancestors() -> impl Iterator<Item = Process> {
    let parent = parent_pid().and_then(Process::read);
    std::iter::successors(parent, |process| Process::read(process.parent?))
}

/// All visible processes, including zombies.
pub fn all() -> Vec<Process> {
    os::process::all()
}

/// The descendants of `root` among `all`.
pub fn below(root: Pid, all: &[Process]) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|process| process.parent == Some(parent) && process.pid != root);
        for child in children {
            found.push(*child);
            parents.push(child.pid);
        }
    }
    found
}

/// The arguments of a process, each followed by a NUL.
pub fn arguments(pid: Pid) -> Option<Vec<u8>> {
    os::process::arguments(pid)
}

/// The number of units of [`Identity::start`] per second.
pub fn starts_per_second() -> u64 {
    os::process::starts_per_second()
}

/// Sends a signal to a whole process group at once.
pub fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Whether a child has ended. This does not reap it: as a zombie it keeps its pid, which may also be the number of its
/// group, from being reused.
pub fn child_has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)) | Err(Errno::CHILD))
}

/// Reaps a child that has ended.
pub fn reap(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

/// Makes this process the parent of orphans among its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    os::process::adopt_orphans()
}

/// Sets the name of this process in `ps` and `top`.
pub fn show_as(name: &std::ffi::CStr) {
    os::process::show_as(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(n: i32) -> Pid {
        Pid::from_raw(n).unwrap()
    }

    #[test]
    fn descendants_of_any_depth_are_found_and_siblings_are_not() {
        let child = |n: i32, parent: i32| {
            let own = Some(pid(1));
            Process { pid: pid(n), start: 0, parent: Pid::from_raw(parent), group: own, session: own, alive: true }
        };
        let all = [child(1, 0), child(5, 3), child(3, 2), child(2, 1), child(4, 1), child(6, 2)];
        let mut found: Vec<i32> = below(pid(2), &all).iter().map(|process| process.pid.as_raw_pid()).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 5, 6]);
    }

    #[test]
    fn first_ancestor_is_the_parent() {
        let parent = ancestors().next().unwrap();
        assert_eq!(Some(parent.pid), parent_pid());
        assert_eq!(Process::own().unwrap().parent, parent_pid());
        assert!(parent.is_still_alive());
    }
}
