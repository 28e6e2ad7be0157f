//! A holder whose clock is far ahead, without a gate: by the deadline in its heartbeat it would hold the lease long
//! after its death. A deadline in the future counts only if the heartbeat was seen to change.

use crate::support::{
    World,
    agents::{Agent, code_of},
    any_git, sh, wait_until,
};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

/// A dead holder whose clock is an hour ahead.
fn dead_holder<'w>(world: &'w World, ttl: &str) -> Agent<'w> {
    let holder = world.agent("holder");
    let mut acquire = holder.fence(&["acquire", "--owner", "holder", "--ttl", ttl]);
    world.ok(acquire.env("GIT_FENCE_CLOCK_OFFSET", "3600"));
    holder
}

#[test]
fn waiting_fresh_clone_takes_over_from_a_dead_holder() {
    let world = World::bare(&any_git(), &[]);
    dead_holder(&world, "3s");
    let fresh = world.agent("fresh");
    // Less than it takes to see that the heartbeat does not change.
    let (code, said) =
        code_of(&fresh.run(&["--if-held", "wait", "--wait", "1s", "--skew", "0s"], "true").output().unwrap());
    assert_eq!((code, &fresh.status()["outcome"]), (0, &"ran".into()), "{said}");
    assert!(said.contains("note: the clock of 'holder' is ahead"), "{said}");
    assert_eq!((world.lease("Reason").as_str(), world.lease("State").as_str()), ("expired", "released"));
}

#[test]
fn skipping_clone_remembers_the_heartbeat_it_saw() {
    let world = World::bare(&any_git(), &[]);
    dead_holder(&world, "2s");
    let later = world.agent("later");
    let (code, said) = later.code(&["acquire", "--skew", "0s"]);
    assert_eq!(code, 11, "{said}");
    assert!(said.contains("for another 2 s"), "it does not wait for an hour: {said}");
    wait_until("its next attempt succeeds", || {
        let ran = later.run(&["--skew", "0s"], "true").output().unwrap();
        assert!(ran.status.success());
        later.status()["outcome"] == "ran"
    });
}

struct Holding(Child);

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

#[test]
fn live_holder_keeps_its_lease_however_far_ahead_its_clock_is() {
    let world = World::bare(&any_git(), &[]);
    let (holder, other) = (world.agent("holder"), world.agent("other"));
    let (inside, go) = (world.path("inside"), world.path("go"));
    let script = format!("touch {}; until [ -e {} ]; do sleep 0.02; done", sh(&inside), sh(&go));
    let mut run = holder.run(&["--ttl", "20s"], &script);
    run.env("GIT_FENCE_CLOCK_OFFSET", "3600").stdout(Stdio::null()).stderr(Stdio::null());
    let _holding = Holding(run.spawn().unwrap());
    wait_until("it holds the lease", || inside.exists());
    let waits = other.run(&["--if-held", "wait", "--wait", "1s", "--skew", "0s"], "true").output();
    fs::write(go, "").unwrap();
    let (code, said) = code_of(&waits.unwrap());
    assert_eq!((code, &other.status()["outcome"]), (0, &"timed-out".into()), "{said}");
    wait_until("it has ended", || holder.status()["exit_code"].is_number());
    assert_eq!(holder.status()["outcome"], "ran");
}

/// The observer's clock was ahead too, until it was corrected and the machine rebooted.
#[test]
fn observation_stamped_in_the_future_is_replaced() {
    let world = World::bare(&any_git(), &[]);
    dead_holder(&world, "1s");
    let later = world.agent("later");
    assert_eq!(later.code(&["acquire", "--skew", "0s"]).0, 11);
    let files = fs::read_dir(later.path(".git/git-fence")).unwrap().map(|entry| entry.unwrap().path());
    let is_memory = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("watched-");
    let memory: Vec<PathBuf> = files.filter(is_memory).collect();
    let mut watched: serde_json::Value = serde_json::from_slice(&fs::read(&memory[0]).unwrap()).unwrap();
    let ahead = watched["since"]["unix_ms"].as_u64().unwrap() + 3_600_000;
    watched["since"] = serde_json::json!({ "boot": "before", "uptime_ms": 1, "unix_ms": ahead });
    fs::write(&memory[0], watched.to_string()).unwrap();
    wait_until("its next attempt succeeds", || later.code(&["acquire", "--skew", "0s"]).0 == 0);
}
