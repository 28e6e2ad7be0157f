//! Taking a live lease away.

use super::{everywhere, on_its_way::stalled_push, record, witness};
use crate::support::{
    agents::{Agent, code_of},
    runs::Background,
    text, wait_until,
};

/// From now on the clone cannot reach the remote.
pub(super) fn cut_off(agent: &Agent<'_>, is_off: bool) {
    for key in ["remote.origin.uploadpack", "remote.origin.receivepack"] {
        let change: &[&str] = if is_off { &["config", key, "false"] } else { &["config", "--unset", key] };
        agent.world.ok(agent.git().args(change));
    }
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
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        let (push, slow) = stalled_push(place, &world, &a);
        let revocation = Background::start(&mut b.fence(&["revoke", "--reason", "it hangs"]));
        slow.is_met_by(&revocation, || revocation.has_ended());
        assert_eq!(slow.ends(), place.has_gate());
        let (code, said) = code_of(&revocation.end());
        assert_eq!((code, said.contains("may still land")), (0, false), "{said}");
        let (code, said) = code_of(&push.end());
        assert_eq!(code, if place.has_gate() { 0 } else { 75 }, "{said}");
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75);
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        witness::assert_fenced(&world);
    });
}

/// It says so, and the next holder puts up the barrier.
#[test]
fn revocation_without_the_remote_says_that_a_push_may_still_land() {
    everywhere(|place| {
        for lands_first in [true, false] {
            let world = place.world();
            let [a, b, c] = place.agents(&world, ["a", "b", "c"]);
            a.ok(&["acquire"]);
            let (push, slow) = stalled_push(place, &world, &a);
            cut_off(&b, true);
            let (code, said) = b.code(&["revoke", "--reason", "it hangs"]);
            assert_eq!(code, 0, "{said}");
            assert!(said.contains("revoked in the store; a push in flight may still land: cannot reach"), "{said}");
            assert_eq!(a.code(&["renew"]).0, 12, "the store knows");
            assert_eq!(record(&world, &place.engine().url)["barrier"], 2);
            cut_off(&b, false);
            let landed = lands_first || place.has_gate();
            if lands_first {
                assert!(slow.ends());
            }
            let next = Background::start(&mut c.fence(&["acquire"]));
            if !lands_first {
                slow.is_met_by(&next, || next.has_ended());
                assert_eq!(slow.ends(), landed);
            }
            assert_eq!(code_of(&next.end()), (0, "3\n".to_owned()));
            let (code, said) = code_of(&push.end());
            assert_eq!(code, if landed { 0 } else { 75 }, "{said}");
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
        let run = Background::start(&mut a.run(&["--ttl", "9s"], &script));
        wait_until("it runs", || inside.exists());
        b.ok(&["revoke", "--owner", "boss", "--reason", "enough"]);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(a.status()["outcome"], "lost");
        assert!(text(&ended.stderr).contains("'boss' revoked it"), "{}", text(&ended.stderr));
    });
}
