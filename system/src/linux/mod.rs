//! What only Linux has: `/proc`, pidfds, time namespaces, subreapers.
//!
//! Called by the modules beside this folder and by nobody else. Another Unix has a folder with the same public items.

pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod handle;
pub(crate) mod lock;
pub(crate) mod place;
pub(crate) mod process;
