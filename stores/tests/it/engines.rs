//! Real engines: started on free ports of loopback, in directories of their own, and ended by pid.

mod etcd;
mod postgres;
mod redis;

pub(crate) use etcd::Etcd;
pub(crate) use postgres::Postgres;
pub(crate) use redis::Sentinels;

use crate::{helper::Helper, web_server::WebServer};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReply};
use std::{
    collections::BTreeSet,
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The password of every engine that has one.
pub(crate) const PASSWORD: &str = "tell-nobody";
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
            Kind::Etcd => Etcd::default().start()?,
            Kind::Postgres => Postgres::default().start()?,
            Kind::Redis => Engine::redis(&[])?,
            Kind::Http => Engine::web(WebServer::start()),
        };
        let made = Helper::at(&engine.url).init();
        assert!(matches!(made, StoreReply::Made { .. }), "{made:?}");
        Some(engine)
    }
}

/// A running engine.
pub(crate) struct Engine {
    pub(crate) url: String,
    processes: Vec<Process>,
    pub(crate) web: Option<WebServer>,
    dir: Option<TempDir>,
}

/// A process, and how to start it again.
struct Process {
    command: Command,
    child: Child,
}

impl Engine {
    pub(crate) fn web(server: WebServer) -> Engine {
        Engine { url: server.url(), processes: Vec::new(), web: Some(server), dir: None }
    }

    /// The port of the only host.
    pub(crate) fn port(&self) -> u16 {
        let hosts = self.url.split_once("://").unwrap().1.split('/').next().unwrap();
        hosts.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// The directory of its data.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    fn wait_until_it_answers(&self) {
        let mut helper = Helper::at(&self.url);
        wait_until("the engine answers", || is_up(helper.read("nothing")));
    }

    /// Kills a process, without a chance to do anything.
    pub(crate) fn kill(&mut self, n: usize) {
        self.processes.remove(n).end();
    }

    /// Kills a process, and starts it again.
    pub(crate) fn restart(&mut self, n: usize) {
        self.processes[n].end();
        let mut helper = Helper::at(&self.url);
        wait_until("the engine is back", || {
            // While processes of the old one are left, PostgreSQL does not start.
            let process = &mut self.processes[n];
            if process.child.try_wait().unwrap().is_some() {
                process.child = process.command.spawn().unwrap();
            }
            is_up(helper.read_within("nothing", 1000))
        });
    }

    /// Stops a process with all of its children, so that it accepts connections and never answers.
    pub(crate) fn freeze(&self, n: usize) {
        self.processes[n].signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self, n: usize) {
        self.processes[n].signal("CONT");
    }
}

impl Process {
    /// Starts it quietly.
    fn start(mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn().unwrap();
        Process { command, child }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to it and its children, by pid.
    fn signal(&self, signal: &str) {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {own} {children}")]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A table that is missing, or a right, is an answer.
fn is_up<T>(read: Result<T, StoreFault>) -> bool {
    !matches!(read, Err(fault) if fault.kind == StoreFaultKind::Unreachable)
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

/// Gives a file to the user whom PostgreSQL runs as.
fn give_away(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A program; none if it is not installed here.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    if found.is_none() {
        skip(program);
    }
    found
}

/// Says that tests are skipped for want of something.
pub(crate) fn skip(what: &str) {
    let needed = std::env::var("GIT_FENCE_TESTS_NEED").unwrap_or_default();
    assert!(needed.is_empty(), "GIT_FENCE_TESTS_NEED={needed}, and this test needs {what}");
    eprintln!("note: skipped tests that need {what} (run ./check)");
}

/// Runs a program to its end; what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
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
fn wait_until_it_listens(port: u16) {
    wait_until("the engine listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
