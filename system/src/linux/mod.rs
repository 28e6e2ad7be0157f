//! What only Linux has: `/proc`, pidfds, inotify, time namespaces, subreapers.
//!
//! Only the modules next to this folder call it. For another Unix, write a folder with the same public items.

pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod handle;
pub(crate) mod lock;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod watch;
