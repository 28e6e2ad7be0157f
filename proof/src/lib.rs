//! The protocol of git-fence in a model checker.
//!
//! [`Protocol`] is a server with a gate, and pushes to it. The checker tries every order of their steps, with processes
//! killed, the machine restarted, answers lost and refs declined in between. The gate's decisions, its log and settling
//! are not modelled: the functions of `git-fence-core` that the hook calls do them, in the same order as in the hook
//! ([`gate`]).
//!
//! [`Hookless`] is a smaller model for remotes without a gate, where git's compare-and-swap is the only protection.
//!
//! [`Stored`] has the leases in a store, which forgets and rolls back, and the mark in the remote, with a gate and without.
//!
//! [`Ticks`] is the memory of schedules: which ticks were started, by machines whose clocks differ.
//!
//! What this does not show: that the effects at the rim behave as assumed here (that the lock is a lock, that a sync is a
//! sync, that a process that looks dead is dead). That is tested with real git.

mod client;
pub mod gate;
pub mod hookless;
pub mod log;
pub mod numbers;
pub mod promises;
pub mod protocol;
mod records;
pub mod report;
pub mod scenarios;
mod server;
pub mod steps;
pub mod stored;
pub mod ticks;
pub mod world;

pub use hookless::{Hookless, PushStyle};
pub use protocol::Protocol;
pub use scenarios::{Scenario, scenarios};
pub use stored::{StoreRules, Stored};
pub use ticks::{TickRules, Ticks};
