//! Schedules, with the lease in a store: the store's clock says what is due.

use super::{everywhere, keep_in};
use crate::support::{agents::Agent, runs::Background, signal, text, wait_until};
use std::{collections::BTreeMap, fs};

/// The outcome of a run for each tick of `every`.
#[track_caller]
fn outcome(agent: &Agent<'_>, every: &str, job: &str) -> String {
    let ran = agent.run(&["--every", every, "--job", job], "true").output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    agent.status()["outcome"].as_str().unwrap().to_owned()
}

/// Both machines fire every tick, one with a clock that is an hour ahead. One run is killed.
#[test]
fn each_tick_is_started_once() {
    everywhere(|place| {
        let world = place.world();
        let agents = place.agents(&world, ["a", "b"]);
        let (starts, hold, holding) = (world.path("starts"), world.path("hold"), world.path("holding"));
        let script = format!(
            "echo $GIT_FENCE_TICK >>{}; if [ -e {1} ]; then mv {1} {2}; sleep 600; fi",
            starts.display(),
            hold.display(),
            holding.display()
        );
        let started = || {
            let mut count: BTreeMap<String, u64> = BTreeMap::new();
            for tick in fs::read_to_string(&starts).unwrap_or_default().lines() {
                *count.entry(tick.to_owned()).or_default() += 1;
            }
            count
        };
        let fire = |agent: &Agent<'_>, offset: &str| {
            let options = ["--every", "3s", "--job", "nightly", "--ttl", "3s", "--skew", "1s"];
            Background::start(agent.run(&options, &script).env("GIT_FENCE_CLOCK_OFFSET", offset))
        };
        let end = |run: Background| {
            let ended = run.end();
            assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        };
        wait_until("some ticks were started", || {
            let runs = [fire(&agents[0], "3600"), fire(&agents[1], "0")];
            runs.into_iter().for_each(end);
            started().len() >= 3
        });
        fs::write(&hold, "").unwrap();
        let mut killed = fire(&agents[1], "0");
        wait_until("a tick is started", || {
            if !holding.exists() && killed.has_ended() {
                killed = fire(&agents[1], "0");
            }
            holding.exists()
        });
        signal(killed.pid(), "KILL");
        drop(killed);
        let lost = fs::read_to_string(&starts).unwrap().lines().last().unwrap().to_owned();
        wait_until("the next tick is started", || {
            end(fire(&agents[0], "3600"));
            started().len() >= 5
        });
        let started = started();
        assert!(started.values().all(|count| *count == 1), "{started:?}");
        let jobs: serde_json::Value = serde_json::from_str(&agents[0].ok(&["ticks", "--json"])).unwrap();
        let job = &jobs["jobs"][0];
        assert!(started.keys().any(|tick| *tick == lost) && job["state"] == "done", "{job}");
    });
}

#[test]
fn jobs_move_with_the_leases() {
    everywhere(|place| {
        let world = place.world_before_a_store();
        let (a, b) = (world.agent("a"), world.agent("b"));
        let url = place.engine().url.clone();
        assert_eq!(outcome(&a, "100d", "first"), "ran");
        if place.has_gate() {
            place.gate_asks(&world);
        }
        b.ok(&["store", "move", "remote", &url]);
        keep_in(&a, &url);
        assert_eq!(outcome(&a, "100d", "first"), "already-done");
        assert_eq!(outcome(&a, "100d", "second"), "ran");
        if place.has_gate() {
            place.gate_asks_no_more(&world);
        }
        world.agent("c").ok(&["store", "move", &url, "remote"]);
        keep_in(&a, "remote");
        for job in ["first", "second"] {
            assert_eq!(outcome(&a, "100d", job), "already-done", "{job}");
        }
    });
}
