//! Taking a live lease away.

use super::{everywhere, record, without_a_gate, witness};
use crate::support::{World, agents::Agent, runs::Background, text, wait_until};

/// From now on the clone cannot reach the remote.
fn cut_off(agent: &Agent<'_>, is_off: bool) {
    for key in ["remote.origin.uploadpack", "remote.origin.receivepack"] {
        let change: &[&str] = if is_off { &["config", key, "false"] } else { &["config", "--unset", key] };
        agent.world.ok(agent.git().args(change));
    }
}

/// A push of the holder that is on its way, until the world lets it go on.
fn stalled_push(world: &World, holder: &Agent<'_>) -> (Background, u32) {
    world.stall_update_of("slow");
    let push = Background::start(&mut holder.fence(&["push", "origin", "HEAD:refs/heads/slow"]));
    (push, world.pid_in("stalled"))
}

#[test]
fn holder_whose_lease_was_revoked_is_refused_at_once() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        assert_eq!(b.ok(&["revoke", "--reason", "x"]), "nobody holds the lease of fence 'repo'");
        a.ok(&["acquire", "--owner", "agent a"]);
        assert_eq!(b.code(&["revoke"]).0, 2, "without a reason");
        let revoked = b.ok(&["revoke", "--owner", "agent b", "--reason", "it hangs"]);
        assert_eq!(revoked, "revoked the lease of 'agent a', which had token 1");
        for (args, code) in [(&["push", "origin", "HEAD:main"][..], 75), (&["renew"], 12), (&["advance"], 12)] {
            let (got, said) = a.code(args);
            assert_eq!(got, code, "{args:?}: {said}");
            assert!(said.contains("'agent b' revoked it (revoked: 'it hangs')"), "{args:?}: {said}");
        }
        assert_eq!(world.server_ref("refs/heads/main"), None);
        assert_eq!(b.ok(&["acquire"]), "3");
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        witness::assert_fenced(&world);
    });
}

#[test]
fn revocation_stops_a_push_that_is_on_its_way() {
    without_a_gate(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        let _go = world.go_in_the_end();
        let (push, _) = stalled_push(&world, &a);
        let (code, said) = b.code(&["revoke", "--reason", "it hangs"]);
        assert_eq!((code, said.contains("may still land")), (0, false), "{said}");
        world.go();
        let ended = push.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(world.server_ref("refs/heads/slow"), None);
        witness::assert_fenced(&world);
    });
}

/// It says so, and the next holder puts up the barrier.
#[test]
fn revocation_without_the_remote_says_that_a_push_may_still_land() {
    without_a_gate(|place| {
        for lands_first in [true, false] {
            let world = place.world();
            let [a, b, c] = place.agents(&world, ["a", "b", "c"]);
            a.ok(&["acquire"]);
            let _go = world.go_in_the_end();
            let (push, receive_pack) = stalled_push(&world, &a);
            cut_off(&b, true);
            let (code, said) = b.code(&["revoke", "--reason", "it hangs"]);
            assert_eq!(code, 0, "{said}");
            assert!(said.contains("revoked in the store; a push in flight may still land: cannot reach"), "{said}");
            assert_eq!(a.code(&["renew"]).0, 12, "the store knows");
            assert_eq!(record(&world, &place.engine().url)["barrier"], 2);
            if lands_first {
                world.go();
                wait_until("it has landed", || world.server_ref("refs/heads/slow").is_some());
            }
            cut_off(&b, false);
            assert_eq!(c.ok(&["acquire"]), "3");
            world.go();
            wait_until("the push is over", || !world.path(&format!("/proc/{receive_pack}/exe")).exists());
            let ended = push.end();
            assert_eq!(world.server_ref("refs/heads/slow").is_some(), lands_first, "{}", text(&ended.stderr));
            assert_eq!(ended.status.code(), Some(if lands_first { 0 } else { 75 }), "{}", text(&ended.stderr));
            assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75);
            assert_eq!(c.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
            witness::assert_fenced(&world);
        }
    });
}

/// A run hears of it at its next heartbeat.
#[test]
fn run_whose_lease_was_revoked_ends_its_command() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        let inside = world.path("inside");
        let script = format!("echo >{}; exec sleep 1000", inside.display());
        let run = Background::start(&mut a.run(&["--ttl", "3s"], &script));
        wait_until("it runs", || inside.exists());
        b.ok(&["revoke", "--owner", "boss", "--reason", "enough"]);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(a.status()["outcome"], "lost");
        assert!(text(&ended.stderr).contains("'boss' revoked it"), "{}", text(&ended.stderr));
    });
}
