//! Families: a fence per branch. Each member has a mark, a slot and a lease of its own.

mod client;
mod forgetting;
mod gate;
mod names;
mod operator;

use crate::support::{Git, World};
use std::sync::atomic::{AtomicU64, Ordering};

/// A server with the family `branch`, a fence for each branch.
fn per_branch(git: &Git) -> World {
    let world = World::new(git);
    world.configure("fence.branch.refs", "refs/heads/*");
    world.configure("fence.branch.each", "true");
    world
}

/// Pushes a new commit to `branch`, with a token for its member.
fn push_own(world: &World, branch: &str, token: u64) -> crate::support::Pushed {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let commit = world.commit(&format!("{count}: token {token} for {branch}"));
    world.push(&[&format!("+{commit}:refs/heads/{branch}")], &[&format!("fence-token=branch/{branch}:{token}")])
}
