//! A process that one can wait for and signal, whoever gets its pid later: a pidfd.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{io, time::Duration};

/// `f_type` of the file system that gives each process's pidfd an inode of its own (Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// A process that one can wait for and signal, whoever gets its pid later.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

/// Why there is no handle of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHandle {
    /// There is no such process.
    Gone,
    /// The kernel has no handles, or gives none of this one.
    CannotTell,
}

impl ProcessHandle {
    /// Of whoever has this pid now.
    pub fn open(pid: Pid) -> Result<ProcessHandle, NoHandle> {
        pidfd_open(pid, PidfdFlags::empty()).map(ProcessHandle).map_err(|e| match e {
            Errno::SRCH => NoHandle::Gone,
            _ => NoHandle::CannotTell,
        })
    }

    /// Waits at most so long for the end of the process; says whether it has come. A signal may end the wait early.
    pub fn ends_within(&self, patience: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The same, where not to know is not to have ended.
    pub fn has_ended_within(&self, patience: Duration) -> bool {
        self.ends_within(patience).unwrap_or(false)
    }

    /// Waits for the end of the process.
    pub fn wait(&self) -> io::Result<()> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None))?;
        Ok(())
    }

    /// Sends a signal. One that is gone has no need of it.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The number that the kernel gives this process and no other until the next boot.
    pub(crate) fn incarnation(&self) -> Option<u64> {
        let has_own_inode = rustix::fs::fstatfs(&self.0).ok()?.f_type.cast_unsigned() == PIDFS;
        has_own_inode.then(|| rustix::fs::fstat(&self.0).ok().map(|stat| stat.st_ino)).flatten()
    }
}
