//! The settings: observe, off, tokenless, exempt, equal tokens, named fences, and where they are read from.

use crate::support::{Pushed, Running, World, any_git, gits, story, wait_until};
use std::fs;

#[test]
fn observe_refuses_nothing_records_everything_and_never_lowers_the_mark() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.mode", "observe");
        world.configure("fence.wait", "200ms");
        world.push_token("main", "5").assert_landed();
        let stale = world.push_token("main", "4");
        stale.assert_landed();
        assert!(
            stale.text.contains("warning: FENCE-STALE") && stale.text.contains("\"verdict\":\"observed\""),
            "{}",
            stale.text
        );
        assert_eq!(world.mark(), 5);
        world.push(&["HEAD:refs/heads/none"], &[]).assert_landed();
        world.push_token("main", "x").assert_landed();
        world.push_token("main", "6").assert_landed();
        // A stalled push blocks nobody either.
        world.stall_update_of("t7");
        let seven = world.start_push("t7", "7");
        world.pid_in("stalled");
        world.push_token("main", "8").assert_landed();
        world.go();
        seven.wait().assert_landed();
        world.push_token("main", "3").assert_landed();
        assert_eq!(world.mark(), 8);
        let would: Vec<String> = world
            .events("push.accepted")
            .iter()
            .map(|line| line["code"].as_str().unwrap_or("-").trim_start_matches("FENCE-").to_owned())
            .collect();
        assert_eq!(would, ["-", "STALE", "MISSING", "MALFORMED", "-", "-", "BUSY", "STALE"]);
        assert_eq!(world.events("push.rejected").len(), 0);
        world.assert_log_is_whole();

        // Marks learned in observe mode count from the first enforced push on.
        world.configure("fence.mode", "enforce");
        world.push_token("main", "8").assert_refused("FENCE-STALE");
        world.push_token("main", "9").assert_landed();
        let modes: Vec<String> = world
            .events("settings.changed")
            .iter()
            .map(|line| line["settings"]["fences"][0]["mode"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(modes, ["observe", "enforce"]);
    }
}

#[test]
fn observe_admits_pushes_even_with_a_broken_log() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    fs::write(world.fence_file("audit.jsonl"), "").unwrap();
    let pushed = world.push_token("main", "5");
    pushed.assert_landed();
    assert!(pushed.text.contains("warning: FENCE-BROKEN"), "{}", pushed.text);
}

#[test]
fn off_checks_nothing_and_is_recorded_once() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    world.configure("fence.mode", "off");
    for _ in 0..3 {
        world.push_token("main", "1").assert_landed();
    }
    world.configure("fence.mode", "enforce");
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    let modes: Vec<String> = world
        .events("settings.changed")
        .iter()
        .map(|line| line["settings"]["fences"][0]["mode"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(modes, ["enforce", "off", "enforce"]);
    // Off does not even read a broken fence.
    world.configure("fence.mode", "off");
    fs::write(world.fence_file("audit.jsonl"), "").unwrap();
    world.push_token("main", "1").assert_landed();
}

#[test]
fn exempt_pushers_need_no_token_but_a_stale_one_is_still_refused() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let push_as = |pusher: &str, options: &[&str]| {
        let commit = world.commit(&format!("{pusher} {options:?} {}", world.audit().len()));
        let mut push = world.push_command(&[&format!("+{commit}:refs/heads/main")], options);
        Pushed::from(&push.env("GL_USERNAME", pusher).output().unwrap())
    };
    push_as("anna", &[]).assert_refused("FENCE-MISSING");
    world.configure("fence.exempt", "anna");
    world.configure("fence.exempt", "web editor");
    push_as("anna", &[]).assert_landed();
    push_as("web editor", &[]).assert_landed();
    push_as("bob", &[]).assert_refused("FENCE-MISSING");
    push_as("an\u{200b}na", &[]).assert_refused("FENCE-MISSING");
    push_as("anna", &["fence-token=5"]).assert_refused("FENCE-STALE");
    assert_eq!(world.mark(), 5, "a push without a token moves no mark");
    world.configure("fence.tokenless", "allow");
    push_as("bob", &[]).assert_landed();
    push_as("bob", &["fence-token=5"]).assert_refused("FENCE-STALE");
    push_as("bob", &["fence-tokn=9"]).assert_refused("FENCE-MALFORMED");
    push_as("bob", &["fence-token=6"]).assert_landed();
    assert_eq!(world.mark(), 6);
    world.assert_log_is_whole();
}

/// Pushes without a token take the slot too; otherwise settling would misattribute what they moved.
#[test]
fn tokenless_push_takes_the_slot_like_any_other() {
    let world = World::new(&any_git());
    world.configure("fence.tokenless", "allow");
    world.configure("fence.wait", "200ms");
    world.stall_update_of("slow");
    let commit = world.commit("without a token");
    let slow = Running::start(&mut world.push_command(&[&format!("{commit}:refs/heads/slow")], &[]));
    world.pid_in("stalled");
    world.push_token("main", "5").assert_refused("FENCE-BUSY");
    world.push(&["HEAD:refs/heads/other"], &[]).assert_refused("FENCE-BUSY");
    world.go();
    slow.wait().assert_landed();
    world.push_token("main", "5").assert_landed();
}

#[test]
fn at_or_above_admits_an_equal_token() {
    let world = World::new(&any_git());
    world.configure("fence.accept", "at-or-above");
    for _ in 0..3 {
        world.push_token("main", "5").assert_landed();
    }
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    assert_eq!(world.mark(), 5);
}

#[test]
fn token_too_far_above_the_mark_is_a_jump() {
    let world = World::new(&any_git());
    world.configure("fence.maxJump", "10");
    world.push_token("main", "11").assert_refused("FENCE-JUMP");
    world.push_token("main", "10").assert_landed();
    world.push_token("main", "20").assert_landed();
}

#[test]
fn named_fences_have_their_own_marks_and_slots() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.deploy.refs", "refs/heads/deploy/*");
        world.configure("fence.wait", "200ms");
        story::listen(&world);
        world.push(&["HEAD:refs/heads/main"], &["fence-token=50"]).assert_landed();
        world.push(&["HEAD:refs/heads/deploy/eu"], &["fence-token=51"]).assert_refused("FENCE-MISSING");
        world.push(&["HEAD:refs/heads/deploy/eu"], &["fence-token=deploy:3"]).assert_landed();
        world.push(&["HEAD:refs/heads/deploy/us"], &["fence-token=deploy:3"]).assert_refused("FENCE-STALE");

        // One push over both fences is one decision: both tokens count, and one line records it.
        let both = ["HEAD:refs/heads/a", "HEAD:refs/heads/deploy/us"];
        world.push(&both, &["fence-token=51"]).assert_refused("FENCE-MISSING");
        world.push(&both, &["fence-token=51", "fence-token=deploy:3"]).assert_refused("FENCE-STALE");
        world.push(&both, &["fence-token=50", "fence-token=deploy:4"]).assert_refused("FENCE-STALE");
        assert_eq!(world.server_ref("refs/heads/a"), None);
        world.push(&both, &["fence-token=51", "fence-token=deploy:4"]).assert_landed();
        let accepted = world.events("push.accepted").pop().unwrap();
        assert_eq!((&accepted["fence"], &accepted["token"]), (&"deploy".into(), &4.into()));
        assert_eq!((&accepted["also"][0]["fence"], &accepted["also"][0]["token"]), (&"repo".into(), &51.into()));
        let marks: Vec<u64> =
            world.status()["fences"].as_array().unwrap().iter().map(|f| f["mark"].as_u64().unwrap()).collect();
        assert_eq!(marks, [4, 51]);

        // A stalled push of one fence does not block pushes to the other.
        world.write_hook(
            "update",
            "case $1 in refs/heads/deploy/slow) >stalled; while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac",
        );
        let commit = world.commit("slow");
        let refspec = format!("{commit}:refs/heads/deploy/slow");
        let slow = Running::start(&mut world.push_command(&[&refspec], &["fence-token=deploy:5"]));
        wait_until("the push stalls", || world.server().join("stalled").exists());
        world.push_token("main", "52").assert_landed();
        world.push(&["HEAD:refs/heads/deploy/us2"], &["fence-token=deploy:6"]).assert_refused("FENCE-BUSY");
        let over_both = ["HEAD:refs/heads/b", "HEAD:refs/heads/deploy/b"];
        world.push(&over_both, &["fence-token=53", "fence-token=deploy:6"]).assert_refused("FENCE-BUSY");
        world.go();
        slow.wait().assert_landed();
        world.push(&over_both, &["fence-token=53", "fence-token=deploy:6"]).assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn token_of_a_fence_is_spent_only_by_its_own_refs() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.write_hook("update", "case $1 in refs/heads/deploy/*) exit 1;; esac");
    let both = ["HEAD:refs/heads/a", "HEAD:refs/heads/deploy/us"];
    assert!(!world.push(&both, &["fence-token=7", "fence-token=deploy:7"]).ok);
    let status = world.status();
    assert_eq!((&status["fences"][0]["mark"], &status["fences"][1]["mark"]), (&0.into(), &7.into()));
}

#[test]
fn unguarded_refs_pass_and_leave_no_trace() {
    let world = World::new(&any_git());
    let before = fs::read(world.fence_file("audit.jsonl")).unwrap();
    world.push(&["HEAD:refs/notes/x"], &[]).assert_landed();
    world.push(&["HEAD:refs/notes/y"], &["fence-token=nonsense"]).assert_landed();
    world.push(&["HEAD:refs/changes/1"], &[]).assert_landed();
    assert_eq!(fs::read(world.fence_file("audit.jsonl")).unwrap(), before);
    world.configure("fence.refs", "refs/changes/*");
    world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
    world.push(&["HEAD:refs/changes/2"], &[]).assert_refused("FENCE-MISSING");
}

#[test]
fn settings_come_from_every_level_of_gits_configuration() {
    let world = World::new(&any_git());
    let global = world.path("global");
    fs::write(&global, "[fence]\n\ttokenless = allow\n").unwrap();
    let push = |with: &dyn Fn(&mut std::process::Command)| {
        let commit = world.commit(&format!("{}", fs::metadata(world.fence_file("audit.jsonl")).unwrap().len()));
        let mut push = world.push_command(&[&format!("+{commit}:refs/heads/main")], &[]);
        with(&mut push);
        Pushed::from(&push.output().unwrap())
    };
    push(&|_| {}).assert_refused("FENCE-MISSING");
    push(&|push| _ = push.env("GIT_CONFIG_GLOBAL", &global)).assert_landed();
    push(&|push| _ = push.env_remove("GIT_CONFIG_NOSYSTEM").env("GIT_CONFIG_SYSTEM", &global)).assert_landed();
    let home = world.path("home/.gitconfig");
    fs::copy(&global, &home).unwrap();
    push(&|push| _ = push.env_remove("GIT_CONFIG_GLOBAL")).assert_landed();
    fs::remove_file(&home).unwrap();

    // The repository overrides the files above it, and includes count.
    world.configure("fence.tokenless", "refuse");
    push(&|push| _ = push.env("GIT_CONFIG_GLOBAL", &global)).assert_refused("FENCE-MISSING");
    world.configure("include.path", global.to_str().unwrap());
    push(&|_| {}).assert_landed();
    world.ok(world.git("server.git").args(["config", "--unset", "include.path"]));
    let branch_only = format!("includeIf.onbranch:main.path={}", global.display());
    let (key, value) = branch_only.split_once('=').unwrap();
    world.configure(key, value);
    push(&|_| {}).assert_landed();
    world.ok(world.git("server.git").args(["config", "--unset", key]));
    push(&|_| {}).assert_refused("FENCE-MISSING");

    // A condition that only git itself can evaluate.
    world.configure("remote.up.url", "https://example.com/up.git");
    world.configure("includeIf.hasconfig:remote.*.url:https://example.com/**.path", global.to_str().unwrap());
    push(&|_| {}).assert_landed();
    world.ok(world.git("server.git").args([
        "config",
        "--remove-section",
        "includeIf.hasconfig:remote.*.url:https://example.com/**",
    ]));
    push(&|_| {}).assert_refused("FENCE-MISSING");

    // `git -c` on the server side.
    let receive_pack = "git -c fence.tokenless=allow receive-pack";
    push(&|push| _ = push.arg(format!("--receive-pack={receive_pack}"))).assert_landed();
}

#[test]
fn setting_that_does_not_parse_closes_the_gate_and_is_named() {
    let world = World::new(&any_git());
    for (key, value) in [
        ("fence.mode", "of"),
        ("fence.wait", "soon"),
        ("fence.x.refs", "heads"),
        ("fence.A/b.refs", "refs/heads/*"),
        ("fence.refs", ""),
    ] {
        world.configure(key, value);
        let pushed = world.push_token("main", "5");
        pushed.assert_refused("FENCE-BROKEN");
        assert!(pushed.text.contains("fence.") && pushed.text.contains("git config --show-origin"), "{}", pushed.text);
        world.ok(world.git("server.git").args(["config", "--unset-all", key]));
    }
    assert_eq!(world.events("push.rejected").len(), 5, "these are recorded too");
    world.push_token("main", "5").assert_landed();
}

/// A fence in observe mode must not admit a push that an enforcing fence refuses.
#[test]
fn observing_fence_does_not_open_an_enforcing_one() {
    for observer in ["aaa", "zzz"] {
        let world = World::new(&any_git());
        world.configure(&format!("fence.{observer}.refs"), "refs/heads/watched/*");
        world.configure(&format!("fence.{observer}.mode"), "observe");
        world.configure("fence.repo.maxJump", "100");
        world.configure("fence.wait", "200ms");
        world.stall_update_of("slow");
        let both = |token: u32| [format!("fence-token={token}"), format!("fence-token={observer}:{token}")];
        let commit = world.commit("over both");
        let refspecs = [format!("{commit}:refs/heads/slow"), format!("{commit}:refs/heads/watched/a")];
        let options = both(5);
        let five = Running::start(&mut world.push_command(&[&refspecs[0], &refspecs[1]], &[&options[0], &options[1]]));
        world.pid_in("stalled");
        let over_both = ["HEAD:refs/heads/six", "HEAD:refs/heads/watched/six"];
        let options = both(6);
        world.push(&over_both, &[&options[0], &options[1]]).assert_refused("FENCE-BUSY");
        // The observed fence alone refuses nobody.
        let watched = format!("fence-token={observer}:7");
        world.push(&["HEAD:refs/heads/watched/b"], &[&watched]).assert_landed();
        // That its slot is occupied must not hide that the token is a jump at the other fence.
        world.go();
        five.wait().assert_landed();
        fs::remove_file(world.server().join("go")).unwrap();
        fs::remove_file(world.server().join("stalled")).unwrap();
        world.write_hook("update", "case $1 in refs/heads/watched/slow) >stalled; while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac");
        let commit = world.commit("watched only");
        let refspec = format!("{commit}:refs/heads/watched/slow");
        let slow = Running::start(&mut world.push_command(&[&refspec], &[&format!("fence-token={observer}:8")]));
        wait_until("the push in flight stalls", || world.server().join("stalled").exists());
        let options = both(999_999);
        world.push(&over_both, &[&options[0], &options[1]]).assert_refused("FENCE-JUMP");
        world.go();
        slow.wait().assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn observe_evicts_no_push_and_records_even_unreadable_ones() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    world.configure("fence.wait", "400ms");
    world.configure("fence.evictAfter", "1ms");
    world.stall_update_of("t5");
    let five = world.start_push("t5", "5");
    world.pid_in("stalled");
    world.push_token("main", "6").assert_landed();
    assert_eq!(world.events("push.evicted").len(), 0);
    world.go();
    five.wait().assert_landed();
    let mut push = world.push_command(&["HEAD:refs/heads/x"], &["fence-token=7"]);
    Pushed::from(&push.arg("--receive-pack=git --namespace=ns receive-pack").output().unwrap()).assert_landed();
    assert_eq!(world.events("push.observed")[0]["code"], "FENCE-MALFORMED");
}

/// A push is accepted under one set of settings, and a fence is added while the push is in flight: its
/// refs may now belong to that fence.
#[test]
fn push_in_flight_during_a_settings_change_blocks_the_new_fence() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    world.configure("fence.wait", "200ms");
    world.write_hook(
        "update",
        "case $1 in refs/heads/deploy/slow) >stalled; while [ -e stalled ] && ! [ -e go ]; do sleep 0.02; done;; esac",
    );
    let commit = world.commit("slow");
    let refspec = format!("{commit}:refs/heads/deploy/slow");
    let slow = Running::start(&mut world.push_command(&[&refspec], &["fence-token=5"]));
    wait_until("the push stalls", || world.server().join("stalled").exists());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.push(&["HEAD:refs/heads/deploy/eu"], &["fence-token=deploy:6"]).assert_refused("FENCE-BUSY");
    world.go();
    slow.wait().assert_landed();
    world.push(&["HEAD:refs/heads/deploy/eu"], &["fence-token=deploy:6"]).assert_landed();
    world.assert_log_is_whole();
}

/// Two waiting pushes with different settings must not fill the log with the difference.
#[test]
fn waiting_writes_nothing() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "1s");
    world.stall_update_of("t5");
    let five = world.start_push("t5", "5");
    world.pid_in("stalled");
    let six = world.start_push("t6", "6");
    wait_until("six waits", || six.has_said("waiting"));
    world.configure("fence.exempt", "somebody");
    world.push_token("t7", "7").assert_refused("FENCE-BUSY");
    six.wait().assert_refused("FENCE-BUSY");
    assert!(world.audit().len() < 12, "{} lines", world.audit().len());
    world.go();
    five.wait().assert_landed();
}

/// An exempt pusher tags, branches or merges commits with an old trailer. It belongs to another push.
#[test]
fn exempt_pushers_can_tag_branch_and_merge_commits_with_old_trailers() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.exempt", "tester");
        world.configure("fence.deploy.refs", "refs/heads/deploy/*");
        let stamped = world.commit("work of an agent\n\nFencing-Token: 5\n");
        let refspec = |name: &str| format!("{stamped}:{name}");
        let as_agent = |refspecs: &[&str], options: &[&str]| {
            Pushed::from(&world.push_command(refspecs, options).env("GL_USERNAME", "agent").output().unwrap())
        };
        as_agent(&[&refspec("refs/heads/main")], &[]).assert_landed();
        as_agent(&["HEAD:refs/heads/other"], &["fence-token=9"]).assert_landed();

        // The commit itself, a tag of it, and a new commit with a copy of its message.
        world.push(&[&refspec("refs/heads/branch")], &[]).assert_landed();
        world.push(&[&refspec("refs/tags/light")], &[]).assert_landed();
        world.ok(world.git("work").args(["tag", "-a", "annotated", "-m", "a tag", &stamped]));
        world.push(&["refs/tags/annotated"], &[]).assert_landed();
        world.ok(world.git("work").args(["tag", "-a", "stamped", "-m", "a tag\n\nFencing-Token: 4", &stamped]));
        world.push(&["refs/tags/stamped"], &[]).assert_landed();
        let picked = world.commit("picked from an agent's work\n\nFencing-Token: 5\n");
        world.push(&[&format!("{picked}:refs/heads/picked")], &[]).assert_landed();
        // Merged: by fast-forward, and with a merge commit.
        world.ok(world.git("work").args(["checkout", "-q", "-b", "forward"]));
        world.ok(world.git("work").args(["merge", "-q", "--ff-only", &stamped]));
        world.push(&["forward:refs/heads/forward", "forward:refs/heads/deploy/forward"], &[]).assert_landed();
        world.ok(world.git("work").args(["checkout", "-q", "-b", "merged", &picked]));
        world.ok(world.git("work").args(["merge", "-q", "--no-ff", "-m", "merge\n\nFencing-Token: 5", &stamped]));
        world.push(&["merged:refs/heads/merged"], &[]).assert_landed();
        // Two different ones, one that is far ahead, and one that is malformed: none of them belongs to this push.
        let ahead = world.commit("far ahead\n\nFencing-Token: 9000\n");
        let none = world.commit("no token\n\nFencing-Token: none\n");
        let many = [&*refspec("refs/heads/m1"), &format!("{ahead}:refs/heads/m2"), &format!("{none}:refs/heads/m3")];
        world.push(&many, &[]).assert_landed();
        assert_eq!(world.mark(), 9, "and spends nothing");
        let from = |line: &serde_json::Value| line["pusher"] == "tester";
        assert!(world.events("push.accepted").iter().filter(|line| from(line)).all(|line| line["token"].is_null()));

        // A token in an option belongs to the push, and counts.
        world.push(&[&refspec("refs/heads/given")], &["fence-token=9"]).assert_refused("FENCE-STALE");
        world.push(&[&refspec("refs/heads/given")], &["fence-token=10"]).assert_landed();
        // Pushers who are not exempt are refused as before.
        as_agent(&[&refspec("refs/heads/mine")], &[]).assert_refused("FENCE-STALE");
        world.assert_log_is_whole();
    }
}

/// With tokenless = allow, trailers of clients that cannot send options still count, in the objects they bring.
#[test]
fn tokenless_allow_reads_trailers_only_in_new_objects() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.tokenless", "allow");
        let stamped = |n: u64, text: &str| world.commit(&format!("{text}\n\nFencing-Token: {n}\n"));
        let (five, nine) = (stamped(5, "five"), stamped(9, "nine"));
        world.push(&[&format!("{five}:refs/heads/main")], &[]).assert_landed();
        world.push(&[&format!("{nine}:refs/heads/other")], &[]).assert_landed();
        assert_eq!(world.mark(), 9, "they count");
        // History: the objects already exist.
        world.push(&[&format!("{five}:refs/heads/branch")], &[]).assert_landed();
        world.push(&[&format!("{five}:refs/tags/light")], &[]).assert_landed();
        world.ok(world.git("work").args(["tag", "-a", "annotated", "-m", "a tag", &five]));
        world.push(&["refs/tags/annotated"], &[]).assert_landed();
        world.ok(world.git("work").args(["checkout", "-q", "-b", "merged"]));
        world.ok(world.git("work").args(["merge", "-q", "--no-ff", "-m", "merge", &five]));
        world.push(&["merged:refs/heads/merged"], &[]).assert_landed();
        assert_eq!(world.mark(), 9);
        // A stale holder that stamps its commits is still refused.
        let late = stamped(6, "late");
        world.push(&[&format!("{late}:refs/heads/late")], &[]).assert_refused("FENCE-STALE");
        world.push(&[&format!("{}:refs/heads/ten", stamped(10, "ten"))], &[]).assert_landed();
        assert_eq!(world.mark(), 10);
    }
}
