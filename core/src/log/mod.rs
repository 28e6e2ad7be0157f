//! The log of a repository: its lines, their hash chain, and the state they fold to.
//!
//! The gate writes and reads the log, and commands read it; the client never sees it. Nothing here opens a file: bytes
//! come in and go out as values.

pub(crate) mod chain;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod flight;
pub(crate) mod fold;
pub(crate) mod marks;
mod members;
pub(crate) mod place;
pub(crate) mod ref_watch;
pub(crate) mod refused;
pub(crate) mod settle;
pub(crate) mod stamp;
pub(crate) mod state;
