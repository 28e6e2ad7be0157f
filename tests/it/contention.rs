//! Many clients on one fence at the same time: a client that does not get the lease is told that it is held or busy,
//! and nothing else; a client that waits gets it.

use crate::support::{
    Running, World,
    agents::{Agent, Remote, code_of},
    any_git, sh,
};
use std::{collections::BTreeMap, fs, thread};

fn agents(world: &World, count: usize) -> Vec<Agent<'_>> {
    (0..count).map(|n| world.agent(&format!("agent{n}"))).collect()
}

/// All agents at once run `script` that many times in a row. Returns the outcome and output of each run.
fn outcomes(agents: &[Agent<'_>], rounds: usize, options: &[&str], script: &str) -> Vec<(String, String)> {
    thread::scope(|scope| {
        let each = agents.iter().map(|agent| {
            scope.spawn(move || {
                let run = |_| {
                    let (code, said) = code_of(&agent.run(options, script).output().unwrap());
                    let status = agent.status();
                    assert_eq!(status["exit_code"], code, "{status}: {said}");
                    (status["outcome"].as_str().unwrap().to_owned(), said)
                };
                (0..rounds).map(run).collect::<Vec<_>>()
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// A script that reports if it was not alone, and pushes.
fn alone(world: &World) -> String {
    let (inside, both) = (sh(world.path("in")), sh(world.path("both")));
    let push = "git commit -q --allow-empty -m more && git push -q origin HEAD:refs/heads/$GIT_FENCE_OWNER";
    format!("mkdir {inside} || touch {both}; {push}; code=$?; rmdir {inside}; exit $code")
}

#[test]
fn every_waiting_client_gets_the_lease_under_contention() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let agents = agents(&world, 8);
        let wait = ["--if-held", "wait", "--wait", "1h"];
        for (outcome, said) in outcomes(&agents, 2, &wait, &alone(&world)) {
            assert_eq!(outcome, "ran", "{remote:?}: {said}");
        }
        assert!(!world.path("both").exists(), "{remote:?}: two ran at once");
        // One to acquire, one to push.
        assert_eq!(world.lease_token(), 2 * (8 + 8), "{remote:?}");
        if remote == Remote::Gate {
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn client_that_does_not_wait_gets_held_or_busy_and_nothing_else() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let agents = agents(&world, 12);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (outcome, said) in outcomes(&agents, 6, &[], "true") {
            assert!(["ran", "skipped", "busy"].contains(&&*outcome), "{remote:?}: {outcome}: {said}");
            *counts.entry(outcome).or_default() += 1;
        }
        assert!(counts["ran"] > 0, "{remote:?}: {counts:?}");
        assert!(!world.path("both").exists());
    }
}

/// Another push is stalled behind the gate.
#[test]
fn gate_busy_until_the_end_of_the_wait_is_reported_as_busy() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "300ms");
    world.configure("fence.exempt", "tester");
    let agent = world.agent("a");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let slow = Running::start(&mut world.push_command(&["HEAD:refs/heads/slow"], &[]));
    world.pid_in("stalled");
    for options in [&[][..], &["--if-held", "wait", "--wait", "1s"]] {
        let (code, said) = code_of(&agent.run(options, "true").output().unwrap());
        let status = agent.status();
        assert_eq!((code, &status["outcome"]), (69, &"busy".into()), "{said}");
        assert_eq!(status["retryable"], true, "{status}");
        assert!(said.contains("error: fence 'repo' is busy") && !said.contains("reached"), "{said}");
    }
    for args in [&["acquire", "--json"][..], &["push", "--json", "origin", "HEAD:refs/heads/b"]] {
        let (code, said) = agent.code(args);
        assert_eq!(code, 69, "{said}");
        let says = |json: &str| said.contains(json);
        assert!(says(r#"{"outcome":"busy","code":"FENCE-BUSY","#) && says(r#""retryable":true"#), "{said}");
    }
    world.go();
    slow.wait().assert_landed();
    assert_eq!(code_of(&agent.run(&[], "true").output().unwrap()).0, 0);
}

/// Two clients at the same moment may both find the refs locked, and both fail: then nothing has moved, and
/// neither was refused.
#[test]
fn refs_locked_by_another_process_are_busy() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    agent.ok(&["acquire"]);
    agent.ok(&["release"]);
    let lock = world.server().join("refs/fence/repo/lease.lock");
    fs::write(&lock, "").unwrap();
    let (code, said) = code_of(&agent.run(&[], "true").output().unwrap());
    assert_eq!((code, &agent.status()["outcome"]), (69, &"busy".into()), "{said}");
    fs::remove_file(&lock).unwrap();
    assert_eq!(code_of(&agent.run(&[], "true").output().unwrap()).0, 0);
}
