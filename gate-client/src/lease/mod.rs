//! Holding a lease: taking, renewing, pushing under it, releasing.
//!
//! Called by the commands, by `run` and by the helper. Core decides what to do next; the modules here ask the store, act on
//! its answers, and keep the local state of the lease on disk. They know nothing about git objects and refs.

pub(crate) mod ending;
mod facts;
pub(crate) mod heartbeat;
pub(crate) mod held;
pub(crate) mod jobs;
mod marking;
mod own_tokens;
pub(crate) mod pushing;
pub(crate) mod renewing;
pub(crate) mod taking;
