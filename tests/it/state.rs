//! Damage to the fence's own files: refused with a clear message, or fixed and recorded.

use crate::support::{
    World, any_git, copy_program, is_root,
    needs::{Need, lacks},
    sh, text,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A server whose log is long enough to have a checkpoint. The mark is 9.
fn world_with_checkpoint() -> World {
    let world = World::new(&any_git());
    for token in 1..=9 {
        let refspecs: Vec<String> = (0..60).map(|n| format!("HEAD:refs/heads/many/{token}/{n}")).collect();
        let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        world.push(&refspecs, &[&format!("fence-token={token}")]).assert_landed();
    }
    assert!(world.fence_file("state.json").exists(), "a long log has a checkpoint");
    world
}

fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn untrusted_log_refuses_every_push_and_is_not_changed() {
    let world = world_with_checkpoint();
    let log = world.fence_file("audit.jsonl");
    let whole = fs::read(&log).unwrap();
    let mut garbage_inside = whole.clone();
    let length = whole.len();
    garbage_inside[length - 400..length - 300].fill(b'#');
    let another_version = text(&whole).replacen("\"version\":1", "\"version\":7", 1).into_bytes();
    let cases: [(&str, Option<Vec<u8>>); 7] = [
        ("missing though installed", None),
        ("empty", Some(Vec::new())),
        ("a line feed", Some(b"\n".to_vec())),
        ("garbage", Some(vec![0xff; 5000])),
        ("garbage as long as the log", Some(vec![b'x'; length])),
        ("shorter than its checkpoint", Some(whole[..1000].to_vec())),
        ("garbage inside", Some(garbage_inside)),
    ];
    for (case, content) in cases {
        match content {
            Some(content) => fs::write(&log, content).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        let before = snapshot(&world.server().join("fence"));
        for token in ["10", "1"] {
            let pushed = world.push_token("main", token);
            pushed.assert_refused("FENCE-BROKEN");
            assert!(pushed.text.contains("audit.jsonl") && pushed.text.contains("git-fence-hook "), "{}", pushed.text);
        }
        assert_eq!(world.server_ref("refs/heads/main"), None, "{case}");
        assert!(!world.verify().status.success(), "{case}");
        assert!(snapshot(&world.server().join("fence")) == before, "{case}: nothing may change");
        fs::write(&log, &whole).unwrap();
    }
    // Without its checkpoint the log is read from the start, which shows its version.
    fs::write(&log, another_version).unwrap();
    let checkpoint = fs::read(world.fence_file("state.json")).unwrap();
    fs::remove_file(world.fence_file("state.json")).unwrap();
    let pushed = world.push_token("main", "10");
    pushed.assert_refused("FENCE-BROKEN");
    assert!(pushed.text.contains("version 7"), "{}", pushed.text);
    fs::write(&log, &whole).unwrap();
    fs::write(world.fence_file("state.json"), checkpoint).unwrap();
    world.push_token("main", "10").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn damaged_checkpoint_is_rebuilt_from_the_log_on_record() {
    let world = world_with_checkpoint();
    let checkpoint = world.fence_file("state.json");
    let good = fs::read(&checkpoint).unwrap();
    let mut token = 9;
    for bad in [&b""[..], b"{}", b"\xff\xfe", &good[..good.len() / 2]] {
        fs::write(&checkpoint, bad).unwrap();
        assert_eq!(world.mark(), token, "status reads the log itself");
        world.push_token("main", "6").assert_refused("FENCE-STALE");
        token += 1;
        world.push_token("main", &token.to_string()).assert_landed();
        assert_eq!(world.mark(), token);
        let newest = fs::read(&checkpoint).unwrap();
        assert!(serde_json::from_slice::<serde_json::Value>(&newest).unwrap()["head"]["seq"].is_u64());
    }
    assert_eq!(world.events("log.recovered").len(), 4);
    world.assert_log_is_whole();

    fs::write(&checkpoint, br#"{"version":9}"#).unwrap();
    let pushed = world.push_token("main", "99");
    pushed.assert_refused("FENCE-BROKEN");
    assert!(pushed.text.contains("state.json") && pushed.text.contains("version 9"), "{}", pushed.text);
    assert_eq!(fs::read(&checkpoint).unwrap(), br#"{"version":9}"#);
}

#[test]
fn checkpoint_that_contradicts_the_log_is_not_trusted() {
    let world = world_with_checkpoint();
    let checkpoint = world.fence_file("state.json");
    let good = fs::read_to_string(&checkpoint).unwrap();
    let mark = serde_json::from_str::<serde_json::Value>(&good).unwrap()["state"]["marks"]["repo"].as_u64().unwrap();
    assert!(mark > 2);
    let lowered = good.replacen(&format!("\"repo\":{mark}"), "\"repo\":1", 1);
    assert_ne!(lowered, good);
    fs::write(&checkpoint, lowered).unwrap();
    assert!(!world.verify().status.success());
    world.push_token("main", "2").assert_refused("FENCE-STALE");
    assert_eq!(world.events("log.recovered").len(), 1);
    world.assert_log_is_whole();
}

/// A quiet night has that many heartbeats: none of them is synced by itself.
#[test]
fn checkpoint_is_written_even_if_no_push_is_accepted_for_long() {
    let world = World::new(&any_git());
    world.push_token("main", "1").assert_landed();
    let names: Vec<String> = (0..64).map(|n| format!("HEAD:refs/heads/{}-{n}", "long".repeat(20))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let log = || fs::metadata(world.fence_file("audit.jsonl")).unwrap().len();
    while log() < 300 * 1024 {
        assert!(!world.fence_file("state.json").exists() || log() > 256 * 1024);
        world.push(&names, &["fence-token=1"]).assert_refused("FENCE-STALE");
    }
    assert!(world.fence_file("state.json").exists());
    world.push_token("main", "2").assert_landed();
    world.assert_log_is_whole();
}

/// As if the machine had rebooted: synced lines must still exist, unsynced ones may
/// be gone or garbage.
pub(crate) fn reboot(world: &World) {
    let mutex = world.fence_file("mutex");
    let witness = fs::read_to_string(&mutex).unwrap();
    // The rest after the first line is a leftover of a longer one.
    let line = witness.lines().next().unwrap();
    let boot = serde_json::from_str::<serde_json::Value>(line).unwrap()["boot"].as_str().unwrap().to_owned();
    fs::write(mutex, witness.replace(&boot, &"0".repeat(boot.len()))).unwrap();
}

#[test]
fn only_synced_lines_must_survive_a_machine_crash() {
    let world = World::new(&any_git());
    world.companion_never_runs();
    world.push_token("main", "5").assert_landed();
    world.push_token("main", "6").assert_landed();
    let log = world.fence_file("audit.jsonl");
    let synced = fs::read(&log).unwrap();
    world.push_token("main", "3").assert_refused("FENCE-STALE");
    world.push_token("main", "4").assert_refused("FENCE-STALE");
    let whole = fs::read(&log).unwrap();
    let mutex = fs::read(world.fence_file("mutex")).unwrap();

    // A synced line is missing: the log was truncated, no matter what has happened since.
    let cut = synced[..synced.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    fs::write(&log, &synced[..cut]).unwrap();
    reboot(&world);
    assert!(!world.verify().status.success());
    world.push_token("main", "6").assert_refused("FENCE-BROKEN");

    // Unsynced lines are missing, truncated, or full of zeros.
    let mut zeros = synced.clone();
    zeros.resize(whole.len() - 1, 0);
    zeros.push(b'\n');
    let mut half_zeros = whole.clone();
    let length = half_zeros.len();
    half_zeros[synced.len() + 200..length - 1].fill(0);
    for survived in [&synced[..], &whole[..synced.len() + 100], &zeros, &half_zeros] {
        fs::write(&log, survived).unwrap();
        fs::write(world.fence_file("mutex"), &mutex).unwrap();
        reboot(&world);
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/heads/again"]));
        world.push_token("again", "6").assert_refused("FENCE-STALE");
        world.push_token("again", "7").assert_landed();
        world.assert_log_is_whole();
    }
}

#[test]
fn lost_log_is_not_silently_restarted() {
    let world = World::new(&any_git());
    world.configure("fence.init", "auto");
    world.push_token("main", "5").assert_landed();
    fs::remove_file(world.fence_file("audit.jsonl")).unwrap();
    reboot(&world);
    world.push_token("main", "1").assert_refused("FENCE-BROKEN");
    let install = world.hook_program().arg("install").arg(world.server()).output().unwrap();
    assert!(!install.status.success());
    assert!(text(&install.stderr).contains("is lost: other files refer to it"), "{}", text(&install.stderr));
    // The way out for an operator who knows what it means.
    fs::remove_dir_all(world.server().join("fence")).unwrap();
    world.ok(world.hook_program().arg("install").arg(world.server()));
    world.push_token("main", "1").assert_landed();
}

#[test]
fn torn_last_line_is_moved_aside_on_record() {
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let log = world.fence_file("audit.jsonl");
    let mut content = fs::read(&log).unwrap();
    let end = content.len();
    content.extend(b"{\"seq\":4,\"time\":\"2026");
    fs::write(&log, &content).unwrap();
    assert!(text(&world.verify().stderr).contains("torn"));
    assert_eq!(world.mark(), 5);
    world.push_token("main", "6").assert_landed();
    assert_eq!(fs::read(world.fence_file(&format!("torn-{end}"))).unwrap(), b"{\"seq\":4,\"time\":\"2026");
    let recovered = &world.events("log.recovered")[0];
    assert!(recovered["reason"].as_str().unwrap().contains("21 bytes"), "{recovered}");
    assert_eq!(world.mark(), 6);
    world.assert_log_is_whole();
}

/// A waiting push reads the log again and again. It fixes a torn line when it writes.
#[test]
fn torn_last_line_is_moved_aside_once_however_long_pushes_wait() {
    let world = World::new(&any_git());
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let slow = world.start_push("slow", "5");
    world.pid_in("stalled");
    let log = world.fence_file("audit.jsonl");
    let torn = [&fs::read(&log).unwrap()[..], b"{\"seq\":"].concat();
    fs::write(&log, torn).unwrap();
    world.configure("fence.wait", "1s");
    world.push_token("main", "6").assert_refused("FENCE-BUSY");
    world.go();
    slow.wait().assert_landed();
    world.push_token("main", "7").assert_landed();
    let files = fs::read_dir(world.fence_file("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_string_lossy().starts_with("torn-")).count(), 1);
    world.assert_log_is_whole();
}

#[test]
fn deleted_or_corrupt_mutex_is_created_again() {
    let world = World::new(&any_git());
    let mutex = world.fence_file("mutex");
    world.push_token("main", "5").assert_landed();
    fs::remove_file(&mutex).unwrap();
    world.push_token("main", "5").assert_refused("FENCE-STALE");
    world.push_token("main", "6").assert_landed();
    fs::write(&mutex, [0xff; 2000]).unwrap();
    world.push_token("main", "7").assert_landed();
    assert_eq!(world.mark(), 7);
    world.assert_log_is_whole();
}

#[test]
fn lost_ref_list_refuses_instead_of_guessing() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "10m");
    world.write_hook("update", "kill -KILL $PPID");
    let refspecs: Vec<String> = (0..200).map(|n| format!("HEAD:refs/heads/many/{n}")).collect();
    let refspecs: Vec<&str> = refspecs.iter().map(String::as_str).collect();
    assert!(!world.push(&refspecs, &["fence-token=5"]).ok);
    fs::remove_file(world.hook("update")).unwrap();
    let push = world.events("push.accepted")[0]["push"].as_u64().unwrap();
    let plan = world.fence_file(&format!("plan-{push}.jsonl"));
    let kept = fs::read(&plan).unwrap();
    assert_eq!(kept.iter().filter(|b| **b == b'\n').count(), 200);
    for damage in [None, Some(&kept[..kept.len() - 1])] {
        fs::remove_file(&plan).unwrap();
        if let Some(bytes) = damage {
            fs::write(&plan, bytes).unwrap();
        }
        let pushed = world.push_token("main", "6");
        pushed.assert_refused("FENCE-BROKEN");
        assert!(pushed.text.contains(&format!("plan-{push}.jsonl")), "{}", pushed.text);
        fs::write(&plan, &kept).unwrap();
    }
    world.push_token("main", "5").assert_landed();
    assert!(!plan.exists(), "a settled push needs no ref list");
}

/// Copies the program to a place where every user can run it, and returns the command that runs it as another user.
fn as_nobody(world: &World) -> String {
    let program = world.path("gate-for-all");
    copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &program);
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let drop = if is_root() { "setpriv --reuid 65534 --regid 65534 --clear-groups " } else { "" };
    format!("{drop}{}", sh(program))
}

#[test]
fn unwritable_directory_refuses() {
    // Without root the tests already run as another user.
    if is_root() && lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    world.push_token("main", "5").assert_landed();
    let gate = as_nobody(&world);
    world.write_hook("pre-receive", &format!("exec {gate} pre-receive"));
    let dir = world.server().join("fence");
    // The directory by its own name: in a directory without search permission nothing can be reached, not even '.'.
    let mode = |file: &str, mode: u32| {
        let path = if file == "." { dir.clone() } else { dir.join(file) };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (file, bits) in
        [("mutex", 0o444), ("writer", 0o444), ("audit.jsonl", 0o444), ("audit.jsonl", 0o000), (".", 0o000)]
    {
        for (file, bits) in [(".", 0o777), ("mutex", 0o666), ("writer", 0o666), ("audit.jsonl", 0o666), (file, bits)] {
            mode(file, bits);
        }
        let pushed = world.push_token("main", "6");
        pushed.assert_refused("FENCE-BROKEN");
        assert!(pushed.text.contains("fence/"), "names the file: {}", pushed.text);
    }
    for (file, bits) in [(".", 0o777), ("mutex", 0o666), ("writer", 0o666), ("audit.jsonl", 0o666)] {
        mode(file, bits);
    }
    world.push_token("main", "6").assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn file_size_limit_refuses_and_leaves_the_log_intact() {
    let world = World::new(&any_git());
    // The limit is in blocks of 512 bytes, and the log reaches it.
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    world.write_hook("pre-receive", &format!("ulimit -f 8\nexec {gate} pre-receive"));
    let mut token = 0;
    let refused = loop {
        token += 1;
        let pushed = world.push_token("main", &token.to_string());
        if !pushed.ok {
            break pushed;
        }
        assert!(token < 100, "the limit is never reached");
    };
    refused.assert_refused("FENCE-BROKEN");
    assert!(refused.text.contains("audit.jsonl"), "{}", refused.text);
    assert_eq!(world.mark(), token - 1);
    world.assert_log_is_whole();
    world.write_hook("pre-receive", &format!("exec {gate} pre-receive"));
    world.push_token("main", &token.to_string()).assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn full_disk_refuses_and_leaves_the_log_intact() {
    if lacks(&[Need::Mount]) {
        return;
    }
    let world = World::new(&any_git());
    let dir = world.server().join("fence");
    let saved = snapshot(&dir);
    world.ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&dir));
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(dir.clone());
    for (path, content) in saved {
        fs::write(path, content).unwrap();
    }
    world.push_token("main", "1").assert_landed();
    let filler = dir.join("filler");
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    let mut token = 1;
    let refused = loop {
        token += 1;
        let pushed = world.push_token("main", &token.to_string());
        if !pushed.ok {
            break pushed;
        }
        assert!(token < 100, "the disk is never full");
    };
    refused.assert_refused("FENCE-BROKEN");
    assert!(refused.text.contains("audit.jsonl"), "{}", refused.text);
    assert_eq!(world.mark(), token - 1);
    world.assert_log_is_whole();
    fs::remove_file(filler).unwrap();
    world.push_token("main", &token.to_string()).assert_landed();
    world.assert_log_is_whole();
}

#[test]
fn repository_without_a_log_is_closed_unless_init_is_auto() {
    let world = World::new(&any_git());
    fs::remove_dir_all(world.server().join("fence")).unwrap();
    let pushed = world.push_token("main", "5");
    pushed.assert_refused("FENCE-BROKEN");
    assert!(pushed.text.contains("git-fence-hook install"), "{}", pushed.text);
    world.configure("fence.init", "auto");
    world.push_token("main", "5").assert_landed();
    assert_eq!(world.mark(), 5);
    // A lost log differs from one that was never started.
    let world = world_with_checkpoint();
    world.configure("fence.init", "auto");
    fs::remove_file(world.fence_file("audit.jsonl")).unwrap();
    world.push_token("main", "1").assert_refused("FENCE-BROKEN");
}

#[test]
fn files_keep_the_permissions_and_owner_of_the_directory() {
    let world = World::bare(&any_git(), &["--shared=group"]);
    world.ok(world.hook_program().arg("install").arg(world.server()));
    world.push_token("main", "5").assert_landed();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(world.server().join("fence")), mode(world.server()));
    assert_eq!(mode(world.fence_file("audit.jsonl")), mode(world.server()) & 0o666);
    for lock in ["mutex", "writer"] {
        assert_eq!(mode(world.fence_file(lock)), 0o660, "{lock}: no access for readers");
    }
}
