//! Processes, from `/proc`.

use super::clock;
use crate::process::{Identity, Process};
use rustix::process::{Pid, getpid, set_child_subreaper};
use std::{ffi::CStr, fs, io, os::unix::fs::MetadataExt, path::PathBuf};

pub(crate) fn own() -> io::Result<Process> {
    let line = fs::read("/proc/self/stat")?;
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_ours = first == getpid().as_raw_pid().to_string().as_bytes();
    let own = parse(getpid(), &line).filter(|_| is_ours);
    own.ok_or_else(|| io::Error::other("/proc belongs to another PID namespace: mount one for this namespace"))
}

pub(crate) fn read(pid: Pid) -> Option<Process> {
    parse(pid, &fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| read(Pid::from_raw(pid)?)).collect()
}

pub(crate) fn arguments(pid: Pid) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).ok()
}

/// The program of a process.
pub(crate) fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The kernel's short name of a process.
pub(crate) fn name(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/comm")).ok()
}

/// The user of a process.
pub(crate) fn user(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid())
}

/// This program, even if its file has been replaced.
pub(crate) fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

pub(crate) fn show_as(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// The mask of signals that this process ignores.
pub(crate) fn ignored_signals() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| ignored_in(&status)).unwrap_or(0)
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The command's name, field 2, is in parentheses and may contain anything, including parentheses.
fn parse(pid: Pid, line: &[u8]) -> Option<Process> {
    let end_of_name = line.iter().rposition(|b| *b == b')')?;
    let text = std::str::from_utf8(&line[end_of_name + 1..]).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    // A process that is being reaped has -1 for its group and session.
    let pid_at = |n: usize| Some(Pid::from_raw(fields.get(n)?.parse().ok().map(|n: i32| n.max(0))?));
    let threads: u32 = fields.get(17)?.parse().ok()?;
    // A process whose first thread has ended looks like a zombie, but its other threads still run.
    let alive = !matches!(*fields.first()?, "Z" | "X" | "x") || threads > 1;
    let start = fields.get(19)?.parse().ok()?;
    Some(Process { pid, start, parent: pid_at(1)?, group: pid_at(2)?, session: pid_at(3)?, alive })
}

/// The length of a clock tick in user space.
const TICK_NS: i128 = 10_000_000;

pub(crate) fn starts_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// The start of a process as counted in the machine's first time namespace, from the value shown in this one.
pub(crate) fn start_since_boot(shown: u64) -> u64 {
    start_without(shown, clock::namespace_offset_ns())
}

/// The kernel rounds the value: if the offset is not a whole number of ticks, the start is unknown.
fn start_without(shown: u64, offset_ns: i128) -> u64 {
    if offset_ns % TICK_NS != 0 {
        return Identity::UNKNOWN_START;
    }
    u64::try_from(i128::from(shown) - offset_ns / TICK_NS).unwrap_or(Identity::UNKNOWN_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(n: i32) -> Pid {
        Pid::from_raw(n).unwrap()
    }

    fn parsed(line: &str) -> Option<Process> {
        parse(pid(7), line.as_bytes())
    }

    #[test]
    fn name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let process = parsed("7 (a) S 9) S 42 5 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0").unwrap();
        assert_eq!((process.parent, process.group, process.session), (Some(pid(42)), Some(pid(5)), Some(pid(3))));
        assert_eq!((process.start, process.alive), (12345, true));
        assert_eq!(parsed("7 (x"), None);
    }

    #[test]
    fn zombie_is_dead_unless_it_has_threads_left() {
        let with = |state: &str, threads: u32| {
            let line = format!("7 (x) {state} 42 5 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 12345 0 0");
            parsed(&line).unwrap().alive
        };
        assert!(!with("Z", 1));
        assert!(with("Z", 2));
        assert!(with("T", 1));
    }

    #[test]
    fn process_being_reaped_has_no_group_and_session() {
        let process = parsed("7 (x) X 0 -1 -1 0 -1 0 0 0 0 0 0 0 0 0 20 0 0 0 12345 0 0").unwrap();
        assert_eq!((process.parent, process.group, process.session, process.alive), (None, None, None, false));
    }

    /// A process has the same start in two time namespaces.
    #[test]
    fn start_is_the_same_in_every_time_namespace_or_unknown() {
        for (shown, offset_ns, start) in [
            (500, 0, 500),
            (500 + 8_640_000, 86_400_000_000_000, 500),
            (200, -3_000_000_000, 500),
            (500, 5_000_000, Identity::UNKNOWN_START),
            (5, 1_000_000_000, Identity::UNKNOWN_START),
        ] {
            assert_eq!(start_without(shown, offset_ns), start, "{shown} {offset_ns}");
        }
    }

    #[test]
    fn ignored_signals_are_parsed_from_the_mask() {
        assert_eq!(ignored_in("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), Some(0x1001));
        assert_eq!(ignored_in("Name:\tx\n"), None);
    }
}
