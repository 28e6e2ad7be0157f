//! The log on disk, its lock and its checkpoint: the fence itself.
//!
//! [`store::Store`] is the only way to write, and only with the lock held; [`history`] and [`journal`] read. Pushes and
//! commands call these modules. Nothing in here decides about a push, and files in `fence/` are opened only through
//! [`files`], which follows no link.

pub(crate) mod checkpoint;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod known_refs;
pub(crate) mod lock_holder;
pub(crate) mod lookback;
pub(crate) mod mutex;
pub(crate) mod store;
