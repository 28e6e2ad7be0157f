//! The processes of a test: those that work below its directory, and no others.

use crate::support::text;
use std::{
    collections::{BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ReceivePack,
    Hook,
    /// A `git push` or its children on the client side, except for a heartbeat's.
    Client,
    /// The push of a heartbeat.
    Heartbeat,
    /// `git fence run`.
    Run,
    Keeper,
    /// `git update-ref`: a local writer on the server.
    Writer,
    /// A shell of a hook, a sleep, a command under a lease.
    Other,
}

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
    /// Whether it works in the server's directory.
    pub(crate) of_server: bool,
}

/// All processes that work below `dir`, or have it in their arguments.
pub(crate) fn below(dir: &Path) -> Vec<Process> {
    let dir = dir.canonicalize().unwrap();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| look_at(pid, &dir)).collect()
}

fn look_at(pid: u32, dir: &Path) -> Option<Process> {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    if !cwd.starts_with(dir) {
        return None;
    }
    let args = text(&fs::read(format!("/proc/{pid}/cmdline")).ok()?);
    if args.is_empty() {
        return None;
    }
    let args: Vec<&str> = args.split('\0').collect();
    let program = args[0].rsplit('/').next().unwrap_or_default();
    let has = |word: &str| args.contains(&word);
    let kind = match program {
        "git-receive-pack" => Kind::ReceivePack,
        "git" if has("receive-pack") => Kind::ReceivePack,
        "git-fence-hook" => Kind::Hook,
        "git-fence" if has("keeper") => Kind::Keeper,
        "git-fence" if has("run") => Kind::Run,
        "git" | "git-fence" | "git-remote-fence" if args.iter().any(|arg| arg.ends_with("/beat")) => Kind::Heartbeat,
        "git" if has("update-ref") => Kind::Writer,
        "git" if has("push") || has("send-pack") => Kind::Client,
        "git-fence" | "git-remote-fence" => Kind::Client,
        _ => Kind::Other,
    };
    Some(Process { pid, kind, of_server: cwd.starts_with(dir.join("server.git")) })
}

/// Removes ref locks whose owners have been killed, as an operator would.
///
/// The owner of a lock was alive when it created the lock: it is gone, or among the receive-packs and local writers
/// that are alive when the lock is first seen. When none of those is left, the lock has no owner.
#[derive(Default)]
pub(crate) struct Janitor {
    seen: HashMap<(PathBuf, u64, SystemTime), BTreeSet<u32>>,
    pub(crate) removed: usize,
}

impl Janitor {
    pub(crate) fn sweep(&mut self, dir: &Path) {
        // First the locks, then the processes: in the other order, an owner could appear in between.
        let locks = locks_in(&dir.join("server.git"));
        let living = below(dir).into_iter().filter(|p| matches!(p.kind, Kind::ReceivePack | Kind::Writer));
        let living: BTreeSet<u32> = living.map(|process| process.pid).collect();
        self.seen.retain(|key, _| locks.contains(key));
        for lock in locks {
            let owners = self.seen.entry(lock.clone()).or_insert_with(|| living.clone());
            let is_old = lock.2.elapsed().is_ok_and(|age| age > Duration::from_millis(300));
            if is_old && owners.is_disjoint(&living) && fs::remove_file(&lock.0).is_ok() {
                self.removed += 1;
            }
        }
    }
}

impl Janitor {
    /// Whether the last scan found no lock at all.
    pub(crate) fn is_clean(&self) -> bool {
        self.seen.is_empty()
    }
}

fn locks_in(server: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let mut found = Vec::new();
    let mut open = vec![server.join("refs")];
    let mut look = |path: PathBuf| {
        let Ok(seen) = fs::symlink_metadata(&path) else { return None };
        if seen.is_dir() {
            return Some(path);
        }
        if path.extension().is_some_and(|extension| extension == "lock") {
            found.push((path, seen.ino(), seen.modified().unwrap()));
        }
        None
    };
    look(server.join("packed-refs.lock"));
    look(server.join("HEAD.lock"));
    while let Some(dir) = open.pop() {
        let entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().collect();
        open.extend(entries.into_iter().filter_map(|entry| look(entry.path())));
    }
    found
}
