//! The local state of a held lease: a directory that only the user can read.
//!
//! Pushes move the lease and the heartbeat moves the beat. Each has its own file and its own lock, so that a long upload
//! does not block the heartbeat.

use crate::{
    clock::{Clock, left_until},
    failure::{Failure, of_file},
    files::{home, name_of_url, wait_for_lock, write_whole},
    git::{How, local::Local},
    store::reading::StoredMark,
};
use git_fence_core::{
    FenceName, Holder, Lease, LeaseId, LeasePart, Ownership, Secret, Stamp, StorePlace, TickState, Token, Version,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The lease, as pushes move it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldLease {
    pub(crate) fence: FenceName,
    /// The remote's name and URL.
    pub(crate) remote: String,
    pub(crate) url: String,
    /// The record.
    pub(crate) lease: Lease,
    /// Its version.
    #[serde(rename = "commit")]
    pub(crate) at: Version,
    /// The ownership before.
    pub(crate) parent: Option<Version>,
    /// The secret for its proofs.
    #[serde(flatten)]
    pub(crate) key: Key,
    /// Whether the remote has a gate, as last learned.
    pub(crate) gate: bool,
    /// The command that took it; none if an older version did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) taken_by: Option<TakenBy>,
    /// A push whose answer was lost: the lease is at this version if it landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    /// The store that it is kept in; none if it is in the remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<HeldStore>,
}

/// A lease in a store, with what its pushes move in the remote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldStore {
    /// With its password, if it has one: only the user can read this file, which has the lease's secret, too.
    pub(crate) url: String,
    pub(crate) place: StorePlace,
    /// The hash algorithm of the clone.
    pub(crate) hash: String,
    /// The token with which this ownership began.
    pub(crate) first: Token,
    /// The mark that pushes start from: as it was read before the grant, or as this lease has moved it since. One that
    /// others have moved means that the lease is lost, whatever the store says: it may have lost its memory.
    pub(crate) mark: StoredMark,
    /// Touches of that mark whose answers were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) touches: Vec<Version>,
    /// Whether the lease's token may have been used: the next push needs the next one.
    pub(crate) used: bool,
    /// A push whose answer was lost: the mark is this one if it landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<StoredMark>,
}

/// The command that took a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TakenBy {
    /// `acquire` leaves the lease to the commands that follow.
    Acquire,
    /// `push` gives it back.
    Push,
    /// `run` gives it back when its command has ended.
    Run,
    /// `revoke` ends somebody else's, `halt` and `resume` say whether anybody may have one.
    Revoke,
    /// `ticks forget` and `ticks reschedule` give it back.
    Ticks,
}

/// The secret of a holder. It is on disk before anything is sent, so that no crash loses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Key {
    /// All proofs are derived from it. Each is valid once, and is part of the record that it proves.
    Master(Secret),
    /// One secret for the whole ownership, sent as a push option: a lease taken by an older version. It stays in this
    /// format until it ends, because a run of that version may still use it.
    Secret(Secret),
}

impl Key {
    /// The proof for the move after the record with this `nonce`.
    pub(crate) fn proof(&self, part: LeasePart, nonce: &str) -> Option<Secret> {
        match self {
            Key::Master(master) => Some(master.of_record(part, nonce)),
            Key::Secret(_) => None,
        }
    }

    /// What a record with this `nonce` requires of its next move.
    pub(crate) fn holder(&self, part: LeasePart, nonce: &str) -> Option<Holder> {
        Some(self.proof(part, nonce)?.holder())
    }
}

impl HeldLease {
    /// The proof for the lease's next move.
    pub(crate) fn proof(&self) -> Option<Secret> {
        self.key.proof(LeasePart::Lease, &self.lease.nonce)
    }

    /// The push option by which the holder of a lease in the format before proves itself to a gate.
    pub(crate) fn option(&self) -> Option<String> {
        match &self.key {
            Key::Secret(secret) => Some(format!("fence-holder={}:{}", self.fence, secret.reveal())),
            Key::Master(_) => None,
        }
    }

    /// This ownership, as marks name it.
    pub(crate) fn ownership(&self) -> Ownership {
        let first = self.store.as_ref().map_or(self.lease.token, |store| store.first);
        Ownership { lease: self.lease.id.clone(), first }
    }

    /// The same lease, now at another version.
    pub(crate) fn moved_to(&self, lease: Lease, at: Version) -> HeldLease {
        HeldLease { lease, at, pending: None, ..self.clone() }
    }

    /// The same lease at the same version: the pending push did not land and never will.
    pub(crate) fn unmoved(&self) -> HeldLease {
        HeldLease { pending: None, ..self.clone() }
    }
}

/// The record of a push whose result is not known yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) lease: Lease,
    #[serde(rename = "commit")]
    pub(crate) at: Version,
}

/// The last beat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pulse {
    /// Its version.
    #[serde(rename = "commit")]
    pub(crate) at: Version,
    /// Its nonce, from which the proof of the next beat is derived.
    #[serde(default)]
    pub(crate) nonce: String,
    /// The holder's own deadline, by the clock that counts suspend.
    pub(crate) good_until: Stamp,
}

/// The progress that the holder reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) text: String,
    pub(crate) at: Stamp,
}

/// After this time the state of an expired lease is removed.
const LONG_AGO: Duration = Duration::from_secs(7 * 24 * 3600);

/// The directory of one lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseDir {
    path: PathBuf,
    /// In the process that took the lease: others see by it that the process is alive.
    #[expect(dead_code, reason = "held open for its lock")]
    alive: Option<Arc<Locked>>,
}

/// The file that notes that the loss of the lease has been told.
const TOLD: &str = "told";
/// The file that says how the tick under the lease has ended.
const ENDED: &str = "ended.json";
/// The extension of the directory of a lease that its run could not release.
const LEFT: &str = "left";
/// The lock of the process that took the lease. The kernel releases it, whatever ends that process.
const ALIVE: &str = "alive.lock";

/// A lock, released on drop.
#[derive(Debug)]
#[must_use = "the lock is released on drop"]
pub(crate) struct Locked(#[expect(dead_code, reason = "held open for its lock")] File);

impl PartialEq for LeaseDir {
    fn eq(&self, other: &LeaseDir) -> bool {
        self.path == other.path
    }
}

impl LeaseDir {
    /// Creates the directory of a new lease.
    pub(crate) fn create(local: &Local, id: &LeaseId, now: &Stamp) -> Result<LeaseDir, Failure> {
        let all = home(local).join("leases");
        sweep(&all, now);
        let dir = all.join(id.as_str());
        let objects = dir.join("objects");
        DirBuilder::new().recursive(true).mode(0o700).create(&objects).map_err(|e| of_file(&objects, e))?;
        let dir = LeaseDir::at(&dir);
        let alive = dir.lock(ALIVE, &How::default())?;
        Ok(LeaseDir { alive: Some(Arc::new(alive)), ..dir })
    }

    /// The directory at `path`, which need not exist.
    pub(crate) fn at(path: &Path) -> LeaseDir {
        LeaseDir { path: path.to_owned(), alive: None }
    }

    /// The directory of the lease `id`, if this clone has it.
    pub(crate) fn of(local: &Local, id: &LeaseId) -> Option<LeaseDir> {
        let path = home(local).join("leases").join(id.as_str());
        let either = [path.clone(), path.with_extension(LEFT)].map(|path| LeaseDir::at(&path));
        either.into_iter().find(|dir| dir.held().is_ok())
    }

    /// The directories of all leases of this clone.
    pub(crate) fn all(local: &Local) -> Vec<LeaseDir> {
        let entries = fs::read_dir(home(local).join("leases")).into_iter().flatten().flatten();
        entries.map(|entry| LeaseDir::at(&entry.path())).collect()
    }

    /// Whether the process that took the lease may be alive. A lease of an older version has no such lock.
    pub(crate) fn is_in_use(&self) -> bool {
        let lock = File::options().read(true).write(true).open(self.path.join(ALIVE));
        // Shared: others that ask at the same moment must not look like the process itself.
        lock.is_err() || lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    /// `failed`, or the reason for it if the lease was released meanwhile.
    pub(crate) fn or_gone(&self, failed: Failure) -> Failure {
        if self.path.is_dir() { failed } else { gone() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The object directory of this lease's records.
    pub(crate) fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    pub(crate) fn held(&self) -> Result<HeldLease, Failure> {
        self.read("lease.json")
    }

    pub(crate) fn set_held(&self, held: &HeldLease) -> Result<(), Failure> {
        self.write("lease.json", held)
    }

    pub(crate) fn pulse(&self) -> Result<Pulse, Failure> {
        self.read("beat.json")
    }

    /// How long the lease is still good by its holder's own deadline.
    pub(crate) fn left(&self, clock: &Clock) -> Option<Duration> {
        self.pulse().ok().map(|pulse| left_until(&pulse.good_until, &clock.now()))
    }

    pub(crate) fn set_pulse(&self, pulse: &Pulse) -> Result<(), Failure> {
        self.write("beat.json", pulse)
    }

    pub(crate) fn progress(&self) -> Option<Progress> {
        self.read("progress.json").ok()
    }

    pub(crate) fn set_progress(&self, progress: &Progress) -> Result<(), Failure> {
        self.write("progress.json", progress)
    }

    /// Notes that a push inside the run has said that the lease is lost.
    pub(crate) fn set_told(&self) {
        let _ = fs::write(self.path.join(TOLD), "");
    }

    /// Whether a push inside the run has said that the lease is lost.
    pub(crate) fn is_told(&self) -> bool {
        self.path.join(TOLD).exists()
    }

    /// Notes how the tick that runs under the lease has ended: the release puts it on record.
    pub(crate) fn set_ended(&self, how: TickState) -> Result<(), Failure> {
        self.write(ENDED, &how)
    }

    /// How the tick that ran under the lease has ended, if it has.
    pub(crate) fn ended(&self) -> Option<TickState> {
        self.read(ENDED).ok()
    }

    /// Serialises the pushes of this lease: each needs the token that the previous one leaves.
    pub(crate) fn lock_lease(&self, how: &How) -> Result<Locked, Failure> {
        self.lock("lease.lock", how)
    }

    /// Serialises the renewals of this lease.
    pub(crate) fn lock_beat(&self, how: &How) -> Result<Locked, Failure> {
        self.lock("beat.lock", how)
    }

    /// Removes the local state. The lease itself lives in the remote.
    pub(crate) fn remove(&self) {
        // In one step for all readers, not file by file.
        let gone = self.path.with_extension("gone");
        let moved = fs::rename(&self.path, &gone);
        let _ = fs::remove_dir_all(if moved.is_ok() { &gone } else { &self.path });
    }

    /// Moves the local state out of the way of processes that a run has left: they must not push under its lease.
    pub(crate) fn leave(&self) {
        let _ = fs::rename(&self.path, self.path.with_extension(LEFT));
    }

    fn lock(&self, name: &str, how: &How) -> Result<Locked, Failure> {
        let path = self.path.join(name);
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|e| if e.kind() == io::ErrorKind::NotFound { gone() } else { of_file(&path, e) })?;
        wait_for_lock(&file, how).map_err(|e| match e.kind() {
            io::ErrorKind::TimedOut => {
                Failure::Unknown { why: "another push with this lease is still running".to_owned() }
            }
            _ => of_file(&path, e),
        })?;
        Ok(Locked(file))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Failure> {
        let path = self.path.join(name);
        let bytes = fs::read(&path);
        let bytes = bytes.map_err(|e| if e.kind() == io::ErrorKind::NotFound { gone() } else { of_file(&path, e) })?;
        serde_json::from_slice(&bytes).map_err(|e| of_file(&path, e.into()))
    }

    /// Replaces the file atomically.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let path = self.path.join(name);
        write_whole(&path, &serde_json::to_vec(value).unwrap_or_default()).map_err(|e| of_file(&path, e))
    }
}

/// Removes the state of leases that expired days ago, left by killed runs.
fn sweep(leases: &Path, now: &Stamp) {
    for entry in fs::read_dir(leases).into_iter().flatten().flatten() {
        let dir = LeaseDir::at(&entry.path());
        let is_old = |pulse: Pulse| pulse.good_until.age_at(now) > LONG_AGO;
        if dir.pulse().is_ok_and(is_old) {
            dir.remove();
        }
    }
}

fn gone() -> Failure {
    Failure::usage("no lease is held here", "take one:  git fence acquire,  or  git fence run -- COMMAND")
}

/// The lease that `git fence acquire` took here, for a fence of a remote. A `run` leaves none: its
/// lease is only its own.
pub(crate) struct CurrentLease(PathBuf);

impl CurrentLease {
    pub(crate) fn of(local: &Local, fence: &FenceName, url: &str) -> CurrentLease {
        CurrentLease(home(local).join("current").join(format!("{}@{}", fence.component(), name_of_url(url))))
    }

    pub(crate) fn find(&self) -> Option<LeaseDir> {
        let path = fs::read_to_string(&self.0).ok()?;
        Some(LeaseDir::at(Path::new(&path))).filter(|dir| dir.path.is_dir())
    }

    pub(crate) fn set(&self, dir: &LeaseDir) -> Result<(), Failure> {
        if let Some(before) = self.find().filter(|before| before != dir) {
            before.remove();
        }
        let parent = self.0.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|e| of_file(parent, e))?;
        let path = dir.path.to_string_lossy();
        write_whole(&self.0, path.as_bytes()).map_err(|e| of_file(&self.0, e))
    }

    /// Forgets that it is `dir`, if it is.
    pub(crate) fn clear(&self, dir: &LeaseDir) {
        if self.find().as_ref() == Some(dir) {
            let _ = fs::remove_file(&self.0);
        }
    }
}
