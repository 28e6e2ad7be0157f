//! Leases: what one is, how it is written into a commit, and which moves of it are allowed to whom.
//!
//! For every store and for both sides: the gate judges with [`rule`], and the client asks the same questions first.
//! Nothing in here reads a clock, draws a random number or knows where a lease is kept.

pub(crate) mod found;
pub(crate) mod pushing;
pub(crate) mod record;
pub(crate) mod rule;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod taking;
