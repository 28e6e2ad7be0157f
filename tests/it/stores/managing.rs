//! `git fence store`: trying a store, preparing it, and moving leases from one place to another.

use super::{Place, everywhere, keep_in, only_where, witness};
use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git,
    engines::Kind,
    schema::assert_is,
    text,
};
use serde_json::Value;

/// What a command reports, which is as the schema says.
#[track_caller]
fn report(agent: &Agent<'_>, args: &[&str]) -> Value {
    let ran = agent.fence(args).arg("--json").output().unwrap();
    let (code, said) = code_of(&ran);
    let report: Value = serde_json::from_str(&text(&ran.stdout)).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"));
    assert_is("result", &report);
    assert_eq!(report["exit_code"], code, "{said}");
    report
}

#[test]
fn store_is_tried_and_prepared() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        let url = &place.engine().url;
        for args in [&["store", "check"][..], &["store", "check", url], &["store", "init", url]] {
            let said = report(&a, args);
            let expected = if args[1] == "check" { "checked" } else { "made" };
            assert_eq!(said["outcome"], expected, "{said}");
            assert!(said["checks"].as_array().is_none_or(|checks| checks.len() >= 8), "{said}");
        }
        // Without a clone, too.
        let mut outside = a.fence(&["store", "check", url]);
        let (code, said) = code_of(&outside.current_dir("/").output().unwrap());
        assert!(code == 0 && said.contains(" can keep leases\n  ok     it can be read"), "{code}: {said}");
        assert!(said.matches("  ok  ").count() >= 8, "{said}");
        assert_eq!(said.matches("  clock  ").count(), 1, "{said}");
    });
}

#[test]
fn store_that_cannot_be_used_is_named() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    for (args, code, outcome) in [
        (&["store", "check"][..], 2, "usage"),
        (&["store", "check", "nowhere"], 1, "broken"),
        (&["store", "check", "etcd://127.0.0.1:1"], 69, "unreachable"),
        (&["store", "init", "redis://127.0.0.1:1"], 69, "unreachable"),
        (&["store", "move", "remote", "remote"], 2, "usage"),
        (&["store", "move", "own", "redis://127.0.0.1:1"], 2, "usage"),
        (&["store", "move", "remote", "redis://127.0.0.1:1"], 69, "unreachable"),
    ] {
        let said = report(&a, args);
        assert_eq!((&said["exit_code"], &said["outcome"]), (&code.into(), &outcome.into()), "{args:?}: {said}");
    }
}

/// No counter goes back.
#[test]
fn leases_move_into_the_store_and_back() {
    everywhere(|place| {
        let world = place.world_before_a_store();
        let (a, b) = (world.agent("a"), world.agent("b"));
        let url = place.engine().url.clone();
        let mut tokens = vec![push(&a, "main")];
        a.ok(&["acquire", "--owner", "agent a"]);
        let is_held = || {
            let held = report(&b, &["store", "move", "remote", &url]);
            assert_eq!((&held["exit_code"], &held["holder"]["owner"]), (&11.into(), &"agent a".into()), "{held}");
        };
        is_held();
        a.ok(&["advance"]);
        if place.has_gate() {
            // Only the server's operator says that its gate is to ask elsewhere.
            place.gate_asks(&world);
            is_held();
        }
        a.ok(&["release"]);
        let moved = report(&b, &["store", "move", "remote", &url, "--owner", "boss"]);
        assert_eq!(moved["outcome"], "moved", "{moved}");
        assert!(moved["message"].as_str().unwrap().contains("; the next token is above "), "{moved}");
        // Who does not know yet is told.
        let late = report(&a, &["acquire"]);
        assert_eq!((&late["exit_code"], &late["outcome"]), (&2.into(), &"kept-elsewhere".into()), "{late}");
        keep_in(&a, &url);
        tokens.push(push(&a, "next"));
        if place.has_gate() {
            assert_eq!(report(&b, &["store", "move", &url, "remote"])["code"], "FENCE-LEASE-INVALID");
            place.gate_asks_no_more(&world);
        }
        // By clones that have seen nothing of what was before.
        assert_eq!(report(&world.agent("c"), &["store", "move", &url, "remote"])["outcome"], "moved");
        assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
        keep_in(&a, "remote");
        tokens.push(push(&a, "third"));
        place.gate_asks(&world);
        assert_eq!(report(&world.agent("d"), &["store", "move", "remote", &url])["outcome"], "moved");
        keep_in(&a, &url);
        tokens.push(push(&a, "fourth"));
        assert!(tokens[1] > tokens[0] + 2, "above the tokens that were granted: {tokens:?}");
        assert!(tokens.windows(2).all(|two| two[0] < two[1]), "{tokens:?}");
    });
}

/// The token with which a push has landed.
#[track_caller]
fn push(agent: &Agent<'_>, branch: &str) -> u64 {
    let pushed = report(agent, &["push", "origin", &format!("HEAD:refs/heads/{branch}")]);
    assert_eq!(pushed["outcome"], "landed", "{pushed}");
    pushed["token"].as_u64().unwrap()
}

/// A gate that was not told of the store keeps the leases that it grants.
#[test]
fn leases_stay_where_the_gate_grants_them() {
    only_where(Place::has_gate, |place| {
        let world = place.world_before_a_store();
        let (a, b) = (world.agent("a"), world.agent("b"));
        push(&a, "main");
        assert_eq!(report(&b, &["store", "move", "remote", &place.engine().url])["code"], "FENCE-LEASE-INVALID");
        push(&a, "next");
    });
}

#[test]
fn leases_move_from_store_to_store() {
    let (from, to) = (Kind::Redis, Kind::Etcd);
    if from.is_lacking() || to.is_lacking() {
        return;
    }
    for remote in Remote::BOTH {
        let world = Place { kind: from, remote }.world();
        let [a, b] = ["a", "b"].map(|name| world.agent(name));
        let (from, to) = (&from.shared().url, &to.shared().url);
        keep_in(&a, from);
        keep_in(&b, from);
        a.ok(&["push", "origin", "HEAD:main"]);
        b.ok(&["acquire"]);
        assert_eq!(report(&a, &["store", "move", from, to])["exit_code"], 11);
        b.ok(&["release"]);
        assert_eq!(report(&a, &["store", "move", from, to])["outcome"], "moved");
        assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
        keep_in(&a, to);
        if remote == Remote::Gate {
            // It still asks the old store, and admits nobody.
            let early = report(&a, &["push", "origin", "HEAD:next"]);
            assert_eq!(early["outcome"], "refused", "{early}");
            world.configure("fence.store", to);
        }
        let landed = report(&a, &["push", "origin", "HEAD:next"]);
        assert_eq!(landed["outcome"], "landed", "{landed}");
        witness::assert_fenced(&world);
    }
}

/// The addresses of a store change, and then it gets a name of its own: clients that still use another one are refused.
#[test]
fn store_is_renamed_where_it_is() {
    everywhere(|place| {
        let world = place.world();
        let a = place.agent(&world, "a");
        let old = place.engine().url.clone();
        let new = format!("{old}{}name=prod", if old.contains('?') { "&" } else { "?" });
        a.ok(&["push", "origin", "HEAD:main"]);
        keep_in(&a, &new);
        let second = report(&a, &["acquire"]);
        assert_eq!((&second["exit_code"], &second["outcome"]), (&2.into(), &"kept-elsewhere".into()), "{second}");
        let renamed = report(&a, &["store", "move", &old, &new]);
        assert_eq!(renamed["outcome"], "moved", "{renamed}");
        assert!(renamed["store"].as_str().unwrap().ends_with(":prod"), "{renamed}");
        if place.has_gate() {
            world.configure("fence.store", &new);
        }
        assert_eq!(a.ok(&["push", "origin", "HEAD:next"]), "landed with token 3: refs/heads/next");
        keep_in(&a, &old);
        assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
        witness::assert_fenced(&world);
    });
}

/// In one Redis: by another prefix of its keys it is another store.
#[test]
fn each_prefix_is_a_store_of_its_own() {
    if Kind::Redis.is_lacking() {
        return;
    }
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    let url = &Kind::Redis.shared().url;
    keep_in(&a, url);
    a.ok(&["push", "origin", "HEAD:main"]);
    keep_in(&a, &format!("{url}?prefix=team-a:"));
    assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
    assert_eq!(report(&a, &["store", "move", url, &format!("{url}?prefix=team-a:")])["outcome"], "moved");
    assert_eq!(a.ok(&["push", "origin", "HEAD:next"]), "landed with token 3: refs/heads/next");
}

#[test]
fn fence_with_tokens_of_its_own_moves_into_a_store() {
    if Kind::Redis.is_lacking() {
        return;
    }
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let url = &Kind::Redis.shared().url;
    let own = |token: &str, branch: &str| a.code(&["push", "--token", token, "origin", &format!("HEAD:{branch}")]);
    assert_eq!(own("7", "main").0, 0);
    // No gate is needed to refuse a stale one.
    let (code, said) = own("7", "late");
    assert!(code == 1 && said.contains("FENCE-STALE token 7 is not above 7"), "{code}: {said}");
    assert_eq!(world.server_ref("refs/heads/late"), None);
    // One kind of tokens: leases are refused, in the remote and in a store.
    assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
    keep_in(&a, url);
    assert_eq!(report(&a, &["acquire"])["outcome"], "kept-elsewhere");
    assert_eq!(report(&a, &["store", "move", "own", url])["outcome"], "moved");
    assert_eq!(a.ok(&["acquire"]), "8");
    assert_eq!(own("9", "late").0, 2, "kept elsewhere now");
    assert_eq!(a.ok(&["push", "origin", "HEAD:next"]), "landed with token 8: refs/heads/next");
}

#[test]
fn mark_is_put_back_from_what_the_store_knows() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["push", "origin", "HEAD:main"]);
        a.ok(&["acquire"]);
        assert_eq!(
            report(&b, &["store", "init", "--mark"])["message"],
            "nothing was missing: the mark of fence 'repo' is at 1"
        );
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/fence/repo/mark"]));
        assert_eq!(report(&b, &["acquire"])["outcome"], "kept-elsewhere");
        let made = report(&b, &["store", "init", "--mark"]);
        assert_eq!(made["outcome"], "made", "{made}");
        // Nothing that was granted before counts any more, and the next one does.
        let (code, said) = a.code(&["push", "origin", "HEAD:late"]);
        assert!(code == 75 && world.server_ref("refs/heads/late").is_none(), "{code}: {said}");
        a.ok(&["release"]);
        assert_eq!(b.ok(&["acquire"]), "3");
        assert_eq!(b.ok(&["push", "origin", "+HEAD:main"]), "landed with token 3: refs/heads/main");
    });
}
