//! The ids of the machine, the boot and the PID namespace.

use std::{fs, io, os::unix::fs::MetadataExt};

pub(crate) const SHOWN_IN: &str = "/proc";

pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

pub(crate) fn machine_id() -> Option<String> {
    let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id"].iter().find_map(|path| fs::read_to_string(path).ok());
    machine.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())
}

pub(crate) fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}
