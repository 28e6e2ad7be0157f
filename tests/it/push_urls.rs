//! The destinations of pushes inside a run: pushes to the lease's repository carry the lease, no matter how their clone
//! spells its URL. Without a gate, nothing else would stop them.

use crate::support::{
    Git, World,
    agents::{Agent, Remote},
    gits, sh, text, wait_until,
};
use std::{fs, os::unix::fs::symlink, thread};

/// A server without any hook, the agent with the run, and another clone of the same server.
fn world_of(git: &Git) -> World {
    let world = World::bare(git, &[]);
    world.ok(world.git("work").args(["push", "-q"]).arg(world.server()).arg("main"));
    symlink(world.server(), world.path("link.git")).unwrap();
    for name in ["a", "other"] {
        world.ok(world.git(".").args(["clone", "-q"]).arg(world.server()).arg(name));
    }
    world
}

fn agent(world: &World) -> Agent<'_> {
    Agent { world, name: "a".to_owned() }
}

/// The script succeeds, and that many of its pushes were fenced. Returns its output.
#[track_caller]
fn fenced(world: &World, options: &[&str], pushes: u64, script: &str) -> String {
    let before = world.server_ref("refs/fence/repo/lease").map_or(0, |_| world.lease_token());
    let script = format!("set -e; url={}; {script}", sh(world.server()));
    let ran = agent(world).run(options, &script).output().unwrap();
    let said = text(&ran.stdout) + &text(&ran.stderr);
    assert!(ran.status.success(), "{script}\n{said}");
    // The first token belongs to the lease itself.
    assert_eq!(world.lease_token(), before + 1 + pushes, "{script}\n{said}");
    text(&ran.stdout)
}

const WAYS: [&str; 8] = [
    "cd ../other; git config remote.origin.pushurl $url; git push -q origin HEAD:refs/heads/there",
    "git worktree add -q ../tree; cd ../tree; git config extensions.worktreeConfig true
     git config --worktree remote.origin.pushurl $url; git push -q origin HEAD:refs/heads/tree",
    "git remote set-url --push origin $url; git push -q origin HEAD:refs/heads/here; git config --unset remote.origin.pushurl",
    "git -c remote.origin.pushurl=$url push -q origin HEAD:refs/heads/given",
    "git clone -q --config remote.origin.pushurl=$url $url ../made; cd ../made; git push -q origin HEAD:refs/heads/made",
    "git -C ../other config remote.origin.pushurl ${url%.git}; git -C ../other push -q origin HEAD:refs/heads/short",
    "git -C ../other config remote.origin.pushurl ../server.git/; git -C ../other push -q origin HEAD:refs/heads/relative",
    "git -C ../other config remote.origin.pushurl ${url%/*}/link.git; git -C ../other push -q origin HEAD:refs/heads/link",
];

#[test]
fn explicit_push_url_is_fenced_in_every_clone_and_worktree() {
    for git in gits() {
        let world = world_of(&git);
        for way in WAYS {
            fenced(&world, &[], 1, way);
        }
        let refs = ["there", "tree", "here", "given", "made", "short", "relative", "link"];
        for name in refs {
            assert!(world.server_ref(&format!("refs/heads/{name}")).is_some(), "{name}");
        }
    }
}

#[test]
fn alternative_path_to_the_remote_is_fenced() {
    for git in gits() {
        let world = world_of(&git);
        fenced(&world, &[], 1, "git push -q ../server.git HEAD:refs/heads/relative");
        fenced(&world, &[], 1, "git push -q ../link.git HEAD:refs/heads/relative-link");
        fenced(&world, &[], 1, "git push -q ${url%/*}/link.git HEAD:refs/heads/link");
        fenced(&world, &[], 1, "git push -q file://${url%/*}/link.git HEAD:refs/heads/file");
        fenced(&world, &[], 1, "mkdir -p x; cd x; git push -q ./../server.git HEAD:refs/heads/dot");
        fenced(
            &world,
            &[],
            1,
            "cd ../other; git config remote.origin.url ../link.git; git push -q origin HEAD:refs/heads/url",
        );
        // A rule of the user redirects another URL to it, for all clones.
        let server = world.server();
        let rule = format!("[url \"{}/\"]\n\tinsteadOf = mine:\n", server.parent().unwrap().display());
        fs::write(world.path("global"), rule).unwrap();
        let before = world.lease_token();
        let script =
            "cd ../other; git config remote.origin.pushurl mine:server.git; git push -q origin HEAD:refs/heads/mine";
        world.ok(agent(&world).run(&[], script).env("GIT_CONFIG_GLOBAL", world.path("global")));
        assert_eq!(world.lease_token(), before + 2);
    }
}

#[test]
fn lost_lease_lands_nothing_through_an_explicit_push_url() {
    for git in gits() {
        let world = world_of(&git);
        let (a, other) = (agent(&world), Agent { world: &world, name: "other".to_owned() });
        let (inside, go) = (world.path("inside"), world.path("go"));
        let ways: String =
            WAYS.iter().map(|way| format!("sh -ec '{way}' >>../said 2>&1 && echo 'landed: {way}'\n")).collect();
        let url = sh(world.server());
        let script =
            format!("export url={url}; touch {}; until [ -e {} ]; do sleep 0.02; done\n{ways}", sh(&inside), sh(&go));
        let before = thread::scope(|scope| {
            let run = scope.spawn(|| a.run(&["--ttl", "1h"], &script).output().unwrap());
            wait_until("the command runs", || inside.exists());
            other.ok(&["revoke", "--reason", "it hangs"]);
            other.ok(&["acquire", "--owner", "next"]);
            let before =
                world.ok(world.git("server.git").args(["for-each-ref", "refs/heads", "refs/fence/repo/lease"]));
            fs::write(&go, "").unwrap();
            let ran = run.join().unwrap();
            assert_eq!(text(&ran.stdout), "", "{}", fs::read_to_string(world.path("said")).unwrap());
            before
        });
        let after = world.ok(world.git("server.git").args(["for-each-ref", "refs/heads", "refs/fence/repo/lease"]));
        assert_eq!(after, before);
        let said = fs::read_to_string(world.path("said")).unwrap();
        assert!(said.matches("(FENCE-LEASE-LOST").count() >= WAYS.len(), "{said}");
    }
}

/// All of them go through the helper.
#[test]
fn reads_from_the_remote_work_as_before() {
    for git in gits() {
        let world = world_of(&git);
        world.configure("uploadpack.allowFilter", "true");
        world.configure("uploadpack.allowAnySHA1InWant", "true");
        world.ok(world.git("work").args(["tag", "-a", "-m", "one", "v1"]));
        fs::write(world.path("work/file"), "one\n").unwrap();
        world.ok(world.git("work").args(["add", "file"]));
        world.ok(world.git("work").args(["commit", "-q", "-m", "with a file"]));
        world.ok(world.git("work").args(["push", "-q"]).arg(world.server()).args(["main", "v1"]));
        let head = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
        let url = format!("url=file://{}", world.server().display());
        let reads = [
            "git ls-remote -q origin refs/heads/main | cut -f1",
            "git ls-remote --symref -q origin HEAD | sed -n 2p | cut -f1",
            "git fetch -q && git rev-parse origin/main",
            "git fetch -q --tags --prune origin && git rev-parse v1~0 >/dev/null && git rev-parse origin/main",
            "git pull -q --ff-only && cat file >/dev/null && git rev-parse HEAD",
            "git fetch -q $url main && git rev-parse FETCH_HEAD",
            "git remote update >/dev/null 2>&1 && git rev-parse origin/main",
            "git clone -q $url ../c1 && cat ../c1/file >/dev/null && git -C ../c1 rev-parse HEAD",
            "git clone -q --depth=1 $url ../c2 && git -C ../c2 rev-parse HEAD",
            "git clone -q --filter=blob:none $url ../c3 && cat ../c3/file >/dev/null && git -C ../c3 rev-parse HEAD",
            "git clone -q --bare $url ../c4 && git -C ../c4 rev-parse main",
            "git clone -q --mirror $url ../c5 && git -C ../c5 rev-parse main",
            "git clone -q ${url#file://} ../c6 && git -C ../c6 rev-parse HEAD",
            "git clone -q --single-branch --branch main --no-tags $url ../c7 && git -C ../c7 fetch -q && git -C ../c7 rev-parse HEAD",
            "git -C ../c2 fetch -q --unshallow && git -C ../c2 rev-parse origin/main",
            "git -C ../c3 -c protocol.file.allow=always submodule -q add $url sub && git -C ../c3/sub rev-parse HEAD",
            // Other repositories and bundles on the same machine.
            "git fetch -q ../work main && git rev-parse FETCH_HEAD",
            "git -C ../work bundle create -q ../work.bundle main && git fetch -q ../work.bundle main && git rev-parse FETCH_HEAD",
            "git clone -q ../work ../c8 && git -C ../c8 rev-parse HEAD",
        ];
        for read in reads {
            let said = fenced(&world, &[], 0, &format!("{url}; {read}"));
            assert_eq!(said.trim(), head, "{read}");
        }
        let config = fs::read_to_string(world.path("c1/.git/config")).unwrap();
        assert!(!config.contains("fence::"), "{config}");
    }
}

#[test]
fn helper_handles_fetches_only_where_necessary() {
    let shown = "git remote get-url origin; git remote get-url --push origin";
    for remote in Remote::BOTH {
        let git = gits().remove(0);
        let world = world_of(&git);
        if remote == Remote::Gate {
            world.ok(world.hook_program().arg("install").arg(world.server()));
        }
        let url = world.server().display().to_string();
        let plain = format!("{url}\nfence::{url}\n");
        let expected = if remote == Remote::Gate { plain.clone() } else { format!("fence::{url}\nfence::{url}\n") };
        assert_eq!(fenced(&world, &[], 0, shown), expected, "{remote:?}");
        assert_eq!(fenced(&world, &["--plain-fetch"], 0, shown), plain, "{remote:?}");
        fenced(&world, &["--plain-fetch"], 1, "git push -q origin HEAD:refs/heads/b");
    }
}
