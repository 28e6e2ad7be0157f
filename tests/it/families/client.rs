//! `git fence` for the fence of a branch: by name, in a run, and for each branch of a push.

use super::per_branch;
use crate::{
    stores::{agent_at, record_name},
    support::{
        World,
        agents::{Remote, code_of},
        any_git, gits,
        web_store::WebStore,
    },
};
use serde_json::{Value, json};

/// A server with a gate and the family `branch`, or one without any hook.
fn world_of(remote: Remote) -> World {
    match remote {
        Remote::Gate => per_branch(&any_git()),
        Remote::Bare => World::bare(&any_git(), &[]),
    }
}

#[track_caller]
fn ran_well(command: &mut std::process::Command) {
    let (code, said) = code_of(&command.output().unwrap());
    assert_eq!(code, 0, "{said}");
}

fn head_of(world: &World, clone: &str) -> String {
    world.ok(world.git(clone).args(["rev-parse", "HEAD"]))
}

#[test]
fn two_agents_work_on_two_branches_at_once() {
    for remote in Remote::BOTH {
        let world = world_of(remote);
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert_eq!(a.ok(&["acquire", "--branch", "feature/a"]), "1");
        assert_eq!(b.ok(&["acquire", "--fence", "branch/b"]), "1");
        // The lease of one branch is held; that of another is free.
        assert_eq!(b.code(&["acquire", "--branch", "feature/a"]).0, 11);
        assert_eq!(a.ok(&["renew", "--branch", "feature/a"]), "renewed for 90s");
        assert_eq!(a.ok(&["advance", "--branch", "refs/heads/feature/a"]), "2");
        let pushed = a.ok(&["push", "--branch", "feature/a", "origin", "HEAD:refs/heads/feature/a"]);
        assert_eq!(pushed, "landed with token 2: refs/heads/feature/a");
        let status: Value = serde_json::from_str(&b.ok(&["status", "--json", "--branch", "feature/a"])).unwrap();
        assert_eq!((&status["fence"], &status["outcome"]), (&json!("branch/feature/a"), &json!("held")));
        let log = a.ok(&["log", "--branch", "feature/a"]);
        assert!(log.contains("holds it"), "{log}");
        assert!(world.server_ref("refs/fence/branch%2ffeature%2fa/lease").is_some());
        assert_eq!(a.ok(&["release", "--branch", "feature/a"]), "released after token 3");
        assert_eq!(b.ok(&["acquire", "--branch", "feature/a"]), "4");
        assert_eq!(b.ok(&["release", "--fence", "branch/b"]), "released after token 1");
        for (args, words) in [
            (&["acquire", "--branch", "x", "--fence", "y"][..], "cannot be used with"),
            (&["acquire", "--branch", ""], "what the star in the family's pattern matches"),
            (&["acquire", "--branch", "a b"], "git allows no such name"),
            (&["acquire", "--branch", "a..b"], "git allows no branch"),
            (&["acquire", "--fence", "A/b"], "not a valid fence name"),
        ] {
            let (code, said) = a.code(args);
            assert!(code != 0 && said.contains(words), "{args:?}: {code} {said}");
        }
    }
}

#[test]
fn plain_push_in_a_run_carries_the_token_of_its_branch() {
    for git in gits() {
        let world = per_branch(&git);
        let (a, b) = (world.agent("a"), world.agent("b"));
        let script = "git push -q origin HEAD:refs/heads/a && git commit -q --allow-empty -m more && git push -q origin HEAD:refs/heads/a \
            && test \"$GIT_FENCE\" = branch/a && git fence progress half";
        ran_well(&mut a.run(&["--branch", "a"], script));
        ran_well(&mut b.run(&["--fence", "branch/b"], "git push -q origin HEAD:refs/heads/b"));
        // In a run for one branch, a push to another has no token.
        let (code, said) = b.code(&["run", "--branch", "b", "--", "git", "push", "-q", "origin", "+HEAD:refs/heads/a"]);
        assert!(code != 0 && said.contains("FENCE-LEASE-REQUIRED") && said.contains("branch/a"), "{code} {said}");
        // The first free branch.
        a.ok(&["acquire", "--branch", "x"]);
        let script = "test \"$GIT_FENCE\" = branch/y";
        ran_well(&mut b.run(&["--branch", "x", "--branch", "y"], script));
        world.assert_log_is_whole();
    }
}

#[test]
fn push_takes_the_lease_of_each_branch_that_it_pushes() {
    for remote in Remote::BOTH {
        let world = world_of(remote);
        let (a, b) = (world.agent("a"), world.agent("b"));
        let push = ["push", "--per-branch", "origin", "HEAD:refs/heads/two", "HEAD:one"];
        assert_eq!(a.ok(&push), "landed with token 1: refs/heads/one; landed with token 1: refs/heads/two");
        for branch in ["one", "two"] {
            assert_eq!(world.server_ref(&format!("refs/heads/{branch}")), Some(head_of(&world, "a")));
            assert!(world.server_ref(&format!("refs/fence/branch%2f{branch}/lease")).is_some());
        }
        // A lease that is held here is used, and kept.
        assert_eq!(b.ok(&["acquire", "--branch", "three"]), "1");
        let done: Value =
            serde_json::from_str(&b.ok(&["push", "--per-branch", "--json", "origin", "HEAD:three", "HEAD:four"]))
                .unwrap();
        assert_eq!(done["moved"], json!(["refs/heads/four", "refs/heads/three"]));
        assert_eq!(done["outcome"], "landed");
        assert_eq!(b.ok(&["release", "--branch", "three"]), "released after token 2");
        // One that another holds stops the push there; what landed before is said.
        a.ok(&["acquire", "--branch", "two"]);
        let (code, said) = b.code(&["push", "--per-branch", "--force", "origin", "HEAD:one", "HEAD:two"]);
        assert!(code == 11 && said.contains("these landed before: refs/heads/one"), "{code} {said}");
        // A deletion needs a token, too.
        b.ok(&["push", "--per-branch", "--delete", "origin", "four"]);
        assert_eq!(world.server_ref("refs/heads/four"), None);
        for refspecs in [&["HEAD:refs/tags/v1"][..], &["refs/heads/*:refs/heads/*"], &["HEAD:x", "HEAD~1:x"]] {
            let (code, _) = b.code(&[&["push", "--per-branch", "origin"], refspecs].concat());
            assert_eq!(code, 2, "{refspecs:?}");
        }
    }
}

#[test]
fn long_and_strange_branches_have_leases() {
    for remote in Remote::BOTH {
        let world = world_of(remote);
        let a = world.agent("a");
        let long = ["x".repeat(150), "ü".repeat(40)].join("/");
        for branch in [long.as_str(), "Größe/Ä", "a;b$(c)'d"] {
            let said = a.ok(&["push", "--per-branch", "origin", &format!("HEAD:refs/heads/{branch}")]);
            assert!(said.starts_with("landed with token 1"), "{said}");
            assert_eq!(a.ok(&["acquire", "--branch", branch]), "2");
            assert_eq!(a.ok(&["release", "--branch", branch]), "released after token 2");
        }
    }
}

#[test]
fn leases_of_branches_in_a_store_are_independent() {
    let store = WebStore::start();
    for remote in Remote::BOTH {
        let world = world_of(remote);
        if remote == Remote::Gate {
            world.configure("fence.store", &store.url());
            world.configure("fence.resource", record_name(&world).trim_end_matches("/repo"));
        }
        let [a, b] = ["a", "b"].map(|name| agent_at(&world, name, &store.url()));
        a.ok(&["acquire", "--branch", "feature/a"]);
        assert_eq!(b.code(&["acquire", "--branch", "feature/a"]).0, 11);
        b.ok(&["push", "--per-branch", "origin", "HEAD:b", "HEAD:Größe"]);
        a.ok(&["push", "--branch", "feature/a", "origin", "HEAD:feature/a"]);
        assert!(world.server_ref("refs/fence/branch%2ffeature%2fa/mark").is_some());
        a.ok(&["release", "--branch", "feature/a"]);
        let script = "git commit -q --allow-empty -m more && git push -q origin +HEAD:refs/heads/feature/a";
        ran_well(&mut b.run(&["--branch", "feature/a"], script));
    }
}
