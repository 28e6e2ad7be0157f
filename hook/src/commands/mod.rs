//! The commands of whoever runs the server, and the command line that leads to them and to the hooks.
//!
//! A command opens the repository, does one thing and prints. What changes a fence does so under the lock and is on
//! record. No command is called by a push, and none calls another's insides.

pub(crate) mod audit;
pub(crate) mod cli;
pub(crate) mod doctor;
pub(crate) mod failure;
pub(crate) mod fleet;
pub(crate) mod install;
pub(crate) mod operator;
pub(crate) mod stats;
pub(crate) mod status;
