//! Logs that were copied, interrupted or damaged in a place that pushes do not read: each is reported as what it is,
//! and doctor does not claim that pushes are refused when they land.

use crate::support::{World, any_git, text};
use std::{fs, path::PathBuf, process::Command};

/// The point where a killed rotation stops: the log has its second name, and the new log is not started yet.
fn interrupt_rotation(world: &World) -> PathBuf {
    let seq = world.audit().last().unwrap()["seq"].as_u64().unwrap();
    let archive = world.fence_file(&format!("audit-{seq:012}.jsonl"));
    fs::hard_link(world.fence_file("audit.jsonl"), &archive).unwrap();
    archive
}

/// `cp -r`: other inodes, no hard links.
fn copy(world: &World) {
    let away = world.path("copied-from.git");
    fs::rename(world.server(), &away).unwrap();
    world.ok(Command::new("cp").arg("-r").arg(&away).arg(world.server()));
}

fn doctor(world: &World) -> Vec<serde_json::Value> {
    let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    report["findings"].as_array().unwrap().clone()
}

fn command(world: &World, args: &[&str]) {
    world.ok(world.hook_program().args(args).arg(world.server()));
}

fn numbers(world: &World) -> Vec<u64> {
    world.audit().iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

#[test]
fn copied_interrupted_rotation_is_recognised_and_continued() {
    for fix in [&["rotate"][..], &["repair", "--yes"]] {
        let world = World::new(&any_git());
        for token in 1..=3 {
            world.push_token("main", &token.to_string()).assert_landed();
        }
        command(&world, &["rotate"]);
        world.push_token("main", "4").assert_landed();
        let left = interrupt_rotation(&world);
        copy(&world);
        world.assert_log_is_whole();
        let findings = doctor(&world);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((&findings[0]["name"], &findings[0]["severity"]), (&"rotation-interrupted".into(), &"note".into()));
        world.push_token("main", "5").assert_landed();
        world.push_token("main", "4").assert_refused("FENCE-STALE");
        world.assert_log_is_whole();
        let lines = numbers(&world);
        assert!(lines.windows(2).all(|two| two[1] == two[0] + 1), "each line once: {lines:?}");

        command(&world, fix);
        assert!(!left.exists());
        assert!(doctor(&world).is_empty());
        assert!(numbers(&world).starts_with(&lines), "nothing is lost");
        world.push_token("main", "6").assert_landed();
        world.assert_log_is_whole();
    }
}

/// The previous version has rotated over the leftover: two files begin alike, and neither is the log.
#[test]
fn leftover_of_a_rotation_is_recognised_after_later_rotations() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let left = interrupt_rotation(&world);
    copy(&world);
    let kept = fs::read(&left).unwrap();
    world.push_token("main", "2").assert_landed();
    command(&world, &["rotate"]);
    fs::write(&left, kept).unwrap();
    world.push_token("main", "3").assert_landed();
    world.assert_log_is_whole();
    command(&world, &["repair", "--yes"]);
    assert!(!left.exists());
    world.assert_log_is_whole();
}

/// Only an exact prefix of the next file counts as a copy of it.
#[test]
fn differing_copy_is_damage() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let left = interrupt_rotation(&world);
    copy(&world);
    let content = fs::read_to_string(&left).unwrap();
    fs::write(&left, content.replacen("tester", "nobody", 1)).unwrap();
    assert!(!world.verify().status.success());
    world.push_token("main", "2").assert_landed();
    command(&world, &["rotate"]);
    assert!(left.exists(), "lines that are in no other file are not removed");
}

/// A log that was rotated and has a checkpoint. The mark is 9.
fn world_with_everything() -> World {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    command(&world, &["rotate"]);
    for token in 2..=9 {
        let refspecs: Vec<String> = (0..60).map(|n| format!("HEAD:refs/heads/many/{token}/{n}")).collect();
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        world.push(&refspecs, &[&format!("fence-token={token}")]).assert_landed();
    }
    assert!(world.fence_file("state.json").exists());
    world
}

fn archive(world: &World) -> PathBuf {
    let files = fs::read_dir(world.fence_file("")).unwrap().map(|entry| entry.unwrap().path());
    let is_archive = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("audit-");
    files.into_iter().find(is_archive).unwrap()
}

#[test]
fn doctor_reports_what_each_kind_of_damage_does_to_pushes() {
    type Damage = fn(&World);
    let damages: [(&str, Damage); 9] = [
        ("archive-damaged", |world| {
            let path = archive(world);
            fs::write(&path, fs::read_to_string(&path).unwrap().replacen("tester", "nobody", 1)).unwrap();
        }),
        ("archive-damaged", |world| fs::write(archive(world), "").unwrap()),
        ("archive-damaged", |world| {
            let path = archive(world);
            let whole = fs::read(&path).unwrap();
            fs::write(path, &whole[..whole.len() - 3]).unwrap();
        }),
        ("log-damaged-before-checkpoint", |world| {
            let path = world.fence_file("audit.jsonl");
            fs::write(&path, fs::read_to_string(&path).unwrap().replacen("tester", "nobody", 1)).unwrap();
        }),
        ("log-damaged", |world| fs::write(world.fence_file("audit.jsonl"), "").unwrap()),
        ("log-cut", |world| {
            let path = world.fence_file("audit.jsonl");
            let whole = fs::read(&path).unwrap();
            fs::write(path, &whole[..5000]).unwrap();
        }),
        ("log-lost", |world| fs::remove_file(world.fence_file("audit.jsonl")).unwrap()),
        ("log-missing", |world| fs::remove_dir_all(world.fence_file("")).unwrap()),
        ("log-newer", |world| fs::write(world.fence_file("state.json"), "{\"version\":9}").unwrap()),
    ];
    let world = world_with_everything();
    let whole = world.path("whole.git");
    fs::rename(world.server(), &whole).unwrap();
    for mode in ["enforce", "observe", "off"] {
        for (name, damage) in damages {
            let _ = fs::remove_dir_all(world.server());
            world.ok(Command::new("cp").arg("-a").arg(&whole).arg(world.server()));
            world.configure("fence.mode", mode);
            world.push_token("main", "10").assert_landed();
            damage(&world);
            let findings = doctor(&world);
            let Some(finding) = findings.iter().find(|finding| finding["name"] == name) else {
                panic!("{mode}, {name} is not among {findings:#?}");
            };
            let sentence = finding["sentence"].as_str().unwrap();
            let landed = world.push_token("main", "11").ok;
            assert_eq!(sentence.contains("land"), landed, "{mode}, {name}: {sentence}");
            assert_eq!(
                sentence.contains("every push to guarded refs is refused"),
                !landed,
                "{mode}, {name}: {sentence}"
            );
        }
    }
}

/// Accepting only what is readable before the damage would lose every mark after it, needlessly.
#[test]
fn damage_before_the_checkpoint_is_moved_aside_and_lowers_no_mark() {
    let world = world_with_everything();
    let path = world.fence_file("audit.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("tester", "nobody", 1)).unwrap();
    let repair = |args: &[&str]| world.hook_program().arg("repair").args(args).arg(world.server()).output().unwrap();
    assert!(text(&repair(&[]).stdout).contains("the marks are correct"));
    assert!(text(&repair(&["--yes"]).stderr).contains("the reason is empty"));
    assert!(repair(&["--yes", "--reason", "somebody edited it"]).status.success());
    assert_eq!(world.mark(), 9);
    world.push_token("main", "9").assert_refused("FENCE-STALE");
    world.push_token("main", "10").assert_landed();
    let names: Vec<_> = doctor(&world).iter().map(|finding| finding["name"].clone()).collect();
    assert_eq!(names, ["archive-damaged"]);
    assert!(fs::read_to_string(&path).unwrap().contains("log.rotated"));
}
