//! Who holds a lock. To take one is `File::try_lock`.
//!
//! Another Unix: nothing tells who holds an `flock`, so nobody is named there; `fcntl F_GETLK` tells it of the other
//! kind of lock, which is lost when any descriptor of the file is closed.

use crate::{os, user};
use std::fs::File;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockingProcess {
    /// Its pid.
    pub pid: u32,
    /// The name of its program, and nothing of its arguments, which may hold secrets; none where it has ended and left
    /// the lock to another.
    pub program: Option<Vec<u8>>,
    /// The name of its user, or the number where there is no name.
    pub user: Option<String>,
}

/// Who holds a lock on `file`, as far as the kernel tells.
pub fn holder_of(file: &File) -> Option<LockingProcess> {
    let pid = os::lock::holder_of(file)?;
    let user = os::process::user(pid).map(|uid| user::name_of(uid).unwrap_or_else(|| uid.to_string()));
    Some(LockingProcess { pid, program: os::process::name(pid), user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_this_very_process_is_seen() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder_of(&file), None);
        file.try_lock().unwrap();
        let LockingProcess { pid, program: Some(_), user: Some(_) } = holder_of(&file).unwrap() else {
            panic!("{:?}", holder_of(&file))
        };
        assert_eq!(pid, std::process::id());
    }
}
