//! Asking for a lease is not pushing: the log, the figures and the alerts tell the two apart. A holder that lost its lease and
//! pushes nevertheless has one line, with what it was told and what it wanted to move.

use crate::support::{World, agents::Remote, any_git, gits, wait_until};
use serde_json::Value;

fn figures(world: &World) -> Value {
    serde_json::from_str(&world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()))).unwrap()
}

fn metric(world: &World, name: &str, labels: &str) -> String {
    let page = world.ok(world.hook_program().args(["stats", "--prometheus"]).arg(world.server()));
    let is_meant = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(labels);
    page.lines().find(is_meant).and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned()).unwrap()
}

/// A skipped run, and a first grant that had to learn the mark.
#[test]
fn skips_and_grants_are_no_pushes() {
    let world = World::new(&any_git());
    world.ok(world.hook_program().args(["raise", "--to", "41", "--reason", "x"]).arg(world.server()));
    let (a, b) = (world.agent("a"), world.agent("b"));
    a.ok(&["acquire"]);
    for _ in 0..2 {
        world.ok(&mut b.run(&[], "exit 1"));
    }
    let codes: Vec<_> = world.events("lease.refused").iter().map(|line| line["code"].clone()).collect();
    assert_eq!(codes, ["FENCE-STALE", "FENCE-LEASE-HELD", "FENCE-LEASE-HELD"]);
    assert_eq!(world.events("push.rejected").len(), 0);
    let rejected = world.ok(world.hook_program().args(["audit", "--rejected", "--json"]).arg(world.server()));
    assert_eq!(rejected, "", "no push was refused");

    let figures = figures(&world);
    let (pushes, leases) = (&figures["pushes"], &figures["leases"]);
    for (name, count) in [("accepted", 0), ("refused", 0), ("moved", 0), ("unmoved", 0), ("unsettled", 0)] {
        assert_eq!(pushes[name], count, "{name} of {pushes}");
    }
    for (name, count) in [("asked", 4), ("granted", 1), ("refused", 3), ("found_held", 2)] {
        assert_eq!(leases[name], count, "{name} of {leases}");
    }
    let stale = "code=\"FENCE-STALE\"";
    assert_eq!(metric(&world, "git_fence_pushes_refused_total", stale), "0", "the alert stays quiet");
    assert_eq!(metric(&world, "git_fence_lease_refused_total", stale), "1");

    // A push is a push, with a lease or without.
    a.ok(&["push", "origin", "HEAD:refs/heads/main"]);
    assert_eq!(self::figures(&world)["pushes"]["accepted"], 1);
    world.push_token("main", "99").assert_refused("FENCE-LEASE-REQUIRED");
    assert_eq!(world.events("push.rejected").len(), 1);
    world.assert_log_is_whole();
}

/// Its successor holds the lease, or has released it: the zombie is told the same, and the log has it once.
#[test]
fn zombie_has_one_line_with_its_code_and_refs() {
    for git in gits() {
        for successor_releases in [false, true] {
            let world = Remote::Gate.world(&git);
            let (a, b) = (world.agent("a"), world.agent("b"));
            a.ok(&["acquire", "--owner", "zombie", "--ttl", "2s"]);
            wait_until("the lease has expired", || b.code(&["acquire", "--owner", "bob"]).0 == 0);
            let token = world.lease_token();
            if successor_releases {
                b.ok(&["release"]);
            }
            let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/main", "HEAD:refs/heads/other"]);
            assert_eq!(code, 75, "{said}");
            // Giving back what is lost is no push, and asks for nothing.
            a.code(&["release"]);
            let lines: Vec<Value> = world.audit().into_iter().filter(|line| line["owner"] == "zombie").collect();
            let zombie: Vec<&Value> = lines.iter().filter(|line| line["code"].is_string()).collect();
            assert_eq!(zombie.len(), 1, "{zombie:#?}");
            assert_eq!(
                (&zombie[0]["event"], &zombie[0]["code"]),
                (&"push.rejected".into(), &"FENCE-LEASE-LOST".into())
            );
            let refs = zombie[0]["refs"].as_array().unwrap().iter().map(|asked| asked["name"].as_str().unwrap());
            assert_eq!(refs.collect::<Vec<_>>(), ["refs/heads/main", "refs/heads/other"]);
            assert_eq!(
                (&zombie[0]["count"], &zombie[0]["token"]),
                (&2.into(), &1.into()),
                "{token} is the successor's"
            );
            let rejected = world.ok(world.hook_program().args(["audit", "--rejected"]).arg(world.server()));
            assert_eq!(rejected.matches("FENCE-LEASE-LOST").count(), 1, "{rejected}");
        }
    }
}
