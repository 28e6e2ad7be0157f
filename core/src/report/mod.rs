//! Statistics of a log, in little memory, however many lines it has.
//!
//! For `stats` and other commands that show a repository to people. No decision depends on these figures.

pub(crate) mod healthy;
pub(crate) mod leases;
pub(crate) mod scheduled;
pub(crate) mod spread;
pub(crate) mod tally;
