//! The user's own git and clone: run as it is configured, so that credentials, ssh settings and proxies keep working.
//!
//! Called by everybody. Nothing in here knows of leases.

pub(crate) mod address;
pub(crate) mod local;

use crate::surroundings::Environment;
use git_fence_core::text;
use git_fence_system::{
    env,
    process::{self, Pid, ProcessHandle, Signal},
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write as _},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

/// Where git is run, and with which environment.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    pub(crate) dir: PathBuf,
    pub(crate) environment: Environment,
}

/// What a git that has ended left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Why git has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("cannot run git")]
    CannotRun(#[source] io::Error),
    #[error("{complaint}")]
    Failed { complaint: String },
}

/// How a git is run.
#[derive(Debug, Clone, Default)]
pub(crate) struct How {
    /// Whether what it says goes on to our standard error as it comes.
    pub(crate) aloud: bool,
    /// It is ended after this long, with everything that it started.
    pub(crate) within: Option<Duration>,
    /// It is ended when somebody sets this.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

impl How {
    /// Whether what has taken `elapsed` so far is to be given up.
    pub(crate) fn is_over(&self, elapsed: Duration) -> bool {
        self.within.is_some_and(|within| elapsed >= within)
            || self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl Git {
    /// `git` with its messages in the language that is read here.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("git");
        self.environment.give_to(&mut command);
        command.current_dir(&self.dir).env(env::LC_ALL.name, "C").env_remove(env::GIT_PREFIX.name).args(args);
        command
    }

    /// Runs git and gives the lines of its standard output, where it succeeds.
    pub(crate) fn ask<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String, GitError> {
        let ran = run(&mut self.command(args), &How::default()).map_err(GitError::CannotRun)?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).trim_end_matches('\n').to_owned())
        } else {
            Err(GitError::Failed { complaint: ran.complaint() })
        }
    }

    /// Runs git and gives what it prints, cut at each `end`; nothing where it fails.
    pub(crate) fn lines_of<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, end: u8) -> Vec<OsString> {
        let Ok(ran) = run(&mut self.command(args), &How::default()) else { return Vec::new() };
        if !ran.status.success() {
            return Vec::new();
        }
        let whole = ran.stdout.strip_suffix(&[end]).unwrap_or(&ran.stdout);
        let lines = whole.split(|byte| *byte == end).filter(|_| !whole.is_empty());
        lines.map(|line| OsString::from_vec(line.to_vec())).collect()
    }

    /// The settings whose keys match, in their order; `from` names another file than the usual ones.
    pub(crate) fn settings(&self, from: &[&str], keys: &str) -> Vec<(OsString, OsString)> {
        let ask = [&["config"], from, &["--null", "--get-regexp", keys]].concat();
        let pair = |entry: OsString| {
            let mut key = entry.into_vec();
            // A key alone, as in a file that says no more than its name, has no value and is left out.
            let mut value = key.split_off(key.iter().position(|byte| *byte == b'\n')?);
            value.remove(0);
            Some((OsString::from_vec(key), OsString::from_vec(value)))
        };
        self.lines_of(ask, 0).into_iter().filter_map(pair).collect()
    }

    /// The same git, with `directories` beside the repository's own objects.
    pub(crate) fn with_objects(&self, directories: &[&Path]) -> Git {
        let others = env::GIT_ALTERNATE_OBJECT_DIRECTORIES;
        let mut list = self.environment.get(others).unwrap_or_default().to_owned();
        for directory in directories {
            if !list.is_empty() {
                list.push(":");
            }
            list.push(quoted(directory));
        }
        let mut git = self.clone();
        git.environment.set(others, list);
        git
    }
}

/// Colons separate the list, so a directory with one is quoted, as in C.
fn quoted(directory: &Path) -> OsString {
    let bytes = directory.as_os_str().as_bytes();
    if bytes.contains(&b':') || bytes.starts_with(b"\"") {
        OsString::from_vec(in_double_quotes(bytes))
    } else {
        directory.into()
    }
}

/// As git reads it in lists of directories and in configuration files.
pub(crate) fn in_double_quotes(bytes: &[u8]) -> Vec<u8> {
    let escaped = bytes.iter().flat_map(|byte| {
        let escape = matches!(byte, b'"' | b'\\').then_some(b'\\');
        escape.into_iter().chain([*byte])
    });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

impl Ran {
    /// The line in which git says what went wrong, fit to be shown.
    pub(crate) fn complaint(&self) -> String {
        let said = String::from_utf8_lossy(&self.stderr);
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_bad = |line: &&&str| line.starts_with("fatal: ") || line.starts_with("error: ");
        // Of a connection that failed git says only that it did; what was wrong with it comes from ssh, before.
        let says_nothing = |line: &&&str| line.contains("Could not read from remote repository");
        let worst = lines.iter().find(is_bad).filter(|line| !says_nothing(line));
        let before = || lines.iter().position(|line| says_nothing(&line)).and_then(|at| lines.get(at.checked_sub(1)?));
        let worst = worst.or_else(before).or(lines.iter().find(is_bad));
        let line = worst.or(lines.last()).copied().unwrap_or("git said nothing");
        let line = line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")).unwrap_or(line);
        text::one_line(line.as_bytes(), 200)
    }
}

impl Ran {
    /// Whether git says that something went wrong. What ssh says is nothing of that kind.
    pub(crate) fn complains(&self) -> bool {
        let is_bad = |line: &str| line.starts_with("fatal: ") || line.starts_with("error: ") || line.starts_with(" ! ");
        String::from_utf8_lossy(&self.stderr).lines().any(is_bad)
    }

    /// Whether a push has ended before anything was sent: git has not even heard what refs there are.
    pub(crate) fn has_not_begun(&self) -> bool {
        let said = String::from_utf8_lossy(&self.stderr);
        // A server that speaks has been reached, and its hooks may say the same of a remote of their own.
        let is_reached = said.lines().any(|line| line.starts_with("remote: "));
        let words = [
            "Could not read from remote repository",
            "the remote end hung up upon initial contact",
            "unable to access ",
        ];
        let is_it =
            |line: &str| line.strip_prefix("fatal: ").is_some_and(|it| words.iter().any(|words| it.starts_with(words)));
        !is_reached && said.lines().any(is_it)
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command, how: &How) -> io::Result<Ran> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let is_bounded = how.within.is_some() || how.stop.is_some();
    if is_bounded {
        // Its own group, so that what it started can be ended with it.
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let stdout = Listener::start(child.stdout.take(), false);
    let stderr = Listener::start(child.stderr.take(), how.aloud);
    let pid = Pid::from_child(&child);
    if is_bounded && !ends_in_time(pid, how) {
        process::signal_group(pid, Signal::KILL);
    }
    let status = child.wait()?;
    Ok(Ran { status, stdout: stdout.heard(), stderr: stderr.heard() })
}

/// How long to listen on after git has ended: its last words are in the pipe already, but somebody
/// whom it started, a hook of a server on this machine for instance, may hold the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_secs(2);

struct Listener {
    heard: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Listener {
    fn start(from: Option<impl Read + Send + 'static>, aloud: bool) -> Listener {
        let (heard, (end, ended)) = (Arc::new(Mutex::new(Vec::new())), mpsc::channel());
        let hears = heard.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            let Some(mut from) = from else { return };
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if let Ok(mut heard) = hears.lock() {
                    heard.extend_from_slice(&buffer[..n]);
                }
                if aloud {
                    let _ = io::stderr().write_all(&buffer[..n]);
                }
            }
            drop(end);
        });
        Listener { heard, ended }
    }

    fn heard(self) -> Vec<u8> {
        let _ = self.ended.recv_timeout(LAST_WORDS);
        self.heard.lock().map(|heard| heard.clone()).unwrap_or_default()
    }
}

/// How often it is looked whether somebody wants git to be ended.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the process ends by itself in time. The clock that is waited by stops during suspend: callers
/// with a deadline look at theirs again.
fn ends_in_time(pid: Pid, how: &How) -> bool {
    let Ok(process) = ProcessHandle::open(pid) else { return true };
    let since = Instant::now();
    loop {
        if how.is_over(since.elapsed()) {
            return false;
        }
        let left = how.within.map_or(LOOK, |within| within.saturating_sub(since.elapsed()));
        if process.ends_within(left.min(LOOK)).unwrap_or(true) {
            return true;
        }
    }
}
