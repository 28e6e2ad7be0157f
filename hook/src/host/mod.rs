//! The machine that the gate runs on: its processes and clocks, who is pushing, where a host keeps its hooks.
//!
//! Each kind of host that differs is told apart here, and only here. Called by everybody; calls nobody but the system.

pub(crate) mod clock;
pub(crate) mod hook_file;
pub(crate) mod kept_hook;
pub(crate) mod layout;
pub(crate) mod process;
pub(crate) mod surroundings;
pub(crate) mod syslog;
pub(crate) mod terminal;
