//! Leases in a store: the journeys of leases, over every engine, with real processes.
//!
//! A journey is a function of a [`Place`], and [`everywhere`] plays it in all of them: a row in the [`table`] of journeys and
//! stores. What must hold in the remote, whatever happened, is in [`witness`].

mod by_hand;
mod commands;
mod ending;
mod failover;
mod faults;
mod halting;
mod journeys;
mod lost_answers;
mod managing;
mod on_its_way;
mod one_place;
mod pushes;
mod restarts;
mod revoking;
mod schedules;
mod slot;
mod table;
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
use std::{fs, panic, thread};
use table::End;

/// The remotes that the journeys are played with: without a gate, and with one that asks the store. Where a gate changes what
/// is seen, the journeys ask [`Place::has_gate`].
const REMOTES: [Remote; 2] = [Remote::Bare, Remote::Gate];

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

    /// From now on it does not ask it any more.
    pub(crate) fn gate_asks_no_more(self, world: &World) {
        for key in ["fence.store", "fence.resource"] {
            world.ok(world.git("server.git").args(["config", "--unset-all", key]));
        }
    }

    pub(crate) fn engine(self) -> &'static Engine {
        self.kind.shared()
    }

    pub(crate) fn has_gate(self) -> bool {
        self.remote == Remote::Gate
    }

    pub(crate) fn has_no_gate(self) -> bool {
        !self.has_gate()
    }

    /// A remote whose moves are recorded.
    pub(crate) fn world(self) -> World {
        self.world_at(&self.engine().url)
    }

    /// The same, before the gate was told of the store.
    pub(crate) fn world_before_a_store(self) -> World {
        let world = self.remote.world(&any_git());
        witness::watch(&world, "");
        world
    }

    /// The same, with a store that other tests do not use.
    pub(crate) fn world_at(self, url: &str) -> World {
        let world = self.world_before_a_store();
        self.gate_asks_at(&world, url);
        world
    }

    /// From now on the gate, if there is one, asks the store.
    pub(crate) fn gate_asks(self, world: &World) {
        self.gate_asks_at(world, &self.engine().url);
    }

    fn gate_asks_at(self, world: &World, url: &str) {
        if self.has_gate() {
            world.configure("fence.store", url);
            world.configure("fence.resource", record_name(world).trim_end_matches("/repo"));
        }
    }

    /// A clone that keeps its leases in this store.
    pub(crate) fn agent<'w>(self, world: &'w World, name: &str) -> Agent<'w> {
        agent_at(world, name, &self.engine().url)
    }

    pub(crate) fn agents<'w, const N: usize>(self, world: &'w World, names: [&str; N]) -> [Agent<'w>; N] {
        names.map(|name| self.agent(world, name))
    }

    /// Its column in the table.
    fn title(self) -> String {
        let name = match self.kind.name() {
            "etcd" => "etcd".to_owned(),
            "http" => "HTTP".to_owned(),
            "postgres" => "PostgreSQL".to_owned(),
            other => other[..1].to_uppercase() + &other[1..],
        };
        if self.has_gate() { name + " + gate" } else { name }
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

/// Plays a journey in every place at the same time.
#[track_caller]
pub(crate) fn everywhere<F: Fn(Place) + Sync>(play: F) {
    only_where(|_| true, play);
}

/// The same in some of the places only: for what does not exist in others.
#[track_caller]
pub(crate) fn only_where<F: Fn(Place) + Sync>(is_there: impl Fn(Place) -> bool, play: F) {
    let name = table::name_of(&play);
    let ends = thread::scope(|scope| {
        let start = |place: Place| match () {
            () if !is_there(place) => Err(End::NotThere),
            () if place.kind.is_lacking() => Err(End::Skipped),
            () => Ok(scope.spawn({
                let play = &play;
                move || play(place)
            })),
        };
        let started: Vec<_> = Place::all().into_iter().map(start).collect();
        started.into_iter().map(|started| started.map(thread::ScopedJoinHandle::join)).collect::<Vec<_>>()
    });
    let end = |end: &Result<thread::Result<()>, End>| match end {
        Ok(Ok(())) => End::Ok,
        Ok(Err(_)) => End::Failed,
        Err(not_played) => *not_played,
    };
    table::add(name, ends.iter().map(end).collect());
    if let Some(cause) = ends.into_iter().find_map(|end| end.ok()?.err()) {
        panic::resume_unwind(cause);
    }
}

/// The places with one of these engines.
pub(crate) fn in_one_of(kinds: &[Kind]) -> impl Fn(Place) -> bool {
    |place| kinds.contains(&place.kind)
}
