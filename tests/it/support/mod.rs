//! Real git, real repositories, real processes: the tools of the tests.

pub(crate) mod agents;
pub(crate) mod engine;
pub(crate) mod engines;
pub(crate) mod guarded;
pub(crate) mod hosts;
pub(crate) mod lease;
pub(crate) mod needs;
pub(crate) mod partition;
pub(crate) mod proxy;
pub(crate) mod raw;
pub(crate) mod records;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod sshd;
pub(crate) mod story;
pub(crate) mod strace;
pub(crate) mod web_store;

use rustix::process::{Pid, Signal};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a test waits for a condition before it fails. Not used for measurements.
const GIVE_UP: Duration = Duration::from_secs(120);

/// A git version to test with, for client and server.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    program: PathBuf,
    pub(crate) version: (u32, u32),
}

impl Git {
    /// The directory that it lies in.
    pub(crate) fn dir(&self) -> &Path {
        self.program.parent().unwrap()
    }
}

/// The first git in PATH, and the system's git if its version differs.
pub(crate) fn gits() -> Vec<Git> {
    let first = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|path| path.is_file())
        .expect("git is in PATH");
    let mut gits: Vec<Git> = Vec::new();
    for program in [first, PathBuf::from("/usr/bin/git")] {
        let Ok(output) = Command::new(&program).arg("version").output() else { continue };
        let text = String::from_utf8(output.stdout).unwrap();
        let mut numbers = text.trim_start_matches("git version ").split('.').map(|n| n.parse().unwrap_or(0));
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        if gits.iter().all(|git| git.version != version) {
            gits.push(Git { program, version });
        }
    }
    gits
}

/// Starts the command as in the foreground of a shell. If the tests run in the background or under nohup, some
/// signals are ignored, and child processes would inherit that.
pub(crate) fn as_if_from_a_shell(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP,INT,QUIT,TERM").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        env.current_dir(dir);
    }
    env
}

/// The first git in PATH.
pub(crate) fn any_git() -> Git {
    gits().remove(0)
}

/// The hook that a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// git-fence, installed by `install`.
    Fence,
    /// git-fence, called by a `pre-receive.d` dispatcher.
    FenceBehindDispatcher,
    /// `fixtures/naive-hook.sh`.
    Naive,
    /// The naive hook, called by a dispatcher.
    NaiveBehindDispatcher,
}

/// A bare repository on a server and a clone to push from.
pub(crate) struct World {
    pub(crate) git: Git,
    dir: TempDir,
}

impl World {
    /// A bare repository with git-fence installed.
    pub(crate) fn new(git: &Git) -> World {
        World::with(git, Door::Fence, &[])
    }

    /// A bare repository with the hook `door`, made with extra arguments for `git init`.
    pub(crate) fn with(git: &Git, door: Door, init: &[&str]) -> World {
        let world = World::bare(git, init);
        world.open_door(door);
        world
    }

    /// A bare repository without any hook, and a clone with one commit.
    pub(crate) fn bare(git: &Git, init: &[&str]) -> World {
        let world = World { git: git.clone(), dir: tempfile::Builder::new().prefix("git-fence-").tempdir().unwrap() };
        fs::create_dir(world.path("home")).unwrap();
        world.ok(world.git(".").args(["init", "-q", "--bare"]).args(init).arg("server.git"));
        let object_format: Vec<&str> = init.iter().copied().filter(|arg| arg.starts_with("--object-format")).collect();
        world.ok(world.git(".").args(["init", "-q"]).args(object_format).arg("work"));
        world.ok(world.git("work").args(["commit", "-q", "--allow-empty", "-m", "first"]));
        world
    }

    pub(crate) fn open_door(&self, door: Door) {
        match door {
            Door::Fence | Door::FenceBehindDispatcher => {
                self.ok(self.hook_program().arg("install").arg(self.server()));
            }
            Door::Naive | Door::NaiveBehindDispatcher => {
                fs::copy(fixture("naive-hook.sh"), self.hook("pre-receive")).unwrap();
                self.configure("receive.advertisePushOptions", "true");
            }
        }
        if matches!(door, Door::FenceBehindDispatcher | Door::NaiveBehindDispatcher) {
            let inner = self.server().join("hooks/pre-receive.d");
            fs::create_dir(&inner).unwrap();
            fs::rename(self.hook("pre-receive"), inner.join("gate")).unwrap();
            fs::copy(fixture("dispatcher.sh"), self.hook("pre-receive")).unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn server(&self) -> PathBuf {
        self.path("server.git")
    }

    pub(crate) fn fence_file(&self, name: &str) -> PathBuf {
        self.server().join("fence").join(name)
    }

    pub(crate) fn hook(&self, name: &str) -> PathBuf {
        self.server().join("hooks").join(name)
    }

    /// Writes an executable shell script as a hook of the server. A `post-receive` counts as installed before the
    /// companion.
    pub(crate) fn write_hook(&self, name: &str, body: &str) {
        let has_companion =
            || fs::read_to_string(self.hook(name)).is_ok_and(|content| content.contains("# git-fence:"));
        if name == "post-receive" && has_companion() {
            let kept = self.hook("kept-by-git-fence");
            fs::create_dir_all(&kept).unwrap();
            return write_script(&kept.join(name), body);
        }
        self.put_over(name, body);
    }

    /// The same, replacing any existing hook.
    pub(crate) fn put_over(&self, name: &str, body: &str) {
        write_script(&self.hook(name), body);
    }

    /// Puts the companion, started through `prefix`, into a separate script.
    pub(crate) fn companion_under(&self, prefix: &str) {
        let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
        self.put_over("post-receive", &format!("{prefix} {gate} post-receive  # git-fence-hook post-receive"));
    }

    /// From here on git never reports what it has moved, as if the client were gone or a process killed.
    pub(crate) fn companion_never_runs(&self) {
        self.put_over("post-receive", "exit 0  # git-fence-hook post-receive");
    }

    /// Makes the update hook stall at the first push to `branch`: it writes its pid to
    /// `stalled` and continues when `go` exists.
    pub(crate) fn stall_update_of(&self, branch: &str) {
        self.write_hook(
            "update",
            &format!(
                "case $1 in refs/heads/{branch}) [ -e stalled ] && exit 0\n\
                 echo $PPID >stalled.new; mv stalled.new stalled\n\
                 while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac"
            ),
        );
    }

    /// The pid that a hook wrote into `file` in the server's directory, once it is there.
    pub(crate) fn pid_in(&self, file: &str) -> u32 {
        let path = self.server().join(file);
        wait_until(&format!("'{file}' is there"), || path.exists());
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn go(&self) {
        fs::write(self.server().join("go"), "").unwrap();
    }

    /// Lets a stalled push continue when this is dropped, so that a failing test does not hang.
    pub(crate) fn go_in_the_end(&self) -> GoOnDrop {
        GoOnDrop(self.server().join("go"))
    }

    /// `git -C <dir>`, isolated from this machine's configuration, with a pinned identity.
    pub(crate) fn git(&self, dir: impl AsRef<Path>) -> Command {
        let mut command = Command::new(&self.git.program);
        self.hermetic(&mut command);
        command.current_dir(self.dir.path().join(dir));
        command
    }

    pub(crate) fn hook_program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence-hook"));
        self.hermetic(&mut command);
        command.current_dir(self.dir.path());
        command
    }

    pub(crate) fn hermetic(&self, command: &mut Command) {
        let mut path = OsString::from(self.git.dir());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|n| n.starts_with("GIT_"))) {
            command.env_remove(name);
        }
        command
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("LC_ALL", "C")
            .env("TERM", "xterm")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_COUNT", "2")
            .env("GIT_CONFIG_KEY_0", "init.defaultBranch")
            .env("GIT_CONFIG_VALUE_0", "main")
            .env("GIT_CONFIG_KEY_1", "protocol.file.allow")
            .env("GIT_CONFIG_VALUE_1", "always")
            .env("GIT_AUTHOR_NAME", "A U Thor")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_COMMITTER_NAME", "C O Mitter")
            .env("GIT_COMMITTER_EMAIL", "committer@example.com")
            .env("GIT_AUTHOR_DATE", "1700000000 +0000")
            .env("GIT_COMMITTER_DATE", "1700000000 +0000")
            .env("GL_USERNAME", "tester")
            .env_remove("SSH_CONNECTION")
            .stdin(Stdio::null());
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn ok(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}\n{}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    pub(crate) fn configure(&self, key: &str, value: &str) {
        self.ok(self.git("server.git").args(["config", "--add", key, value]));
    }

    /// A new commit on top of the first, with a message only.
    pub(crate) fn commit(&self, message: &str) -> String {
        let mut command = self.git("work");
        command.args(["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-F", "-"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
        text(&child.wait_with_output().unwrap().stdout).trim().to_owned()
    }

    /// `git push` of `refspecs` with push options.
    pub(crate) fn push_command(&self, refspecs: &[&str], options: &[&str]) -> Command {
        let mut command = self.git("work");
        command.arg("push").arg(self.server()).args(refspecs);
        for option in options {
            command.arg(format!("--push-option={option}"));
        }
        command
    }

    pub(crate) fn push(&self, refspecs: &[&str], options: &[&str]) -> Pushed {
        Pushed::from(&self.push_command(refspecs, options).output().unwrap())
    }

    /// `git push` of a new commit to `branch`, with `token`.
    pub(crate) fn push_token_command(&self, branch: &str, token: &str) -> Command {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let commit = self.commit(&format!("{count}: token {token} for {branch}"));
        self.push_command(&[&format!("+{commit}:refs/heads/{branch}")], &[&format!("fence-token={token}")])
    }

    pub(crate) fn push_token(&self, branch: &str, token: &str) -> Pushed {
        Pushed::from(&self.push_token_command(branch, token).output().unwrap())
    }

    /// Starts such a push in the background.
    pub(crate) fn start_push(&self, branch: &str, token: &str) -> Running {
        Running::start(&mut self.push_token_command(branch, token))
    }

    /// The value of a ref of the server, read by git.
    pub(crate) fn server_ref(&self, name: &str) -> Option<String> {
        let listed = self.ok(self.git("server.git").args(["for-each-ref", "--format=%(objectname)", name]));
        (!listed.is_empty()).then_some(listed)
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let json = self.ok(self.hook_program().args(["status", "--json"]).arg(self.server()));
        let status = serde_json::from_str(&json).unwrap();
        schema::assert_is("hook_status", &status);
        status
    }

    pub(crate) fn mark(&self) -> u64 {
        let status = self.status();
        let repo = status["fences"].as_array().unwrap().iter().find(|fence| fence["fence"] == "repo");
        repo.unwrap()["mark"].as_u64().unwrap()
    }

    /// The log, read with the `audit` command.
    pub(crate) fn audit(&self) -> Vec<serde_json::Value> {
        let lines = self.ok(self.hook_program().args(["audit", "--json"]).arg(self.server()));
        let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(|line| schema::assert_is("audit", line));
        lines
    }

    pub(crate) fn events(&self, event: &str) -> Vec<serde_json::Value> {
        self.audit().into_iter().filter(|line| line["event"] == event).collect()
    }

    pub(crate) fn verify(&self) -> Output {
        self.hook_program().args(["audit", "verify"]).arg(self.server()).output().unwrap()
    }

    /// The log is intact, and every accepted push is settled or in flight, exactly once.
    pub(crate) fn assert_log_is_whole(&self) {
        let verified = self.verify();
        assert!(verified.status.success(), "{}", text(&verified.stderr));
        let id = |line: &serde_json::Value| line["push"].as_u64().unwrap();
        let accepted: Vec<u64> = self.events("push.accepted").iter().map(id).collect();
        let mut settled: Vec<u64> = self.events("push.settled").iter().map(id).collect();
        settled.sort_unstable();
        assert!(settled.windows(2).all(|two| two[0] < two[1]), "settled twice: {settled:?}");
        assert!(settled.iter().all(|push| accepted.contains(push)));
    }
}

/// Lets a stalled push continue when this is dropped.
#[must_use = "it goes on at once"]
pub(crate) struct GoOnDrop(PathBuf);

impl Drop for GoOnDrop {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "");
    }
}

/// A finished push.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) ok: bool,
    /// The output of git, without the `remote:` prefix.
    pub(crate) text: String,
    /// The output of the server's hooks.
    pub(crate) remote: String,
}

impl Pushed {
    pub(crate) fn from(output: &Output) -> Pushed {
        let said = text(&output.stderr);
        let from_remote = |line: &'_ str| line.strip_prefix("remote: ").map(|line| line.trim_end().to_owned());
        let lines: Vec<String> =
            said.lines().map(|line| from_remote(line).unwrap_or_else(|| line.to_owned())).collect();
        let remote: Vec<String> = said.lines().filter_map(from_remote).collect();
        Pushed { ok: output.status.success(), text: lines.join("\n"), remote: remote.join("\n") }
    }

    /// The code in the JSON line; the sentence for people must name the same.
    pub(crate) fn code(&self) -> Option<String> {
        let json = self.text.lines().find_map(|line| line.strip_prefix("fence: {"))?;
        let verdict: serde_json::Value = serde_json::from_str(&format!("{{{json}")).unwrap();
        schema::assert_is("gate_line", &verdict);
        let code = verdict["code"].as_str().unwrap().to_owned();
        assert!(self.text.lines().any(|line| line.starts_with(&format!("error: {code} "))), "{}", self.text);
        Some(code)
    }

    #[track_caller]
    pub(crate) fn assert_landed(&self) {
        assert!(self.ok, "refused:\n{}", self.text);
    }

    #[track_caller]
    pub(crate) fn assert_refused(&self, code: &str) {
        assert!(!self.ok, "landed:\n{}", self.text);
        assert_eq!(self.code().as_deref(), Some(code), "{}", self.text);
        assert!(!self.text.contains("panicked"), "{}", self.text);
    }
}

/// A running push. It is ended by pid when the test is over, in any case.
pub(crate) struct Running {
    child: Option<Child>,
    said: Arc<Mutex<Vec<u8>>>,
    listener: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut stderr, hears) = (child.stderr.take().unwrap(), said.clone());
        let listener = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = std::io::Read::read(&mut stderr, &mut buffer) {
                hears.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Running { child: Some(child), said, listener: Some(listener) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn has_said(&self, words: &str) -> bool {
        text(&self.said.lock().unwrap()).contains(words)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub(crate) fn wait(mut self) -> Pushed {
        let status = self.child.take().unwrap().wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        Pushed::from(&Output { status, stdout: Vec::new(), stderr: self.said.lock().unwrap().clone() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process that the test has started, by pid.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(try_signal(pid, name), "kill -{name} {pid}");
}

/// The same for a process that may have ended meanwhile. Returns whether it existed.
pub(crate) fn try_signal(pid: u32, name: &str) -> bool {
    rustix::process::kill_process(as_pid(pid), signal_of(name)).is_ok()
}

/// Sends a signal to a whole process group, by the pid of its leader.
pub(crate) fn signal_group(leader: u32, name: &str) {
    let sent = rustix::process::kill_process_group(as_pid(leader), signal_of(name));
    assert!(sent.is_ok(), "kill -{name} -- -{leader}");
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

fn signal_of(name: &str) -> Signal {
    let known = [
        ("CONT", Signal::CONT),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("KILL", Signal::KILL),
        ("QUIT", Signal::QUIT),
        ("STOP", Signal::STOP),
        ("TERM", Signal::TERM),
    ];
    known.into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no signal '{name}'")).1
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GIVE_UP, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Everything below a directory: names, modes, content of files and targets of links.
pub(crate) fn tree(dir: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap();
            let content = match fs::read_link(&path) {
                Ok(target) => target.into_os_string().into_encoded_bytes(),
                Err(_) => fs::read(&path).unwrap_or_default(),
            };
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.push((name, kind.permissions().mode(), content));
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The same, except for everything below `without`.
pub(crate) fn tree_without(dir: &Path, without: &[&str]) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = tree(dir);
    found.retain(|(name, ..)| !without.iter().any(|out| Path::new(name).starts_with(out)));
    found
}

pub(crate) fn write_script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Copies a program in another process: a file that is open for writing cannot be executed,
/// and every child of every test briefly inherits the files that this process has open.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status().unwrap();
    assert!(copied.success());
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `path` as one word for a shell.
pub(crate) fn sh(path: impl AsRef<OsStr>) -> String {
    format!("'{}'", path.as_ref().to_str().unwrap().replace('\'', "'\\''"))
}
