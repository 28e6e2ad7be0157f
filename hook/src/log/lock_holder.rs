//! Who holds a lock, as far as the kernel tells.

use git_fence_core::text;
use git_fence_system::lock::{self, LockingProcess};
use std::{fmt, fs::File};

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// A process that can be seen: its program and its user, unless it has ended and left the lock to another.
    Process { pid: u32, program: Option<String>, user: Option<String> },
    /// Somebody whom one cannot see from here.
    Unknown,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockHolder::Process { pid, program: Some(program), user } => {
                let user = user.as_deref().map_or(String::new(), |user| format!(" of user {user}"));
                write!(f, "process {pid} ({}{user})", text::in_quotes(program))
            }
            LockHolder::Process { pid, program: None, .. } => {
                write!(f, "process {pid}, or what it has started before it ended")
            }
            LockHolder::Unknown => f.write_str("another process"),
        }
    }
}

/// Who holds a lock on `file`. Whoever pushes is told: so only the program's name, and fit to be shown.
pub(crate) fn of(file: &File) -> LockHolder {
    let shown = |bytes: &[u8]| text::one_line(bytes.trim_ascii_end(), 40);
    match lock::holder_of(file) {
        Some(LockingProcess { pid, program, user }) => LockHolder::Process {
            pid,
            program: program.map(|name| shown(&name)),
            user: user.map(|name| shown(name.as_bytes())),
        },
        None => LockHolder::Unknown,
    }
}
