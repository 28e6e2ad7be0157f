//! The user's own git and clone, run as configured, so that credentials, ssh settings and proxies keep working.
//!
//! Called from everywhere in the client. Nothing here knows about leases.

pub(crate) mod address;
pub(crate) mod local;
pub(crate) mod said;
mod unattended;

use crate::surroundings::Environment;
use git_fence_core::text;
use git_fence_system::{
    colours::say,
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

/// Where git runs, and with which environment.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    pub(crate) dir: PathBuf,
    pub(crate) environment: Environment,
}

/// The result of a git command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// How long it was waited for, if it was killed because it took longer.
    pub(crate) gave_up_after: Option<Duration>,
}

/// Why a git command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("cannot run git")]
    CannotRun(#[source] io::Error),
    #[error("{complaint}")]
    Failed { complaint: String },
}

/// How to run git.
#[derive(Debug, Clone, Default)]
pub(crate) struct How {
    /// Whether its standard error is also copied to ours as it comes.
    pub(crate) aloud: bool,
    /// Kill it after this long, with everything that it started.
    pub(crate) within: Option<Duration>,
    /// Kill it when this is set.
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// Who is waited for, to be named once if it takes long.
    pub(crate) waiting: Option<Waiting>,
}

/// A remote that is waited for.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    remote: String,
    is_said: Arc<AtomicBool>,
}

/// After how long the remote is named.
const SAY_SO: Duration = Duration::from_secs(4);

impl Waiting {
    pub(crate) fn on(remote: &str) -> Waiting {
        Waiting { remote: remote.to_owned(), is_said: Arc::default() }
    }

    /// Names the remote on standard error, unless it is too soon or has been done.
    fn say(&self, elapsed: Duration, within: Option<Duration>) {
        if elapsed < SAY_SO || self.is_said.swap(true, Ordering::Relaxed) {
            return;
        }
        let left = within.map(|within| within.saturating_sub(elapsed).as_secs_f64().ceil());
        let left = left.map_or(String::new(), |left| format!(", for another {left} s"));
        let remote = text::in_quotes(&self.remote);
        say(&format!("note: waiting for the remote {remote} to answer{left}\n"));
    }
}

impl How {
    /// Whether to give up after `elapsed`.
    pub(crate) fn is_over(&self, elapsed: Duration) -> bool {
        self.within.is_some_and(|within| elapsed >= within) || self.is_stopped()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// For a push of the user's own, which may take as long as it takes: git itself says what it does.
    pub(crate) fn aloud(&self) -> How {
        How { aloud: true, within: None, stop: self.stop.clone(), waiting: None }
    }
}

impl Git {
    /// `git` with its messages in English, which we parse.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("git");
        self.environment.give_to(&mut command);
        command.current_dir(&self.dir).env(env::LC_ALL.name, "C").env_remove(env::GIT_PREFIX.name).args(args);
        command
    }

    /// Runs git and returns its standard output, if it succeeds.
    pub(crate) fn ask<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String, GitError> {
        let ran = run(&mut self.command(args), &How::default()).map_err(GitError::CannotRun)?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).trim_end_matches('\n').to_owned())
        } else {
            Err(GitError::Failed { complaint: ran.complaint() })
        }
    }

    /// Runs git and returns its standard output, split at each `end`; empty if it fails.
    pub(crate) fn lines_of<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, end: u8) -> Vec<OsString> {
        let Ok(ran) = run(&mut self.command(args), &How::default()) else { return Vec::new() };
        if !ran.status.success() {
            return Vec::new();
        }
        let whole = ran.stdout.strip_suffix(&[end]).unwrap_or(&ran.stdout);
        let lines = whole.split(|byte| *byte == end).filter(|_| !whole.is_empty());
        lines.map(|line| OsString::from_vec(line.to_vec())).collect()
    }

    /// The settings whose keys match, in order; `from` are arguments that name another file.
    pub(crate) fn settings(&self, from: &[&str], keys: &str) -> Vec<(OsString, OsString)> {
        let ask = [&["config"], from, &["--null", "--get-regexp", keys]].concat();
        let pair = |entry: OsString| {
            let mut key = entry.into_vec();
            // A key without a value is ignored.
            let mut value = key.split_off(key.iter().position(|byte| *byte == b'\n')?);
            value.remove(0);
            Some((OsString::from_vec(key), OsString::from_vec(value)))
        };
        self.lines_of(ask, 0).into_iter().filter_map(pair).collect()
    }

    /// The same git, with `directories` in addition to the repository's own objects.
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

/// Colons separate the list, so a directory with a colon is quoted, as in C.
fn quoted(directory: &Path) -> OsString {
    let bytes = directory.as_os_str().as_bytes();
    if bytes.contains(&b':') || bytes.starts_with(b"\"") {
        OsString::from_vec(in_double_quotes(bytes))
    } else {
        directory.into()
    }
}

/// In double quotes, as git reads them in lists of directories and in configuration files.
pub(crate) fn in_double_quotes(bytes: &[u8]) -> Vec<u8> {
    let escaped = bytes.iter().flat_map(|byte| {
        let escape = matches!(byte, b'"' | b'\\').then_some(b'\\');
        escape.into_iter().chain([*byte])
    });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

impl Ran {
    /// The line of git's messages that says what went wrong, safe to show.
    pub(crate) fn complaint(&self) -> String {
        if let Some(after) = self.gave_up_after {
            return format!("no answer within {} s", after.as_secs_f64().round());
        }
        let messages = String::from_utf8_lossy(&self.stderr);
        let lines: Vec<&str> = messages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_bad = |line: &&&str| line.starts_with("fatal: ") || line.starts_with("error: ");
        // For a failed connection, git only says that it failed; the reason comes from ssh, in the line before.
        let says_nothing = |line: &&&str| line.contains("Could not read from remote repository");
        let worst = lines.iter().find(is_bad).filter(|line| !says_nothing(line));
        let before = || lines.iter().position(|line| says_nothing(&line)).and_then(|at| lines.get(at.checked_sub(1)?));
        let worst = worst.or_else(before).or(lines.iter().find(is_bad));
        let line = worst.or(lines.last()).copied().unwrap_or("git printed no message");
        let line = line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")).unwrap_or(line);
        text::one_line(line.as_bytes(), 200)
    }
}

impl Ran {
    /// Whether git reports an error. Messages of ssh do not count.
    pub(crate) fn complains(&self) -> bool {
        let is_bad = |line: &str| line.starts_with("fatal: ") || line.starts_with("error: ") || line.starts_with(" ! ");
        String::from_utf8_lossy(&self.stderr).lines().any(is_bad)
    }

    /// Whether a push ended before anything was sent: git has not even received the list of refs.
    pub(crate) fn has_not_begun(&self) -> bool {
        let said = String::from_utf8_lossy(&self.stderr);
        // A server that prints messages has been reached, and its hooks may print the same about another remote.
        let is_reached = said.lines().any(|line| line.starts_with("remote: "));
        let any = |words: &[&str]| {
            let mut fatal = said.lines().filter_map(|line| line.strip_prefix("fatal: "));
            fatal.any(|it| words.iter().any(|words| it.starts_with(words)))
        };
        // Over http, git says these before it sends anything, after the page of the server's error.
        any(&[
            "unable to access ",
            "Authentication failed for ",
            "could not read Username for ",
            "could not read Password for ",
            "unable to get password from user",
        ]) || !is_reached
            && any(&["Could not read from remote repository", "the remote end hung up upon initial contact"])
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command, how: &How) -> io::Result<Ran> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let since = Instant::now();
    let is_bounded = how.within.is_some() || how.stop.is_some();
    if is_bounded {
        // Its own group, so that its descendants can be killed with it.
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let stdout = PipeReader::start(child.stdout.take(), false);
    let stderr = PipeReader::start(child.stderr.take(), how.aloud);
    let pid = Pid::from_child(&child);
    let is_over = (is_bounded || how.waiting.is_some()) && !ends_in_time(pid, how);
    if is_over {
        process::signal_group(pid, Signal::KILL);
    }
    let status = child.wait()?;
    let gave_up_after = (is_over && !how.is_stopped()).then(|| since.elapsed());
    Ok(Ran { status, stdout: stdout.collect(), stderr: stderr.collect(), gave_up_after })
}

/// How long to wait for the end of a pipe after git has exited. Its last output is in the pipe already, but a
/// process that it started, such as a hook of a server on this machine, may keep the pipe open for ever.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

struct PipeReader {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl PipeReader {
    fn start(from: Option<impl Read + Send + 'static>, aloud: bool) -> PipeReader {
        let (bytes, (end, ended)) = (Arc::new(Mutex::new(Vec::new())), mpsc::channel());
        let collected = bytes.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            let Some(mut from) = from else { return };
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if let Ok(mut bytes) = collected.lock() {
                    bytes.extend_from_slice(&buffer[..n]);
                }
                if aloud {
                    let _ = io::stderr().write_all(&buffer[..n]);
                }
            }
            drop(end);
        });
        PipeReader { bytes, ended }
    }

    fn collect(self) -> Vec<u8> {
        let _ = self.ended.recv_timeout(LAST_OUTPUT);
        self.bytes.lock().map(|bytes| bytes.clone()).unwrap_or_default()
    }
}

/// How often to check [`How::stop`].
const POLL: Duration = Duration::from_millis(200);

/// Whether the process ends by itself in time. The clock used for waiting stops during suspend, so callers with
/// a deadline check it again.
fn ends_in_time(pid: Pid, how: &How) -> bool {
    let Ok(process) = ProcessHandle::open(pid) else { return true };
    let since = Instant::now();
    loop {
        if how.is_over(since.elapsed()) {
            return false;
        }
        if let Some(waiting) = &how.waiting {
            waiting.say(since.elapsed(), how.within);
        }
        let left = how.within.map_or(POLL, |within| within.saturating_sub(since.elapsed()));
        if process.ends_within(left.min(POLL)).unwrap_or(true) {
            return true;
        }
    }
}
