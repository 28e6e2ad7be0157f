//! The identity of a process, to find it again later, and whether it still runs.
//!
//! A process is reported as dead only if that was observed: there is no such process, it has exited (even if it is not
//! reaped yet), or its pid belongs to a process with another identity. If something cannot be read, it counts as alive.

use crate::{
    os,
    process::{NoHandle, Pid, Process, ProcessHandle},
};
use std::time::Duration;

/// What distinguishes a process from all others of its boot and PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its pid.
    pub pid: u32,
    /// Its start as counted in the machine's first time namespace; 0 if that is unknown.
    pub start: u64,
    /// The kernel's unique number of this process until the next boot, if the kernel has one.
    pub incarnation: Option<u64>,
}

/// Whether a recorded process still runs, checked in the place where it was recorded.
#[derive(Debug)]
pub enum Liveness {
    /// It has ended.
    Dead,
    /// It runs, or that cannot be determined. With a handle, one can wait for its end.
    Alive(Option<ProcessHandle>),
}

impl Identity {
    /// The value for an unknown start.
    pub const UNKNOWN_START: u64 = 0;

    /// This process.
    pub fn own() -> Option<Identity> {
        Process::read(crate::process::own_pid()).map(|own| own.identity())
    }

    /// Checks whether it still runs.
    pub fn liveness(&self) -> Liveness {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Liveness::Alive(None) };
        match ProcessHandle::open(pid) {
            Err(NoHandle::Gone) => Liveness::Dead,
            // The pid may belong to a thread by now, or the kernel has no handles: only the start distinguishes them.
            Err(NoHandle::CannotTell) if self.is_not(pid) => Liveness::Dead,
            Err(NoHandle::CannotTell) => Liveness::Alive(None),
            Ok(handle) if handle.has_ended_within(Duration::ZERO) => Liveness::Dead,
            Ok(handle) => match (self.incarnation, handle.incarnation()) {
                (Some(then), Some(now)) if then != now => Liveness::Dead,
                (Some(_), Some(_)) => Liveness::Alive(Some(handle)),
                _ if self.is_not(pid) => Liveness::Dead,
                _ => Liveness::Alive(Some(handle)),
            },
        }
    }

    /// Its program, if it is visible.
    pub fn program(&self) -> Option<std::path::PathBuf> {
        os::process::program(self.pid)
    }

    /// Whether the process with this pid is known to be another one.
    fn is_not(&self, pid: Pid) -> bool {
        Process::read(pid).is_some_and(|now| differ(os::process::start_since_boot(now.start), self.start))
    }
}

/// Whether two starts belong to different processes: known to, not just unknown.
fn differ(one: u64, other: u64) -> bool {
    one != Identity::UNKNOWN_START && other != Identity::UNKNOWN_START && one != other
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn starts_differ_only_if_both_are_known() {
        let unknown = Identity::UNKNOWN_START;
        assert!(differ(500, 501) && !differ(500, 500) && !differ(unknown, 500) && !differ(500, unknown));
    }

    #[test]
    fn running_process_is_alive_and_an_exited_unreaped_or_replaced_one_is_dead() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let recorded = Process::read(Pid::from_child(&child)).unwrap().identity();
        assert!(matches!(recorded.liveness(), Liveness::Alive(Some(_))));

        // Another process has its pid: detected by the kernel's number, or else by the start.
        let other = Identity { incarnation: recorded.incarnation.map(|number| number + 1), ..recorded };
        assert_eq!(matches!(other.liveness(), Liveness::Dead), recorded.incarnation.is_some());
        let other_start = Identity { incarnation: None, start: recorded.start + 1, ..recorded };
        assert!(matches!(other_start.liveness(), Liveness::Dead));

        child.kill().unwrap();
        let Liveness::Alive(Some(handle)) = recorded.liveness() else {
            assert!(matches!(recorded.liveness(), Liveness::Dead));
            child.wait().unwrap();
            return;
        };
        assert!(handle.has_ended_within(Duration::from_secs(60)));
        assert!(matches!(recorded.liveness(), Liveness::Dead), "an unreaped process is dead");
        child.wait().unwrap();
        assert!(matches!(recorded.liveness(), Liveness::Dead), "a missing process is dead");
    }
}
