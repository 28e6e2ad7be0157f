//! Where a process runs: machine, boot, and PID namespace.
//!
//! Another Unix: the boot on macOS is `sysctl kern.bootsessionuuid`, on FreeBSD `kern.boottime`; the machine is
//! `gethostuuid`; there is a single PID namespace, with the number 0.

use crate::os;
use std::io;

/// Where the system shows the ids below, for error messages.
pub const SHOWN_IN: &str = os::place::SHOWN_IN;

/// The id of this boot: the same id means the same kernel since the same boot.
pub fn boot_id() -> io::Result<String> {
    os::place::boot_id()
}

/// The id of this machine, if it has one.
pub fn machine_id() -> Option<String> {
    os::place::machine_id()
}

/// The number of the PID namespace: pids are only valid within one.
pub fn pid_namespace() -> io::Result<u64> {
    os::place::pid_namespace()
}

/// The host name of this machine.
pub fn host_name() -> String {
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}
