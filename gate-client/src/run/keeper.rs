//! The keeper: a small process between `run` and its command that ends the command if `run` dies.
//!
//! It has a process group of its own, so that a signal to the group of `run` does not kill it, and it adopts
//! the orphans among the command's descendants, so that it can find all of them.
//!
//! In the foreground of a terminal everything stays in the terminal's foreground group instead. Otherwise
//! the command could not read from the terminal, and Ctrl-Z would stop only `run`. The terminal then sends
//! Ctrl-C to the command itself.

use crate::run::{
    members::{Members, reap_adopted},
    wire::{KeeperOrder, KeeperReport, receive, send},
};
use git_fence_system::{
    clock::since_boot,
    descriptor::receive_descriptor,
    process::{self, Pid, Process, Signal},
    signals::{self, SIGCHLD, SIGINT, SIGQUIT},
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

/// How long processes that the command left running may take to exit by themselves: a `tee` that has just
/// reached the end of its input writes its last lines in that time.
const TIME_TO_EXIT: Duration = Duration::from_millis(200);
/// The time between SIGTERM and SIGKILL for them.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(2);
/// How often to check which processes are left.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub(crate) struct KeeperArgs {
    /// The time between SIGTERM and SIGKILL when `run` is gone
    #[arg(long)]
    grace_ms: u64,
    /// Stay in the foreground group of the terminal
    #[arg(long)]
    foreground: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs as the keeper: its standard input is the socket to `run`.
pub(crate) fn run(args: &KeeperArgs) -> ExitCode {
    match keep(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stderr(), "error: the keeper of the command failed: {e}");
            ExitCode::FAILURE
        }
    }
}

fn keep(args: &KeeperArgs) -> io::Result<()> {
    let run = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(stdin) = receive_descriptor(&run)? else { return Ok(()) };
    // ps and top would show it as `exe`.
    process::show_as(c"git-fence-keep");
    let session = match Process::own() {
        Ok(own) => own.session,
        // Without /proc the keeper could not find the command's descendants to end them.
        Err(e) => return send(&run, &KeeperReport::CannotStart { not_found: false, why: e.to_string() }),
    };
    process::adopt_orphans()?;
    let (events, happens) = mpsc::channel();
    listen_to_signals(events.clone())?;
    listen_to_run(run.try_clone()?, events)?;

    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(stdin);
    if !args.foreground {
        command.process_group(0);
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return send(&run, &cannot_start(&args.command[0], &e)),
    };
    // From here on nothing may fail: the command would be left without a keeper.
    drop(command);
    let pid = Pid::from_child(&child);
    let keeper = Keeper {
        run,
        command: child,
        pid,
        members: Members { group: (!args.foreground).then_some(pid), session },
        grace: Duration::from_millis(args.grace_ms),
        stage: Stage::Running,
    };
    let start = Process::read(pid).map_or(0, |process| process.start);
    keeper.report(&KeeperReport::Started { pid: pid.as_raw_pid(), start });
    keeper.watch(&happens)
}

/// What the keeper waits for.
enum KeeperEvent {
    Signal(i32),
    Order(KeeperOrder),
    RunIsGone,
}

fn listen_to_signals(events: Sender<KeeperEvent>) -> io::Result<()> {
    let all: Vec<i32> = signals::termination_signals().into_iter().chain([SIGCHLD]).collect();
    signals::listen(&all, move |signal| {
        // Fails only when the keeper is already exiting.
        let _ = events.send(KeeperEvent::Signal(signal));
    })
}

fn listen_to_run(run: UnixStream, events: Sender<KeeperEvent>) -> io::Result<()> {
    let listen = move || {
        receive(&run).map(KeeperEvent::Order).try_for_each(|order| events.send(order))?;
        events.send(KeeperEvent::RunIsGone)
    };
    thread::Builder::new().spawn(listen)?;
    Ok(())
}

struct Keeper {
    run: UnixStream,
    command: Child,
    pid: Pid,
    members: Members,
    grace: Duration,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Running,
    /// The command has ended; the processes that it left running may still exit by themselves.
    Exiting {
        until: Duration,
    },
    /// All members have been asked to end.
    Ending {
        kill_at: Duration,
    },
}

impl Keeper {
    /// Waits until the command and all other members have ended.
    fn watch(mut self, happens: &Receiver<KeeperEvent>) -> io::Result<()> {
        let mut ended = false;
        loop {
            let left = if ended { self.members.left().len() } else { 0 };
            if ended && left == 0 {
                let status = self.command.wait()?;
                self.report(&how_it_ended(status));
                return Ok(());
            }
            self.step(ended, left);
            match self.next(happens) {
                None => {}
                Some(KeeperEvent::Signal(SIGCHLD)) => {
                    ended = self.has_ended();
                    reap_adopted(self.pid);
                }
                Some(KeeperEvent::Signal(signal) | KeeperEvent::Order(KeeperOrder::Signal(signal))) => {
                    self.forward(signal);
                }
                Some(KeeperEvent::Order(KeeperOrder::EndBy(by))) => self.end_by(by),
                Some(KeeperEvent::RunIsGone) => self.end_by(since_boot() + self.grace),
            }
        }
    }

    /// Does what is due. `left` is the number of members left after the command has `ended`.
    fn step(&mut self, ended: bool, left: usize) {
        let now = since_boot();
        match self.stage {
            Stage::Running if ended => self.stage = Stage::Exiting { until: now + TIME_TO_EXIT },
            Stage::Exiting { until } if until <= now => {
                self.report(&KeeperReport::LeftBehind(left));
                self.end_by(now + LEFT_BEHIND_GRACE);
            }
            // Repeated until none is left: a member may have forked meanwhile.
            Stage::Ending { kill_at } if kill_at <= now => self.members.signal(Signal::KILL),
            _ => {}
        }
    }

    fn next(&self, happens: &Receiver<KeeperEvent>) -> Option<KeeperEvent> {
        match self.stage {
            Stage::Running => happens.recv().ok(),
            _ => happens.recv_timeout(TICK).ok(),
        }
    }

    /// Asks all members to end, including stopped ones. Those that are left at `by` are killed.
    fn end_by(&mut self, by: Duration) {
        let kill_at = match self.stage {
            Stage::Ending { kill_at } => kill_at.min(by),
            _ => by,
        };
        self.stage = Stage::Ending { kill_at };
        self.members.signal(Signal::TERM);
        self.members.signal(Signal::CONT);
    }

    /// Forwards a signal to the processes that would have got it without the keeper.
    fn forward(&self, signal: i32) {
        let Some(named) = Signal::from_named_raw(signal) else { return };
        match self.members.group {
            // The group id is the pid of the command, which is not reaped yet, so it cannot be reused.
            Some(group) => {
                process::signal_group(group, named);
                process::signal_group(group, Signal::CONT);
            }
            // The terminal has sent these to the command already.
            None if signal == SIGINT || signal == SIGQUIT => {}
            None => {
                self.members.signal(named);
                self.members.signal(Signal::CONT);
            }
        }
    }

    /// Whether the command has ended. This does not reap it, so its group id is not reused.
    fn has_ended(&self) -> bool {
        process::child_has_ended(self.pid)
    }

    /// Errors are ignored: the keeper continues when `run` is gone.
    fn report(&self, report: &KeeperReport) {
        let _ = send(&self.run, report);
    }
}

fn how_it_ended(status: ExitStatus) -> KeeperReport {
    match status.signal() {
        Some(signal) => KeeperReport::Killed(signal),
        None => KeeperReport::Exited(status.code().unwrap_or(1)),
    }
}

fn cannot_start(program: &OsStr, e: &io::Error) -> KeeperReport {
    // For a script whose interpreter is missing, the system also reports "not found".
    let exists = program.as_encoded_bytes().contains(&b'/') && Path::new(program).exists();
    let not_found = e.kind() == io::ErrorKind::NotFound && !exists;
    let why = if e.kind() == io::ErrorKind::NotFound && exists {
        "its interpreter was not found".to_owned()
    } else {
        e.to_string()
    };
    KeeperReport::CannotStart { not_found, why }
}
