//! The commands for operators: install, status, audit.

use crate::support::{World, any_git, gits, story, text, tree};
use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

#[test]
fn install_is_idempotent() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let first = world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!(first.matches("done").count(), 4, "{first}");
        assert_eq!(world.ok(world.git("server.git").args(["config", "receive.advertisePushOptions"])), "true");
        world.push_token("main", "5").assert_landed();
        let before = tree(&world.server());
        let second = world.ok(world.hook_program().arg("install").arg(world.server()));
        assert_eq!(second.matches("already there").count(), 4, "{second}");
        assert!(tree(&world.server()) == before);
        assert_eq!(world.mark(), 5);
    }
}

#[test]
fn bypassed_gate_is_shown_by_status_and_fixed_by_install() {
    let world = World::new(&any_git());
    let flaws = || world.status()["flaws"].as_array().unwrap().clone();
    assert!(flaws().is_empty());
    fs::set_permissions(world.hook("pre-receive"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(flaws()[0].as_str().unwrap().contains("not executable"));
    world.push(&["HEAD:refs/heads/unseen"], &[]).assert_landed();
    let shown = world.ok(world.hook_program().arg("status").arg(world.server()));
    assert!(shown.contains("warning: the hook"), "{shown}");
    world.ok(world.hook_program().arg("install").arg(world.server()));
    assert!(flaws().is_empty());
    fs::remove_file(world.hook("pre-receive")).unwrap();
    assert!(flaws()[0].as_str().unwrap().contains("is missing: no push is checked"));
    world.ok(world.hook_program().arg("install").arg(world.server()));
    world.ok(world.git("server.git").args(["config", "receive.advertisePushOptions", "false"]));
    assert!(flaws()[0].as_str().unwrap().contains("push options"));
    world.ok(world.hook_program().arg("install").arg(world.server()));
    world.push(&["HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
}

#[test]
fn hook_is_installed_where_git_looks_for_it() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("core.hooksPath", "my-hooks");
        world.ok(world.hook_program().arg("install").arg(world.server()));
        assert!(world.server().join("my-hooks/pre-receive").exists());
        world.push(&["HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
        world.push_token("main", "1").assert_landed();
    }
}

#[test]
fn commands_outside_a_repository_say_so() {
    let world = World::bare(&any_git(), &[]);
    for command in [&["install"][..], &["status"], &["audit"], &["audit", "verify"]] {
        for dir in ["home", "no/such/place"] {
            let ran = world.hook_program().args(command).arg(world.path(dir)).output().unwrap();
            assert_eq!(ran.status.code(), Some(1), "{command:?}");
            let said = text(&ran.stderr);
            assert!(said.contains("is not a git repository") && said.contains("hint: "), "{said}");
        }
    }
    let ran = world.hook_program().arg("status").arg(world.server()).output().unwrap();
    assert!(text(&ran.stderr).contains("git-fence-hook install"), "{}", text(&ran.stderr));
    assert_eq!(world.hook_program().arg("frobnicate").output().unwrap().status.code(), Some(2));
}

#[test]
fn status_shows_marks_and_the_push_in_flight_and_changes_nothing() {
    let world = World::new(&any_git());
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.push_token("main", "5").assert_landed();
    world.stall_update_of("t6");
    let six = world.start_push("t6", "6");
    let pid = world.pid_in("stalled");
    let before = tree(&world.server().join("fence"));
    let status = world.status();
    let flight = &status["fences"][1]["in_flight"][0];
    assert_eq!((&flight["token"], &flight["pusher"], &flight["form"]), (&6.into(), &"tester".into(), &"full".into()));
    assert_eq!(flight["receive_pack"]["pid"], pid);
    let shown = world.ok(world.hook_program().arg("status").arg(world.server()));
    let shown = shown.replace(&world.server().display().to_string(), "<server>").replace(&pid.to_string(), "<pid>");
    assert_eq!(status["settings"][0]["key"], "fence.deploy.refs");
    assert_eq!(status["fences"][1]["wait_ms"], 30_000);
    let since = flight["since"].as_str().unwrap();
    insta::assert_snapshot!(shown.replace(since, "<time>"));
    assert!(tree(&world.server().join("fence")) == before);
    world.companion_never_runs();
    world.go();
    six.wait().assert_landed();
    assert_eq!(world.mark(), 6, "known before it is settled");
    assert!(world.events("push.settled").iter().all(|line| line["token"] != 6), "the next push settles it");
}

#[test]
fn audit_prints_a_table_or_json_lines() {
    let world = World::new(&any_git());
    story::listen(&world);
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    world.push_token("main", "6").assert_landed();
    let table = world.ok(world.hook_program().arg("audit").arg(world.server()));
    let without_times: Vec<String> =
        table.lines().map(|line| format!("{}<time>{}", &line[..8], &line[8 + 24..])).collect();
    let user = world.audit()[0]["pusher"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(without_times.join("\n").replacen(&user, "<user>", 1));
    let raw = fs::read_to_string(world.fence_file("audit.jsonl")).unwrap();
    assert_eq!(world.ok(world.hook_program().args(["audit", "--json"]).arg(world.server())), raw.trim_end());
    for (at, line) in world.audit().iter().enumerate() {
        assert_eq!(line["seq"], at as u64 + 1);
    }
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let world = World::new(&any_git());
    for token in 1..=3 {
        world.push_token("main", &token.to_string()).assert_landed();
    }
    for command in [&["audit"][..], &["audit", "--json"], &["status"], &["audit", "verify"]] {
        let mut program = world.hook_program();
        let mut child =
            program.args(command).arg(world.server()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{command:?}: {}", text(&ended.stderr));
        assert_eq!(text(&ended.stderr), "");
    }
}
