//! Who runs and who does not.

use super::{everywhere, record, witness};
use crate::support::{agents::Agent, runs::Background, text};
use std::{fs, thread};

#[test]
fn one_of_two_concurrent_runs_works_and_the_other_skips() {
    everywhere(|place| {
        let world = place.world();
        let agents = place.agents(&world, ["a", "b"]);
        let (inside, both) = (world.path("in"), world.path("both"));
        for round in 1..=20 {
            // The one that runs stays until the other has skipped.
            let script = |other: &Agent<'_>| {
                format!(
                    "mkdir {0} || touch {1}; until grep -q skipped {2}; do sleep 0.01; done; rmdir {0}",
                    inside.display(),
                    both.display(),
                    world.path(&format!("{}.json", other.name)).display()
                )
            };
            for agent in &agents {
                let _ = fs::remove_file(world.path(&format!("{}.json", agent.name)));
            }
            let runs = [agents[0].run(&[], &script(&agents[1])), agents[1].run(&[], &script(&agents[0]))];
            for run in runs.map(|mut run| Background::start(&mut run)) {
                let ended = run.end();
                assert_eq!(ended.status.code(), Some(0), "{round}: {}", text(&ended.stderr));
            }
            assert!(!both.exists(), "both ran at once in round {round}");
            let outcomes = agents.each_ref().map(Agent::status);
            let ran = outcomes.iter().position(|status| status["outcome"] == "ran").expect("one ran");
            let other = &outcomes[1 - ran];
            assert_eq!(other["outcome"], "skipped", "{other}");
            assert_eq!(other["holder"]["owner"], agents[ran].name, "{other}");
            assert_eq!(other["holder"]["token"], outcomes[ran]["token"], "{other}");
        }
        assert_eq!(record(&world, &place.engine().url)["lease"]["lease"]["token"], 20);
    });
}

#[test]
fn everybody_who_waits_gets_a_turn() {
    everywhere(|place| {
        let world = place.world();
        let agents = place.agents(&world, ["a", "b", "c"]);
        let (inside, both) = (world.path("in"), world.path("both"));
        let script = format!(
            "mkdir {0} || touch {1}; git push -q origin +HEAD:refs/heads/$GIT_FENCE_OWNER; code=$?; rmdir {0}; exit $code",
            inside.display(),
            both.display()
        );
        thread::scope(|scope| {
            for agent in &agents {
                scope.spawn(|| {
                    let ran = agent.run(&["--if-held", "wait", "--wait", "10m"], &script).output().unwrap();
                    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
                    assert_eq!(agent.status()["outcome"], "ran");
                });
            }
        });
        assert!(!both.exists(), "two ran at once");
        assert_eq!(witness::tokens(&world).len(), agents.len());
        witness::assert_fenced(&world);
    });
}
