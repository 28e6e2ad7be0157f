//! Users: the user of this process, names, and home directories.
//!
//! Another Unix: the same.

use nix::unistd::{Uid, User};
use std::path::PathBuf;

/// The number of the effective user of this process.
pub fn own() -> u32 {
    Uid::effective().as_raw()
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The name of the user, or the number if it has no name.
pub fn own_name() -> String {
    name_of(own()).unwrap_or_else(|| format!("uid {}", own()))
}

/// The name of a user.
pub fn name_of(user: u32) -> Option<String> {
    find(user).map(|user| user.name)
}

/// The home directory of a user.
pub fn home_of(user: u32) -> Option<PathBuf> {
    find(user).map(|user| user.dir)
}

fn find(user: u32) -> Option<User> {
    User::from_uid(Uid::from_raw(user)).ok().flatten()
}
