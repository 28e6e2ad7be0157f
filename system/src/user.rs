//! Users: whom this process runs as, what they are called, where they are at home.
//!
//! Another Unix: the same.

use nix::unistd::{Uid, User};
use std::path::PathBuf;

/// The number of the user that this process runs as.
pub fn own() -> u32 {
    Uid::effective().as_raw()
}

/// Whether that is root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// What that user is called, or its number where it has no name.
pub fn own_name() -> String {
    name_of(own()).unwrap_or_else(|| format!("uid {}", own()))
}

/// What a user is called.
pub fn name_of(user: u32) -> Option<String> {
    find(user).map(|user| user.name)
}

/// Where a user is at home.
pub fn home_of(user: u32) -> Option<PathBuf> {
    find(user).map(|user| user.dir)
}

fn find(user: u32) -> Option<User> {
    User::from_uid(Uid::from_raw(user)).ok().flatten()
}
