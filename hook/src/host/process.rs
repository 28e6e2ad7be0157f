//! Which process moves the refs, and whether it is still there.
//!
//! "Dead" is only said of what was seen to be dead: no such process, a readable pidfd (also of one
//! that is dead but not yet reaped), or an identity that was read and is another's. Anything that
//! cannot be read is alive.

use crate::host::clock;
use git_fence_core::{Place, ReceivePack};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{fs, io, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

/// `f_type` of the file system that gives each process's pidfd an inode of its own (Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// This machine, this boot, this process namespace.
pub(crate) fn here() -> io::Result<Place> {
    let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id"].iter().find_map(|path| fs::read_to_string(path).ok());
    Ok(Place {
        boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
        machine: machine.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
        pid_ns: fs::metadata("/proc/self/ns/pid")?.ino(),
        uptime_ms: clock::uptime_ms(),
    })
}

/// The receive-packs among the ancestors of this process, the nearest first, looked up one by one.
pub(crate) fn receive_packs_above() -> impl Iterator<Item = ReceivePack> {
    let ancestors =
        std::iter::successors(Ancestor::of_this_process(), |ancestor| Ancestor::read(ancestor.stat.parent?));
    ancestors.filter_map(|Ancestor { pid, stat }| {
        let cmdline = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).ok()?;
        is_receive_pack(&cmdline).then(|| ReceivePack {
            pid: pid.as_raw_pid().unsigned_abs(),
            start: stat.start,
            pidfd: pidfd_open(pid, PidfdFlags::empty()).ok().and_then(|fd| inode(&fd)),
        })
    })
}

/// This very process.
pub(crate) fn this() -> Option<ReceivePack> {
    let pid = rustix::process::getpid();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok().and_then(|fd| inode(&fd));
    Some(ReceivePack { pid: pid.as_raw_pid().unsigned_abs(), start: Stat::read(pid)?.start, pidfd })
}

/// The program that a process runs, where that may be seen.
pub(crate) fn program_of(process: &ReceivePack) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{}/exe", process.pid)).ok()
}

struct Ancestor {
    pid: Pid,
    stat: Stat,
}

impl Ancestor {
    fn of_this_process() -> Option<Ancestor> {
        Ancestor::read(rustix::process::getppid()?)
    }

    fn read(pid: Pid) -> Option<Ancestor> {
        Some(Ancestor { pid, stat: Stat::read(pid)? })
    }
}

/// Whether a NUL-separated argv is that of `git-receive-pack …` or `git … receive-pack …`.
fn is_receive_pack(cmdline: &[u8]) -> bool {
    let mut args = cmdline.strip_suffix(b"\0").unwrap_or(cmdline).split(|b| *b == 0);
    let program = args.next().unwrap_or_default();
    match program.rsplit(|b| *b == b'/').next().unwrap_or_default() {
        b"git-receive-pack" => true,
        b"git" => {
            // Git's own options come first; some take the next argument as their value.
            while let Some(arg) = args.next() {
                match arg {
                    b"-C" | b"-c" | b"--git-dir" | b"--work-tree" | b"--namespace" | b"--config-env"
                    | b"--super-prefix" | b"--attr-source" => {
                        args.next();
                    }
                    _ if arg.starts_with(b"-") => {}
                    subcommand => return subcommand == b"receive-pack",
                }
            }
            false
        }
        _ => false,
    }
}

/// A process that was recorded, looked at from the place where it was recorded.
#[derive(Debug)]
pub(crate) enum Liveness {
    /// It is not there any more.
    Dead,
    /// It is there, or nobody can tell. With a pidfd one can wait for its end.
    Alive(Option<OwnedFd>),
}

/// Looks whether `process` is still there.
pub(crate) fn look_at(process: &ReceivePack) -> Liveness {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Liveness::Alive(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => Liveness::Dead,
        // The pid may be a thread's by now, or the kernel has no pidfds: only the start can tell.
        Err(_) if is_anothers(pid, process) => Liveness::Dead,
        Err(_) => Liveness::Alive(None),
        Ok(fd) if has_ended(&fd, Duration::ZERO) => Liveness::Dead,
        Ok(fd) => match (process.pidfd, inode(&fd)) {
            (Some(then), Some(now)) if then != now => Liveness::Dead,
            (Some(_), Some(_)) => Liveness::Alive(Some(fd)),
            _ if is_anothers(pid, process) => Liveness::Dead,
            _ => Liveness::Alive(Some(fd)),
        },
    }
}

/// Waits at most `patience` for the end of the process; says whether it has come.
pub(crate) fn has_ended(pidfd: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0) && polled[0].revents().contains(PollFlags::IN)
}

/// Asks the process to end in order: SIGTERM, and SIGCONT so that a stopped one hears it. Never
/// SIGKILL, which would leave git's ref locks behind.
pub(crate) fn ask_to_end(pidfd: &OwnedFd) -> io::Result<()> {
    for signal in [Signal::TERM, Signal::CONT] {
        match pidfd_send_signal(pidfd, signal) {
            // Gone already: one that was not stopped may end at the first word.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn is_anothers(pid: Pid, process: &ReceivePack) -> bool {
    Stat::read(pid).is_some_and(|stat| differ(stat.start, process.start))
}

/// Whether two starts are of two processes: known to be, and not merely unknown.
fn differ(one: u64, other: u64) -> bool {
    one != UNKNOWN && other != UNKNOWN && one != other
}

/// A start that cannot be told.
const UNKNOWN: u64 = 0;
/// What a clock tick is to programs.
const TICK_NS: i128 = 10_000_000;

/// The start of a process as the machine's first time namespace counts it, out of what is shown in one whose clock is
/// ahead by `offset_ns`. The kernel rounds what it shows: with a part of a tick nobody can tell.
fn start_since_boot(shown: u64, offset_ns: i128) -> u64 {
    if offset_ns % TICK_NS != 0 {
        return UNKNOWN;
    }
    u64::try_from(i128::from(shown) - offset_ns / TICK_NS).unwrap_or(UNKNOWN)
}

fn inode(pidfd: &OwnedFd) -> Option<u64> {
    let has_own_inode = rustix::fs::fstatfs(pidfd).ok()?.f_type.cast_unsigned() == PIDFS;
    has_own_inode.then(|| rustix::fs::fstat(pidfd).ok().map(|stat| stat.st_ino)).flatten()
}

struct Stat {
    parent: Option<Pid>,
    start: u64,
}

impl Stat {
    fn read(pid: Pid) -> Option<Stat> {
        let stat = Stat::parse(&fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)?;
        Some(Stat { start: start_since_boot(stat.start, clock::namespace_offset_ns()), ..stat })
    }

    /// The command's name, field 2, is in parentheses and may hold anything, parentheses too.
    fn parse(line: &[u8]) -> Option<Stat> {
        let end_of_name = line.iter().rposition(|b| *b == b')')?;
        let text = std::str::from_utf8(&line[end_of_name + 1..]).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        Some(Stat { parent: Pid::from_raw(fields.get(1)?.parse().ok()?), start: fields.get(19)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn receive_pack_is_told_by_its_argv_and_nothing_else() {
        for (argv, expected) in [
            (&["git-receive-pack", "/srv/a.git"][..], true),
            (&["/usr/lib/git-core/git-receive-pack", "."], true),
            (&["git", "receive-pack", "/srv/a.git"], true),
            (&["/usr/bin/git", "receive-pack", "--stateless-rpc", "."], true),
            (&["git", "-c", "a.b=receive-pack", "--no-pager", "receive-pack", "."], true),
            (&["git", "push", "origin", "receive-pack"], false),
            (&["git", "-C", "receive-pack", "push"], false),
            (&["git", "http-backend"], false),
            (&["sh", "-c", "git-receive-pack '/srv/a.git'"], false),
            (&["/bin/sh", "/hooks/git-receive-pack"], false),
            (&["git-receive-packer"], false),
            (&["git"], false),
            (&[""], false),
        ] {
            let cmdline = argv.join("\0") + "\0";
            assert_eq!(is_receive_pack(cmdline.as_bytes()), expected, "{argv:?}");
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = b"7 (a) S 9) S 42 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent.map(Pid::as_raw_pid), stat.start), (Some(42), 12345));
        assert!(Stat::parse(b"7 (x").is_none());
    }

    /// One process, looked at from two time namespaces, is one.
    #[test]
    fn a_start_is_counted_alike_in_every_time_namespace_or_is_unknown() {
        for (shown, offset_ns, start) in [
            (500, 0, 500),
            (500 + 8_640_000, 86_400_000_000_000, 500),
            (200, -3_000_000_000, 500),
            (500, 5_000_000, UNKNOWN),
            (5, 1_000_000_000, UNKNOWN),
        ] {
            assert_eq!(start_since_boot(shown, offset_ns), start, "{shown} {offset_ns}");
        }
        assert!(differ(500, 501) && !differ(500, 500) && !differ(UNKNOWN, 500) && !differ(500, UNKNOWN));
    }

    fn identity(pid: u32) -> ReceivePack {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        let fd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let start = Stat::read(pid).unwrap().start;
        ReceivePack { pid: pid.as_raw_pid().unsigned_abs(), start, pidfd: inode(&fd) }
    }

    #[test]
    fn a_living_process_is_alive_a_dead_or_unreaped_or_replaced_one_is_dead() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let recorded = identity(child.id());
        assert!(matches!(look_at(&recorded), Liveness::Alive(Some(_))));

        // Somebody else has its pid by now: told by the pidfd's inode, and without one by the start.
        let other_inode = ReceivePack { pidfd: recorded.pidfd.map(|inode| inode + 1), ..recorded };
        assert_eq!(matches!(look_at(&other_inode), Liveness::Dead), recorded.pidfd.is_some());
        let other_start = ReceivePack { pidfd: None, start: recorded.start + 1, ..recorded };
        assert!(matches!(look_at(&other_start), Liveness::Dead));

        child.kill().unwrap();
        let Liveness::Alive(Some(fd)) = look_at(&recorded) else {
            assert!(matches!(look_at(&recorded), Liveness::Dead));
            child.wait().unwrap();
            return;
        };
        assert!(has_ended(&fd, Duration::from_secs(60)));
        assert!(matches!(look_at(&recorded), Liveness::Dead), "dead but not reaped is dead");
        child.wait().unwrap();
        assert!(matches!(look_at(&recorded), Liveness::Dead), "no such process is dead");
    }
}
