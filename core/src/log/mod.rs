//! The log of a repository: its lines, the chain that ties them, and the state that they add up to.
//!
//! The gate writes and reads it, and commands read it; the client never sees it. Nothing in here opens a file: bytes
//! come in and go out as values.

pub(crate) mod chain;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod flight;
pub(crate) mod fold;
pub(crate) mod place;
pub(crate) mod settle;
pub(crate) mod stamp;
pub(crate) mod state;
