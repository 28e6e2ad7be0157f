//! A fence takes either own tokens of its pushers or lease tokens, never both. Only its operator changes the kind.

use crate::support::{
    Pushed, World, any_git, gits,
    lease::{Agent, LeaseOf, commit},
    text,
};
use std::{fs, process::Output};

fn tokens(world: &World, args: &[&str]) -> Output {
    world.hook_program().arg("tokens").args(args).arg(world.server()).output().unwrap()
}

fn kind_of(world: &World, fence: &str) -> serde_json::Value {
    let status = world.status();
    status["fences"].as_array().unwrap().iter().find(|it| it["fence"] == fence).unwrap()["kind"].clone()
}

/// Earlier it did, permanently, and the hint of FENCE-STALE told people to try.
#[test]
fn lease_does_not_close_a_fence_with_own_tokens() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        world.push_token("main", "5").assert_landed();
        let stale = world.push_token("main", "4");
        stale.assert_refused("FENCE-STALE");
        assert!(!stale.text.contains("git fence") && stale.text.contains("where this one came from"), "{}", stale.text);
        let tie = world.push_token("main", "5");
        assert!(!tie.text.contains("git fence") && tie.text.contains("writes only once"), "{}", tie.text);
        let anna = Agent::new("anna");
        for refused in [lease.take(&anna, 6, "first"), lease.ask(), lease.beat(&anna)] {
            refused.assert_refused("FENCE-LEASE-INVALID");
            assert!(
                refused.text.contains("fence 'repo' takes tokens of its own and grants no leases"),
                "{}",
                refused.text
            );
            let hint = refused.text.lines().find(|line| line.starts_with("hint: ")).unwrap();
            assert!(hint.contains("git-fence-hook tokens") && !hint.contains("git fence"), "{hint}");
        }
        // The client refuses too: it says so once and changes nothing.
        let clone = world.agent("clone");
        let (code, said) = clone.code(&["acquire"]);
        assert!(code != 0 && said.contains("takes tokens of its own"), "{code} {said}");
        assert_eq!((lease.at(), kind_of(&world, "repo")), (None, "own".into()));
        world.push_token("main", "6").assert_landed();
        world.push(&["+HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
        world.assert_log_is_whole();
    }
}

#[test]
fn fence_with_leases_refuses_own_tokens() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    for token in ["1", "7"] {
        let refused = world.push_token("main", token);
        refused.assert_refused("FENCE-LEASE-REQUIRED");
        assert!(refused.text.contains("git-fence-hook tokens"), "{}", refused.text);
    }
    lease.write(&anna, "main", 1, "first").assert_landed();
    let stale = world.push_token("main", "1");
    stale.assert_refused("FENCE-STALE");
    assert!(stale.text.contains("run again under a new lease:  git fence run"), "{}", stale.text);
    lease.release(&anna, 2, "first").assert_landed();
    world.push_token("main", "7").assert_refused("FENCE-LEASE-REQUIRED");
    assert_eq!(kind_of(&world, "repo"), "lease");
}

#[test]
fn only_a_landed_push_decides_the_kind() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let show = || world.ok(world.hook_program().arg("status").arg(world.server()));
    assert!(show().contains("  accepts    tokens of either kind, until the first push or grant lands"), "{}", show());
    world.ok(world.hook_program().args(["raise", "--to", "7", "--reason", "a backup"]).arg(world.server()));
    world.write_hook("update", "exit 1");
    assert!(!world.push_token("main", "8").ok);
    let anna = Agent::new("anna");
    assert!(!lease.take(&anna, 8, "first").ok);
    fs::remove_file(world.hook("update")).unwrap();
    // Stale pushes, pushes without a token and questions do not decide either.
    world.push_token("main", "7").assert_refused("FENCE-STALE");
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    world.configure("fence.exempt", "tester");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    assert_eq!(kind_of(&world, "repo"), serde_json::Value::Null);
    lease.take(&anna.again(), 8, "first").assert_landed();
    assert_eq!(kind_of(&world, "repo"), "lease");
    assert!(show().contains("  accepts    lease tokens"), "{}", show());
    world.push_token("main", "9").assert_refused("FENCE-LEASE-REQUIRED");
}

#[test]
fn operator_changes_the_kind_and_back_on_record() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
        world.push_token("main", "5").assert_landed();
        for wrong in [&["lease"][..], &["lease", "--reason", " "], &["any", "--reason", "x"], &["own", "--reason", "x"]]
        {
            assert!(!tokens(&world, wrong).status.success(), "{wrong:?}");
        }
        assert!(world.events("tokens.changed").is_empty());
        let changed = tokens(&world, &["lease", "--reason", "agents take over"]);
        assert_eq!(text(&changed.stdout), "fence 'repo'  accepts lease tokens, above 5\n", "{}", text(&changed.stderr));
        world.push_token("main", "6").assert_refused("FENCE-LEASE-REQUIRED");
        lease.take(&anna, 6, "first").assert_landed();
        lease.write(&anna, "main", 6, "first").assert_landed();
        let next = lease.advanced(&anna, 8, "first");
        // Back again: the holder's next token is not accepted.
        let changed = tokens(&world, &["own", "--reason", "a lease service of our own"]);
        assert_eq!(
            text(&changed.stdout),
            "fence 'repo'  the lease of 'anna', token 7, was revoked\n\
             fence 'repo'  accepts own tokens of the pushers, above 8\n",
            "{}",
            text(&changed.stderr)
        );
        let zombie = lease.write_command(&anna, "main", 7, &next).output().unwrap();
        Pushed::from(&zombie).assert_refused("FENCE-STALE");
        world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("refs/fence/*:refs/fence/*"));
        lease.take(&bob, 9, "released").assert_refused("FENCE-LEASE-INVALID");
        world.push_token("main", "8").assert_refused("FENCE-STALE");
        world.push_token("main", "9").assert_landed();
        let lines = world.events("tokens.changed");
        assert_eq!((&lines[0]["tokens"], &lines[0]["before"]), (&"lease".into(), &"own".into()));
        assert_eq!((&lines[1]["mark"], &lines[1]["reason"]), (&8.into(), &"a lease service of our own".into()));
        assert_eq!(world.events("lease.revoked").len(), 1);
        let audit = world.ok(world.hook_program().arg("audit").arg(world.server()));
        assert!(
            audit.contains("repo  own tokens of the pushers, mark at least 8: a lease service of our own"),
            "{audit}"
        );
        world.assert_log_is_whole();
    }
}

#[test]
fn kind_survives_rotation_checkpoints_and_repair() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let bob = Agent::new("bob");
    world.push_token("main", "5").assert_landed();
    lease.ask().assert_refused("FENCE-LEASE-INVALID");
    world.ok(world.hook_program().arg("rotate").arg(world.server()));
    assert_eq!(kind_of(&world, "repo"), "own");
    lease.take(&bob, 6, "first").assert_refused("FENCE-LEASE-INVALID");
    // Enough lines for a checkpoint.
    let many: Vec<String> = (0..60).map(|n| format!("HEAD:refs/heads/branch-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for _ in 0..200 {
        if world.fence_file("state.json").exists() {
            break;
        }
        world.push(&many, &[]).assert_refused("FENCE-MISSING");
    }
    assert!(world.fence_file("state.json").exists(), "no checkpoint is written");
    assert_eq!(kind_of(&world, "repo"), "own");
    lease.take(&bob, 6, "first").assert_refused("FENCE-LEASE-INVALID");
    // A log that is damaged at its end is accepted up to the last readable line.
    let log = world.fence_file("audit.jsonl");
    let mut lines = fs::read(&log).unwrap();
    let at = lines.len() - 40;
    lines[at] ^= 1;
    fs::write(&log, lines).unwrap();
    world.ok(world.hook_program().args(["repair", "--yes", "--reason", "a test"]).arg(world.server()));
    lease.take(&bob, 6, "first").assert_refused("FENCE-LEASE-INVALID");
    world.push_token("main", "6").assert_landed();
}

#[test]
fn configured_kind_applies_from_the_start() {
    let world = World::new(&any_git());
    world.configure("fence.tokens", "own");
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.configure("fence.deploy.tokens", "lease");
    let (repo, deploy) = (LeaseOf::repo(&world), LeaseOf { world: &world, fence: "deploy" });
    let anna = Agent::new("anna");
    repo.take(&anna, 1, "first").assert_refused("FENCE-LEASE-INVALID");
    world.push(&["HEAD:refs/heads/deploy/x"], &["fence-token=deploy:1"]).assert_refused("FENCE-LEASE-REQUIRED");
    world.push(&["HEAD:refs/heads/deploy/x"], &[]).assert_refused("FENCE-LEASE-REQUIRED");
    deploy.take(&anna, 1, "first").assert_landed();
    world.push_token("main", "1").assert_landed();
    assert_eq!((kind_of(&world, "repo"), kind_of(&world, "deploy")), ("own".into(), "lease".into()));
    // Changed in the settings while the lease is held: the holder is refused, and doctor names the fix.
    world.configure("fence.deploy.tokens", "own");
    deploy.beat(&anna).assert_refused("FENCE-LEASE-INVALID");
    let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    assert!(text(&doctor.stdout).contains("warning: lease-shut-out: "), "{}", text(&doctor.stdout));
    let ended = tokens(&world, &["own", "--fence", "deploy", "--reason", "no leases here"]);
    assert!(text(&ended.stdout).contains("the lease of 'anna', token 1, was revoked"), "{}", text(&ended.stderr));
    world.push(&["HEAD:refs/heads/deploy/x"], &["fence-token=deploy:3"]).assert_landed();
    world.ok(world.git("server.git").args(["config", "--replace-all", "fence.deploy.tokens", "lease"]));
    let said = text(&tokens(&world, &["own", "--fence", "deploy", "--reason", "x"]).stderr);
    assert!(said.contains("fence.tokens is lease for fence 'deploy'"), "{said}");
}

/// Written by a local writer, or while the gate was off.
#[test]
fn lease_on_a_fence_with_own_tokens_is_ignored() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    world.push_token("main", "5").assert_landed();
    let record = commit(&world, &Agent::new("anna").lease(99, "held", "first"), &[]);
    world.push(&[&format!("{record}:refs/outside/object")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["update-ref", &lease.name("lease"), &record]));
    world.push_token("main", "6").assert_landed();
    world.ok(world.git("server.git").args(["symbolic-ref", &lease.name("lease"), "refs/heads/main"]));
    world.push_token("main", "7").assert_landed();
    assert_eq!((world.mark(), kind_of(&world, "repo")), (7, "own".into()));
    assert!(world.events("lease.found").is_empty());
    world.ok(world.hook_program().arg("install").arg(world.server()));
    let doctor = world.ok(world.hook_program().arg("doctor").arg(world.server()));
    assert!(doctor.starts_with("ok") && doctor.contains("note: lease-ignored: "), "{doctor}");
    assert_eq!(world.mark(), 7, "nothing is adopted from it");
}

/// A push without a token is sent to where this fence's tokens come from: to both as long as nothing has decided it.
#[test]
fn push_without_a_token_is_told_the_ways_that_this_fence_takes() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    let hint = |refspec: &str| {
        let pushed = world.push(&[refspec], &[]);
        assert!(!pushed.ok, "{}", pushed.text);
        pushed.remote.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap().to_owned()
    };
    let names = |hint: &str| (hint.contains("git fence push"), hint.contains("-o fence-token="));
    let undecided = hint("HEAD:refs/heads/main");
    assert_eq!(names(&undecided), (true, true), "{undecided}");
    assert!(undecided.contains("git fence run") && undecided.contains("Fencing-Token: <n>"), "{undecided}");
    let of_deploy = hint("HEAD:refs/heads/deploy/a");
    assert!(of_deploy.contains("git fence push --fence deploy") && of_deploy.contains("deploy:<n>"), "{of_deploy}");

    world.push_token("main", "5").assert_landed();
    let own = hint("HEAD:refs/heads/other");
    assert_eq!(names(&own), (false, true), "{own}");
    world.agent("a").ok(&["acquire", "--fence", "deploy"]);
    let lease = hint("HEAD:refs/heads/deploy/a");
    assert_eq!(names(&lease), (true, false), "{lease}");
    assert!(lease.contains("git fence push --fence deploy"), "{lease}");
    // One ref of two has a trailer: no reason to send the other one to tokens.
    let stamped = world.commit("work\n\nFencing-Token: deploy:7\n");
    let two = [&*format!("{stamped}:refs/heads/deploy/b"), "HEAD:refs/heads/deploy/c"];
    let told = world.push(&two, &[]).remote;
    let lease = told.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap();
    assert_eq!(names(lease), (true, false), "{told}");
}
