//! The keeper: a small process between `run` and its command that ends the command if `run` dies.
//!
//! It is in a process group of its own, so that what kills the group of `run` does not take it
//! along, and adopts the orphans among the command's descendants, so that all of them stay in sight.
//!
//! In the foreground of a terminal everything stays in the terminal's foreground group instead, or
//! the command could not read from it and Ctrl-Z would stop `run` alone. Ctrl-C then reaches the
//! command from the terminal itself.

use crate::run::{
    members::{Members, reap_adopted},
    wire::{KeeperOrder, KeeperReport, hear, say},
};
use git_fence_system::{
    clock::since_boot,
    descriptor::take_over,
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

/// How long those that the command left behind may take to end by themselves: a `tee` that has
/// just seen the end of its input writes its last lines in that time.
const MAY_STILL_GO: Duration = Duration::from_millis(200);
/// How long they have after SIGTERM.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(2);
/// How often to look who is left while somebody is being waited for.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub(crate) struct KeeperArgs {
    /// How long the command has between SIGTERM and SIGKILL when `run` is gone
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
            let _ = writeln!(io::stderr(), "error: the keeper of the command cannot work: {e}");
            ExitCode::FAILURE
        }
    }
}

fn keep(args: &KeeperArgs) -> io::Result<()> {
    let run = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(stdin) = take_over(&run)? else { return Ok(()) };
    // For ps and top, which would show it as `exe`.
    process::show_as(c"git-fence-keep");
    let session = match Process::own() {
        Ok(own) => own.session,
        // Whoever cannot see what the command starts cannot end it.
        Err(e) => return say(&run, &KeeperReport::CannotStart { not_found: false, why: e.to_string() }),
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
        Err(e) => return say(&run, &cannot_start(&args.command[0], &e)),
    };
    // From here on nothing may fail: the command would be alone.
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

/// What the keeper hears of.
enum KeeperEvent {
    Signal(i32),
    Order(KeeperOrder),
    RunIsGone,
}

fn listen_to_signals(events: Sender<KeeperEvent>) -> io::Result<()> {
    let all: Vec<i32> = signals::that_ask_to_end().into_iter().chain([SIGCHLD]).collect();
    signals::hear(&all, move |signal| {
        // Nobody hears it who has ended.
        let _ = events.send(KeeperEvent::Signal(signal));
    })
}

fn listen_to_run(run: UnixStream, events: Sender<KeeperEvent>) -> io::Result<()> {
    let listen = move || {
        hear(&run).map(KeeperEvent::Order).try_for_each(|order| events.send(order))?;
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
    /// The command has ended; those that it left may still go by themselves.
    MayStillGo {
        until: Duration,
    },
    /// All members have been asked to end.
    Ending {
        kill_at: Duration,
    },
}

impl Keeper {
    /// Stays until the command and all other members have ended.
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

    /// Does what is due. `left` members are there although the command has `ended`.
    fn step(&mut self, ended: bool, left: usize) {
        let now = since_boot();
        match self.stage {
            Stage::Running if ended => self.stage = Stage::MayStillGo { until: now + MAY_STILL_GO },
            Stage::MayStillGo { until } if until <= now => {
                self.report(&KeeperReport::LeftBehind(left));
                self.end_by(now + LEFT_BEHIND_GRACE);
            }
            // Again and again until nobody is left: a member may have forked meanwhile.
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

    /// Asks all members to end, stopped ones too. Who is left at `by` is killed.
    fn end_by(&mut self, by: Duration) {
        let kill_at = match self.stage {
            Stage::Ending { kill_at } => kill_at.min(by),
            _ => by,
        };
        self.stage = Stage::Ending { kill_at };
        self.members.signal(Signal::TERM);
        self.members.signal(Signal::CONT);
    }

    /// Passes a signal on, to whom it would have gone without the keeper.
    fn forward(&self, signal: i32) {
        let Some(named) = Signal::from_named_raw(signal) else { return };
        match self.members.group {
            // The group's number is the command's pid, which is not reaped yet.
            Some(group) => {
                process::signal_group(group, named);
                process::signal_group(group, Signal::CONT);
            }
            // These come from the terminal, and the command has had them from there.
            None if signal == SIGINT || signal == SIGQUIT => {}
            None => {
                self.members.signal(named);
                self.members.signal(Signal::CONT);
            }
        }
    }

    /// Whether the command has ended. It is not reaped by that, so its group stays its own.
    fn has_ended(&self) -> bool {
        process::child_has_ended(self.pid)
    }

    /// A `run` that is gone does not hear it, which is no reason to stop here.
    fn report(&self, report: &KeeperReport) {
        let _ = say(&self.run, report);
    }
}

fn how_it_ended(status: ExitStatus) -> KeeperReport {
    match status.signal() {
        Some(signal) => KeeperReport::Killed(signal),
        None => KeeperReport::Exited(status.code().unwrap_or(1)),
    }
}

fn cannot_start(program: &OsStr, e: &io::Error) -> KeeperReport {
    // A script whose interpreter is missing is there, and yet the system says it is not.
    let is_there = program.as_encoded_bytes().contains(&b'/') && Path::new(program).exists();
    let not_found = e.kind() == io::ErrorKind::NotFound && !is_there;
    let why = if e.kind() == io::ErrorKind::NotFound && is_there {
        "its interpreter was not found".to_owned()
    } else {
        e.to_string()
    };
    KeeperReport::CannotStart { not_found, why }
}
