//! The gate of git-fence: a pre-receive hook that checks fencing tokens, and the commands of
//! whoever runs the server.
//!
//! # What it guarantees
//!
//! Once a push with token N has moved a ref of a fence, no push with a token at or below N moves
//! any ref of that fence; refs move in token order; a token is spent when a ref moved, and only
//! then. It holds when a receive-pack stalls after this hook has let it through, and when any
//! process is killed at any point. When in doubt, the push is refused.
//!
//! # What it does not
//!
//! A token is not a password. Writers that run no pre-receive hook are not seen. Where the
//! receive-pack of a push cannot be looked at (another host, another process namespace), waiting for
//! it is bounded by time.
//!
//! # How
//!
//! A pre-receive hook that compares, advances a mark and exits leaves the ref update outside of its
//! lock. This one records the push as *in flight* instead: which process will move which refs, and
//! what they are at right now. Everybody else waits until that push is over, which is when its
//! receive-pack is gone or all its refs show their new values. What it moved is written down at once by
//! the gate's companion, a post-receive hook, on git's own word; only where that never ran (a client that is
//! gone, a kill) is a push *settled* by comparing its refs with what they were. The mark moves there, and nowhere else.
//!
//! A push goes through one room after the other, all in `push/`: `arrival` (environment, standard input, the repository),
//! `plan` (what is guarded), `tokens` (options, `trailers`, and what is asked of `leases`), then `gate`, which works
//! under the lock of the log, makes sure of leases in `catch_up` and waits for the `slot`. Each says what an enforcing
//! gate would; `recorder` makes a `verdict` of that, puts it on record, and `voice` says it. A heartbeat has no need of
//! the slot.

mod commands;
#[cfg(test)]
mod documentation;
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

/// The program `git-fence-hook`. A panic is a refusal like any other: said in the two voices,
/// and never the push let through.
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
        let what = format!("git-fence-hook met a case that it does not know, at {place}");
        let mend = "nothing was written. Please report it with these lines".to_owned();
        push::voice::refused(&Reject::Broken { what, mend }.into());
        ExitCode::FAILURE
    })
}
