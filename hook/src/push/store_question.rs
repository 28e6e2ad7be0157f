//! The question to the store that keeps the leases of a fence: what it has of the fence, asked before the lock is taken.
//!
//! The network code is in `git-fence-store`, which gets the URL on its standard input: neither its arguments nor its
//! environment have the password. It is started for one question, and ended with it: by the end of its input, and at the
//! deadline by a signal. It must never outlive the hook with a file descriptor of receive-pack's.

use crate::host::clock::WaitBudget;
use git_fence_core::{FenceEntry, Rules, StoreFault, StorePlace, StoreReply, StoreRequest, StoreUrl, text};
use git_fence_system::{
    process::{self, Pid, Signal},
    program,
};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The program with the network code.
pub(crate) const PROGRAM: &str = "git-fence-store";

/// An answer counts for so long. A push that has waited for the slot asks again: the lease may have been taken since.
pub(crate) const ANSWER_LASTS_MS: u64 = 2000;
/// How long the question may take even if the push may wait no longer.
const GRACE: Duration = Duration::from_secs(1);
/// How much earlier than the deadline the program is to give up: its own words say more than that it was too late.
const FOR_WORDS: Duration = Duration::from_millis(400);
/// Longer than any record.
const MOST_BYTES: u64 = 4 << 20;

/// What a store shows of a fence.
pub(crate) struct StoreAnswer {
    /// Its record, if it has one.
    pub(crate) entry: Option<FenceEntry>,
    /// The store's clock, in milliseconds since 1970, where it has one.
    pub(crate) now_ms: Option<u64>,
}

/// What the store has of the fence with these `rules`; `None` if its leases are not kept in a store.
pub(crate) fn ask(rules: &Rules, budget: &WaitBudget) -> Option<Result<StoreAnswer, StoreFault>> {
    let (url, place) = (rules.store.as_ref()?, rules.store_place()?);
    Some(read_entry(url, &place, rules, budget.with_grace(GRACE).left()))
}

fn read_entry(url: &StoreUrl, place: &StorePlace, rules: &Rules, within: Duration) -> Result<StoreAnswer, StoreFault> {
    let name = place.name_of(&rules.fence);
    let found = match read(url, &name, within)? {
        StoreReply::Found(found) => found,
        StoreReply::Failed(fault) => return Err(fault),
        other => return Err(misunderstood(&format!("'{}'", kind_of(&other)))),
    };
    let entry = found.record.map(|record| FenceEntry::read(&record.body, &name)).transpose();
    let entry = entry.map_err(|e| {
        let hint = "look at the record, or keep the leases under another fence.resource";
        StoreFault::unusable(format!("{} has {}: {e}", text::in_quotes(&place.store), text::in_quotes(&name)), hint)
    })?;
    Ok(StoreAnswer { entry, now_ms: found.now_ms })
}

/// Opens the store and reads a record, in a process of its own.
fn read(url: &StoreUrl, name: &str, within: Duration) -> Result<StoreReply, StoreFault> {
    let patience = within.saturating_sub(FOR_WORDS).max(within / 2);
    let within_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let open = StoreRequest::Open { url: url.reveal().to_owned() };
    let replies = converse(&[open, StoreRequest::Read { name: name.to_owned(), within_ms }], within)?;
    match <[StoreReply; 2]>::try_from(replies) {
        Ok([StoreReply::Failed(fault), _]) => Err(fault),
        Ok([_, read]) => Ok(read),
        Err(replies) => match replies.into_iter().next() {
            Some(StoreReply::Failed(fault)) => Err(fault),
            _ => Err(misunderstood("nothing")),
        },
    }
}

/// Starts the program, sends the requests, and returns the replies that come `within` this time.
pub(crate) fn converse(requests: &[StoreRequest], within: Duration) -> Result<Vec<StoreReply>, StoreFault> {
    let mut helper = Helper(start()?);
    let mut lines = Vec::new();
    for request in requests {
        let written = serde_json::to_writer(&mut lines, request);
        debug_assert!(written.is_ok(), "a request can be written as JSON");
        lines.push(b'\n');
    }
    // Two short lines fit into a pipe, and the end of its input is the end of the helper.
    if let Some(mut input) = helper.0.stdin.take() {
        input.write_all(&lines).map_err(|e| unusable(&format!("ended at once: {e}")))?;
    }
    let (sender, replies) = mpsc::channel();
    if let Some(output) = helper.0.stdout.take() {
        thread::spawn(move || sender.send(read_replies(output)));
    }
    let received = replies.recv_timeout(within);
    received.map_err(|_| StoreFault::unreachable("the store did not answer in time"))?
}

fn read_replies(output: ChildStdout) -> Result<Vec<StoreReply>, StoreFault> {
    let lines = BufReader::new(output.take(MOST_BYTES)).lines();
    lines
        .map(|line| serde_json::from_str(&line.ok()?).ok())
        .collect::<Option<_>>()
        .ok_or_else(|| misunderstood("a line"))
}

/// The running program, ended with the question.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            process::signal_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn start() -> Result<Child, StoreFault> {
    let mut command = Command::new(program_file().unwrap_or_else(|| PROGRAM.into()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A group of its own: a command of the user's that prints a token ends with it.
    command.process_group(0);
    command.spawn().map_err(|e| unusable(&format!("cannot be started: {e}")))
}

/// The program beside this one, where both are installed. Otherwise it is looked for in PATH.
pub(crate) fn program_file() -> Option<PathBuf> {
    let own = program::own();
    let own = own.read_link().unwrap_or(own);
    let beside = own.parent().unwrap_or(Path::new(".")).join(PROGRAM);
    program::is_executable(&beside).then_some(beside)
}

fn unusable(why: &str) -> StoreFault {
    let hint = format!("install {PROGRAM} beside git-fence-hook, or in the server's PATH");
    StoreFault::unusable(format!("the program '{PROGRAM}' {why}"), hint)
}

fn misunderstood(reply: &str) -> StoreFault {
    StoreFault::unusable(
        format!("the program '{PROGRAM}' answered {reply}, which cannot be read"),
        format!("install {PROGRAM} of the same version as git-fence-hook"),
    )
}

fn kind_of(reply: &StoreReply) -> &'static str {
    match reply {
        StoreReply::Opened { .. } => "opened",
        StoreReply::Found(_) => "found",
        StoreReply::Won { .. } => "won",
        StoreReply::Lost(_) => "lost",
        StoreReply::Unknown { .. } => "unknown",
        StoreReply::Made { .. } => "made",
        StoreReply::Checked(_) => "checked",
        StoreReply::Failed(_) => "failed",
    }
}
