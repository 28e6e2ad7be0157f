//! A push that is on its way while others come: the server has it, and has not moved its refs yet.
//!
//! Without a gate, whoever comes stops it: the mark moves, and git refuses it. With a gate it is in the slot, and whoever moves
//! the mark waits until it is over: then it has landed before anybody else works.

use super::Place;
use crate::support::{GoOnDrop, World, agents::Agent, runs::Background, signal, wait_until};
use std::path::PathBuf;

/// A push of the branch 'slow', until it may go on. It goes on at the end in any case.
pub(super) struct OnItsWay<'w> {
    world: &'w World,
    place: Place,
    receive_pack: u32,
    _go: GoOnDrop,
}

/// From now on, the server stalls in the first push of 'slow', which `start` starts.
pub(super) fn on_its_way<T>(place: Place, world: &World, start: impl FnOnce() -> T) -> (T, OnItsWay<'_>) {
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let started = start();
    (started, OnItsWay { world, place, receive_pack: world.pid_in("stalled"), _go })
}

/// `holder` pushes, and the server stalls.
pub(super) fn stalled_push<'w>(place: Place, world: &'w World, holder: &Agent<'_>) -> (Background, OnItsWay<'w>) {
    let push = || Background::start(&mut holder.fence(&["push", "origin", "HEAD:refs/heads/slow"]));
    on_its_way(place, world, push)
}

/// The same, and the client is killed.
pub(super) fn killed_push<'w>(place: Place, world: &'w World, holder: &Agent<'_>) -> OnItsWay<'w> {
    let (push, slow) = stalled_push(place, world, holder);
    signal(push.program("push"), "KILL");
    push.end();
    slow
}

impl OnItsWay<'_> {
    /// Waits until `client` waits for this push at the gate. Without a gate it does not wait: then until `has_come`.
    #[track_caller]
    pub(super) fn is_met_by(&self, client: &Background, mut has_come: impl FnMut() -> bool) {
        let mut waits = false;
        wait_until("it has come, or waits at the gate", || {
            waits = client.is_at_the_gate();
            waits && self.place.has_gate() || has_come()
        });
        assert_eq!(waits, self.place.has_gate(), "it waits at a gate, and only there");
    }

    /// Lets it go on, and waits until it is over. Returns whether it has landed.
    pub(super) fn ends(&self) -> bool {
        self.world.go();
        let process = PathBuf::from(format!("/proc/{}/exe", self.receive_pack));
        wait_until("the push is over", || !process.exists());
        self.world.server_ref("refs/heads/slow").is_some()
    }
}
