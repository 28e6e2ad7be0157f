//! `git-fence-store`, kept as the client keeps it: one process and one connection, however many requests.

use crate::{Outcome, programs};
use git_fence_core::{StoreReply, StoreRequest};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// How long an answer may take on a busy machine.
pub(super) const WITHIN_MS: u64 = 30_000;

/// A running helper with an open store.
pub(super) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The store's name, without user and password.
    pub(super) place: String,
}

impl Helper {
    pub(super) fn at(url: &str) -> Outcome<Helper> {
        let mut child =
            Command::new(programs::own("git-fence-store")?).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("the helper has no output")?);
        let mut helper = Helper { child, input, output: BufReader::new(output), place: String::new() };
        match helper.ask(&StoreRequest::Open { url: url.to_owned() })? {
            StoreReply::Opened { place } => helper.place = place,
            other => return Err(format!("the store cannot be opened: {other:?}").into()),
        }
        Ok(helper)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ask(&mut self, request: &StoreRequest) -> Outcome<StoreReply> {
        self.send(request)?;
        self.receive()
    }

    pub(super) fn send(&mut self, request: &StoreRequest) -> Outcome<()> {
        let line = serde_json::to_string(request)? + "\n";
        let input = self.input.as_mut().ok_or("the helper has ended")?;
        Ok(input.write_all(line.as_bytes())?)
    }

    pub(super) fn receive(&mut self) -> Outcome<StoreReply> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Makes what the store needs. Returns whether it could.
    pub(super) fn init(&mut self) -> bool {
        matches!(self.ask(&StoreRequest::Init { within_ms: 1000 }), Ok(StoreReply::Made { .. }))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
