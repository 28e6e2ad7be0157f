//! Where leases are kept. The seam is [`LeaseStore`](git_fence_core::LeaseStore), and this is its one implementation: the
//! remote itself, whose refs are moved by git's own compare-and-swap.
//!
//! Called by `lease`, through [`remote::RemoteRefs`]; the helper and the commands use `sending` and `answer` for pushes
//! without a lease. Everything about the objects and refs of a lease is here, and no rule of leases. It does not call
//! `lease`.

pub(crate) mod answer;
pub(crate) mod objects;
pub(crate) mod reading;
pub(crate) mod remote;
pub(crate) mod sending;
