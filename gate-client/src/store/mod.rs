//! Where leases are kept: in the remote itself, as refs, moved by git's own compare-and-swap.
//!
//! Called by `lease` alone. Everything about the objects and refs that a lease is made of stays in here.

pub(crate) mod answer;
pub(crate) mod objects;
pub(crate) mod reading;
pub(crate) mod sending;
