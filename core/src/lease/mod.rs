//! Leases: what one is, how it is written into a commit, and which moves of it are allowed to whom.
//!
//! For every store and for both sides: the gate judges with [`judge`], and the client asks the same questions first.
//! Nothing in here reads a clock, draws a random number or knows where a lease is kept.
//!
//! [`value`] and [`secret`] are the values, [`record`] the lease and its heartbeat as messages of commits (their
//! [`trailers`] are read to the letter), [`part`] the refs they lie in; [`standing`] is a lease as the gate knows it and what a
//! push asks of it, and [`found`] one whose ref is not where the log has it.
//!
//! [`store`] is the seam where stores differ, [`snapshot`] what one shows; [`taking`] and [`pushing`] are the two protocols of
//! the client, as state machines.

pub(crate) mod found;
#[cfg(test)]
mod journeys;
pub(crate) mod judge;
#[cfg(test)]
mod memory;
pub(crate) mod part;
pub(crate) mod pushing;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod snapshot;
pub(crate) mod standing;
pub(crate) mod store;
pub(crate) mod taking;
pub(crate) mod trailers;
pub(crate) mod value;
