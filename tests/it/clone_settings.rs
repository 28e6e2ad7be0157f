//! Defaults of `git fence` from the clone's git configuration.

use crate::support::{World, agents::Remote, any_git, text};

fn set(world: &World, key: &str, value: &str) {
    world.ok(world.git("a").args(["config", key, value]));
}

#[test]
fn flags_that_are_not_given_come_from_the_configuration() {
    let world = Remote::Gate.world(&any_git());
    let agent = world.agent("a");
    set(&world, "fence.owner", "nightly@host-3");
    set(&world, "fence.ttl", "10m");
    agent.ok(&["acquire"]);
    assert_eq!((world.lease("Owner"), world.lease("TTL")), ("nightly@host-3".to_owned(), "600s".to_owned()));
    // Who asks is the same in what programs read.
    let status: serde_json::Value = serde_json::from_str(&agent.ok(&["status", "--json"])).unwrap();
    assert_eq!(status["owner"], "nightly@host-3");
    agent.ok(&["release"]);
    agent.ok(&["acquire", "--owner", "me", "--ttl", "2m"]);
    assert_eq!((world.lease("Owner"), world.lease("TTL")), ("me".to_owned(), "120s".to_owned()));
}

#[test]
fn what_to_do_if_the_lease_is_held_comes_from_the_configuration() {
    let world = Remote::Bare.world(&any_git());
    let agent = world.agent("a");
    world.agent("b").ok(&["acquire", "--ttl", "1h"]);
    set(&world, "fence.ifHeld", "fail");
    assert_eq!(agent.code(&["run", "--", "true"]).0, 11);
    assert_eq!(agent.code(&["run", "--if-held", "skip", "-E", "9", "--", "true"]).0, 9, "a flag counts more");
    let ran = agent.run(&["--wait", "1s"], "true").output().unwrap();
    assert_eq!(agent.status()["outcome"], "timed-out", "so does --wait: {}", text(&ran.stderr));
}

#[test]
fn bad_value_is_wrong_usage_that_names_the_setting() {
    for (key, value) in
        [("fence.ttl", "soon"), ("fence.ttl", "3650d"), ("fence.ifHeld", "explode"), ("fence.owner", "\u{7}")]
    {
        let world = Remote::Bare.world(&any_git());
        let agent = world.agent("a");
        set(&world, key, value);
        let (code, said) = agent.code(&["run", "--", "true"]);
        assert!(code == 2 && said.contains(key) && said.contains("hint: "), "{key} = {value}: {code}: {said}");
        assert_eq!(world.server_ref("refs/fence/repo/lease"), None);
    }
}

#[test]
fn doctor_knows_the_settings_of_clones() {
    let world = Remote::Gate.world(&any_git());
    let findings = || world.ok(world.hook_program().args(["doctor", "--json"]).arg(world.server()));
    world.ok(world.git("server.git").args(["config", "fence.owner", "me"]));
    world.ok(world.git("server.git").args(["config", "fence.ifheld", "wait"]));
    assert!(!findings().contains("setting-unknown"), "{}", findings());
}
