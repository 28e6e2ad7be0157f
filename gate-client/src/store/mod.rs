//! Where leases are kept. The seam is [`LeaseStore`](git_fence_core::LeaseStore): [`remote`] keeps them in the remote itself,
//! whose refs are moved by git's own compare-and-swap, and [`engine`] in a store, to which [`program`] talks. [`home`] is
//! the one of the two that a fence uses; with a store it also moves the mark in the remote.
//!
//! Called by `lease`, through [`home::LeaseHome`]; the helper and the commands use `sending` and `answer` for pushes
//! without a lease. Everything about the objects and refs of a lease is here, and no rule of leases. It does not call
//! `lease`.

pub(crate) mod answer;
pub(crate) mod engine;
pub(crate) mod home;
pub(crate) mod objects;
pub(crate) mod program;
pub(crate) mod reading;
pub(crate) mod remote;
pub(crate) mod sending;
