//! Real engines: started on free ports of loopback, in directories of their own, and ended by pid.

use crate::{helper::Helper, web_server::WebServer};
use git_fence_core::StoreReply;
use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// PostgreSQL does not run as root.
const NOBODY: u32 = 65534;
/// How long an engine may take to start, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    Postgres,
    Redis,
    Http,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Etcd, Kind::Postgres, Kind::Redis, Kind::Http];

    /// The engine, running and with what it needs; none if it is not installed here.
    pub(crate) fn start(self) -> Option<Engine> {
        let engine = match self {
            Kind::Etcd => Engine::etcd(),
            Kind::Postgres => Engine::postgres(),
            Kind::Redis => Engine::redis(&[]),
            Kind::Http => {
                Some(Engine { url: String::new(), processes: Vec::new(), web: Some(WebServer::start()), dir: None })
            }
        };
        let mut engine = engine?;
        if let Some(web) = &engine.web {
            engine.url = web.url();
        }
        let made = Helper::at(&engine.url).init();
        assert!(matches!(made, StoreReply::Made { .. }), "{made:?}");
        Some(engine)
    }
}

/// A running engine.
pub(crate) struct Engine {
    pub(crate) url: String,
    pub(crate) processes: Vec<Child>,
    pub(crate) web: Option<WebServer>,
    pub(crate) dir: Option<TempDir>,
}

impl Engine {
    fn etcd() -> Option<Engine> {
        Engine::etcd_cluster(1)
    }

    /// Several nodes.
    pub(crate) fn etcd_cluster(nodes: usize) -> Option<Engine> {
        let program = find("etcd")?;
        let dir = TempDir::new().unwrap();
        let ports: Vec<(u16, u16)> = (0..nodes).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("n{n}=http://127.0.0.1:{peer}")).collect();
        let processes = ports.iter().enumerate().map(|(n, (client, peer))| {
            let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let mut etcd = Command::new(&program);
            etcd.args(["--name", &format!("n{n}"), "--data-dir"]).arg(dir.path().join(format!("n{n}")));
            etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            etcd.args(["--initial-cluster", &peers.join(","), "--logger", "zap", "--log-outputs", "/dev/null"]);
            // Files on these machines sync slowly.
            etcd.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
            started(&mut etcd)
        });
        let processes = processes.collect();
        let hosts: Vec<String> = ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
        let engine = Engine { url: format!("etcd://{}", hosts.join(",")), processes, web: None, dir: Some(dir) };
        engine.wait_until_it_answers();
        Some(engine)
    }

    fn postgres() -> Option<Engine> {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&data).unwrap();
        if is_root() {
            chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let password = dir.path().join("password");
        fs::write(&password, "tell-nobody").unwrap();
        let mut initdb = as_nobody(&find_postgres("initdb")?);
        initdb.arg("-D").arg(&data).args(["-U", "fence", "-A", "scram-sha-256", "--pwfile"]).arg(&password);
        let made = initdb.args(["--no-sync", "-E", "UTF8", "--locale=C"]).current_dir("/").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let url = format!("postgres://fence:tell-nobody@127.0.0.1:{port}/postgres");
        let mut engine = Engine { url, processes: Vec::new(), web: None, dir: Some(dir) };
        engine.start_postgres(port);
        Some(engine)
    }

    pub(crate) fn start_postgres(&mut self, port: u16) {
        let mut postgres = as_nobody(&find_postgres("postgres").unwrap());
        let data = self.dir.as_ref().unwrap().path().join("data");
        postgres.arg("-D").arg(data).args(["-p", &port.to_string(), "-c", "unix_socket_directories="]);
        postgres.args(["-c", "listen_addresses=127.0.0.1"]).current_dir("/");
        self.processes.push(started(&mut postgres));
        self.wait_until_it_answers();
    }

    pub(crate) fn redis(more: &[&str]) -> Option<Engine> {
        let program = find("redis-server")?;
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let mut redis = Command::new(program);
        redis.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir.path());
        let process = started(redis.args(more));
        let engine =
            Engine { url: format!("redis://127.0.0.1:{port}"), processes: vec![process], web: None, dir: Some(dir) };
        wait_until("Redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(engine)
    }

    /// The port of the only host.
    pub(crate) fn port(&self) -> u16 {
        let host = self.url.rsplit_once(':').unwrap().1;
        host.split('/').next().unwrap().parse().unwrap()
    }

    fn wait_until_it_answers(&self) {
        let mut helper = Helper::at(&self.url);
        wait_until("the engine answers", || !matches!(helper.read("nothing"), Err(fault) if is_not_up(&fault.why)));
    }

    /// Kills a process, without a chance to do anything.
    pub(crate) fn kill(&mut self, n: usize) {
        let mut process = self.processes.remove(n);
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// A table that is missing is an answer.
fn is_not_up(why: &str) -> bool {
    !why.contains("git_fence_records")
}

impl Drop for Engine {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Starts it quietly; it ends with the test, even if the test is killed.
fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap()
}

fn as_nobody(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    if found.is_none() {
        let needed = std::env::var("GIT_FENCE_TESTS_NEED").unwrap_or_default();
        assert!(needed.is_empty(), "GIT_FENCE_TESTS_NEED={needed}, and this test needs {program}");
        eprintln!("note: skipped tests that need {program} (run ./check)");
    }
    found
}

/// Debian keeps the programs of the server out of the PATH.
fn find_postgres(program: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(program)).collect();
    all.sort();
    all.into_iter().rev().find(|file| file.is_file()).or_else(|| find(program))
}

/// A port that nobody listens on, and that no other test of this process gets.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
