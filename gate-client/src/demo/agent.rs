//! An agent of the play: a process, what it says, and how it is frozen and woken up.

use crate::{demo::troupe::Troupe, failure::Failure};
use git_fence_system::process::{self, Pid, Process, Signal};
use std::{
    io::{self, BufRead, BufReader, PipeReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

/// How long the demo waits for something that takes a moment, on a machine that is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(10);
/// How long the last words of a process may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running agent.
pub(super) struct Agent {
    child: Child,
    lines: Receiver<String>,
}

/// An agent that has ended.
pub(super) struct Ended {
    /// Its exit code; `None` if a signal killed it.
    pub(super) code: Option<i32>,
    /// What it said.
    pub(super) lines: Vec<String>,
}

impl Agent {
    pub(super) fn start(mut command: Command, troupe: &Troupe) -> io::Result<Agent> {
        let (from_agent, to_demo) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(to_demo.try_clone()?).stderr(to_demo).process_group(0);
        let child = troupe.start(&mut command)?;
        // Closes this side's ends of the pipe.
        drop(command);
        let (tell, lines) = mpsc::channel();
        thread::Builder::new().name("listener".to_owned()).spawn(move || listen(from_agent, &tell))?;
        Ok(Agent { child, lines })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        process::child_has_ended(Pid::from_child(&self.child))
    }

    /// Waits for its end.
    pub(super) fn finish(mut self) -> io::Result<Ended> {
        let code = self.child.wait()?.code();
        let mut lines = Vec::new();
        // Ends when the last process that can say something has ended.
        while let Ok(line) = self.lines.recv_timeout(LAST_WORDS) {
            lines.push(line);
        }
        Ok(Ended { code, lines })
    }

    /// Freezes the agent and everything on the way from it to `deepest`.
    pub(super) fn freeze(self, deepest: Pid) -> Result<Frozen, Failure> {
        let top = Pid::from_child(&self.child);
        let line = line_between(top, deepest).ok_or_else(|| {
            Failure::broken("cannot see the processes of agent-1", "the demo needs /proc, and to see its own processes")
        })?;
        // First those at the top, which start heartbeats. A heartbeat on its way may hold the gate's lock: it ends by
        // itself, and only then the rest is frozen.
        let tops = line.len().min(2);
        line[..tops].iter().for_each(|process| process.signal(Signal::STOP));
        let is_beat = |process: &Process| process.alive && line.iter().all(|other| other.pid != process.pid);
        wait_until(|| !process::below(top, &process::all()).iter().any(is_beat));
        line[tops..].iter().for_each(|process| process.signal(Signal::STOP));
        Ok(Frozen { agent: self, line })
    }
}

/// A frozen agent.
#[must_use = "it stays frozen until it is woken up"]
pub(super) struct Frozen {
    agent: Agent,
    /// Its processes, from the one that was started down to the server's.
    line: Vec<Process>,
}

impl Frozen {
    /// Wakes it up, the push first: what runs first after a freeze is chance, and so the push gets every chance to land.
    /// `runs` is how many processes at the top belong to `git fence run`.
    pub(super) fn wake_up(self, runs: usize) -> Agent {
        let (runs, push) = self.line.split_at(runs.min(self.line.len()));
        push.iter().rev().for_each(|process| process.signal(Signal::CONT));
        // The keeper comes first, and ends after the command.
        let command = push.get(usize::from(!runs.is_empty()));
        wait_until(|| command.is_none_or(|command| !command.is_still_alive()));
        runs.iter().rev().for_each(|process| process.signal(Signal::CONT));
        self.agent
    }
}

/// The processes from `top` down to `deepest`.
fn line_between(top: Pid, deepest: Pid) -> Option<Vec<Process>> {
    let mut line = vec![Process::read(deepest)?];
    while line.last()?.pid != top {
        line.push(Process::read(line.last()?.parent?)?);
    }
    line.reverse();
    Some(line)
}

/// Waits for a condition. Returns whether it came true in time.
pub(super) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(TICK);
    }
}

fn listen(from_agent: PipeReader, tell: &Sender<String>) {
    let mut lines = BufReader::new(from_agent).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        if tell.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}
