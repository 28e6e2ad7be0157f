//! Answers that are lost between the client and the remote: what the client says is true, and the next push lands.

use super::{agent_at, everywhere, on_its_way::stalled_push, witness};
use crate::support::{
    World,
    agents::{Agent, code_of},
    fixture,
    needs::{Need, lacks},
    proxy::Proxy,
    runs::Background,
    sh, signal, text, wait_until,
};
use std::fs;

/// The server dies at `when` in the next push of a branch, once.
const ONCE: &str = "[ -e armed ] || exit 0; rm armed; kill -9 $PPID";

#[test]
fn answer_that_the_remote_loses_is_settled_and_not_guessed() {
    everywhere(|place| {
        for landed in [false, true] {
            let world = place.world();
            let [a] = place.agents(&world, ["a"]);
            a.ok(&["acquire"]);
            if landed {
                witness::watch(&world, &format!("[ \"$1\" = committed ] || exit 0; {ONCE}"));
            } else {
                world.write_hook("update", ONCE);
            }
            fs::write(world.server().join("armed"), "").unwrap();
            let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/main"]);
            assert!(!world.server().join("armed").exists());
            assert_eq!(world.server_ref("refs/heads/main").is_some(), landed, "{said}");
            assert_eq!(code, if landed { 0 } else { 1 }, "{said}");
            assert_eq!(said.contains("did not land"), !landed, "{said}");
            // We hold the lease, and the next push lands.
            let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/next"]);
            assert_eq!(code, 0, "{said}");
            a.ok(&["release"]);
            assert_eq!(witness::tokens(&world).last(), Some(&2));
            witness::assert_fenced(&world);
        }
    });
}

/// The connection is cut while the server goes on slowly. The touch that settles the push comes first, or waits at the gate.
#[test]
fn push_whose_connection_was_cut_does_not_land_after_it_was_settled() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["acquire"]);
        let (push, slow) = stalled_push(place, &world, &a);
        signal(push.git_push(), "KILL");
        slow.is_met_by(&push, || push.has_ended());
        let landed = slow.ends();
        let (code, said) = code_of(&push.end());
        assert_eq!(landed, place.has_gate(), "{said}");
        assert_eq!((code, said.contains("did not land")), if landed { (0, false) } else { (1, true) }, "{said}");
        assert_eq!(said.contains("landed with token 1: refs/heads/slow"), landed, "{said}");
        assert_eq!(a.ok(&["push", "origin", "HEAD:refs/heads/next"]), "landed with token 2: refs/heads/next");
        witness::assert_fenced(&world);
    });
}

/// A server that fails as planned; after that it works.
fn fickle(agent: &Agent<'_>, plan: &str) {
    let words = agent.path("../plan");
    fs::write(&words, plan.replace(' ', "\n")).unwrap();
    let program = format!("FICKLE_PLAN={} {}", sh(&words), sh(fixture("fickle-receive-pack.py")));
    agent.world.ok(agent.git().args(["config", "remote.origin.receivepack", &program]));
}

#[test]
fn every_way_to_lose_an_answer_of_the_remote_is_told_truly() {
    if lacks(&[Need::Python]) {
        return;
    }
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["acquire"]);
        // What happens to the push, and then to what settles it; and the codes of this push and of the next one.
        for (n, (plan, landed, codes)) in [
            ("lost", true, [0, 0]),
            ("cut", false, [1, 0]),
            ("down", false, [69, 0]),
            ("lost down", true, [69, 0]),
            ("cut down", false, [69, 0]),
            ("lost lost", true, [0, 0]),
            ("cut lost", false, [69, 0]),
            ("cut down down", false, [69, 69]),
        ]
        .into_iter()
        .enumerate()
        {
            fickle(&a, plan);
            let branch = format!("HEAD:refs/heads/b{n}");
            let (code, said) = a.code(&["push", "origin", &branch]);
            assert_eq!(code, codes[0], "{plan}: {said}");
            assert_eq!(world.server_ref(&format!("refs/heads/b{n}")).is_some(), landed, "{plan}: {said}");
            let (code, said) = a.code(&["push", "origin", &format!("{branch}-next")]);
            assert_eq!(code, codes[1], "{plan}: {said}");
            fickle(&a, "");
        }
        a.ok(&["push", "origin", "HEAD:last"]);
        a.ok(&["release"]);
        witness::assert_fenced(&world);
    });
}

/// What was sent is kept until its outcome is known, no matter who holds the lease by then.
#[test]
fn lost_push_is_found_in_the_history_of_marks_after_a_takeover() {
    if lacks(&[Need::Python]) {
        return;
    }
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire", "--ttl", "1s"]);
        fickle(&a, "lost down");
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 69);
        wait_until("it has expired", || b.code(&["acquire", "--skew", "0s", "--owner", "bob"]).0 == 0);
        // A history that is longer than what is fetched at first.
        for n in 0..3 {
            b.ok(&["push", "origin", &format!("HEAD:refs/heads/b{n}")]);
        }
        let (code, said) = a.code(&["push", "origin", "HEAD:other"]);
        assert_eq!(code, 75, "{said}");
        assert!(said.contains("'bob' holds it"), "{said}");
        assert_eq!(world.server_ref("refs/heads/other"), None);
        witness::assert_fenced(&world);
    });
}

/// The first run makes mark and lease, and the answer to that is lost.
#[test]
fn first_mark_whose_answer_was_lost_is_found() {
    if lacks(&[Need::Python]) {
        return;
    }
    everywhere(|place| {
        for plan in ["lost", "cut", "lost lost", "cut lost"] {
            let world = place.world();
            let [a] = place.agents(&world, ["a"]);
            fickle(&a, plan);
            let (code, said) = a.code(&["acquire"]);
            assert_eq!(code, 0, "{plan}: {said}");
            assert_eq!(a.ok(&["push", "origin", "HEAD:main"]), "landed with token 1: refs/heads/main");
            assert_eq!(witness::marks(&world).len(), 2, "{plan}");
            witness::assert_fenced(&world);
        }
    });
}

/// Everything that the engine answers during every command is lost once.
#[test]
fn answers_that_the_engine_loses_are_settled() {
    everywhere(|place| {
        let engine = place.engine();
        let proxy = Proxy::to(engine.port());
        let world = place.world();
        let a = agent_at(&world, "a", &engine.url_at(proxy.port()));
        let mut tokens = Vec::new();
        for nth in 1.. {
            let cuts = plays_with(&world, &a, nth, &proxy, &mut tokens);
            if cuts == 0 {
                assert!(nth > 2, "no answer was cut");
                break;
            }
        }
        assert_eq!(witness::tokens(&world), tokens);
        witness::assert_fenced(&world);
    });
}

/// Cuts the `nth` answer in each of the commands. Returns in how many there was one.
fn plays_with(world: &World, a: &Agent<'_>, nth: i64, proxy: &Proxy, tokens: &mut Vec<u64>) -> usize {
    let mut cuts = 0;
    let push = ["push", "--json", "origin", "+HEAD:refs/heads/main"];
    for args in [&["acquire"][..], &push, &["renew"], &["advance"], &push, &push, &["release"], &push] {
        world.ok(a.git().args(["commit", "-q", "--allow-empty", "-m", "more"]));
        proxy.cut_answer(nth);
        let ran = a.fence(args).output().unwrap();
        cuts += usize::from(proxy.has_cut());
        let said = text(&ran.stdout);
        assert_eq!(ran.status.code(), Some(0), "{args:?}, answer {nth}: {said}{}", text(&ran.stderr));
        if args[0] == "push" {
            let report: serde_json::Value = serde_json::from_str(&said).unwrap();
            tokens.push(report["token"].as_u64().unwrap());
            let here = world.ok(a.git().args(["rev-parse", "HEAD"]));
            assert_eq!(world.server_ref("refs/heads/main"), Some(here), "{report}");
        }
    }
    cuts
}

/// Whatever the engine has done by then: whoever comes next gets its turn, and so does the client itself.
#[test]
fn client_killed_at_any_answer_of_the_engine_keeps_nobody_out() {
    everywhere(|place| {
        let engine = place.engine();
        let proxy = Proxy::to(engine.port());
        let world = place.world();
        let [a, next] = ["a", "next"].map(|name| agent_at(&world, name, &engine.url_at(proxy.port())));
        world.ok(a.git().args(["config", "fence.ttl", "1s"]));
        for nth in 1.. {
            world.ok(a.git().args(["commit", "-q", "--allow-empty", "-m", "more"]));
            proxy.swallow_answer(nth);
            let push = Background::start(&mut a.fence(&["push", "origin", "HEAD:refs/heads/main"]));
            wait_until("it waits for the answer", || proxy.has_cut() || push.has_ended());
            let is_killed = proxy.has_cut();
            if is_killed {
                signal(push.program("push"), "KILL");
            }
            let (code, said) = code_of(&push.end());
            assert_eq!(code == 0, !is_killed, "answer {nth}: {said}");
            proxy.cut_answer(0);
            wait_until("the next one has its turn", || next.code(&["acquire", "--skew", "0s"]).0 == 0);
            next.ok(&["push", "origin", &format!("HEAD:refs/heads/next{nth}")]);
            next.ok(&["release"]);
            if !is_killed {
                assert!(nth > 4, "it was killed {nth} times");
                break;
            }
        }
        let here = world.ok(a.git().args(["rev-parse", "HEAD"]));
        assert_eq!(world.server_ref("refs/heads/main"), Some(here));
        witness::assert_fenced(&world);
    });
}
