//! Holding a lease: taking it, renewing it, pushing under it, giving it back.
//!
//! Called by the commands, by `run` and by the helper. What to do next is decided in core; what is in here asks the
//! store, acts on its answers, and keeps what this machine knows of its lease on disk.

pub(crate) mod client;
pub(crate) mod heartbeat;
pub(crate) mod held;
pub(crate) mod holding;
pub(crate) mod taking;
