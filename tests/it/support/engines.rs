//! Real engines that keep leases: on free ports of loopback, in directories of their own, and ended with the tests.

use super::{
    guarded::{Guarded, tied},
    is_root,
    needs::{Need, lacks, program_of_postgres},
    records::Records,
    wait_until,
    web_store::WebStore,
};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};
use tempfile::TempDir;

/// PostgreSQL does not run as root.
const NOBODY: u32 = 65534;
/// The password of every engine that wants one.
pub(crate) const PASSWORD: &str = "tell-nobody";

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

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Etcd => "etcd",
            Kind::Postgres => "postgres",
            Kind::Redis => "redis",
            Kind::Http => "http",
        }
    }

    /// Whether it cannot run here.
    #[must_use = "a test that lacks something returns"]
    #[track_caller]
    pub(crate) fn is_lacking(self) -> bool {
        match self {
            Kind::Etcd => lacks(&[Need::Etcd]),
            Kind::Postgres => lacks(&[Need::Postgres]),
            Kind::Redis => lacks(&[Need::Redis]),
            Kind::Http => false,
        }
    }

    /// The engine that all tests of this process share: a record is named for its repository, which is another one in
    /// each world.
    pub(crate) fn shared(self) -> &'static Engine {
        static ALL: [OnceLock<Engine>; 4] = [const { OnceLock::new() }; 4];
        ALL[self as usize].get_or_init(|| self.start(Lives::AsLongAsTheTests))
    }

    /// An engine of its own for one test.
    pub(crate) fn own(self) -> Engine {
        self.start(Lives::InOneTest)
    }

    fn start(self, lives: Lives) -> Engine {
        let engine = match self {
            Kind::Etcd => Engine::etcd(1, lives),
            Kind::Postgres => Engine::postgres(lives),
            Kind::Redis => Engine::redis(lives, &["--requirepass", PASSWORD]),
            Kind::Http => {
                let web = WebStore::start();
                Engine { url: web.url(), processes: Vec::new(), dir: Directory::default(), web: Some(web) }
            }
        };
        engine.wait_until_it_answers();
        engine
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lives {
    AsLongAsTheTests,
    InOneTest,
}

/// A running engine. Its processes end before its directory is removed.
pub(crate) struct Engine {
    /// With its password.
    pub(crate) url: String,
    pub(crate) processes: Vec<Guarded>,
    pub(crate) web: Option<WebStore>,
    dir: Directory,
}

/// Where an engine keeps its files, if it has any.
#[derive(Default)]
struct Directory {
    path: PathBuf,
    /// None if the guard of its process removes it: nothing of this process runs at its end.
    _own: Option<TempDir>,
}

impl Directory {
    fn new(lives: Lives) -> Directory {
        let dir = tempfile::Builder::new().prefix("git-fence-engine-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        match lives {
            Lives::AsLongAsTheTests => Directory { path: dir.keep(), _own: None },
            Lives::InOneTest => Directory { path: dir.path().to_owned(), _own: Some(dir) },
        }
    }

    /// What the guard removes.
    fn for_guard(&self) -> Option<&Path> {
        self._own.is_none().then_some(&*self.path)
    }
}

impl Engine {
    /// One node, or a cluster.
    pub(crate) fn etcd(nodes: usize, lives: Lives) -> Engine {
        Engine::etcd_with_peers_at(nodes, lives, |peer| peer)
    }

    /// The same, with nodes that reach each other at other ports: `at` says where somebody passes on what is for a port.
    pub(crate) fn etcd_with_peers_at(nodes: usize, lives: Lives, at: impl Fn(u16) -> u16) -> Engine {
        let dir = Directory::new(lives);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let ports: Vec<[String; 3]> = (0..nodes)
            .map(|_| {
                let peer = free_port();
                [free_port(), peer, at(peer)].map(url)
            })
            .collect();
        let peers: Vec<String> = ports.iter().enumerate().map(|(n, [_, _, known])| format!("n{n}={known}")).collect();
        let processes = ports.iter().enumerate().map(|(n, [client, peer, known])| {
            let mut etcd = tied(Path::new("etcd"), None);
            etcd.args(["--name", &format!("n{n}"), "--data-dir"]).arg(dir.path.join(format!("n{n}")));
            etcd.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
            etcd.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", known]);
            etcd.args(["--initial-cluster", &peers.join(","), "--logger", "zap", "--log-outputs", "/dev/null"]);
            // These machines sync files slowly.
            etcd.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
            Guarded::start(&etcd, "KILL", dir.for_guard())
        });
        let processes = processes.collect();
        let hosts: Vec<&str> = ports.iter().map(|[client, ..]| client.trim_start_matches("http://")).collect();
        Engine { url: format!("etcd://{}", hosts.join(",")), processes, web: None, dir }
    }

    fn postgres(lives: Lives) -> Engine {
        let dir = Directory::new(lives);
        let data = dir.path.join("data");
        fs::create_dir(&data).unwrap();
        if is_root() {
            chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let password = dir.path.join("password");
        fs::write(&password, PASSWORD).unwrap();
        let mut initdb = tied(&program_of_postgres("initdb").unwrap(), is_root().then_some(NOBODY));
        initdb.arg("-D").arg(&data).args(["-U", "fence", "-A", "scram-sha-256", "--pwfile"]).arg(&password);
        let made = initdb.args(["--no-sync", "-E", "UTF8", "--locale=C"]).current_dir("/").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let url = format!("postgres://fence:{PASSWORD}@127.0.0.1:{}/postgres", free_port());
        let mut engine = Engine { url, processes: Vec::new(), web: None, dir };
        engine.start_postgres();
        engine
    }

    /// Starts PostgreSQL, again if it was killed.
    pub(crate) fn start_postgres(&mut self) {
        let mut postgres = tied(&program_of_postgres("postgres").unwrap(), is_root().then_some(NOBODY));
        postgres.arg("-D").arg(self.dir.path.join("data")).args(["-p", &self.port().to_string()]);
        postgres.args(["-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"]);
        self.processes.push(Guarded::start(&postgres, "QUIT", self.dir.for_guard()));
    }

    /// With more arguments, of which the last count.
    pub(crate) fn redis(lives: Lives, more: &[&str]) -> Engine {
        let (dir, port) = (Directory::new(lives), free_port());
        let mut redis = tied(Path::new("redis-server"), None);
        redis.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(&dir.path);
        let process = Guarded::start(redis.args(more), "KILL", dir.for_guard());
        Engine { url: format!("redis://:{PASSWORD}@127.0.0.1:{port}"), processes: vec![process], web: None, dir }
    }

    /// The port of the only host.
    pub(crate) fn port(&self) -> u16 {
        let host = self.url.rsplit_once(':').unwrap().1;
        host.split('/').next().unwrap().parse().unwrap()
    }

    /// The URL with another port, where somebody stands in between.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.url.replace(&format!(":{}", self.port()), &format!(":{port}"))
    }

    pub(crate) fn wait_until_it_answers(&self) {
        wait_until("the engine answers", || Records::at(&self.url).init());
    }
}

/// What Redis answers to a command.
pub(crate) fn redis_says(engine: &Engine, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", engine.port())).unwrap();
    write!(stream, "AUTH {PASSWORD}\r\n{command}\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    let first = lines.next().unwrap();
    if first.starts_with('$') && first != "$-1" { lines.next().unwrap() } else { first }
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

/// Nothing of a program is left when the process that has started it is killed.
#[test]
fn guarded_programs_end_with_their_starter() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap().keep();
    let sleep = |id| {
        let mut sleep = tied(Path::new("sleep"), id);
        sleep.arg("1000");
        sleep
    };
    let gone = |pid: u32| !Path::new(&format!("/proc/{pid}/exe")).exists();
    let ended = Guarded::start(&sleep(None), "TERM", Some(&dir));
    let pid = ended.pid();
    ended.signal("STOP");
    drop(ended);
    assert!(gone(pid) && !dir.exists());
    let killed = Guarded::start(&sleep(Some(NOBODY)), "TERM", None);
    let pid = killed.pid();
    wait_until("it sleeps", || fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"sleep"));
    killed.kill_shell();
    wait_until("the kernel has killed it", || gone(pid));
}
