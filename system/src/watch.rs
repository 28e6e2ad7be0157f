//! Waiting until something probably happened: a process ended, or a file was put in its place.
//!
//! What is waited for is a hint. Who is woken looks for itself, and who is not woken looks after the timeout.
//!
//! Another Unix: `kqueue` with `EVFILT_VNODE` on the directory, which does not say the name, so it wakes more often.

pub use crate::os::watch::{FileWatch, Woken, wait_for_any};
