//! Halted fences: nobody gets the lease, and nothing lands under one, until they are resumed.

use super::{json, operator};
use crate::support::{
    Door, Pushed, Running, World, any_git, gits,
    lease::{Agent, LeaseOf},
    text, wait_until,
};
use std::{
    fs,
    process::{Output, Stdio},
};

fn said(ran: &Output) -> String {
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    text(&ran.stdout)
}

/// What standard output says, with the time of a halt left out.
fn untimed(ran: &Output) -> String {
    let said = said(ran);
    let Some((before, after)) = said.split_once(" since ") else { return said };
    format!("{before}{}", after.split_once("Z").map_or("", |(_, rest)| rest))
}

fn halt(world: &World, args: &[&str]) -> Output {
    operator(world, "halt", args)
}

fn resume(world: &World, args: &[&str]) -> Output {
    operator(world, "resume", args)
}

/// Commits of the operator, which follow in the next record.
fn fetch(world: &World) {
    world.ok(world.git("work").args(["fetch", "-q"]).arg(world.server()).arg("+refs/fence/*:refs/fence/*"));
}

#[test]
fn operator_halts_a_fence_and_resumes_it() {
    for git in gits() {
        for init in [&[][..], &["--object-format=sha256"]] {
            let world = World::with(&git, Door::Fence, init);
            let lease = LeaseOf::repo(&world);
            let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
            assert_eq!(said(&resume(&world, &["--reason", "x"])), "fence 'repo'  is not halted: nothing was changed\n");
            lease.take(&anna, 1, "first").assert_landed();
            lease.write(&anna, "main", 1, "first").assert_landed();
            let main = world.server_ref("refs/heads/main");
            assert!(!halt(&world, &[]).status.success(), "without a reason");
            assert!(!halt(&world, &["--reason", "x", "--fence", "nowhere"]).status.success());
            let ran = halt(&world, &["--reason", "the key leaked"]);
            let me = world.events("lease.halted")[0]["owner"].as_str().unwrap().to_owned();
            assert_eq!(
                untimed(&ran),
                format!("fence 'repo'  halted by '{me}': 'the key leaked'; 'anna' held it, with token 2\n")
            );
            let line = &world.events("lease.halted")[0];
            assert_eq!((&line["token"], &line["state"]), (&3.into(), &"halted".into()));
            assert_eq!((&line["reason"], &line["words"]), (&"revoked".into(), &"the key leaked".into()));
            assert!(line["held_ms"].is_u64());
            fetch(&world);
            lease.beat(&anna).assert_refused("FENCE-HALTED");
            let next = lease.advanced(&anna, 3, "first");
            let zombie = lease.write_command(&anna, "main", 2, &next).output().unwrap();
            Pushed::from(&zombie).assert_refused("FENCE-HALTED");
            world.push_token("main", "99").assert_refused("FENCE-HALTED");
            let taken = lease.take(&bob, 4, "released");
            taken.assert_refused("FENCE-HALTED");
            assert_eq!(
                (&json(&taken)["halt"]["by"], &json(&taken)["halt"]["reason"]),
                (&me.as_str().into(), &"the key leaked".into())
            );
            assert!(taken.text.contains(&format!("is halted by '{me}' since ")), "{}", taken.text);
            lease.ask().assert_refused("FENCE-HALTED");
            assert_eq!(world.server_ref("refs/heads/main"), main);
            // Twice is harmless, and says so.
            assert!(said(&halt(&world, &["--reason", "again"])).contains("already: nothing was changed"));
            assert_eq!(world.events("lease.halted").len(), 1);
            assert_eq!(lease.status()["state"], "halted");
            assert_eq!(lease.status()["halt"]["reason"], "the key leaked");
            let ran = resume(&world, &["--reason", "new keys"]);
            assert_eq!(untimed(&ran), format!("fence 'repo'  resumed; it was halted by '{me}': 'the key leaked'\n"));
            assert_eq!(world.events("lease.resumed")[0]["words"], "new keys");
            assert_eq!(lease.status()["last"]["owner"], "anna");
            lease.beat(&anna).assert_refused("FENCE-LEASE-LOST");
            fetch(&world);
            lease.take(&bob, 4, "released").assert_landed();
            lease.write(&bob, "main", 4, "released").assert_landed();
            assert!(world.events("lease.found").is_empty());
            world.assert_log_is_whole();
        }
    }
}

/// The gate has no lease to take away there, and the kind of tokens stays open.
#[test]
fn halt_stops_own_tokens_and_decides_nothing() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    world.configure("fence.exempt", "somebody-else");
    said(&halt(&world, &["--reason", "x"]));
    assert_eq!(world.status()["fences"][0]["kind"], serde_json::Value::Null);
    world.push_token("main", "5").assert_refused("FENCE-HALTED");
    world.configure("fence.exempt", "tester");
    world.push(&["HEAD:refs/heads/by-hand"], &[]).assert_landed();
    world.push_token("main", "5").assert_refused("FENCE-HALTED");
    said(&resume(&world, &["--reason", "x"]));
    assert_eq!(world.status()["fences"][0]["kind"], serde_json::Value::Null);
    world.push_token("main", "5").assert_landed();
    assert_eq!(world.status()["fences"][0]["kind"], "own");
    said(&halt(&world, &["--reason", "x"]));
    world.push_token("main", "6").assert_refused("FENCE-HALTED");
    said(&resume(&world, &["--reason", "x"]));
    world.push_token("main", "6").assert_landed();
    assert_eq!(lease.at(), None, "there is still no lease in the repository");
    lease.take(&Agent::new("anna"), 9, "released").assert_refused("FENCE-LEASE-INVALID");
    let pusher = world.agent("pusher");
    let (code, said) = pusher.code(&["push", "--token", "8", "origin", "HEAD:refs/heads/by-client"]);
    assert_eq!(code, 0, "{said}");
    world.assert_log_is_whole();
}

#[test]
fn only_allowed_pushers_halt_and_resume_by_a_push() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, boss) = (Agent::new("anna"), Agent::new("boss"));
    lease.take(&anna, 1, "first").assert_landed();
    lease.halt(&boss, 2, "revoked").assert_refused("FENCE-LEASE-INVALID");
    lease.beat(&anna).assert_landed();
    let let_revoke = |who: &str| {
        world.ok(world.git("server.git").args(["config", "--replace-all", "fence.allowRevoke", who]));
    };
    let_revoke("tester");
    lease.halt(&boss, 2, "revoked").assert_landed();
    let_revoke("nobody");
    lease.beat(&anna).assert_refused("FENCE-HALTED");
    lease.resume(&Agent::new("chief"), 2).assert_refused("FENCE-LEASE-INVALID");
    lease.take(&Agent::new("bob"), 3, "released").assert_refused("FENCE-HALTED");
    let_revoke("tester");
    lease.resume(&Agent::new("chief"), 2).assert_landed();
    assert_eq!(world.events("lease.halted")[0]["words"], "stop it all");
    assert_eq!(world.events("lease.resumed")[0]["words"], "go on");
    lease.take(&Agent::new("bob"), 3, "released").assert_landed();
    world.assert_log_is_whole();
}

/// What was in flight lands, and the halt waits for it; or it hangs, and the halt ends it. It says which.
#[test]
fn halt_says_what_became_of_the_push_in_flight() {
    for git in gits() {
        let world = World::new(&git);
        let lease = LeaseOf::repo(&world);
        let anna = Agent::new("anna");
        lease.take(&anna, 1, "first").assert_landed();
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        world.configure("fence.wait", "10m");
        let next = lease.advanced(&anna, 2, "first");
        let slow = Running::start(&mut lease.write_command(&anna, "slow", 1, &next));
        world.pid_in("stalled");
        let mut command = world.hook_program();
        command.args(["halt", "--reason", "stop"]).arg(world.server());
        let halting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mutex = world.fence_file("mutex");
        wait_until("it waits for its turn", || fs::read_to_string(&mutex).unwrap().contains("\"turns\":[{"));
        let newer = Running::start(&mut world.push_token_command("newer", "50"));
        world.go();
        slow.wait().assert_landed();
        let halted = said(&halting.wait_with_output().unwrap());
        assert!(halted.contains(" was in flight: it has landed"), "{halted}");
        assert!(!newer.wait().ok);
        assert_eq!(world.server_ref("refs/heads/newer"), None, "it came later than the halt");
        world.assert_log_is_whole();
    }
}

#[test]
fn halt_ends_a_push_that_hangs_in_the_slot() {
    for git in gits() {
        let world = World::new(&git);
        world.write_hook(
            "update",
            "case $1 in refs/heads/t5) echo $PPID >stalled.new; mv stalled.new stalled; kill -STOP $PPID;; esac",
        );
        let five = world.start_push("t5", "5");
        world.pid_in("stalled");
        world.configure("fence.wait", "300ms");
        let ran = said(&halt(&world, &["--reason", "stop"]));
        assert!(ran.contains(" was ended because it hung: it has not landed, and will not"), "{ran}");
        assert!(!five.wait().ok);
        assert_eq!(world.server_ref("refs/heads/t5"), None);
        assert_eq!(world.events("push.evicted")[0]["reason"], "stop");
        world.push_token("main", "6").assert_refused("FENCE-HALTED");
        world.assert_log_is_whole();
    }
}

/// The refs have moved, and the process that moved them was killed before it recorded that.
#[test]
fn interrupted_halt_is_found() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let anna = Agent::new("anna");
    lease.take(&anna, 1, "first").assert_landed();
    world.write_hook(
        "reference-transaction",
        "[ \"$1\" = committed ] && kill -KILL $(awk '{ print $4 }' /proc/$PPID/stat); exit 0",
    );
    assert!(!halt(&world, &["--reason", "x"]).status.success());
    fs::remove_file(world.hook("reference-transaction")).unwrap();
    assert!(world.events("lease.halted").is_empty());
    lease.beat(&anna).assert_refused("FENCE-HALTED");
    assert_eq!(world.events("lease.found").len(), 1);
    assert!(said(&halt(&world, &["--reason", "x"])).contains("already"));
    said(&resume(&world, &["--reason", "x"]));
    world.assert_log_is_whole();
}

/// A restored backup, or somebody who deletes refs, does not start the fleet again.
#[test]
fn halt_survives_whoever_sets_the_lease_back_on_the_server() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    let (anna, bob) = (Agent::new("anna"), Agent::new("bob"));
    lease.take(&anna, 1, "first").assert_landed();
    let before = lease.at().unwrap();
    said(&halt(&world, &["--reason", "stop"]));
    fetch(&world);
    let name = lease.name("lease");
    world.ok(world.git("server.git").args(["update-ref", &name, &before]));
    lease.beat(&anna).assert_refused("FENCE-HALTED");
    lease.take(&bob, 3, "expired").assert_refused("FENCE-HALTED");
    world.ok(world.git("server.git").args(["update-ref", "-d", &name]));
    lease.take(&bob, 3, "first").assert_refused("FENCE-HALTED");
    assert_eq!(lease.status()["state"], "halted");
    said(&resume(&world, &["--reason", "go on"]));
    fetch(&world);
    lease.take(&bob, 3, "released").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn all_fences_of_a_tree_are_halted_and_one_failure_stops_none() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    let tree = world.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a.git", "b.git"] {
        let copied = std::process::Command::new("cp").arg("-r").arg(world.server()).arg(tree.join(name)).status();
        assert!(copied.unwrap().success());
    }
    fs::remove_dir_all(tree.join("a.git/fence")).unwrap();
    let switch = |command: &str, args: &[&str]| {
        world
            .hook_program()
            .args([command, "--reason", "stop", "--recursive", "--all"])
            .args(args)
            .arg(&tree)
            .output()
            .unwrap()
    };
    let ran = switch("halt", &["--json"]);
    assert!(!ran.status.success(), "one has no log");
    let lines: Vec<serde_json::Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes = |line: &serde_json::Value| -> Vec<String> {
        let fences = line["fences"].as_array().unwrap().iter();
        fences
            .map(|fence| format!("{} {}", fence["fence"].as_str().unwrap(), fence["outcome"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(outcomes(&lines[0]), ["deploy failed", "repo failed"]);
    assert_eq!(outcomes(&lines[1]), ["deploy halted", "repo halted"]);
    let ran = switch("resume", &[]);
    let shown = text(&ran.stdout);
    assert!(shown.contains("ok ") && shown.contains("'deploy' resumed") && shown.contains("failed "), "{shown}");
}

#[test]
fn halted_fence_is_shown() {
    let world = World::new(&any_git());
    let lease = LeaseOf::repo(&world);
    lease.take(&Agent::new("anna"), 1, "first").assert_landed();
    said(&halt(&world, &["--reason", "the key leaked"]));
    lease.ask().assert_refused("FENCE-HALTED");
    let shown = |args: &[&str]| {
        let ran = world.hook_program().args(args).arg(world.server()).output().unwrap();
        text(&ran.stdout)
    };
    for (args, words) in [
        (&["status"][..], &["halted by '", ": 'the key leaked'", "git-fence-hook resume"][..]),
        (&["doctor"], &["note: halted: fence 'repo' is halted by", "git-fence-hook resume --fence repo --reason"]),
        (&["audit"], &["  halted  ", "the key leaked", "FENCE-HALTED"]),
        (&["stats"], &["1  halts", "0  resumptions", "FENCE-HALTED"]),
        (&["stats", "--prometheus"], &["git_fence_lease_halts_total{", "} 1"]),
    ] {
        let shown = shown(args);
        for words in words {
            assert!(shown.contains(words), "{args:?} without {words:?}:\n{shown}");
        }
    }
    let stats: serde_json::Value = serde_json::from_str(&shown(&["stats", "--json"])).unwrap();
    assert_eq!((&stats["leases"]["halted"], &stats["leases"]["resumed"]), (&1.into(), &0.into()));
}

#[test]
fn fence_that_nobody_has_held_keeps_clients_out() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    said(&halt(&world, &["--reason", "not yet"]));
    let (code, text) = a.code(&["acquire"]);
    assert!(code == 11 && text.contains("is halted by '"), "{text}");
    assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75);
    said(&resume(&world, &["--reason", "now"]));
    a.ok(&["acquire"]);
    a.ok(&["push", "origin", "HEAD:main"]);
    world.assert_log_is_whole();
}
