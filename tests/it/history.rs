//! Leases with a long history: a clone fetches only the tip, and more only on request.

use crate::support::{
    World,
    agents::{Agent, Remote},
    any_git, gits,
    lease::Agent as Owner,
    needs::{Need, lacks},
    text,
};
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

/// A lease that has changed hands that many times.
fn long_history(world: &World, ownerships: u64) {
    let mut stream = String::new();
    for token in 1..=ownerships {
        let message = Owner::new("somebody").lease(token, "released", if token == 1 { "first" } else { "released" });
        let _ = write!(stream, "commit refs/fence/repo/lease\ncommitter s <s@s> {} +0000\n", 1_700_000_000 + token);
        let _ = write!(stream, "data {}\n{message}\n", message.len());
    }
    let mut import = world.git("server.git");
    import.args(["fast-import", "--quiet"]).stdin(Stdio::piped());
    let mut import = import.spawn().unwrap();
    import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The number of lease commits in a clone.
fn commits_of(agent: &Agent<'_>) -> usize {
    let home = agent.path(".git/git-fence");
    let stores = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path().join("objects"));
    let count = |objects: PathBuf| {
        let mut list = agent.world.git("server.git");
        list.env("GIT_OBJECT_DIRECTORY", &objects).args(["cat-file", "--batch-all-objects", "--batch-check"]);
        agent.world.ok(&mut list).lines().filter(|line| line.contains(" commit ")).count()
    };
    stores.filter(|objects| objects.is_dir()).map(count).sum()
}

#[test]
fn fresh_clone_fetches_only_the_tip_of_the_lease() {
    for git in gits() {
        for shallow in [false, true] {
            let world = World::bare(&git, &[]);
            long_history(&world, 300);
            world.ok(world.git("work").args(["push", "-q"]).arg(world.server()).arg("HEAD:main"));
            world.ok(world.git("work").args(["commit", "-q", "--allow-empty", "-m", "second"]));
            world.ok(world.git("work").args(["push", "-q"]).arg(world.server()).arg("HEAD:main"));
            let url = format!("file://{}", world.server().display());
            let depth: &[&str] = if shallow { &["--depth=1"] } else { &[] };
            world.ok(world.git(".").args(["clone", "-q", &url, "a"]).args(depth));
            let a = Agent { world: &world, name: "a".to_owned() };
            let own_shallow = fs::read_to_string(a.path(".git/shallow")).ok();
            assert_eq!(own_shallow.is_some(), shallow);
            world.ok(a.git().args(["commit", "-q", "--allow-empty", "-m", "work"]));
            assert_eq!(a.ok(&["acquire"]), "301");
            assert_eq!(a.ok(&["push", "origin", "HEAD:main"]), "landed with token 301: refs/heads/main");
            assert_eq!(a.ok(&["advance"]), "303");
            a.ok(&["release"]);
            world.ok(&mut a.run(&[], "git push -q origin HEAD:refs/heads/b"));
            assert!(a.ok(&["push", "origin", "HEAD:refs/heads/c"]).starts_with("landed"));
            assert!(commits_of(&a) < 12, "{}", commits_of(&a));
            assert_eq!(fs::read_to_string(a.path(".git/shallow")).ok(), own_shallow, "the user's clone is unchanged");
            assert!(!world.server().join("shallow").exists(), "and so is the server");
            world.ok(world.git("server.git").args(["fsck", "--strict"]));
            let all = world.ok(world.git("server.git").args(["rev-list", "--count", "refs/fence/repo/lease"]));
            assert_eq!(all, "303", "nothing of the history is lost");
        }
    }
}

#[test]
fn log_fetches_the_history() {
    let world = World::bare(&any_git(), &[]);
    long_history(&world, 300);
    let a = world.agent("a");
    let tokens = |args: &[&str]| -> Vec<u64> {
        let rows: Vec<serde_json::Value> = serde_json::from_str(&a.ok(args)).unwrap();
        rows.iter().map(|row| row["token"].as_u64().unwrap()).collect()
    };
    assert_eq!(tokens(&["log", "--json", "-n", "3"]), [300, 299, 298]);
    assert_eq!(tokens(&["log", "--json"]), (281..=300).rev().collect::<Vec<_>>());
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    assert_eq!(tokens(&["log", "--json", "-n", "5000"]), (1..=301).rev().collect::<Vec<_>>());
    assert_eq!(tokens(&["log", "--json", "-n", "2"]), [301, 300]);
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    assert_eq!(tokens(&["log", "--json", "-n", "4"]), [302, 301, 300, 299]);
}

/// Old tips are not kept forever.
#[test]
fn clone_that_has_seen_many_tips_keeps_only_the_last() {
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    for _ in 0..4 {
        for agent in [&a, &b] {
            agent.ok(&["acquire"]);
            agent.ok(&["release"]);
        }
    }
    let shallow: Vec<PathBuf> =
        files(&a.path(".git/git-fence")).into_iter().filter(|path| path.ends_with("shallow")).collect();
    let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count();
    // The lease and the beat.
    assert!(shallow.iter().map(lines).sum::<usize>() <= 2, "{shallow:?}");
}

/// The answer to a push was lost, and the lease has changed hands many times since.
#[test]
fn lost_answer_is_found_deep_in_the_history() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    b.ok(&["acquire"]);
    b.ok(&["release"]);
    a.ok(&["acquire", "--ttl", "1h"]);
    // The server completes the push, but its answer is lost, and so is the answer to the question that follows.
    let program = crate::support::fixture("fickle-receive-pack.py");
    fs::write(world.path("plan"), "lost\ndown\n").unwrap();
    let program = format!("FICKLE_PLAN={} {}", world.path("plan").display(), program.display());
    world.ok(a.git().args(["config", "remote.origin.receivepack", &program]));
    let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
    assert_eq!(code, 69, "{said}");
    b.ok(&["revoke", "--reason", "it hangs"]);
    for _ in 0..12 {
        b.ok(&["acquire"]);
        b.ok(&["release"]);
    }
    let (code, said) = a.code(&["push", "origin", "HEAD:other"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("the lease moved with the push"), "{said}");
}

/// A client that git itself stopped reports this to the gate; that needs no history.
#[test]
fn lost_holder_reports_to_the_gate_without_fetching_history() {
    let world = Remote::Gate.world(&any_git());
    world.configure("fence.allowRevoke", "tester");
    let (a, b, c) = (world.agent("a"), world.agent("b"), world.agent("c"));
    for _ in 0..3 {
        b.ok(&["acquire"]);
        b.ok(&["release"]);
    }
    a.ok(&["acquire", "--owner", "a"]);
    b.ok(&["revoke", "--reason", "it hangs"]);
    c.ok(&["acquire", "--owner", "c"]);
    let before = world.events("push.rejected").len();
    let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
    assert_eq!(code, 75, "{said}");
    let refused = world.events("push.rejected");
    assert_eq!(refused.len(), before + 1, "{}", text(refused.last().unwrap().to_string().as_bytes()));
    assert_eq!(refused.last().unwrap()["owner"], "a");
}

/// A clone has seen one tip and later another: it does not have the commits between them.
#[test]
fn clone_that_has_seen_some_tips_acquires_the_lease() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let (a, b) = (world.agent("a"), world.agent("b"));
        for agent in [&b, &b, &a, &b, &a, &a, &b, &b, &a] {
            agent.ok(&["acquire"]);
            agent.ok(&["advance"]);
            agent.ok(&["release"]);
        }
        assert_eq!(world.lease_token(), 18);
    }
}

/// With a depth, git fails if there is nothing to fetch, with or without a message.
#[test]
fn first_lease_is_acquired_over_every_transport() {
    if lacks(&[Need::Python]) {
        return;
    }
    for git in gits() {
        for (n, url) in ["", "file://", "ssh://server"].into_iter().enumerate() {
            for is_empty in [true, false] {
                let world = World::bare(&git, &[]);
                let a = world.agent(&format!("a{n}"));
                if !is_empty {
                    world.ok(a.git().args(["push", "-q", "origin", "HEAD:main"]));
                }
                world.ok(a.git().args(["remote", "set-url", "origin", &format!("{url}{}", world.server().display())]));
                let fence = |args: &[&str]| {
                    let mut fence = a.fence(args);
                    fence.env("GIT_SSH_COMMAND", crate::support::fixture("slow-ssh.py"));
                    world.ok(&mut fence)
                };
                assert!(fence(&["status"]).contains("never held"), "{url} {is_empty}");
                assert_eq!(fence(&["log"]), "never held");
                assert_eq!(fence(&["acquire"]), "1");
                fence(&["release"]);
                // Deleted again by hand.
                for part in ["lease", "beat"] {
                    world.ok(world.git("server.git").args(["update-ref", "-d", &format!("refs/fence/repo/{part}")]));
                }
                assert!(fence(&["status"]).contains("never held"), "{url} {is_empty}");
                assert_eq!(fence(&["acquire"]), "1");
            }
        }
    }
}
