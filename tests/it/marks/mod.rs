//! Marks in the repository: pushes under leases that are kept in a store, and with tokens of one's own.
//!
//! The commits and the store's records are made by hand: the client has tests of its own.

mod alone;
mod asked;
mod moving;
mod password;

use crate::support::{
    Pushed, World, any_git,
    engine::{Engine, Holder, RESOURCE, begins, empty_entry, fresh, mark_now},
    lease::commit,
};
use git_fence_core::{FenceEntry, FenceName, LeaseState, MarkRecord, Secret, Token};
use std::process::Command;

const MARK: &str = "refs/fence/repo/mark";

/// The refspec that makes `record` the mark of fence `repo`, after the one that is there.
fn marked(world: &World, record: &MarkRecord, proof: Option<&Secret>) -> String {
    let parents: Vec<String> = world.server_ref(MARK).into_iter().collect();
    format!("{}:{MARK}", commit(world, &record.message(&FenceName::repo(), proof), &parents))
}

fn push_command(world: &World, refspecs: &[String], token: Option<u64>) -> Command {
    let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
    let option = token.map(|token| format!("fence-token={token}"));
    let options: Vec<&str> = option.iter().map(String::as_str).collect();
    let mut command = world.push_command(&refspecs, &options);
    command.arg("--atomic");
    command
}

fn push(world: &World, refspecs: &[String], token: Option<u64>) -> Pushed {
    Pushed::from(&push_command(world, refspecs, token).output().unwrap())
}

/// The refspec of new work on `main`.
fn work(world: &World) -> String {
    format!("+{}:refs/heads/main", world.commit(&format!("work {}", fresh())))
}

fn token(n: u64) -> Token {
    n.try_into().unwrap()
}

/// The mark after a write of `holder` with `at`.
fn written(world: &World, holder: &Holder, at: u64) -> MarkRecord {
    mark_now(world).unwrap().written(token(at), Some(holder.by()), "anna", fresh())
}

/// A server whose gate asks a store, with the first mark in place.
struct Guarded {
    world: World,
    engine: Engine,
    entry: FenceEntry,
}

impl Guarded {
    fn new() -> Option<Guarded> {
        let engine = Engine::start()?;
        let world = World::new(&any_git());
        world.configure("fence.store", &engine.url());
        world.configure("fence.resource", RESOURCE);
        world.configure("fence.wait", "20s");
        push(&world, &[marked(&world, &begins(&engine.shown()), None)], None).assert_landed();
        Some(Guarded { world, engine, entry: empty_entry() })
    }

    /// `holder` is current in the store, with this token.
    fn hold(&mut self, holder: &Holder, at: u64) {
        self.put(holder.goes_to(&self.entry, at, LeaseState::Held));
    }

    fn put(&mut self, entry: FenceEntry) {
        self.engine.put(&entry);
        self.entry = entry;
    }

    /// A push of `holder` with its current proof, as a command.
    fn write_command(&self, holder: &Holder, at: u64) -> Command {
        let mark = marked(&self.world, &written(&self.world, holder, at), Some(&holder.proof(&self.entry)));
        push_command(&self.world, &[work(&self.world), mark], Some(at))
    }

    fn write(&self, holder: &Holder, at: u64) -> Pushed {
        Pushed::from(&self.write_command(holder, at).output().unwrap())
    }
}
