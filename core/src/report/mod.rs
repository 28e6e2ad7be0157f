//! What a log adds up to: figures in little memory, however many lines there are.
//!
//! For `stats` and whatever else shows a repository to people. Nothing is decided by these figures.

pub(crate) mod leases;
pub(crate) mod spread;
pub(crate) mod tally;
