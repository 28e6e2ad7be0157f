//! A handle to wait for a process and to signal it, even if its pid is reused: a pidfd.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{io, time::Duration};

/// `f_type` of the file system that gives each process's pidfd a unique inode (Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// A handle to wait for a process and to signal it, even if its pid is reused.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

/// Why there is no handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHandle {
    /// There is no such process.
    Gone,
    /// The kernel has no handles, or none for this process.
    CannotTell,
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ProcessHandle {
    /// Opens the process that has this pid now.
    pub fn open(pid: Pid) -> Result<ProcessHandle, NoHandle> {
        pidfd_open(pid, PidfdFlags::empty()).map(ProcessHandle).map_err(|e| match e {
            Errno::SRCH => NoHandle::Gone,
            _ => NoHandle::CannotTell,
        })
    }

    /// Waits for the process to end, with a timeout; returns whether it has. A signal may end the wait early.
    pub fn ends_within(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The same, but an error counts as not ended.
    pub fn has_ended_within(&self, timeout: Duration) -> bool {
        self.ends_within(timeout).unwrap_or(false)
    }

    /// Waits for the process to end.
    pub fn wait(&self) -> io::Result<()> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None))?;
        Ok(())
    }

    /// Sends a signal. Has no effect if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The kernel's unique number of this process until the next boot.
    pub(crate) fn incarnation(&self) -> Option<u64> {
        let has_own_inode = rustix::fs::fstatfs(&self.0).ok()?.f_type.cast_unsigned() == PIDFS;
        has_own_inode.then(|| rustix::fs::fstat(&self.0).ok().map(|stat| stat.st_ino)).flatten()
    }
}
