//! What a signal to end means to a command.

use crate::run::starter::Starter;
use git_fence_system::{
    process::{self, Signal},
    signals::{SIGTERM, die_of, hear, that_ask_to_end},
};

/// For a command that does one thing: what ends it ends the git that it has started, too, or that goes on
/// alone and lands what nobody waits for any more. The end of the git that has started us is like SIGTERM.
pub(crate) fn end_with_children(starter: Starter) {
    // Without it a signal still ends the command.
    let _ = hear(&that_ask_to_end(), end_now);
    starter.when_gone(|| end_now(SIGTERM));
}

fn end_now(signal: i32) {
    end_children();
    die_of(signal);
}

/// Asks those that this process has started to end. What they have started is theirs to end.
pub(crate) fn end_children() {
    let all = process::all();
    all.iter()
        .filter(|process| process.parent == Some(process::own_pid()))
        .for_each(|child| child.signal(Signal::TERM));
}
