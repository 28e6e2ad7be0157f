//! The commands for the server's operator, and the command line that starts them and the hooks.
//!
//! A command opens the repository, does one thing and prints. A command that changes a fence does so under the lock, and
//! the change is recorded. No command is called by a push. `doctor` reads with what
//! `audit` and `install` offer, and `status`, `install` and `mode` with what `doctor` and `mode` offer; otherwise no command
//! calls another.

pub(crate) mod advice;
pub(crate) mod audit;
pub(crate) mod cli;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod install;
mod last_holder;
pub(crate) mod login;
pub(crate) mod mode;
pub(crate) mod operator;
pub(crate) mod stats;
pub(crate) mod status;
