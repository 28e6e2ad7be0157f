//! The command of `run`, under a keeper.
//!
//! ```text
//! git fence run ── socket ── keeper ── command ── the command's descendants
//! ```
//!
//! If `run` dies for any reason, the keeper ends the command and all its descendants. If the keeper dies,
//! `run` ends them. If both are killed at once, the command keeps running: then only the fence protects.

use crate::run::wire::{KeeperOrder, KeeperReport, receive, send};
use git_fence_system::{
    clock::since_boot,
    descriptor::send_descriptor,
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
    /// Variables that the command gets, even if they are among those removed.
    pub(crate) set: Vec<(OsString, OsString)>,
    /// The time between SIGTERM and SIGKILL when `run` or the keeper has died.
    pub(crate) grace: Duration,
}

/// An event of the command. The last one is `CannotStart`, `Exited`, `Killed` or `KeeperGone`; when it
/// comes, the command and all its descendants have ended, except daemons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandEvent {
    Started,
    CannotStart {
        not_found: bool,
        why: String,
    },
    /// The command has ended and this many of its descendants have not; they are being ended.
    LeftBehind(usize),
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
    /// The keeper died, so the command has been ended too and its exit status is unknown.
    KeeperGone,
}

#[derive(Debug)]
#[must_use = "the command is ended when this is dropped"]
pub(crate) struct Supervised {
    keeper: UnixStream,
}

impl Supervised {
    /// Starts the command under a keeper. `tell` is called on another thread, in order.
    pub(crate) fn start(spec: &Spec<'_>, tell: impl Fn(CommandEvent) + Send + 'static) -> io::Result<Supervised> {
        let (keeper, theirs) = UnixStream::pair()?;
        let foreground = terminal::is_in_foreground();
        let mut child = keeper_command(spec, foreground, theirs).spawn()?;
        let listening = keeper.try_clone()?;
        send_descriptor(&keeper, io::stdin())?;
        let grace = spec.grace;
        thread::Builder::new().name("keeper".to_owned()).spawn(move || {
            let (started, last) = listen(&listening, &tell);
            let _ = child.wait();
            if let (None, Some(command)) = (&last, started) {
                end_without_keeper(&command, !foreground, grace);
            }
            let unreported = || match started {
                Some(_) => CommandEvent::KeeperGone,
                None => CommandEvent::CannotStart { not_found: false, why: "its keeper died".to_owned() },
            };
            tell(last.unwrap_or_else(unreported));
        })?;
        Ok(Supervised { keeper })
    }

    /// Forwards a signal to the command's group. In the foreground of a terminal SIGINT and SIGQUIT are not
    /// forwarded: the terminal sends them to the command itself.
    pub(crate) fn forward(&self, signal: i32) {
        self.order(&KeeperOrder::Signal(signal));
    }

    /// Asks the command and all its descendants to end now, and kills those that are left after `within`.
    pub(crate) fn end(&self, within: Duration) {
        self.order(&KeeperOrder::EndBy(since_boot() + within));
    }

    /// Errors are ignored: that the keeper is gone is reported through `tell`.
    fn order(&self, order: &KeeperOrder) {
        let _ = send(&self.keeper, order);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // To the keeper this means that `run` is gone. Its reports are still received.
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

/// Passes on the keeper's reports until its socket closes. Returns the command, and the last event, which is
/// not passed on yet: the keeper may take a moment to exit.
fn listen(keeper: &UnixStream, tell: &impl Fn(CommandEvent)) -> (Option<Process>, Option<CommandEvent>) {
    let (mut command, mut last) = (None, None);
    for report in receive(keeper) {
        match report {
            KeeperReport::Started { pid, start } => {
                let process = Pid::from_raw(pid).and_then(Process::read);
                command = process.filter(|process| process.start == start);
                tell(CommandEvent::Started);
            }
            KeeperReport::LeftBehind(n) => tell(CommandEvent::LeftBehind(n)),
            KeeperReport::CannotStart { not_found, why } => last = Some(CommandEvent::CannotStart { not_found, why }),
            KeeperReport::Exited(code) => last = Some(CommandEvent::Exited(code)),
            KeeperReport::Killed(signal) => last = Some(CommandEvent::Killed(signal)),
        }
    }
    (command, last)
}

/// Ends all processes of the command that can be found without a keeper that has adopted its orphans.
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
