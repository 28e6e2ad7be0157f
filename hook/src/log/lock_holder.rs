//! Who holds a lock, as far as the kernel shows it.

use git_fence_core::text;
use git_fence_system::lock::{self, LockingProcess};
use std::{fmt, fs::File};

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// A visible process with its program and user; these are unknown if it has exited and left the lock to a child.
    Process { pid: u32, program: Option<String>, user: Option<String> },
    /// A process that is not visible from here.
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
                write!(f, "process {pid}, or a child that it has left behind")
            }
            LockHolder::Unknown => f.write_str("another process"),
        }
    }
}

/// Who holds a lock on `file`. This is shown to pushers: so only the program's name, sanitized.
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
