//! The command that `run` holds a lease for, under a keeper.
//!
//! ```text
//! git fence run ── socket ── keeper ── command ── what the command starts
//! ```
//!
//! If `run` dies, of whatever, the keeper ends the command and all it has started. If the keeper
//! dies, `run` does. If both are killed at once, the command goes on: then only the fence is left.

use crate::run::wire::{KeeperOrder, KeeperReport, hear, say};
use git_fence_system::{
    clock::since_boot,
    descriptor::hand_over,
    process::{self, Pid, Process, Signal},
    program, terminal,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
    thread,
    time::Duration,
};

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) args: &'a [OsString],
    /// Variables that the command does not inherit.
    pub(crate) remove: Vec<OsString>,
    /// Variables that the command gets, also if they are among those removed.
    pub(crate) set: Vec<(OsString, OsString)>,
    /// How long the command has between SIGTERM and SIGKILL when `run` or the keeper has died.
    pub(crate) grace: Duration,
}

/// What became of the command. The last word is one of `CannotStart`, `Exited`, `Killed` and
/// `KeeperGone`; when it comes, the command and all it has started have ended, daemons excepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happened {
    Started,
    CannotStart {
        not_found: bool,
        why: String,
    },
    /// The command has ended and so many processes that it had started have not; they are being ended.
    LeftBehind(usize),
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
    /// The keeper has died, so how the command would have ended is not known: it has been ended too.
    KeeperGone,
}

#[derive(Debug)]
#[must_use = "the command is ended when this is dropped"]
pub(crate) struct Supervised {
    keeper: UnixStream,
}

impl Supervised {
    /// Starts the command under a keeper. `tell` is called on another thread, in order.
    pub(crate) fn start(spec: &Spec<'_>, tell: impl Fn(Happened) + Send + 'static) -> io::Result<Supervised> {
        let (keeper, theirs) = UnixStream::pair()?;
        let foreground = terminal::is_in_foreground();
        let mut child = keeper_command(spec, foreground, theirs).spawn()?;
        let listening = keeper.try_clone()?;
        hand_over(&keeper, io::stdin())?;
        let grace = spec.grace;
        thread::Builder::new().name("keeper".to_owned()).spawn(move || {
            let (started, last) = listen(&listening, &tell);
            let _ = child.wait();
            if let (None, Some(command)) = (&last, started) {
                end_without_keeper(&command, !foreground, grace);
            }
            let without_a_word = || match started {
                Some(_) => Happened::KeeperGone,
                None => Happened::CannotStart { not_found: false, why: "its keeper has died".to_owned() },
            };
            tell(last.unwrap_or_else(without_a_word));
        })?;
        Ok(Supervised { keeper })
    }

    /// Passes a signal on to the command's group. In the foreground of a terminal SIGINT and
    /// SIGQUIT are not passed on: they reach the command from there.
    pub(crate) fn forward(&self, signal: i32) {
        self.order(&KeeperOrder::Signal(signal));
    }

    /// Asks the command and all it has started to end, now. Who is left after `within` is killed.
    pub(crate) fn end(&self, within: Duration) {
        self.order(&KeeperOrder::EndBy(since_boot() + within));
    }

    /// A keeper that is gone does not hear it; that it is gone comes through `tell`.
    fn order(&self, order: &KeeperOrder) {
        let _ = say(&self.keeper, order);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // To the keeper that is the end of `run`. What it says is still heard.
        let _ = self.keeper.shutdown(Shutdown::Write);
    }
}

fn keeper_command(spec: &Spec<'_>, foreground: bool, socket: UnixStream) -> Command {
    let mut keeper = Command::new(program::own());
    keeper.arg0("git-fence").arg("keeper").arg(format!("--grace-ms={}", spec.grace.as_millis()));
    if foreground {
        keeper.arg("--foreground");
    } else {
        keeper.process_group(0);
    }
    keeper.arg("--").arg(spec.program).args(spec.args).stdin(OwnedFd::from(socket));
    for name in &spec.remove {
        keeper.env_remove(name);
    }
    keeper.envs(spec.set.iter().map(|(name, value)| (name, value)));
    keeper
}

/// Tells what the keeper says, until it says no more. Gives the command, and the last word, which
/// is not told yet: the keeper may take a moment to be gone.
fn listen(keeper: &UnixStream, tell: &impl Fn(Happened)) -> (Option<Process>, Option<Happened>) {
    let (mut command, mut last) = (None, None);
    for report in hear(keeper) {
        match report {
            KeeperReport::Started { pid, start } => {
                let process = Pid::from_raw(pid).and_then(Process::read);
                command = process.filter(|process| process.start == start);
                tell(Happened::Started);
            }
            KeeperReport::LeftBehind(n) => tell(Happened::LeftBehind(n)),
            KeeperReport::CannotStart { not_found, why } => last = Some(Happened::CannotStart { not_found, why }),
            KeeperReport::Exited(code) => last = Some(Happened::Exited(code)),
            KeeperReport::Killed(signal) => last = Some(Happened::Killed(signal)),
        }
    }
    (command, last)
}

/// Ends what can be found of the command when nobody has adopted its orphans.
fn end_without_keeper(command: &Process, has_group: bool, grace: Duration) {
    let kill_at = since_boot() + grace;
    let mut members = vec![*command];
    let mut due: &[Signal] = &[Signal::TERM, Signal::CONT];
    loop {
        let all = process::all();
        members.retain(Process::is_still_alive);
        let below = members.iter().flat_map(|member| process::below(member.pid, &all));
        let in_group = all.iter().filter(|process| has_group && process.group == Some(command.pid)).copied();
        let found: Vec<Process> = below.chain(in_group).collect();
        members.extend(found.into_iter().filter(|process| process.session == command.session && process.alive));
        members.retain(|member| !member.is_out_of_reach());
        members.sort_unstable_by_key(|member| member.pid.as_raw_pid());
        members.dedup_by_key(|member| member.pid);
        if members.is_empty() {
            return;
        }
        if kill_at <= since_boot() {
            due = &[Signal::KILL];
        }
        for signal in due {
            members.iter().for_each(|member| member.signal(*signal));
        }
        due = &[];
        thread::sleep(Duration::from_millis(20));
    }
}
