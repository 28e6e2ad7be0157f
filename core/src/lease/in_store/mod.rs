//! Leases that are kept in a store, and the mark that then moves in the remote.
//!
//! [`entry`] is what a store keeps of a fence; [`exchange`] the lines to the program that talks to it. [`mark`] is the record
//! of the last write, in the remote; [`one_place`] says where a fence's lease may be kept.

pub(crate) mod entry;
pub(crate) mod exchange;
pub(crate) mod mark;
pub(crate) mod one_place;
