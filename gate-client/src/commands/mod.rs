//! The command line of `git fence`, and its single commands: one operation on a lease each.
//!
//! A command finds its fence and remote, does one thing, and prints the result: messages on stderr, data on stdout.
//! Only `run`, the keeper and the helper print something of their own: while they run, on stderr.

pub(crate) mod cli;
pub(crate) mod context;
pub(crate) mod defaults;
pub(crate) mod halting;
mod moving;
pub(crate) mod own;
pub(crate) mod pre_push;
pub(crate) mod push;
mod push_each;
mod push_own;
pub(crate) mod single;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod ticks;
pub(crate) mod watching;
