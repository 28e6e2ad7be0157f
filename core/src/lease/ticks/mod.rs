//! Ticks: the due times of a schedule, and the memory of which of them were started.
//!
//! The machine's timer says when to try. What it lacks is a memory that all machines share: whether this tick was started
//! already, somewhere. That memory is in the lease's record, so that taking a tick is the compare-and-swap that takes the
//! lease, and a tick starts at most once.
//!
//! [`schedule`] says which times are ticks; [`due`] which of them is to be started now, and which are dropped; [`job`] and
//! [`jobs`] are the memory; [`change`] says what a record may do to it, for the gate and for everybody who writes one; [`skip`] is what a run that
//! starts nothing tells the gate.
//!
//! Nothing here reads a clock or a time zone database: both come in as values.

pub(crate) mod change;
pub(crate) mod due;
#[cfg(test)]
mod due_tests;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod schedule;
#[cfg(test)]
mod schedule_tests;
pub(crate) mod skip;
