//! Every process of the demo, and the end of all of them: nothing is left behind, whatever happens.

use crate::failure::Failure;
use git_fence_system::{
    process::{self, Process, Signal},
    signals::{exit_by, listen, termination_signals},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How long killed processes may take to disappear: one that hangs in the kernel must not hang the demo.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(5);

/// The directory of the demo. Nothing is started without this lock, so that a signal finds every process.
type Belongings = Arc<Mutex<Option<PathBuf>>>;

/// The processes of the demo. When it is dropped, all of them are killed.
#[must_use = "what it started runs until it is dropped"]
pub(super) struct Troupe(Belongings);

impl Troupe {
    /// From here on a signal ends the demo with everything that it has started and written.
    pub(super) fn gather() -> Result<Troupe, Failure> {
        let failed = |e: io::Error| Failure::broken("cannot look after the demo's processes", "try again").because(e);
        // A process whose parent was killed stays below this one.
        process::adopt_orphans().map_err(failed)?;
        let belongings = Belongings::default();
        let at_signal = belongings.clone();
        listen(&termination_signals(), move |signal| {
            // Never released: nothing starts any more.
            let dir = locked(&at_signal);
            end_all();
            if let Some(dir) = &*dir {
                let _ = fs::remove_dir_all(dir);
            }
            exit_by(signal);
        })
        .map_err(failed)?;
        Ok(Troupe(belongings))
    }

    /// Makes the directory of the demo with `make`, which a signal removes.
    pub(super) fn settle<T: AsRef<Path>>(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut dir = locked(&self.0);
        let made = make()?;
        *dir = Some(made.as_ref().to_owned());
        Ok(made)
    }

    pub(super) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let _nothing_ends_now = locked(&self.0);
        command.spawn()
    }

    /// Runs a short command to its end.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<Output> {
        let _nothing_ends_now = locked(&self.0);
        command.output()
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        // After a signal this waits for the end: what the play makes of processes that the signal has killed is no news.
        let _nothing_ends_now = locked(&self.0);
        end_all();
    }
}

fn locked(belongings: &Belongings) -> MutexGuard<'_, Option<PathBuf>> {
    belongings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every process below this one, also those that are stopped.
fn end_all() {
    let start = Instant::now();
    loop {
        let below = process::below(process::own_pid(), &process::all());
        below.iter().for_each(|process| process.signal(Signal::KILL));
        // A zombie can no longer do anything. It is reaped when this process ends, at the latest.
        below.iter().for_each(|process| process::reap(process.pid));
        if !below.iter().any(Process::is_still_alive) || start.elapsed() > PATIENCE {
            return;
        }
        thread::sleep(TICK);
    }
}
