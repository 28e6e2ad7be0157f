//! The machine that the gate runs on: its processes and clocks, who is pushing, and where a host has its hooks.
//!
//! The differences between hosts are here, and only here. All modules may call this one; it calls only the system.

pub(crate) mod clock;
pub(crate) mod hook_file;
pub(crate) mod kept_hook;
pub(crate) mod layout;
pub(crate) mod process;
pub(crate) mod surroundings;
pub(crate) mod syslog;
pub(crate) mod terminal;
