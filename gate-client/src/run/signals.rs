//! Signals that ask a single command to end.
//!
//! A signal ends the command at once, together with the git that it started: otherwise that git would continue alone,
//! and land a push that nobody waits for. A command that takes a lease for itself first gives it back.

use crate::run::{
    starter::Starter,
    watch::{RunEvent, note},
};
use git_fence_system::{
    process::{self, Signal},
    signals::{SIGTERM, exit_by, listen, termination_signals},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

/// Signals within this time after the first are the same: from a terminal one comes to git and to us, and git passes
/// its own on.
const SAME: Duration = Duration::from_secs(1);

/// Whether a signal has asked this command to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    /// The first signal; 0 if none has come.
    signal: Arc<AtomicI32>,
    asked: Arc<AtomicBool>,
    /// Whether the command itself gives back what it took.
    is_deferred: Arc<AtomicBool>,
    since: Arc<Mutex<Option<Instant>>>,
    /// What is left when the command ends at once.
    left: Arc<Mutex<Option<String>>>,
    /// Who waits for something else than git.
    tell: Arc<Mutex<Option<Sender<RunEvent>>>>,
}

impl Interrupt {
    /// Listens from now on. The end of the git that started us counts as SIGTERM.
    pub(crate) fn listen(starter: Starter) -> Interrupt {
        let interrupt = Interrupt::default();
        let (by_signal, by_git) = (interrupt.clone(), interrupt.clone());
        // If this fails, a signal still ends the command.
        let _ = listen(&termination_signals(), move |signal| by_signal.ask_to_end(signal));
        starter.when_gone(move || by_git.ask_to_end(SIGTERM));
        interrupt
    }

    /// From now on a signal only ends what git does at the moment; the command then gives back what it took. A second
    /// signal ends it at once, and says what is `left`.
    pub(crate) fn defer(&self, left: String) -> Arc<AtomicBool> {
        self.leaves(left);
        self.is_deferred.store(true, Ordering::SeqCst);
        self.asked.clone()
    }

    /// What to say when the command ends at once.
    pub(crate) fn leaves(&self, left: String) {
        if let Ok(mut known) = self.left.lock() {
            *known = Some(left);
        }
    }

    /// Where a signal is told to a command that waits. It stays open.
    pub(crate) fn events(&self) -> Receiver<RunEvent> {
        let (tell, events) = mpsc::channel();
        if let Some(signal) = self.signal() {
            let _ = tell.send(RunEvent::Signal(signal));
        }
        if let Ok(mut known) = self.tell.lock() {
            *known = Some(tell);
        }
        events
    }

    /// The signal that has asked the command to end.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    fn ask_to_end(&self, signal: i32) {
        let is_first = self.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.asked.store(true, Ordering::SeqCst);
        let age = self.age();
        if !is_first && age < SAME {
            return;
        }
        end_children();
        if is_first && self.is_deferred.load(Ordering::SeqCst) {
            if let Some(tell) = self.tell.lock().ok().and_then(|tell| tell.clone()) {
                let _ = tell.send(RunEvent::Signal(signal));
            }
            return;
        }
        if let Some(left) = self.left.lock().ok().and_then(|left| left.clone()) {
            note(&left);
        }
        exit_by(signal);
    }

    /// The time since the first signal.
    fn age(&self) -> Duration {
        // The first one calls it, too.
        self.since.lock().map_or(Duration::MAX, |mut since| since.get_or_insert_with(Instant::now).elapsed())
    }
}

/// Asks the children of this process to end. They end their own children.
pub(crate) fn end_children() {
    let all = process::all();
    all.iter()
        .filter(|process| process.parent == Some(process::own_pid()))
        .for_each(|child| child.signal(Signal::TERM));
}
