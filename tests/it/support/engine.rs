//! A store for leases: a real Redis, on a free port of loopback, with a password, ended by pid.

use super::{World, signal, text, wait_until};
use git_fence_core::{
    Beat, FenceEntry, Lease, LeaseId, LeasePart, LeaseState, MarkRecord, Ownership, PreparedPart, Reason, Secret,
    StorePlace, StoreReply, StoreRequest, StoredLease, Token, Ttl, Version, nonce_of,
};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};
use tempfile::TempDir;

/// What must not show anywhere.
pub(crate) const PASSWORD: &str = "s3cret-of-the-store";

/// A running engine.
pub(crate) struct Engine {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl Engine {
    /// `None` where Redis is not installed, or `git-fence-store` is not built.
    pub(crate) fn start() -> Option<Engine> {
        let path = std::env::var_os("PATH").unwrap();
        let redis = std::env::split_paths(&path).map(|dir| dir.join("redis-server")).find(|file| file.is_file());
        let Some(redis) = redis.filter(|_| program().is_file()) else {
            let needed = std::env::var("GIT_FENCE_TESTS_NEED").unwrap_or_default();
            assert!(needed.is_empty(), "this test needs redis-server, and  cargo build -p git-fence-stores");
            // Past the capture of the test's output.
            let note = "note: skipped tests that need redis-server, and  cargo build -p git-fence-stores\n";
            std::io::stderr().write_all(note.as_bytes()).unwrap();
            return None;
        };
        let dir = TempDir::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(redis);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]);
        command.arg("--dir").arg(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        wait_until("Redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Engine { process, port, _dir: dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    pub(crate) fn shown(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn stop(&self) {
        signal(self.process.id(), "STOP");
    }

    pub(crate) fn go_on(&self) {
        signal(self.process.id(), "CONT");
    }

    /// Replaces the record of a fence, whatever it is.
    pub(crate) fn put(&self, entry: &FenceEntry) {
        let name = entry.name.clone();
        let read = StoreRequest::Read { name: name.clone(), within_ms: 20_000 };
        let [_, StoreReply::Found(found)] = &self.ask(&[read])[..] else { panic!("the store cannot be read") };
        let (expected, next) = (found.record.clone(), entry.body());
        let swap = StoreRequest::Swap { name, expected, next, keep: false, within_ms: 20_000 };
        assert!(matches!(&self.ask(&[swap])[..], [_, StoreReply::Won { .. }]));
    }

    fn ask(&self, requests: &[StoreRequest]) -> Vec<StoreReply> {
        let mut helper = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = helper.stdin.take().unwrap();
        for request in [StoreRequest::Open { url: self.url() }].iter().chain(requests) {
            writeln!(input, "{}", serde_json::to_string(request).unwrap()).unwrap();
        }
        drop(input);
        let lines = BufReader::new(helper.stdout.take().unwrap()).lines();
        let replies = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        helper.wait().unwrap();
        replies
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `git-fence-store`, beside the hook.
pub(crate) fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_git-fence-hook")).with_file_name("git-fence-store")
}

/// The name of the server's repository in the store.
pub(crate) const RESOURCE: &str = "git.example.com/app";

/// The entry of fence `repo` before anybody held it.
pub(crate) fn empty_entry() -> FenceEntry {
    FenceEntry::new(format!("{RESOURCE}/repo"), fresh())
}

/// A fresh nonce.
pub(crate) fn fresh() -> String {
    nonce_of(random())
}

fn random() -> [u8; 16] {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    u128::from(COUNT.fetch_add(1, Ordering::Relaxed)).to_be_bytes()
}

fn token(n: u64) -> Token {
    n.try_into().unwrap()
}

/// An ownership in the store, as its holder has it.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    owner: String,
    id: LeaseId,
    first: u64,
    master: Secret,
}

impl Holder {
    pub(crate) fn new(owner: &str, first: u64) -> Holder {
        let master = Secret::of([random(), random()].concat().try_into().unwrap());
        Holder { owner: owner.to_owned(), id: LeaseId::of(random()), first, master }
    }

    pub(crate) fn by(&self) -> Ownership {
        Ownership { lease: self.id.clone(), first: token(self.first) }
    }

    fn lease(&self, at: u64, state: LeaseState) -> Lease {
        let nonce = fresh();
        Lease {
            format: git_fence_core::Format::OneUse,
            id: self.id.clone(),
            token: token(at),
            owner: self.owner.clone(),
            state,
            ttl: Ttl::of_seconds(60).unwrap(),
            reason: if state == LeaseState::Held { Reason::First } else { Reason::Revoked },
            words: None,
            since: None,
            jobs: git_fence_core::Jobs::default(),
            holder: self.master.of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        }
    }

    /// `entry` after this ownership has gone to token `at`.
    pub(crate) fn goes_to(&self, entry: &FenceEntry, at: u64, state: LeaseState) -> FenceEntry {
        let before = entry.lease.as_ref().map(|lease| lease.at.clone());
        let lease = self.lease(at, state);
        let time = "2026-01-01T00:00:00Z".to_owned();
        let stored = StoredLease { at: Version::new(&*lease.nonce), parent: None, lease, time };
        let beat = (entry.snapshot().beat_at, PreparedPart::Beat(self.beat()));
        entry.with(&[(before, PreparedPart::Lease(stored)), beat], fresh()).unwrap()
    }

    fn beat(&self) -> Beat {
        let nonce = fresh();
        let holder = Some(self.master.of_record(LeasePart::Beat, &nonce).holder());
        let deadline = "2026-01-01T00:00:00Z".to_owned();
        Beat { lease: self.id.clone(), deadline, progress: None, gate: false, holder, nonce }
    }

    /// The proof of the current beat in the store: for a mark that moves alone.
    pub(crate) fn proof_of_beat(&self, entry: &FenceEntry) -> Secret {
        self.master.of_record(LeasePart::Beat, &entry.beat.as_ref().unwrap().nonce)
    }

    /// The proof that the current record of the store asks for.
    pub(crate) fn proof(&self, entry: &FenceEntry) -> Secret {
        self.master.of_record(LeasePart::Lease, &entry.lease.as_ref().unwrap().lease.nonce)
    }
}

/// The mark of fence `repo` in the server's repository, if there is one.
pub(crate) fn mark_now(world: &World) -> Option<MarkRecord> {
    let name = "refs/fence/repo/mark";
    world.server_ref(name)?;
    let message = world.ok(world.git("server.git").args(["for-each-ref", "--format=%(contents)", name]));
    Some(MarkRecord::read(format!("{message}\n").as_bytes()).unwrap())
}

/// The first mark, for leases in this store.
pub(crate) fn begins(store: &str) -> MarkRecord {
    MarkRecord::begins(git_fence_core::Mark::default(), StorePlace::new(store, RESOURCE), "anna", fresh())
}

/// Names in `/proc` of processes that run now, with all that can be read of their arguments.
pub(crate) fn all_arguments() -> String {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| text(&bytes) + "\n")
        .collect()
}
