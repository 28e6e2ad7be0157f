//! The holder of a lock, from `/proc/locks`.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
};

/// The pid of the holder.
pub(crate) fn holder_of(file: &File) -> Option<u32> {
    let (found, locks) = (file.metadata().ok()?, fs::read_to_string("/proc/locks").ok()?);
    pid_in(&locks, found.dev(), found.ino())
}

/// The process that `/proc/locks` lists for a file: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`. Lines with an arrow
/// are waiters. Some file systems have another device number there: then the lock counts if it is the only one with this
/// inode.
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
    fn holder_is_distinguished_from_waiters_and_other_files() {
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
}
