//! Who holds a lock, as far as the kernel tells.

use git_fence_core::text;
use nix::unistd::{Uid, User};
use std::{
    fmt,
    fs::{self, File},
    os::unix::fs::MetadataExt,
};

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

/// Who holds a lock on `file`.
pub(crate) fn of(file: &File) -> LockHolder {
    let (Ok(found), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else {
        return LockHolder::Unknown;
    };
    match pid_in(&locks, found.dev(), found.ino()) {
        Some(pid) => LockHolder::Process { pid, program: program_of(pid), user: user_of(pid) },
        None => LockHolder::Unknown,
    }
}

/// Only the program's name: arguments may hold secrets, and whoever pushes is told.
fn program_of(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(text::one_line(name.trim_ascii_end(), 40))
}

fn user_of(pid: u32) -> Option<String> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Some(user.map_or_else(|| uid.to_string(), |user| text::one_line(user.name.as_bytes(), 40)))
}

/// The process that `/proc/locks` names for a file: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`. Lines with an
/// arrow are of those who wait. Some file systems have another device number there: then the only lock
/// with the inode counts.
fn pid_in(locks: &str, dev: u64, inode: u64) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mut others = Vec::new();
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, _, pid, file, ..] = fields[..] else { continue };
        let (Ok(pid), Some((its_device, its_inode))) = (pid.parse(), file.rsplit_once(':')) else { continue };
        if fields[1] == "->" || pid == 0 || its_inode != inode.to_string() {
            continue;
        }
        if its_device == device {
            return Some(pid);
        }
        others.push(pid);
    }
    others.dedup();
    if let [only] = others[..] { Some(only) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_told_from_those_who_wait_and_from_other_files() {
        let locks = "1: FLOCK  ADVISORY  WRITE 11 08:01:131 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 12 08:01:132 0 EOF\n\
                     2: POSIX  ADVISORY  READ  13 08:01:13 128 128\n\
                     3: FLOCK  ADVISORY  WRITE 14 fd:0a:132 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 00:2b:7 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE -1 00:2b:8 0 EOF\n\
                     6: FLOCK  ADVISORY  WRITE 16 08:01:9 0 EOF\n\
                     7: FLOCK  ADVISORY  WRITE 17 08:02:9 0 EOF\n\
                     garbage\n";
        let dev = rustix::fs::makedev;
        for (dev, inode, pid) in [
            (dev(8, 1), 131, Some(11)),
            (dev(0xfd, 10), 132, Some(14)),
            (dev(0, 99), 7, Some(15)),
            (dev(0, 0x2b), 8, None),
            (dev(8, 1), 1, None),
            (dev(8, 2), 9, Some(17)),
            (dev(9, 9), 9, None),
        ] {
            assert_eq!(pid_in(locks, dev, inode), pid, "{inode}");
        }
    }

    #[test]
    fn a_lock_of_this_very_process_is_seen() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of(&file), LockHolder::Unknown);
        file.lock().unwrap();
        let LockHolder::Process { pid, program: Some(_), user: Some(_) } = of(&file) else { panic!("{:?}", of(&file)) };
        assert_eq!(pid, std::process::id());
    }
}
