//! Which signals to listen to.

use crate::run::{processes, starter::Starter};
use rustix::process::{Signal, getpid};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::{fs, io, thread};

/// The signals by which people and systems ask a program to end.
const ASK_TO_END: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// Those signals by which one asks a program to end that this process does not ignore.
///
/// Under `nohup`, or in the background of a shell without job control, some are ignored, and the
/// command inherits that. A handler would undo it: exec resets handlers to the default. So handlers
/// are only for these, in every process between the shell and the command.
pub(crate) fn that_ask_to_end() -> Vec<i32> {
    let ignored = fs::read_to_string("/proc/self/status").ok().and_then(|status| ignored(&status)).unwrap_or(0);
    ASK_TO_END.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// Tells of each of these signals, on a thread of its own, from now on.
pub(crate) fn hear(tell: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(that_ask_to_end())?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

/// For a command that does one thing: what ends it ends the git that it has started, too, or that goes on
/// alone and lands what nobody waits for any more. The end of the git that has started us is like SIGTERM.
pub(crate) fn end_with_children(starter: Starter) {
    // Without it a signal still ends the command.
    let _ = hear(end_now);
    starter.when_gone(|| end_now(SIGTERM));
}

fn end_now(signal: i32) {
    end_children();
    let _ = emulate_default_handler(signal);
}

/// Asks those that this process has started to end. What they have started is theirs to end.
pub(crate) fn end_children() {
    let all = processes::all();
    all.iter().filter(|process| process.parent == Some(getpid())).for_each(|child| child.signal(Signal::TERM));
}

/// The mask of ignored signals in a `/proc/<pid>/status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), Some(0x1001));
        assert_eq!(ignored("Name:\tx\n"), None);
    }
}
