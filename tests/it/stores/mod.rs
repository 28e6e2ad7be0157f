//! Leases in a store: the journeys of leases, over every engine, with real processes.
//!
//! A journey is a function of a [`Place`], and [`everywhere`] plays it in all of them and prints a line: its row in the table of
//! journeys and stores. What must hold in the remote, whatever happened, is in [`witness`].

mod commands;
mod ending;
mod failover;
mod faults;
mod lost_answers;
mod managing;
mod one_place;
mod pushes;
mod revoking;
mod takeover;
mod turns;
mod witness;

use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git,
    engines::{Engine, Kind},
    records::Records,
};
use std::{fs, io::Write as _, panic, thread};

/// The remotes that the journeys are played with: without a gate, and with one that asks the store. Where a gate changes what
/// is seen, the journeys ask [`Place::has_gate`].
const REMOTES: [Remote; 2] = Remote::BOTH;

/// A store that keeps the leases, and a kind of remote.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) remote: Remote,
}

impl Place {
    fn all() -> Vec<Place> {
        let of = |kind| REMOTES.into_iter().map(move |remote| Place { kind, remote });
        Kind::ALL.into_iter().flat_map(of).collect()
    }

    pub(crate) fn engine(self) -> &'static Engine {
        self.kind.shared()
    }

    pub(crate) fn has_gate(self) -> bool {
        self.remote == Remote::Gate
    }

    /// A remote whose moves are recorded.
    pub(crate) fn world(self) -> World {
        let world = self.remote.world(&any_git());
        if self.has_gate() {
            world.configure("fence.store", &self.engine().url);
            world.configure("fence.resource", record_name(&world).trim_end_matches("/repo"));
        }
        witness::watch(&world, "");
        world
    }

    /// A clone that keeps its leases in this store.
    pub(crate) fn agent<'w>(self, world: &'w World, name: &str) -> Agent<'w> {
        agent_at(world, name, &self.engine().url)
    }

    pub(crate) fn agents<'w, const N: usize>(self, world: &'w World, names: [&str; N]) -> [Agent<'w>; N] {
        names.map(|name| self.agent(world, name))
    }

    fn name(self) -> String {
        let gate = if self.has_gate() { "+gate" } else { "" };
        format!("{}{gate}", self.kind.name())
    }
}

/// A clone that keeps its leases in the store at `url`.
pub(crate) fn agent_at<'w>(world: &'w World, name: &str, url: &str) -> Agent<'w> {
    let agent = world.agent(name);
    keep_in(&agent, url);
    agent
}

/// From now on the clone keeps its leases there.
pub(crate) fn keep_in(agent: &Agent<'_>, url: &str) {
    agent.world.ok(agent.git().args(["config", "fence.store", url]));
}

/// The name of the record of the fence 'repo'.
pub(crate) fn record_name(world: &World) -> String {
    let path = fs::canonicalize(world.server()).unwrap();
    let name = path.to_str().unwrap().trim_start_matches('/').trim_end_matches(".git").to_owned();
    format!("{name}/repo")
}

/// The record of the fence 'repo' in the store.
pub(crate) fn record(world: &World, url: &str) -> serde_json::Value {
    Records::at(url).record(&record_name(world))
}

/// Plays a journey in every place at the same time, and prints what came of it.
#[track_caller]
pub(crate) fn everywhere(play: impl Fn(Place) + Sync) {
    play_in(Place::all(), play);
}

/// The same where there is no gate: for what a gate does not let happen. With one, whoever moves the mark waits until a push
/// on its way is over, and no lease is granted in the remote.
#[track_caller]
pub(crate) fn without_a_gate(play: impl Fn(Place) + Sync) {
    play_in(Place::all().into_iter().filter(|place| !place.has_gate()).collect(), play);
}

#[track_caller]
fn play_in(places: Vec<Place>, play: impl Fn(Place) + Sync) {
    let journey = thread::current().name().unwrap_or_default().replace("stores::", "");
    let (can, cannot): (Vec<Place>, Vec<Place>) = places.into_iter().partition(|place| !place.kind.is_lacking());
    let ends: Vec<_> = thread::scope(|scope| {
        let playing: Vec<_> = can.iter().map(|place| scope.spawn(|| play(*place))).collect();
        playing.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let ended = can.iter().zip(&ends).map(|(place, end)| (place, if end.is_ok() { "ok" } else { "FAILED" }));
    let row: Vec<String> = ended
        .chain(cannot.iter().map(|place| (place, "skipped")))
        .map(|(place, end)| format!("{} {end}", place.name()))
        .collect();
    // Bypasses the capture of the output of passing tests.
    let _ = writeln!(std::io::stderr(), "journey {journey}: {}", row.join(", "));
    if let Some(Err(cause)) = ends.into_iter().find(Result::is_err) {
        panic::resume_unwind(cause);
    }
}
