//! Halted fences whose leases are in a store: nobody gets one, and nothing lands, until they are resumed.

use super::{
    agent_at, everywhere, in_one_of, on_its_way::stalled_push, only_where, record, revoking::cut_off, witness,
};
use crate::{
    halting::{assert_halted, twenty_runs_end_and_come_back},
    support::{agents::code_of, engines::Kind, proxy::Proxy, runs::Background, text, wait_until},
};

#[test]
fn halted_fence_admits_nobody_until_it_is_resumed() {
    everywhere(|place| {
        let world = place.world();
        let [a, b, boss] = place.agents(&world, ["a", "b", "boss"]);
        assert_eq!(boss.ok(&["resume", "--reason", "x"]), "fence 'repo' is not halted: nothing was changed");
        a.ok(&["acquire", "--owner", "agent a"]);
        let said = boss.ok(&["halt", "--owner", "boss", "--reason", "enough"]);
        assert_eq!(said, "halted fence 'repo'; 'agent a' held it, with token 1: no push with it has landed, or will");
        assert_halted(&a, &b);
        assert!(boss.ok(&["halt", "--reason", "again"]).ends_with("already: nothing was changed"));
        assert_eq!(world.server_ref("refs/heads/main"), None);
        let said = b.ok(&["resume", "--owner", "chief", "--reason", "go on"]);
        assert!(said.starts_with("resumed fence 'repo'; it was halted by 'boss' since "), "{said}");
        assert!(b.ok(&["log"]).contains("'chief' resumed it: 'go on'"));
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75, "it stays lost");
        assert_eq!(b.ok(&["acquire"]), "3");
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        let said = boss.ok(&["halt", "--owner", "boss", "--reason", "enough"]);
        assert!(said.ends_with("with token 3: its push with it has landed"), "{said}");
        witness::assert_fenced(&world);
    });
}

#[test]
fn halt_stops_a_push_that_is_on_its_way() {
    everywhere(|place| {
        let world = place.world();
        let [a, boss] = place.agents(&world, ["a", "boss"]);
        a.ok(&["acquire", "--owner", "agent a"]);
        let (push, slow) = stalled_push(place, &world, &a);
        let halt = Background::start(&mut boss.fence(&["halt", "--reason", "enough"]));
        slow.is_met_by(&halt, || halt.has_ended());
        assert_eq!(slow.ends(), place.has_gate());
        let (code, said) = code_of(&halt.end());
        assert_eq!(code, 0, "{said}");
        // What was in flight has landed, or never will, and the halt says which.
        let which =
            if place.has_gate() { "its push with it has landed" } else { "no push with it has landed, or will" };
        assert_eq!(said, format!("halted fence 'repo'; 'agent a' held it, with token 1: {which}\n"));
        let (code, said) = code_of(&push.end());
        assert_eq!(code, if place.has_gate() { 0 } else { 75 }, "{said}");
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75);
        assert_eq!(world.server_ref("refs/heads/main"), None);
        witness::assert_fenced(&world);
    });
}

/// It stops everybody who asks the store. What was on its way is stopped when the command is repeated.
#[test]
fn halt_without_the_remote_says_so_and_is_completed_later() {
    everywhere(|place| {
        for lands_first in [true, false] {
            let world = place.world();
            let [a, b, boss] = place.agents(&world, ["a", "b", "boss"]);
            a.ok(&["acquire"]);
            let (push, slow) = stalled_push(place, &world, &a);
            cut_off(&boss, true);
            for _ in 0..2 {
                let (code, said) = boss.code(&["halt", "--reason", "enough"]);
                assert_eq!(code, 0, "{said}");
                let open =
                    "halted in the store only: a push in flight may still land, until this command succeeds again";
                assert!(said.contains(open) && said.contains("cannot reach"), "{said}");
                assert!(record(&world, &place.engine().url)["barrier"].is_u64());
            }
            assert_eq!(a.code(&["renew"]).0, 12, "the store knows");
            cut_off(&boss, false);
            let landed = lands_first || place.has_gate();
            if lands_first {
                assert!(slow.ends());
            }
            let halt = Background::start(&mut boss.fence(&["halt", "--reason", "enough"]));
            if !lands_first {
                slow.is_met_by(&halt, || halt.has_ended());
                assert_eq!(slow.ends(), landed);
            }
            let (code, said) = code_of(&halt.end());
            assert_eq!((code, said.contains("may still land")), (0, false), "{said}");
            assert!(record(&world, &place.engine().url)["barrier"].is_null());
            let (code, said) = code_of(&push.end());
            assert_eq!(code, if landed { 0 } else { 75 }, "{said}");
            assert!(boss.ok(&["halt", "--reason", "x"]).ends_with("already: nothing was changed"));
            boss.ok(&["resume", "--reason", "go on"]);
            b.ok(&["push", "origin", "HEAD:main"]);
            witness::assert_fenced(&world);
        }
    });
}

#[test]
fn live_run_ends_its_command_within_a_heartbeat() {
    everywhere(|place| {
        let world = place.world();
        let [a, boss] = place.agents(&world, ["a", "boss"]);
        let inside = world.path("inside");
        let script = format!("echo >{}; exec sleep 1000", inside.display());
        let run = Background::start(&mut a.run(&["--ttl", "9s"], &script));
        wait_until("it runs", || inside.exists());
        boss.ok(&["halt", "--owner", "boss", "--reason", "enough"]);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(a.status()["outcome"], "halted", "{}", text(&ended.stderr));
    });
}

#[test]
fn twenty_live_runs_end_and_come_back() {
    let kinds = in_one_of(&[Kind::Etcd, Kind::Postgres, Kind::Redis]);
    only_where(
        |place| kinds(place) && place.has_no_gate(),
        |place| {
            let world = place.world();
            twenty_runs_end_and_come_back(&world, |name| place.agent(&world, name).name);
        },
    );
}

/// Whichever of its answers is lost: what is said is true, and the fence is halted, or resumed.
#[test]
fn halt_whose_answer_the_engine_loses_is_settled() {
    everywhere(|place| {
        let engine = place.engine();
        let proxy = Proxy::to(engine.port());
        for nth in 1.. {
            let world = place.world();
            let [a, b, boss] = ["a", "b", "boss"].map(|name| agent_at(&world, name, &engine.url_at(proxy.port())));
            a.ok(&["acquire"]);
            let mut cuts = 0;
            for (command, code) in [("halt", 12), ("resume", 12)] {
                proxy.cut_answer(nth);
                let (done, said) = boss.code(&[command, "--reason", "x"]);
                cuts += usize::from(proxy.has_cut());
                proxy.cut_answer(0);
                assert_eq!(done, 0, "{command}, answer {nth}: {said}");
                assert_eq!(a.code(&["renew"]).0, code);
                let state = &record(&world, &engine.url)["lease"]["lease"]["state"];
                assert_eq!(
                    *state,
                    if command == "halt" { "halted" } else { "released" },
                    "{command}, answer {nth}: {said}"
                );
            }
            b.ok(&["push", "origin", "HEAD:main"]);
            witness::assert_fenced(&world);
            if cuts == 0 {
                assert!(nth > 2, "no answer was cut");
                break;
            }
        }
    });
}

/// A halt would be forgotten on the way.
#[test]
fn halted_fence_does_not_move() {
    only_where(
        |place| place.has_no_gate(),
        |place| {
            let world = place.world();
            let [boss] = place.agents(&world, ["boss"]);
            boss.ok(&["halt", "--reason", "enough"]);
            let (code, said) = boss.code(&["store", "move", &place.engine().url, "remote"]);
            assert_eq!(code, 11, "{said}");
            assert!(said.contains("is halted by"), "{said}");
            assert_eq!(boss.code(&["acquire"]).0, 11);
        },
    );
}
