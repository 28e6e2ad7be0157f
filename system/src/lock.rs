//! Who holds a lock. To take one, use `File::try_lock`.
//!
//! Another Unix: the holder of an `flock` cannot be determined, so none is named; `fcntl F_GETLK` works for the other kind
//! of lock, which is lost when any descriptor of the file is closed.

use crate::{os, user};
use std::fs::File;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockingProcess {
    /// Its pid.
    pub pid: u32,
    /// The name of its program, without its arguments, which may contain secrets; `None` if it has exited and left the lock
    /// to a child.
    pub program: Option<Vec<u8>>,
    /// The name of its user, or the number if there is no name.
    pub user: Option<String>,
}

/// Who holds a lock on `file`, as far as the kernel shows it.
pub fn holder_of(file: &File) -> Option<LockingProcess> {
    let pid = os::lock::holder_of(file)?;
    let user = os::process::user(pid).map(|uid| user::name_of(uid).unwrap_or_else(|| uid.to_string()));
    Some(LockingProcess { pid, program: os::process::name(pid), user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lock_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder_of(&file), None);
        file.try_lock().unwrap();
        let LockingProcess { pid, program: Some(_), user: Some(_) } = holder_of(&file).unwrap() else {
            panic!("{:?}", holder_of(&file))
        };
        assert_eq!(pid, std::process::id());
    }
}
