//! Engines whose disk or memory is full: told as such, and what was told as won is there.

use crate::{
    engines::{Engine, Etcd, Postgres, is_root, skip, wait_until},
    helper::Helper,
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreRecord, StoreReply};
use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};
use tempfile::TempDir;

/// Letters that cannot be compressed.
pub(crate) fn noise(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state % 26).unwrap())
    };
    (0..length).map(|_| letter()).collect()
}

/// Writes until there is no room. Returns the last record that was told as won, and what came then.
fn fill(helper: &mut Helper, length: usize) -> (StoreRecord, StoreReply) {
    let mut last: Option<StoreRecord> = None;
    for n in 1..1000 {
        let next = noise(n, length);
        match helper.swap_within("n", last.as_ref(), &next, 6000) {
            StoreReply::Won { version, .. } => last = Some(StoreRecord { version, body: next }),
            other => return (last.unwrap(), other),
        }
    }
    panic!("there is room for everything");
}

#[track_caller]
fn assert_no_room(answer: &StoreReply) -> &StoreFault {
    match answer {
        StoreReply::Failed(fault) if fault.kind == StoreFaultKind::Unreachable => {
            assert!(fault.hint.contains("make room"), "{fault:?}");
            fault
        }
        other => panic!("{other:.300?}"),
    }
}

#[test]
fn etcd_over_its_quota_is_told_and_read() {
    let Some(engine) = (Etcd { more: &["--quota-backend-bytes", "2000000"], ..Etcd::default() }).start() else {
        return;
    };
    let mut helper = Helper::at(&engine.url);
    let (last, answer) = fill(&mut helper, 100_000);
    assert_no_room(&answer);
    assert_eq!(helper.record("n"), Some(last.clone()));
    // As its documentation says.
    let revision = engine.etcdctl(&["get", "git-fence/n", "-w", "fields"]);
    let revision = revision.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    engine.etcdctl(&["compact", revision, "--physical"]);
    engine.etcdctl(&["defrag"]);
    engine.etcdctl(&["alarm", "disarm"]);
    helper.win("n", Some(&last), "there is room again");
}

#[test]
fn redis_without_memory_is_told_and_read() {
    let Some(engine) = Engine::redis(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]) else { return };
    let mut helper = Helper::at(&engine.url);
    let mut n: u64 = 0;
    let answer = loop {
        n += 1;
        match helper.swap_within(&format!("{n}"), None, &noise(n, 100_000), 1000) {
            StoreReply::Won { .. } => assert!(n < 1000),
            other => break other,
        }
    };
    assert_no_room(&answer);
    assert_eq!(helper.record("1").map(|record| record.body), Some(noise(1, 100_000)));
}

/// A small disk, where the test may mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(megabytes: usize) -> Option<SmallDisk> {
        let dir = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=777"), "tmpfs"]).arg(dir.path());
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        if !is_root() || !mount.output().is_ok_and(|ran| ran.status.success()) {
            skip("root, who may mount a small disk");
            return None;
        }
        Some(SmallDisk(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let mut file = File::create(self.path().join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever is killed may hold it for a moment.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// It ends when it cannot write what it has promised to sync.
#[test]
fn redis_on_a_full_disk_promises_nothing() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut engine) = Engine::redis_in(disk.path(), &settings) else { return };
    let mut helper = Helper::at(&engine.url);
    let first = helper.win("n", None, "one");
    disk.fill();
    let (last, answer) = match helper.swap_within("n", Some(&first), &noise(1, 100_000), 1000) {
        StoreReply::Won { version, .. } => {
            let next = StoreRecord { version, body: noise(1, 100_000) };
            let answer = helper.swap_within("n", Some(&next), "three", 1000);
            (next, answer)
        }
        other => (first, other),
    };
    let is_open = match &answer {
        StoreReply::Failed(fault) => fault.kind == StoreFaultKind::Unreachable,
        other => matches!(other, StoreReply::Unknown { .. }),
    };
    assert!(is_open, "{answer:.300?}");
    disk.make_room();
    engine.restart(0);
    let there = helper.record("n");
    assert_eq!(there.as_ref(), Some(&last), "what was told as won");
    helper.win("n", there.as_ref(), "there is room again");
}

#[test]
fn postgres_on_a_full_disk_keeps_what_it_told() {
    let Some(disk) = SmallDisk::mount(120) else { return };
    let more = ["min_wal_size=32MB", "max_wal_size=32MB"];
    let Some(engine) = (Postgres { data: Some(disk.path()), more: &more, ..Postgres::default() }).start() else {
        return;
    };
    let mut helper = Helper::at(&engine.url);
    helper.init();
    let first = helper.win("n", None, "one");
    disk.fill();
    let mut last = first;
    let answer = loop {
        let next = noise(last.version.parse().unwrap(), 400_000);
        match helper.swap_within("n", Some(&last), &next, 6000) {
            StoreReply::Won { version, .. } => last = StoreRecord { version, body: next },
            other => break other,
        }
    };
    let is_open = match &answer {
        // It has stopped for want of room before it could say so, and was not even sent this one.
        StoreReply::Failed(fault) if fault.why.contains("did not answer in time") => {
            fault.kind == StoreFaultKind::Unreachable
        }
        StoreReply::Failed(_) => assert_no_room(&answer).kind == StoreFaultKind::Unreachable,
        other => matches!(other, StoreReply::Unknown { .. }),
    };
    assert!(is_open, "{answer:.300?}");
    disk.make_room();
    // It starts by itself, if it could not go on.
    wait_until("it answers again", || helper.read("n").is_ok());
    let there = helper.record("n");
    if matches!(answer, StoreReply::Failed(_)) {
        assert_eq!(there.as_ref(), Some(&last));
    }
    helper.win("n", there.as_ref(), "there is room again");
}
