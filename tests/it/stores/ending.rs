//! Runs and pushes that are killed or stopped.

use super::{everywhere, on_its_way::killed_push, record, witness};
use crate::support::{
    World,
    agents::code_of,
    engines::Engine,
    runs::{Background, go, holding, take_over, wait_for, word},
    signal, text, wait_until,
};
use std::{fs, path::Path};

fn state(world: &World, engine: &Engine) -> String {
    record(world, &engine.url)["lease"]["lease"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn next_run_starts_when_the_lease_of_a_killed_run_expires() {
    everywhere(|place| {
        let world = place.world();
        let [first, next] = place.agents(&world, ["first", "next"]);
        let inside = world.path("inside");
        let script = format!("{}; exec sleep 1000", word(&inside));
        let run = Background::start(&mut first.run(&["--ttl", "2s"], &script));
        wait_until("it runs", || inside.exists());
        let pid = fs::read_to_string(&inside).unwrap().trim().to_owned();
        signal(run.pid(), "KILL");
        wait_until("its command is gone", || !Path::new("/proc").join(&pid).join("exe").exists());
        run.end();
        take_over(&next, &[], "git push -q origin HEAD:main");
        let record = record(&world, &place.engine().url);
        assert_eq!(record["lease"]["lease"]["reason"], "expired", "{record}");
        assert_eq!(witness::tokens(&world), [2]);
        witness::assert_fenced(&world);
    });
}

/// What was sent was stored before it was sent, and the next command finds out.
#[test]
fn client_killed_during_a_push_finds_out_what_became_of_it() {
    everywhere(|place| {
        let world = place.world();
        let [a] = place.agents(&world, ["a"]);
        a.ok(&["acquire"]);
        let slow = killed_push(place, &world, &a);
        assert!(slow.ends());
        assert_eq!(a.ok(&["push", "origin", "HEAD:refs/heads/next"]), "landed with token 2: refs/heads/next");
        a.ok(&["release"]);
        witness::assert_fenced(&world);
    });
}

/// The same, and the push that was on its way has not landed when the holder gives the lease back.
#[test]
fn release_stops_a_push_that_is_on_its_way() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        let slow = killed_push(place, &world, &a);
        let release = Background::start(&mut a.fence(&["release"]));
        slow.is_met_by(&release, || release.has_ended());
        assert_eq!(slow.ends(), place.has_gate());
        let (code, said) = code_of(&release.end());
        assert_eq!((code, said.as_str()), (0, "released after token 1\n"));
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 2: refs/heads/main");
        witness::assert_fenced(&world);
    });
}

/// The remote cannot be reached at the release: the next holder puts up the barrier instead.
#[test]
fn release_without_the_remote_leaves_the_barrier_to_the_next_holder() {
    everywhere(|place| {
        let world = place.world();
        let [a, b] = place.agents(&world, ["a", "b"]);
        a.ok(&["acquire"]);
        let slow = killed_push(place, &world, &a);
        // Only for the holder: its push is in the repository already.
        world.ok(a.git().args(["config", "remote.origin.receivepack", "false"]));
        world.ok(a.git().args(["config", "remote.origin.uploadpack", "false"]));
        let (code, said) = a.code(&["release"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(record(&world, &place.engine().url)["barrier"], 1);
        let next = Background::start(&mut b.fence(&["acquire"]));
        slow.is_met_by(&next, || next.has_ended());
        assert_eq!(slow.ends(), place.has_gate(), "the barrier is up before the next holder works");
        assert_eq!(code_of(&next.end()), (0, "2\n".to_owned()));
        assert_eq!(record(&world, &place.engine().url)["barrier"], serde_json::Value::Null);
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 2: refs/heads/main");
        witness::assert_fenced(&world);
    });
}

#[test]
fn stalled_command_is_ended_and_the_lease_released() {
    everywhere(|place| {
        let world = place.world();
        let [wedged, next] = place.agents(&world, ["wedged", "next"]);
        let script = format!("git fence progress 'page 1 of 9'; {}; exec sleep 1000", word(&world.path("inside")));
        let ended = wedged.run(&["--stall-after", "1s"], &script).output().unwrap();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(wedged.status()["outcome"], "stalled");
        let pid = fs::read_to_string(world.path("inside")).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).join("exe").exists());
        assert_eq!(state(&world, place.engine()), "released");
        assert_eq!(code_of(&next.run(&[], "true").output().unwrap()).0, 0);
        assert_eq!(next.status()["outcome"], "ran");
    });
}

#[test]
fn progress_is_sent_with_the_heartbeat() {
    everywhere(|place| {
        let world = place.world();
        let [agent] = place.agents(&world, ["a"]);
        let rest = format!("git fence progress 'page 3 of 9'\n{}", wait_for(&world.path("seen")));
        let run = holding(&agent, &["--ttl", "15s", "--stall-after", "5m"], &rest);
        go(&world);
        wait_until("the beat shows the progress", || {
            record(&world, &place.engine().url)["beat"]["progress"] == "page 3 of 9"
        });
        fs::write(world.path("seen"), "").unwrap();
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert_eq!(state(&world, place.engine()), "released");
    });
}
