//! Where a process runs: which machine, since which boot, in which process namespace.
//!
//! Another Unix: the boot on macOS by `sysctl kern.bootsessionuuid`, on FreeBSD by `kern.boottime`; the machine by
//! `gethostuuid`; there is one process namespace, and its number is 0.

use crate::os;
use std::io;

/// Where a machine shows the ids below: for those who are told that they cannot be read.
pub const SHOWN_IN: &str = os::place::SHOWN_IN;

/// The id of this boot: the same id is the same kernel since the same boot.
pub fn boot_id() -> io::Result<String> {
    os::place::boot_id()
}

/// The id of this machine, where it has one.
pub fn machine_id() -> Option<String> {
    os::place::machine_id()
}

/// The number of the process namespace: pids mean something only within one.
pub fn pid_namespace() -> io::Result<u64> {
    os::place::pid_namespace()
}

/// The name of this machine, as it calls itself.
pub fn host_name() -> String {
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}
