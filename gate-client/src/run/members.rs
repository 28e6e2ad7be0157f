//! The processes that the keeper ends with the command.
//!
//! The **members** are the keeper's descendants in its own session, and the command's process group. The
//! group alone is not enough: `timeout` and shells with job control create groups of their own. A process
//! with a session of its own is a daemon on purpose and is left alone.

use git_fence_system::process::{self, Pid, Process, Signal};

#[derive(Debug)]
pub(crate) struct Members {
    /// The command's own group, if it has one. The command must not be reaped while this is used.
    pub(crate) group: Option<Pid>,
    /// The keeper's session; `None` if it was created outside of the pid namespace.
    pub(crate) session: Option<Pid>,
}

impl Members {
    pub(crate) fn signal(&self, signal: Signal) {
        // The whole group first and at once, so that no process in it escapes by forking.
        if let Some(group) = self.group {
            process::signal_group(group, signal);
        }
        for member in self.alive().iter().filter(|member| !self.is_in_group(member)) {
            member.signal(signal);
        }
    }

    /// The members that are still alive and can be signalled. An empty result is checked twice: listing all
    /// processes takes time, and a process may change its parent meanwhile.
    pub(crate) fn left(&self) -> Vec<Process> {
        let list = || {
            let mut members = self.alive();
            members.retain(|member| !member.is_out_of_reach());
            members
        };
        let left = list();
        if left.is_empty() { list() } else { left }
    }

    fn alive(&self) -> Vec<Process> {
        let all = process::all();
        let below = process::below(process::own_pid(), &all).into_iter();
        let others = below.filter(|process| process.session == self.session && !self.is_in_group(process));
        let in_group = all.iter().filter(|process| self.is_in_group(process)).copied();
        others.chain(in_group).filter(|process| process.alive).collect()
    }

    fn is_in_group(&self, process: &Process) -> bool {
        self.group.is_some() && process.group == self.group
    }
}

/// Reaps the adopted orphans that have ended, but not the command.
pub(crate) fn reap_adopted(command: Pid) {
    let is_adopted = |process: &&Process| process.parent == Some(process::own_pid()) && process.pid != command;
    for orphan in process::all().iter().filter(is_adopted).filter(|process| !process.alive) {
        process::reap(orphan.pid);
    }
}
