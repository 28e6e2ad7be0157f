//! The client of git-fence: `git fence`, and the remote helper for plain `git push`.
//!
//! The client writes push options, and the gate reads them with [`git_fence_core::read_options`]:
//!
//! ```
//! use git_fence_core::{FenceName, Token};
//!
//! let option = git_fence_client::token_option(&FenceName::repo(), Token::parse(b"42").unwrap());
//! assert_eq!(option, "fence-token=repo:42"); // git push -o fence-token=repo:42
//! ```

mod client;
mod clock;
mod commands;
mod demo;
mod denied;
mod exit_codes;
mod failure;
mod files;
mod git;
mod helper;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[path = "../hostile/mod.rs"]
pub mod hostile;
mod lease;
mod places;
mod random;
mod report;
mod run;
mod store;
mod surroundings;

pub use exit_codes::EXIT_CODES;
use git_fence_core::{FenceName, Token};
use std::process::ExitCode;

/// The program `git-fence`, which git runs for `git fence`.
pub fn main() -> ExitCode {
    commands::cli::run(std::env::args_os().collect(), surroundings::Environment::read())
}

/// The definition of its command line, for the manual and for completions.
pub fn command_line() -> clap::Command {
    commands::cli::definition()
}

/// The program `git-remote-fence`, which git runs for URLs that start with `fence::`.
pub fn remote_helper() -> ExitCode {
    helper::main(&std::env::args_os().collect::<Vec<_>>(), &surroundings::Environment::read())
}

/// The push option that carries `token` for `fence`.
pub fn token_option(fence: &FenceName, token: Token) -> String {
    format!("fence-token={fence}:{token}")
}
