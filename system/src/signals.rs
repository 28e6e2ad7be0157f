//! Signals: which to handle, receiving them, and exiting by one.
//!
//! Another Unix: all but the mask of ignored signals is the same. That mask is `sigaction` without a new action, which no
//! safe library offers; `sysctl KERN_PROC_PID` has it as `p_sigignore` on macOS and `ki_sigignore` on FreeBSD.

use crate::os;
pub use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{iterator::Signals, low_level::emulate_default_handler};
use std::{io, thread};

/// The signals by which people and systems ask a program to exit.
const ASK_TO_END: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// The signals that ask a program to exit, except those that this process ignores.
///
/// Under `nohup`, or in the background of a shell without job control, some are ignored, and child processes inherit
/// that. A handler would undo it: exec resets handlers to the default. So only these get handlers, in every process
/// between the shell and the command.
pub fn termination_signals() -> Vec<i32> {
    let ignored = os::process::ignored_signals();
    ASK_TO_END.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// Calls `tell` for each of these signals from now on, on a separate thread.
pub fn listen(signals: &[i32], tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(signals)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

/// Ends this process as the signal would have without a handler.
pub fn exit_by(signal: i32) {
    let _ = emulate_default_handler(signal);
}
