//! A host whose git looks for hooks elsewhere: every file of the gate is in its place, and pushes land without it. The refs
//! give it away.

use crate::support::{Pushed, World, any_git, gits, text};

/// The names and sentences of what doctor finds.
fn findings(world: &World) -> Vec<(String, String)> {
    let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", text(&ran.stderr)));
    let pair =
        |it: &serde_json::Value| (it["name"].as_str().unwrap().to_owned(), it["sentence"].as_str().unwrap().to_owned());
    report["findings"].as_array().unwrap().iter().map(pair).collect()
}

#[track_caller]
fn assert_stray(world: &World, refs: &str) {
    let found = findings(world);
    let [(name, sentence)] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(name, "moved-without-gate");
    assert!(sentence.starts_with(&format!("{refs} moved without the gate: ")), "{sentence}");
}

/// As such a host serves a push: without a token, and the gate is not asked.
#[track_caller]
fn land_past_the_gate(world: &World, refspec: &str) {
    let mut push = world.push_command(&[refspec], &[]);
    push.arg("--receive-pack=git -c core.hooksPath=/nonexistent receive-pack");
    Pushed::from(&push.output().unwrap()).assert_landed();
}

#[test]
fn push_that_went_past_the_gate_is_seen_by_its_ref() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        // Before there is a gate: what is there then is nobody's fault.
        world.push(&["HEAD:refs/heads/main", "HEAD:refs/heads/old"], &[]).assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!(findings(&world), []);
        let (one, two) = (world.commit("one"), world.commit("two"));
        land_past_the_gate(&world, &format!("{one}:refs/heads/main"));
        assert_stray(&world, "'refs/heads/main'");
        let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
        assert_eq!(doctor.status.code(), Some(1));
        land_past_the_gate(&world, "HEAD:refs/heads/new");
        land_past_the_gate(&world, ":refs/heads/old");
        land_past_the_gate(&world, "HEAD:refs/tags/v1");
        assert_stray(&world, "'refs/heads/main', 'refs/heads/new', 'refs/heads/old' and 1 more refs");
        // A push through the gate accounts for its ref.
        world.push(&[&format!("+{two}:refs/heads/main")], &["fence-token=5"]).assert_landed();
        assert_stray(&world, "'refs/heads/new', 'refs/heads/old', 'refs/tags/v1'");
        let again = world.hook_program().arg("install").arg(world.server()).output().unwrap();
        let said = text(&again.stderr);
        assert!(
            said.contains("warning: 'refs/heads/new', 'refs/heads/old', 'refs/tags/v1' moved without the gate"),
            "{said}"
        );
        assert_eq!(findings(&world), []);
        // And back to a value that the log has seen.
        world.push_token("main", "6").assert_landed();
        world.ok(world.git("server.git").args(["update-ref", "refs/heads/main", &two]));
        assert_stray(&world, "'refs/heads/main'");
    }
}

#[test]
fn ordinary_work_leaves_nothing_to_report() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
        world.ok(world.git("server.git").args(["symbolic-ref", "refs/heads/alias", "refs/heads/main"]));
        world.ok(world.hook_program().arg("install").arg(world.server()));
        let clean = |what: &str| assert_eq!(findings(&world), [], "{what}");
        world.push_token("main", "1").assert_landed();
        clean("a push");
        let all: Vec<String> = (0..100).map(|n| format!("HEAD:refs/heads/many/{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        world.push(&all, &["fence-token=2"]).assert_landed();
        clean("more refs than a line has");
        world.push(&[":refs/heads/many/99"], &["fence-token=3"]).assert_landed();
        clean("a deletion");
        world.write_hook("update", "case $1 in refs/heads/no) exit 1;; esac");
        let commit = world.commit("x");
        let both = [&format!("{commit}:refs/heads/no")[..], &format!("{commit}:refs/heads/yes")];
        assert!(!world.push(&both, &["fence-token=4"]).ok);
        clean("a push that was declined in part");
        world.ok(world.git("server.git").args(["pack-refs", "--all"]));
        world.ok(world.hook_program().arg("rotate").arg(world.server()));
        clean("packing and rotation");
        world.companion_never_runs();
        world.push_token("main", "5").assert_landed();
        clean("not settled yet");
        world.configure("fence.mode", "off");
        world.push_token("main", "1").assert_landed();
        world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
        clean("a while in which the fence was off");
        world.ok(world.hook_program().arg("uninstall").arg(world.server()));
        world.push(&["+HEAD:refs/heads/main"], &[]).assert_landed();
        world.ok(world.hook_program().arg("install").arg(world.server()));
        clean("a while without a gate");
    }
}

/// Where commits are made in the repository itself, its branches move without pushes.
#[test]
fn commit_in_a_work_tree_is_only_a_note() {
    let world = World::new(&any_git());
    world.ok(world.hook_program().arg("install").arg(world.path("work")));
    world.ok(world.git("work").args(["commit", "-q", "--allow-empty", "-m", "here"]));
    let ran = world.hook_program().arg("doctor").arg(world.path("work")).output().unwrap();
    let said = text(&ran.stdout);
    assert!(ran.status.success() && said.contains("note: moved-without-gate: 'refs/heads/main'"), "{said}");
}
