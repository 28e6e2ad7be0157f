//! Handling of signals that ask a command to end.

use crate::run::starter::Starter;
use git_fence_system::{
    process::{self, Signal},
    signals::{SIGTERM, exit_by, listen, termination_signals},
};

/// For a single command: a signal that ends it also ends the git that it started. Otherwise that git would
/// continue alone, and land a push that nobody waits for. The end of the git that started us counts as SIGTERM.
pub(crate) fn end_with_children(starter: Starter) {
    // If this fails, a signal still ends the command.
    let _ = listen(&termination_signals(), end_now);
    starter.when_gone(|| end_now(SIGTERM));
}

fn end_now(signal: i32) {
    end_children();
    exit_by(signal);
}

/// Asks the children of this process to end. They end their own children.
pub(crate) fn end_children() {
    let all = process::all();
    all.iter()
        .filter(|process| process.parent == Some(process::own_pid()))
        .for_each(|child| child.signal(Signal::TERM));
}
