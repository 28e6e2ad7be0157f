//! The protocol of git-fence in a model checker.
//!
//! [`Protocol`] is a server with a gate, and pushes that come to it: every order in which their steps can
//! happen is tried, with processes killed, the machine restarted, answers lost and refs declined in
//! between. What the gate decides, writes down and settles is not modelled: it is done by the functions
//! of `git-fence-core` that the hook calls, in the order in which the hook calls them ([`gate`]).
//!
//! [`Hookless`] is the smaller model for remotes without a gate, where git's compare-and-swap is all
//! there is.
//!
//! What this does not show: that the rim does what is assumed of it here (that the lock is a lock, that
//! a sync is a sync, that a process that is seen to be dead is dead). That is tested with real git.

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
pub mod world;

pub use hookless::{Hookless, PushStyle};
pub use protocol::Protocol;
pub use scenarios::{Scenario, scenarios};
