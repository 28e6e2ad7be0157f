//! Leases: what they are, how they are written into commits, and who may change them how.
//!
//! The same for every store and for both sides: the gate decides with [`judge`], and the client applies the same rules
//! first. Nothing here reads a clock, draws a random number or knows where a lease is kept.
//!
//! [`value`] and [`secret`] are the values; [`record`] the lease and its heartbeat as commit messages, whose
//! [`trailers`] are parsed strictly; [`part`] the refs they are in; [`standing`] a lease as the gate knows it and what
//! a push asks of it; [`found`] a lease whose ref is not where the log says; [`stopped`] a push that the gate did not see.
//!
//! [`one_place`] says where a fence's lease may be kept. [`mark`] is the record of the last write, in the remote, where leases are kept in a store; [`entry`] what such a store
//! keeps of a fence, and [`exchange`] the lines to the program that talks to it.
//!
//! [`store`] is the interface of lease stores, [`snapshot`] what a store returns; [`taking`] and [`pushing`] are the
//! two protocols of the client, as state machines.

pub(crate) mod entry;
pub(crate) mod exchange;
pub(crate) mod found;
#[cfg(test)]
mod journeys;
pub(crate) mod judge;
pub(crate) mod mark;
#[cfg(test)]
mod memory;
pub(crate) mod one_place;
pub(crate) mod part;
pub(crate) mod pushing;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod snapshot;
pub(crate) mod standing;
pub(crate) mod stopped;
pub(crate) mod store;
pub(crate) mod taking;
pub(crate) mod trailers;
pub(crate) mod value;
pub(crate) mod words;
