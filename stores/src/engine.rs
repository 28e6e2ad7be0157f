//! What an engine can do: read a record, and compare-and-swap it. It has no rule of leases.

use crate::deadline::Deadline;
use git_fence_core::{StoreFault, StoreReading, StoreRecord};

/// A place that keeps records, with linearizable reads and a compare-and-swap.
pub trait Engine {
    /// Reads a record from where it is written: no replica, no cache.
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault>;

    /// Replaces a record, if it is still as expected. One attempt.
    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault>;

    /// Makes what the engine needs, and says what it has made.
    fn init(&mut self, _until: &Deadline) -> Result<Vec<String>, StoreFault> {
        Ok(Vec::new())
    }

    /// Removes a record that was made to try the engine. Records of leases are never removed: their counter must survive.
    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault>;

    /// The endpoints and their clocks, in milliseconds since 1970.
    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)>;
}

/// One compare-and-swap.
#[derive(Debug, Clone, Copy)]
pub struct RecordSwap<'a> {
    /// The name of the record.
    pub name: &'a str,
    /// The expected record; none if there must not be one.
    pub expected: Option<&'a StoreRecord>,
    /// The new body.
    pub next: &'a str,
    /// Whether the engine keeps the new body in its history, if it has one.
    pub keep: bool,
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwapAttempt {
    /// The record was replaced.
    Won {
        /// Its new version.
        version: String,
        /// The engine's clock.
        now_ms: Option<u64>,
    },
    /// It was not as expected, and is not replaced.
    Lost(StoreReading),
    /// It may have been replaced, or may still be.
    Unknown {
        /// What is known about the cause.
        why: String,
    },
}
