//! The gate of git-fence: a pre-receive hook that checks fencing tokens, and the commands for the server's operator.
//!
//! # What it guarantees
//!
//! Once a push with token N has moved a ref of a fence, no push with a token at or below N moves any ref of that fence.
//! Refs move in token order. A token is spent only if a ref moved. All of this holds if a receive-pack stalls after it
//! was admitted, and if any process is killed at any point. When in doubt, the gate refuses the push.
//!
//! # What it does not
//!
//! A token is not a password. The gate does not see writers that run no pre-receive hook. If the receive-pack of a push
//! cannot be inspected (another host, another PID namespace), waiting for it is bounded by time.
//!
//! # How
//!
//! A pre-receive hook that compares, advances a mark and exits leaves the ref update outside its lock. This hook instead
//! records the push as *in flight*: which process will move which refs, and the current values of those refs. All other
//! pushes wait until that push is over: its receive-pack has exited, or all its refs have their new values. The gate's
//! companion, a post-receive hook, records at once which refs git reports as updated. If the companion never ran (the
//! client disconnected, a process was killed), the push is *settled* by comparing its refs with the recorded values.
//! Only settling moves the mark.
//!
//! A push goes through these modules of `push/`: `arrival` (environment, standard input, repository), `plan` (which refs
//! are guarded), `tokens` (push options, `trailers`, and the requests to `leases`), then `gate`, which holds the lock of
//! the log, compares lease refs with the log in `catch_up` and waits for the `slot`. Each of them reports what an
//! enforcing gate would decide; `recorder` turns that into a `verdict` and records it, and `messages` prints it.
//! A heartbeat does not need the slot.

mod commands;
#[cfg(test)]
mod documentation;
mod failure;
mod host;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[path = "../hostile/mod.rs"]
pub mod hostile;
mod log;
mod push;
mod repository;

use git_fence_core::Reject;
use std::{panic, process::ExitCode, sync::Mutex};

/// The definition of the command line of `git-fence-hook`, for the manual and for completions.
pub fn command_line() -> clap::Command {
    commands::cli::definition()
}

/// The program `git-fence-hook`. A panic is a refusal like any other: it is printed as text and JSON, and the push is
/// never admitted.
pub fn main() -> ExitCode {
    static PLACE: Mutex<String> = Mutex::new(String::new());
    panic::set_hook(Box::new(|info| {
        if let (Ok(mut place), Some(location)) = (PLACE.lock(), info.location()) {
            *place = format!("{}:{}", location.file(), location.line());
        }
    }));
    let ran = panic::catch_unwind(|| {
        let environment = host::surroundings::Environment::read();
        commands::cli::run(std::env::args_os().collect(), &environment)
    });
    ran.unwrap_or_else(|_| {
        let place = PLACE.lock().map_or_else(|_| String::new(), |place| place.clone());
        let what = format!("internal error at {place}");
        let fix = "nothing was written. Report this error, with these lines".to_owned();
        push::messages::refused(&Reject::Broken { what, fix }.into());
        ExitCode::FAILURE
    })
}
