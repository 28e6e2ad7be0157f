//! Leases: what they are, how they are written into commits, and who may change them how.
//!
//! The same for every store and for both sides: the gate decides with [`judge`], and the client applies the same rules
//! first. Nothing here reads a clock, draws a random number or knows where a lease is kept.
//!
//! [`value`] and [`secret`] are the values; [`record`] the lease and its heartbeat as commit messages, whose
//! [`trailers`] are parsed strictly; [`part`] the refs they are in; [`standing`] a lease as the gate knows it and what
//! a push asks of it; [`found`] a lease whose ref is not where the log says; [`stopped`] a push that the gate did not see.
//!
//! [`in_store`] is what only leases in a store need: the store's record, and the mark in the remote.
//!
//! [`ticks`] are the due times of schedules, and the memory of which were started.
//!
//! [`store`] is the interface of lease stores, [`snapshot`] what a store returns; [`taking`] and [`pushing`] are the
//! two protocols of the client, as state machines.

pub(crate) mod found;
pub(crate) mod in_store;
#[cfg(test)]
mod journeys;
pub(crate) mod judge;
#[cfg(test)]
mod memory;
pub(crate) mod part;
pub(crate) mod purpose;
pub(crate) mod pushing;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod snapshot;
pub(crate) mod standing;
pub(crate) mod stopped;
pub(crate) mod store;
pub(crate) mod taking;
pub(crate) mod ticks;
pub(crate) mod trailers;
pub(crate) mod value;
pub(crate) mod words;
