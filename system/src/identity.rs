//! Who a process is, for somebody who looks for it later, and whether it is still there.
//!
//! "Dead" is only said of what was seen to be dead: no such process, one that has ended (also if it was not reaped yet),
//! or an identity that was read and is another's. Anything that cannot be read is alive.

use crate::{
    os,
    process::{NoHandle, Pid, Process, ProcessHandle},
};
use std::time::Duration;

/// What tells a process from all others of its boot and pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its pid.
    pub pid: u32,
    /// Its start as the machine's first time namespace counts it; 0 where that cannot be told.
    pub start: u64,
    /// What the kernel calls this process and no other until the next boot, where it has such a number.
    pub incarnation: Option<u64>,
}

/// A process that was recorded, looked at from the place where it was recorded.
#[derive(Debug)]
pub enum Liveness {
    /// It is not there any more.
    Dead,
    /// It is there, or nobody can tell. With a handle one can wait for its end.
    Alive(Option<ProcessHandle>),
}

impl Identity {
    /// A start that cannot be told.
    pub const UNKNOWN_START: u64 = 0;

    /// This very process.
    pub fn own() -> Option<Identity> {
        Process::read(crate::process::own_pid()).map(|own| own.identity())
    }

    /// Looks whether it is still there.
    pub fn look(&self) -> Liveness {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Liveness::Alive(None) };
        match ProcessHandle::open(pid) {
            Err(NoHandle::Gone) => Liveness::Dead,
            // The pid may be a thread's by now, or the kernel has no handles: only the start can tell.
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

    /// The program that it runs, where that may be seen.
    pub fn program(&self) -> Option<std::path::PathBuf> {
        os::process::program(self.pid)
    }

    /// Whether the process with this pid is known to be another.
    fn is_not(&self, pid: Pid) -> bool {
        Process::read(pid).is_some_and(|now| differ(os::process::start_since_boot(now.start), self.start))
    }
}

/// Whether two starts are of two processes: known to be, and not merely unknown.
fn differ(one: u64, other: u64) -> bool {
    one != Identity::UNKNOWN_START && other != Identity::UNKNOWN_START && one != other
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn starts_differ_only_where_both_are_known() {
        let unknown = Identity::UNKNOWN_START;
        assert!(differ(500, 501) && !differ(500, 500) && !differ(unknown, 500) && !differ(500, unknown));
    }

    #[test]
    fn a_living_process_is_alive_a_dead_or_unreaped_or_replaced_one_is_dead() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let recorded = Process::read(Pid::from_child(&child)).unwrap().identity();
        assert!(matches!(recorded.look(), Liveness::Alive(Some(_))));

        // Somebody else has its pid by now: told by the kernel's own number, and without one by the start.
        let other = Identity { incarnation: recorded.incarnation.map(|number| number + 1), ..recorded };
        assert_eq!(matches!(other.look(), Liveness::Dead), recorded.incarnation.is_some());
        let other_start = Identity { incarnation: None, start: recorded.start + 1, ..recorded };
        assert!(matches!(other_start.look(), Liveness::Dead));

        child.kill().unwrap();
        let Liveness::Alive(Some(handle)) = recorded.look() else {
            assert!(matches!(recorded.look(), Liveness::Dead));
            child.wait().unwrap();
            return;
        };
        assert!(handle.has_ended_within(Duration::from_secs(60)));
        assert!(matches!(recorded.look(), Liveness::Dead), "dead but not reaped is dead");
        child.wait().unwrap();
        assert!(matches!(recorded.look(), Liveness::Dead), "no such process is dead");
    }
}
