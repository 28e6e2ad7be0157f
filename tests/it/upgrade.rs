//! A repository installed by the previous version: only `install` upgrades it, and its log continues.

use crate::support::{World, gits, text};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{fmt::Write as _, fs};

/// The lines of a log, chained.
fn chained(lines: &[Value]) -> String {
    let mut log = String::new();
    let mut prev = "0".repeat(64);
    for (at, line) in lines.iter().enumerate() {
        let mut line = line.clone();
        line["seq"] = (at + 1).into();
        line["time"] = "2026-01-02T03:04:05.678Z".into();
        line["prev"] = prev.into();
        let line = line.to_string();
        prev = Sha256::digest(&line).iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        log += &format!("{line}\n");
    }
    log
}

/// As that version wrote it: token 5 was settled by comparing refs, token 6 has landed and is not settled yet.
fn log_of_the_version_before(tip: &str) -> String {
    let rules = json!({
        "fence": "repo", "refs": ["refs/heads/*", "refs/tags/*"], "mode": "enforce", "accept": "above", "tokenless": false,
        "exempt": [], "wait_ms": 30000, "max_jump": null, "evict_after_ms": null, "lease_max_ttl_s": 86400, "allow_revoke": []
    });
    let accepted = |push: u64, token: u64, name: &str| {
        json!({
            "event": "push.accepted", "push": push, "fence": "repo", "token": token, "mark": token - 1, "source": "option",
            "pusher": "anna", "refs": [{ "name": name, "fence": "repo", "old": null, "new": tip }], "count": 1,
            "digest": "", "receive_pack": { "pid": 7, "start": 7 },
            "place": { "boot": "b", "pid_ns": 1, "uptime_ms": 1 }, "elapsed_us": 1
        })
    };
    chained(&[
        json!({ "event": "log.begun", "version": 1, "pusher": "anna" }),
        json!({ "event": "settings.changed", "settings": {
            "fences": [rules], "receive_pack_is_elsewhere": false, "init_at_first_push": false
        } }),
        accepted(3, 5, "refs/heads/five"),
        json!({
            "event": "push.settled", "push": 3, "fence": "repo", "token": 5, "mark": 5, "spent": ["repo"], "moved": 1,
            "count": 1, "evidence": "refs-moved"
        }),
        accepted(5, 6, "refs/heads/six"),
    ])
}

#[test]
fn repository_of_an_earlier_version_is_upgraded_only_by_install() {
    for git in gits() {
        let world = World::new(&git);
        let tip = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
        world.companion_never_runs();
        world.push(&["HEAD:refs/heads/five", "HEAD:refs/heads/six"], &["fence-token=1"]).assert_landed();
        // That version had one hook, and no files but these.
        fs::remove_file(world.hook("post-receive")).unwrap();
        fs::remove_dir_all(world.server().join("fence")).unwrap();
        fs::create_dir(world.server().join("fence")).unwrap();
        let before = log_of_the_version_before(&tip);
        fs::write(world.fence_file("audit.jsonl"), &before).unwrap();

        for token in ["4", "7"] {
            let pushed = world.push_token("main", token);
            pushed.assert_refused("FENCE-BROKEN");
            assert!(pushed.remote.contains("git-fence-hook install"), "{}", pushed.remote);
        }
        let doctor = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
        assert!(text(&doctor.stdout).contains("companion"), "{}", text(&doctor.stdout));
        let said = world.ok(world.hook_program().arg("install").arg(world.server()));
        assert!(said.contains("companion") && said.contains("done"), "{said}");

        world.push_token("main", "6").assert_refused("FENCE-STALE");
        world.push_token("main", "7").assert_landed();
        assert!(fs::read_to_string(world.fence_file("audit.jsonl")).unwrap().starts_with(&before), "the log continues");
        let settled: Vec<(u64, u64)> = world
            .events("push.settled")
            .iter()
            .map(|line| (line["token"].as_u64().unwrap(), line["moved"].as_u64().unwrap()))
            .collect();
        assert_eq!(settled, [(5, 1), (6, 1), (7, 1)]);
        world.assert_log_is_whole();
    }
}
