//! The command line of `git fence`, and its single commands: one operation on a lease each.
//!
//! A command finds out which fence of which remote it is about, does one thing, and says what came of it: prose on
//! stderr, data on stdout. Nothing else prints.

pub(crate) mod cli;
pub(crate) mod context;
pub(crate) mod pre_push;
pub(crate) mod push;
pub(crate) mod single;
