//! One place per fence: whoever comes second is refused, and nothing is fenced twice.

use super::{Place, agent_at, everywhere, keep_in, only_where, record_name, witness};
use crate::support::{
    World,
    agents::{Agent, code_of},
    engines::Kind,
    records::Records,
    text,
};
use std::thread;

/// The outcome in JSON, and what was said.
fn outcome(agent: &Agent<'_>, args: &[&str]) -> (i32, String, String) {
    let ran = agent.fence(args).arg("--json").output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&text(&ran.stdout)).unwrap_or_default();
    let (code, said) = code_of(&ran);
    (code, report["outcome"].as_str().unwrap_or_default().to_owned(), said)
}

#[track_caller]
fn assert_kept_elsewhere(agent: &Agent<'_>, words: &str) {
    for args in [&["acquire"][..], &["push", "origin", "HEAD:refs/heads/second"]] {
        let (code, outcome, said) = outcome(agent, args);
        assert_eq!((code, outcome.as_str()), (2, "kept-elsewhere"), "{args:?}: {said}");
        assert!(said.contains(words) && said.contains("hint: "), "{args:?}: {said}");
    }
    let ran = agent.run(&[], "touch ../ran").output().unwrap();
    assert_eq!((ran.status.code(), agent.status()["outcome"].as_str()), (Some(2), Some("kept-elsewhere")));
    assert!(!agent.path("../ran").exists() && agent.world.server_ref("refs/heads/second").is_none());
}

#[test]
fn mark_that_was_deleted_is_refused_and_not_made_anew() {
    everywhere(|place| {
        for refs in [&["mark"][..], &["mark", "lease"]] {
            let world = place.world();
            let [a, b] = place.agents(&world, ["a", "b"]);
            a.ok(&["acquire"]);
            a.ok(&["push", "origin", "HEAD:main"]);
            for name in refs {
                world.ok(world.git("server.git").args(["update-ref", "-d", &format!("refs/fence/repo/{name}")]));
            }
            let (code, outcome, said) = outcome(&a, &["push", "origin", "HEAD:next"]);
            assert_eq!((code, outcome.as_str()), (2, "kept-elsewhere"), "{said}");
            assert!(said.contains("refs/fence/repo/mark does not exist"), "{said}");
            assert_eq!(world.server_ref("refs/heads/next"), None);
            a.ok(&["release"]);
            assert_kept_elsewhere(&b, "the mark of fence 'repo' is gone");
        }
    });
}

/// Somebody has deleted the lease beside the mark, which says where leases are. The mark says so, too.
#[test]
fn fence_whose_lease_beside_the_mark_was_deleted_goes_on() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["push", "origin", "HEAD:main"]);
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/fence/repo/lease"]));
        // Clones that have not seen this remote before.
        let [b, c] = place.agents(&world, ["b", "c"]);
        assert_eq!(b.ok(&["push", "origin", "HEAD:b"]), "landed with token 2: refs/heads/b");
        assert_eq!(c.ok(&["acquire"]), "3");
        assert_kept_elsewhere(&world.agent("remote"), "is kept in the store ");
        assert_eq!(world.server_ref("refs/fence/repo/lease"), None, "nothing was put in its place");
        witness::assert_fenced(&world);
    });
}

/// In both orders.
#[test]
fn store_and_remote_never_keep_leases_of_one_fence_side_by_side() {
    everywhere(|place| {
        let world = place.world();
        let remote = world.agent("remote");
        let [store] = place.agents(&world, ["store"]);
        store.ok(&["acquire"]);
        assert_kept_elsewhere(&remote, "is kept in the store ");
        store.ok(&["release"]);
        assert_kept_elsewhere(&remote, "is kept in the store ");
        store.ok(&["push", "origin", "HEAD:main"]);
        witness::assert_fenced(&world);

        let world = place.world_before_a_store();
        let remote = world.agent("remote");
        let [store] = place.agents(&world, ["store"]);
        remote.ok(&["acquire"]);
        assert_kept_elsewhere(&store, "is kept in the remote 'origin' itself");
        remote.ok(&["release"]);
        assert_kept_elsewhere(&store, "is kept in the remote 'origin' itself");
        remote.ok(&["push", "origin", "HEAD:main"]);
        assert_eq!(world.server_ref("refs/fence/repo/mark"), None);
        assert_eq!(Records::at(&place.engine().url).body(&record_name(&world)), None, "nothing was granted there");
    });
}

/// A gate that asks the store grants no lease itself, also if nobody has taken one yet.
#[test]
fn gate_that_asks_the_store_grants_no_lease_in_the_remote() {
    only_where(Place::has_gate, |place| {
        let world = place.world();
        let remote = world.agent("remote");
        for args in [&["acquire"][..], &["push", "origin", "HEAD:main"]] {
            let (code, outcome, said) = outcome(&remote, args);
            assert_eq!((code, outcome.as_str()), (1, "refused"), "{said}");
            assert!(said.contains("the leases of this fence are kept in '"), "{said}");
        }
        assert_eq!((world.server_ref("refs/heads/main"), world.server_ref("refs/fence/repo/lease")), (None, None));
        // The remote comes first, and is told of the store afterwards: the lease that is held goes on, and no new one begins.
        let world = place.world_before_a_store();
        let remote = world.agent("remote");
        remote.ok(&["acquire"]);
        place.gate_asks(&world);
        assert_ne!(remote.code(&["push", "origin", "HEAD:main"]).0, 0);
        remote.ok(&["release"]);
        assert_ne!(remote.code(&["acquire"]).0, 0);
        assert_eq!(world.server_ref("refs/heads/main"), None);
    });
}

#[test]
fn two_stores_or_two_names_are_two_places() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        world.ok(b.git().args(["config", "fence.resource", "another/name"]));
        assert_kept_elsewhere(&b, "is kept in the store ");
        world.ok(b.git().args(["config", "--unset", "fence.resource"]));
        let other = if place.kind == Kind::Http { "http://127.0.0.1:1/leases" } else { &Kind::Http.shared().url };
        if place.kind != Kind::Http {
            keep_in(&b, other);
            assert_kept_elsewhere(&b, "is kept in the store ");
        }
        // The holder's own lease goes by its own store, whatever is set.
        world.ok(a.git().args(["config", "fence.store", "remote"]));
        a.ok(&["push", "origin", "HEAD:main"]);
        a.ok(&["release"]);
        witness::assert_fenced(&world);
    });
}

/// Both begin at the same moment, twenty times: exactly one place keeps the leases, and the other one is refused.
#[test]
fn of_two_places_that_begin_at_once_one_is_refused() {
    everywhere(|place| {
        let world = place.world();
        let [store] = place.agents(&world, ["store"]);
        let (remote, other) = (world.agent("remote"), agent_at(&world, "other", &Kind::Http.shared().url));
        for round in 0..20 {
            let fence = format!("f{round}");
            if place.has_gate() {
                world.configure(&format!("fence.{fence}.refs"), &format!("refs/heads/{fence}"));
            }
            // A rival in the remote, or in another store where this one is not that.
            let rival = if round % 2 == 0 || place.kind == Kind::Http { &remote } else { &other };
            let ended = thread::scope(|scope| {
                let acquire = |agent| {
                    let fence = &fence;
                    scope.spawn(move || outcome(agent, &["acquire", "--fence", fence]))
                };
                [&store, rival].map(acquire).map(|acquiring| acquiring.join().unwrap())
            });
            let won = ended.iter().position(|(code, ..)| *code == 0).unwrap_or_else(|| panic!("{ended:?}"));
            let (code, outcome, said) = &ended[1 - won];
            // A gate that asks the store refuses leases in the remote itself.
            let by_gate = place.has_gate() && won == 0 && (*code, outcome.as_str()) == (1, "refused");
            assert!(by_gate || (*code, outcome.as_str()) == (2, "kept-elsewhere"), "{code}: {said}");
            assert_one_place(&world, &fence, won == 0 || !std::ptr::eq(rival, &raw const remote));
            let agent = if won == 0 { &store } else { rival };
            let branch = format!("HEAD:refs/heads/{fence}");
            let (code, said) = agent.code(&["push", "--fence", &fence, "origin", &branch]);
            // What was granted in a store that the gate does not know writes nothing.
            let is_unknown = place.has_gate() && won == 1;
            assert_eq!((code, said.contains("has no record")), (i32::from(is_unknown), is_unknown), "{said}");
        }
    });
}

#[track_caller]
fn assert_one_place(world: &World, fence: &str, is_store: bool) {
    let state = ["log", "-1", "--format=%(trailers:key=Fence-State,valueonly)", &format!("refs/fence/{fence}/lease")]
        .map(str::to_owned);
    let state = world.ok(world.git("server.git").args(state));
    let mark = world.server_ref(&format!("refs/fence/{fence}/mark"));
    assert_eq!((state.trim() == "moved", mark.is_some()), (is_store, is_store), "{state}");
}
