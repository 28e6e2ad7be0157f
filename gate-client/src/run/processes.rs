//! Processes as `/proc` shows them: who descends from whom, who is still alive.
//!
//! A pid is only a number that somebody else may have by now. So a process is remembered with its
//! start time, and signalled through a pidfd that was seen to be of the same process.

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, test_kill_process},
};
use std::{fs, io};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) start: u64,
    /// These three have no number where they are outside of the pid namespace, in a container for example.
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Option<Pid>,
    pub(crate) session: Option<Pid>,
    pub(crate) alive: bool,
}

impl Process {
    /// This process. `getsid` and `getpgrp` would not do: their answer may be 0, which is no [`Pid`].
    pub(crate) fn own() -> io::Result<Process> {
        let line = fs::read("/proc/self/stat")?;
        let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_ours = first == getpid().as_raw_pid().to_string().as_bytes();
        let own = Process::parse(getpid(), &line).filter(|_| is_ours);
        own.ok_or_else(|| io::Error::other("/proc shows the processes of another pid namespace: mount one for this"))
    }

    pub(crate) fn read(pid: Pid) -> Option<Process> {
        Process::parse(pid, &fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
    }

    /// The command's name, field 2, is in parentheses and may hold anything, parentheses too.
    fn parse(pid: Pid, line: &[u8]) -> Option<Process> {
        let end_of_name = line.iter().rposition(|b| *b == b')')?;
        let text = std::str::from_utf8(&line[end_of_name + 1..]).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        // One that is just being reaped has -1 for its group and session.
        let pid_at = |n: usize| Some(Pid::from_raw(fields.get(n)?.parse().ok().map(|n: i32| n.max(0))?));
        let threads: u32 = fields.get(17)?.parse().ok()?;
        // A process whose first thread has ended looks like a zombie, and its other threads go on.
        let alive = !matches!(*fields.first()?, "Z" | "X" | "x") || threads > 1;
        let start = fields.get(19)?.parse().ok()?;
        Some(Process { pid, start, parent: pid_at(1)?, group: pid_at(2)?, session: pid_at(3)?, alive })
    }

    /// Whether this very process is still alive, and not another with its pid.
    pub(crate) fn is_still_alive(&self) -> bool {
        Process::read(self.pid).is_some_and(|now| now.start == self.start && now.alive)
    }

    /// Whether this process may not be signalled: somebody else's, through sudo for example.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        test_kill_process(self.pid) == Err(Errno::PERM)
    }

    /// Sends a signal. One that is gone has no need of it, and one out of reach does not get it.
    pub(crate) fn signal(&self, signal: Signal) {
        let pidfd = pidfd_open(self.pid, PidfdFlags::empty());
        // Looked at after opening: whoever has the pid now is whom the pidfd is of.
        if !self.is_still_alive() {
            return;
        }
        let _ = match pidfd {
            Ok(pidfd) => pidfd_send_signal(pidfd, signal),
            // Some sandboxes have no pidfds.
            Err(_) => kill_process(self.pid, signal),
        };
    }
}

/// All processes that can be seen, dead ones that nobody has reaped among them.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Process::read(Pid::from_raw(pid)?)).collect()
}

/// Those of `all` that descend from `root`.
pub(crate) fn below(root: Pid, all: &[Process]) -> Vec<Process> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(n: i32) -> Pid {
        Pid::from_raw(n).unwrap()
    }

    fn parse(line: &str) -> Option<Process> {
        Process::parse(pid(7), line.as_bytes())
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let process = parse("7 (a) S 9) S 42 5 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0").unwrap();
        assert_eq!((process.parent, process.group, process.session), (Some(pid(42)), Some(pid(5)), Some(pid(3))));
        assert_eq!((process.start, process.alive), (12345, true));
        assert_eq!(parse("7 (x"), None);
    }

    #[test]
    fn a_zombie_is_dead_unless_it_has_threads_left() {
        let with = |state: &str, threads: u32| {
            let line = format!("7 (x) {state} 42 5 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 12345 0 0");
            parse(&line).unwrap().alive
        };
        assert!(!with("Z", 1));
        assert!(with("Z", 2));
        assert!(with("T", 1));
    }

    #[test]
    fn one_that_is_just_being_reaped_has_no_group_and_no_session() {
        let process = parse("7 (x) X 0 -1 -1 0 -1 0 0 0 0 0 0 0 0 0 20 0 0 0 12345 0 0").unwrap();
        assert_eq!((process.parent, process.group, process.session, process.alive), (None, None, None, false));
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_siblings_are_not() {
        let child = |n: i32, parent: i32| {
            let own = Some(pid(1));
            Process { pid: pid(n), start: 0, parent: Pid::from_raw(parent), group: own, session: own, alive: true }
        };
        let all = [child(1, 0), child(5, 3), child(3, 2), child(2, 1), child(4, 1), child(6, 2)];
        let mut found: Vec<i32> = below(pid(2), &all).iter().map(|process| process.pid.as_raw_pid()).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 5, 6]);
    }
}
