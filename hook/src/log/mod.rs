//! The log on disk, its lock and its checkpoint: the fence itself.
//!
//! [`store::Store`] is the one way to write, and only with the lock held; [`history`] and [`journal`] read. Called by the
//! push and by commands. Nothing in here decides about a push, and nothing in `fence/` is opened in any other way than
//! through [`files`], which follows no link.

pub(crate) mod checkpoint;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod lock_holder;
pub(crate) mod lookback;
pub(crate) mod mutex;
pub(crate) mod store;
