//! `git-fence-store`, as the client talks to it.

use crate::engines::PASSWORD;
use git_fence_core::{StoreFault, StoreReading, StoreRecord, StoreReply, StoreRequest};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

/// How long an answer may take on a busy machine.
pub(crate) const WITHIN_MS: u64 = 30_000;

/// A running helper.
pub(crate) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Every reply, to look for passwords.
    pub(crate) said: String,
    complaints: File,
    /// Whether the test itself put passwords into its environment.
    has_environment: bool,
}

impl Helper {
    pub(crate) fn start(environment: &[(&str, &str)]) -> Helper {
        let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence-store"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).envs(environment.iter().copied());
        let complaints = tempfile::tempfile().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Helper { child, input, output, said: String::new(), complaints, has_environment: !environment.is_empty() }
    }

    /// All that others can see: what it has said and printed, its arguments, and its environment.
    pub(crate) fn everything_shown(&mut self) -> String {
        let mut shown = self.said.clone();
        self.complaints.rewind().unwrap();
        self.complaints.read_to_string(&mut shown).unwrap();
        let files = if self.has_environment { &["cmdline"][..] } else { &["cmdline", "environ"] };
        for file in files {
            let bytes = fs::read(format!("/proc/{}/{file}", self.child.id())).unwrap();
            shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        shown
    }

    /// A helper with an open store.
    pub(crate) fn at(url: &str) -> Helper {
        let mut helper = Helper::start(&[]);
        helper.open(url);
        helper
    }

    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.ask(&StoreRequest::Open { url: url.to_owned() });
        assert!(matches!(opened, StoreReply::Opened { .. }), "{opened:?}");
    }

    pub(crate) fn ask(&mut self, request: &StoreRequest) -> StoreReply {
        let mut line = serde_json::to_string(request).unwrap();
        line.push('\n');
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        self.output.read_line(&mut reply).unwrap();
        self.said.push_str(&reply);
        serde_json::from_str(&reply).unwrap_or_else(|e| panic!("{e}: {reply}"))
    }

    pub(crate) fn init(&mut self) -> StoreReply {
        self.ask(&StoreRequest::Init { within_ms: WITHIN_MS })
    }

    pub(crate) fn read(&mut self, name: &str) -> Result<StoreReading, StoreFault> {
        self.read_within(name, WITHIN_MS)
    }

    pub(crate) fn read_within(&mut self, name: &str, within_ms: u64) -> Result<StoreReading, StoreFault> {
        match self.ask(&StoreRequest::Read { name: name.to_owned(), within_ms }) {
            StoreReply::Found(reading) => Ok(reading),
            StoreReply::Failed(fault) => Err(fault),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn record(&mut self, name: &str) -> Option<StoreRecord> {
        self.read(name).unwrap().record
    }

    pub(crate) fn swap(&mut self, name: &str, expected: Option<&StoreRecord>, next: &str) -> StoreReply {
        self.swap_within(name, expected, next, WITHIN_MS)
    }

    pub(crate) fn swap_within(
        &mut self,
        name: &str,
        expected: Option<&StoreRecord>,
        next: &str,
        within_ms: u64,
    ) -> StoreReply {
        let (name, expected, next) = (name.to_owned(), expected.cloned(), next.to_owned());
        self.ask(&StoreRequest::Swap { name, expected, next, keep: true, within_ms })
    }

    /// The record after a swap that must be won.
    #[track_caller]
    pub(crate) fn win(&mut self, name: &str, expected: Option<&StoreRecord>, next: &str) -> StoreRecord {
        match self.swap(name, expected, next) {
            StoreReply::Won { version, .. } => StoreRecord { version, body: next.to_owned() },
            other => panic!("not won: {other:?}"),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let shown = self.everything_shown();
        // The end of its input is its end.
        drop(self.input.take());
        let _ = self.child.wait();
        let is_shown = [PASSWORD, "wrong-secret"].iter().any(|password| shown.contains(password));
        assert!(thread::panicking() || !is_shown, "{shown}");
        assert!(thread::panicking() || !shown.contains("panicked"), "{shown}");
    }
}
