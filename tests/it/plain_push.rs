//! A plain `git push` of a command that runs under a lease: it works as usual, except
//! that it carries the lease. If the server has no hook, git's own compare-and-swap refuses.

use crate::support::{
    Git, World,
    agents::Remote,
    any_git, gits,
    needs::{Need, lacks},
    sh, text, wait_until, write_script,
};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread,
};

/// A bare repository, a clone whose `origin` it is, and `main` on both.
fn world_of(remote: Remote, git: &Git, init: &[&str]) -> World {
    let world = World::bare(git, init);
    world.configure("receive.denyDeleteCurrent", "ignore");
    world.ok(world.git("work").args(["remote", "add", "origin"]).arg(world.server()));
    world.ok(world.git("work").args(["push", "-q", "-u", "origin", "main"]));
    if remote == Remote::Gate {
        world.ok(world.hook_program().arg("install").arg(world.server()));
    }
    world
}

/// A repository without any hook.
fn bare() -> World {
    world_of(Remote::Bare, &any_git(), &[])
}

fn fence(world: &World, dir: impl AsRef<Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence"));
    world.hermetic(&mut command);
    command.current_dir(world.path("").join(dir));
    command
}

/// A run of a shell script in `dir`. No heartbeat is sent during the test.
fn run_in(world: &World, dir: &str, options: &[&str], script: &str) -> Command {
    let mut command = fence(world, dir);
    command.args(["run", "--ttl", "1h", "--owner", "ours"]).args(options).args(["--", "sh", "-ec", script]);
    command
}

/// The result of a run: the number of fenced pushes equals the number of spent tokens.
struct Ran {
    output: Output,
    pushes: u64,
}

fn under_lease_in(world: &World, dir: &str, options: &[&str], script: &str) -> Ran {
    let before = token(world);
    let output = run_in(world, dir, options, script).output().unwrap();
    // The first token belongs to the lease itself.
    let pushes = token(world).checked_sub(before + 1);
    let pushes = pushes.unwrap_or_else(|| panic!("no lease was taken: {}", text(&output.stderr)));
    Ran { output, pushes }
}

/// The script succeeds with that many fenced pushes. Returns its output.
#[track_caller]
fn ok_in(world: &World, dir: &str, pushes: u64, script: &str) -> String {
    let ran = under_lease_in(world, dir, &[], script);
    let said = text(&ran.output.stdout) + &text(&ran.output.stderr);
    assert!(ran.output.status.success(), "{script}\n{said}");
    assert_eq!(ran.pushes, pushes, "{script}\n{said}");
    text(&ran.output.stdout)
}

#[track_caller]
fn ok_under_lease(world: &World, pushes: u64, script: &str) -> String {
    ok_in(world, "work", pushes, script)
}

/// The script fails for `reason`, and none of its pushes was fenced. Returns the output.
#[track_caller]
fn refused_under_lease(world: &World, script: &str, reason: &str) -> String {
    let (said, pushes) = partly_refused_under_lease(world, script, reason);
    assert_eq!(pushes, 0, "{said}");
    said
}

/// The script fails for `reason`. Returns the output and the number of fenced pushes.
#[track_caller]
fn partly_refused_under_lease(world: &World, script: &str, reason: &str) -> (String, u64) {
    let ran = under_lease_in(world, "work", &[], script);
    let said = text(&ran.output.stderr);
    assert_eq!(ran.output.status.code(), Some(1), "{script}\n{said}");
    assert!(said.contains(reason), "{said}");
    (said, ran.pushes)
}

/// The token of the lease in the remote; 0 before the first.
fn token(world: &World) -> u64 {
    token_in(world, "server.git")
}

fn token_in(world: &World, server: &str) -> u64 {
    let lease = ["for-each-ref", "--format=%(contents)", "refs/fence/repo/lease"];
    let shown = world.ok(world.git(server).args(lease));
    shown.lines().find_map(|line| line.strip_prefix("Fence-Token: ")).map_or(0, |token| token.parse().unwrap())
}

fn tip(world: &World, dir: &str, name: &str) -> String {
    world.ok(world.git(dir).args(["rev-parse", "--verify", name]))
}

/// If there is a gate, it has admitted moves of branches and tags under these tokens, in this order.
#[track_caller]
fn assert_tokens_that_moved(world: &World, remote: Remote, tokens: &[u64]) {
    if remote == Remote::Gate {
        let moved = world.events("push.settled").into_iter().filter(|line| line["moved"] != 0);
        let moved: Vec<u64> = moved.filter_map(|line| line["token"].as_u64()).collect();
        assert_eq!(moved, tokens);
        world.assert_log_is_whole();
    }
}

const COMMIT: &str = "git commit -q --allow-empty -m more\n";

#[test]
fn ten_plain_pushes_land_each_with_its_own_token() {
    for git in gits() {
        for (remote, init) in Remote::BOTH.into_iter().flat_map(|to| [(to, &[][..]), (to, &["--object-format=sha256"])])
        {
            let world = world_of(remote, &git, init);
            ok_under_lease(
                &world,
                10,
                "for n in 1 2 3 4 5 6 7 8 9 10; do git commit -q --allow-empty -m $n; git push -q; done",
            );
            let here = tip(&world, "work", "main");
            assert_eq!(world.server_ref("refs/heads/main"), Some(here.clone()));
            assert_eq!(tip(&world, "work", "refs/remotes/origin/main"), here, "the remote-tracking ref follows");
            assert_tokens_that_moved(&world, remote, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        }
    }
}

#[test]
fn pushes_of_one_run_wait_for_each_other() {
    for remote in Remote::BOTH {
        let world = world_of(remote, &any_git(), &[]);
        let push = |n: u32| format!("git push -q origin HEAD:refs/heads/b{n} & p{n}=$!\n");
        let all: String = (0..4).map(push).collect();
        ok_under_lease(&world, 4, &format!("{all} wait $p0; wait $p1; wait $p2; wait $p3"));
        for n in 0..4 {
            assert!(world.server_ref(&format!("refs/heads/b{n}")).is_some());
        }
        assert_tokens_that_moved(&world, remote, &[1, 2, 3, 4]);
    }
}

#[test]
fn command_gets_its_lease_but_not_its_secret() {
    let world = bare();
    let all = ok_under_lease(&world, 0, "env; cat \"$GIT_FENCE_DIR/lease.json\" >../lease.json");
    for line in ["GIT_FENCE=repo", "GIT_FENCE_TOKEN=1", "GIT_FENCE_OWNER=ours", "GIT_FENCE_REMOTE=origin"] {
        assert!(all.lines().any(|found| found == line), "{line} in {all}");
    }
    let lease: serde_json::Value = serde_json::from_slice(&fs::read(world.path("lease.json")).unwrap()).unwrap();
    assert!(!all.contains(lease["master"].as_str().unwrap()));
    // Settings that the user passes to git through the environment stay.
    assert_eq!(ok_under_lease(&world, 0, "git config init.defaultBranch").trim(), "main");
}

#[test]
fn nothing_changes_outside_the_command() {
    let world = bare();
    let config = fs::read(world.path("work/.git/config")).unwrap();
    ok_under_lease(&world, 1, &format!("{COMMIT} git push -q"));
    assert_eq!(fs::read(world.path("work/.git/config")).unwrap(), config);
    let settings = world.ok(world.git("work").args(["config", "--list"]));
    assert!(!settings.contains("fence::") && !settings.contains("insteadof"), "{settings}");
    let refs = world.ok(world.git("work").args(["for-each-ref", "--format=%(refname)"]));
    assert_eq!(refs, "refs/heads/main\nrefs/remotes/origin/main");
    assert!(!world.path("work/.git/FETCH_HEAD").exists());
    // A plain push outside the run works as always: a remote without a gate accepts it.
    world.ok(world.git("work").args(["push", "-q", "origin", "HEAD:refs/heads/outside"]));
    assert_eq!(token(&world), 2);
}

#[test]
fn every_form_of_git_push_works_under_the_lease() {
    for remote in Remote::BOTH {
        let world = world_of(remote, &any_git(), &[]);
        let server = |name: &str| world.server_ref(name).is_some();
        ok_under_lease(
            &world,
            1,
            "git push -q --atomic origin HEAD:refs/heads/a HEAD:refs/heads/b HEAD:refs/heads/c/d",
        );
        assert!(server("refs/heads/a") && server("refs/heads/b") && server("refs/heads/c/d"));
        ok_under_lease(&world, 1, "git tag v1; git tag -a -m two v2; git push -q --tags");
        assert!(server("refs/tags/v1") && server("refs/tags/v2"));
        ok_under_lease(&world, 1, &format!("{COMMIT} git tag -a -m three v3; git push -q --follow-tags"));
        assert!(server("refs/tags/v3"));
        ok_under_lease(&world, 2, "git push -q --delete origin a; git push -q origin :b :refs/tags/v1");
        assert!(!server("refs/heads/a") && !server("refs/heads/b") && !server("refs/tags/v1"));
        ok_under_lease(&world, 1, "git branch x; git branch y; git push -q --all");
        assert!(server("refs/heads/x") && server("refs/heads/y"));
        ok_under_lease(&world, 1, "git branch -qD x; git push -q --prune origin 'refs/heads/*:refs/heads/*'");
        assert!(!server("refs/heads/x") && !server("refs/heads/c/d") && server("refs/heads/y"));
        ok_under_lease(
            &world,
            1,
            "git checkout -q --detach; git commit -q --allow-empty -m lost; git push -q origin HEAD:refs/heads/z",
        );
        assert_eq!(world.server_ref("refs/heads/z"), Some(tip(&world, "work", "HEAD")));
        ok_under_lease(&world, 1, "git push -q origin HEAD~1:refs/heads/before :/first:refs/heads/first");
        assert_eq!(world.server_ref("refs/heads/before"), Some(tip(&world, "work", "HEAD~1")));
        // Each run starts with its own token.
        assert_tokens_that_moved(&world, remote, &[1, 3, 5, 7, 8, 10, 12, 14, 16]);
    }
}

#[test]
fn mirror_push_leaves_the_leases_alone() {
    let world = bare();
    world.ok(world.git("work").args(["push", "-q", "origin", "HEAD:refs/heads/there-only"]));
    let said = ok_under_lease(&world, 1, "git push --mirror origin 2>&1");
    assert!(said.contains("there-only") && !said.contains("refs/fence"), "{said}");
    assert!(world.server_ref("refs/heads/there-only").is_none());
    assert!(world.server_ref("refs/fence/repo/beat").is_some());

    // A mirror clone has lease refs of its own, and older ones.
    world.ok(world.git(".").args(["clone", "-q", "--mirror"]).arg(world.server()).arg("mirror.git"));
    ok_under_lease(&world, 1, "git push -q origin HEAD:refs/heads/new");
    let lease = tip(&world, "mirror.git", "refs/fence/repo/lease");
    ok_under_lease(&world, 1, "cd ../mirror.git; git push --mirror origin 2>&1");
    assert_eq!(world.server_ref("refs/heads/new"), None);
    assert_eq!(tip(&world, "mirror.git", "refs/fence/repo/lease"), lease);
    let said = ok_under_lease(&world, 1, "git update-ref refs/fence/other/lease HEAD; git push --mirror origin 2>&1");
    assert!(said.contains("'refs/fence/other/lease' is not pushed"), "{said}");
    assert_eq!(world.server_ref("refs/fence/other/lease"), None);
    world.ok(world.git("mirror.git").args(["fsck"]));
}

/// It did not move, and the output does not show it as moved.
#[test]
fn lease_skipped_by_a_mirror_push_is_not_shown_as_moved() {
    for git in gits() {
        let world = world_of(Remote::Bare, &git, &[]);
        world.ok(world.git("work").args(["update-ref", "refs/fence/other/lease", "HEAD"]));
        world.ok(world.git("work").args(["update-ref", "refs/heads/more", "HEAD"]));
        for format in ["", "--porcelain "] {
            let said = ok_under_lease(&world, 1, &format!("git push {format}--mirror origin 2>&1"));
            assert!(said.contains("'refs/fence/other/lease' is not pushed"), "{said}");
            assert!(!said.contains("-> refs/fence") && !said.contains(":refs/fence"), "{said}");
        }
        assert_eq!(world.server_ref("refs/fence/other/lease"), None);
        assert!(world.server_ref("refs/heads/more").is_some());
        assert_eq!(tip(&world, "work", "refs/fence/other/lease"), tip(&world, "work", "HEAD"));
    }
}

#[test]
fn refusals_by_git_keep_gits_wording() {
    let world = bare();
    let main = world.server_ref("refs/heads/main").unwrap();
    refused_under_lease(&world, "git commit -q --amend --allow-empty -m other; git push", "(non-fast-forward)");
    assert_eq!(world.server_ref("refs/heads/main"), Some(main.clone()));
    // A push of several refs that is not atomic loses only the refs that are refused themselves.
    let several = "git push origin main HEAD:refs/heads/fine";
    assert_eq!(partly_refused_under_lease(&world, several, "(non-fast-forward)").1, 1);
    assert!(world.server_ref("refs/heads/fine").is_some());
    refused_under_lease(&world, "git push --atomic origin main HEAD:refs/heads/not-fine", "(atomic push failed)");
    assert_eq!(world.server_ref("refs/heads/not-fine"), None);
    assert_eq!(world.server_ref("refs/heads/main"), Some(main));
    ok_under_lease(&world, 1, "git push -q --force-with-lease");
    refused_under_lease(
        &world,
        "git commit -q --amend --allow-empty -m third; git push --force-with-lease=main:HEAD",
        "(stale info)",
    );
    ok_under_lease(&world, 1, "git push -q --force-with-lease --force-if-includes");
    ok_under_lease(&world, 1, "git commit -q --amend --allow-empty -m fourth; git push -q --force");
    ok_under_lease(&world, 1, "git commit -q --amend --allow-empty -m fifth; git push -q origin +main");
    assert_eq!(world.server_ref("refs/heads/main"), Some(tip(&world, "work", "main")));
}

#[test]
fn refusal_by_another_hook_is_passed_on_and_spends_no_token() {
    let world = bare();
    world.write_hook("update", "[ $1 != refs/heads/closed ] || { echo 'closed for the winter'; exit 1; }");
    let said =
        refused_under_lease(&world, "git push origin HEAD:refs/heads/closed HEAD:refs/heads/open", "(hook declined)");
    assert!(said.contains("remote: closed for the winter"), "{said}");
    assert_eq!(world.server_ref("refs/heads/open"), None, "a fenced push is atomic");
    ok_under_lease(&world, 1, "git push -q origin HEAD:refs/heads/open");
}

#[test]
fn push_options_reach_the_server() {
    let world = bare();
    let said =
        refused_under_lease(&world, "git push -o ci.skip origin HEAD:refs/heads/a", "does not support push options");
    assert!(!said.contains("gate"), "{said}");
    world.configure("receive.advertisePushOptions", "true");
    world.write_hook("post-receive", "i=0; while [ $i -lt ${GIT_PUSH_OPTION_COUNT:-0} ]; do eval \"echo \\\"\\$GIT_PUSH_OPTION_$i\\\"\" >>options; i=$((i+1)); done");
    ok_under_lease(&world, 1, "git push -q -o ci.skip -o 'reviewer=\"ä b\"' origin HEAD:refs/heads/a");
    ok_under_lease(&world, 1, "git -c push.pushOption=from-config push -q origin HEAD:refs/heads/b");
    let options = fs::read_to_string(world.server().join("options")).unwrap();
    assert_eq!(options, "ci.skip\nreviewer=\"ä b\"\nfrom-config\n");
}

#[test]
fn dry_run_spends_nothing() {
    let world = bare();
    let said = ok_under_lease(&world, 0, "git push --dry-run origin HEAD:refs/heads/a 2>&1");
    assert!(said.contains("[new branch]"), "{said}");
    assert_eq!(world.server_ref("refs/heads/a"), None);
    // A push with nothing to do spends nothing.
    ok_under_lease(&world, 0, "git push -q");
}

#[test]
fn pre_push_hook_runs_once() {
    let world = bare();
    write_script(&world.path("work/.git/hooks/pre-push"), "echo ran >>\"$GIT_DIR\"/ran; cat >/dev/null");
    ok_under_lease(&world, 1, "GIT_DIR=$PWD/.git; export GIT_DIR; git push -q origin HEAD:refs/heads/a");
    assert_eq!(fs::read_to_string(world.path("work/.git/ran")).unwrap(), "ran\n");
    write_script(&world.path("work/.git/hooks/pre-push"), "exit 1");
    refused_under_lease(&world, "git push -q origin HEAD:refs/heads/b", "");
    assert_eq!(world.server_ref("refs/heads/b"), None);
}

#[test]
fn explicit_push_url_is_fenced_and_fetches_still_work() {
    for same in [false, true] {
        let world = bare();
        let url = if same { world.server() } else { world.path("reading.git") };
        world.ok(world.git(".").args(["clone", "-q", "--mirror"]).arg(world.server()).arg("reading.git"));
        world.ok(world.git("work").args(["config", "remote.origin.url"]).arg(&url));
        world.ok(world.git("work").args(["config", "remote.origin.pushurl"]).arg(world.server()));
        ok_under_lease(&world, 2, &format!("{COMMIT} git push -q; git push -q origin HEAD:refs/heads/a"));

        // Another clone pushes, and its work is fetched and pulled.
        world.ok(world.git(".").args(["clone", "-q"]).arg(world.server()).arg("other"));
        world.ok(world.git("other").args(["commit", "-q", "--allow-empty", "-m", "theirs"]));
        world.ok(world.git("other").args(["tag", "-a", "-m", "theirs", "theirs"]));
        world.ok(world.git("other").args(["push", "-q", "--follow-tags", "origin", "main", "main:new"]));
        world.ok(world.git("reading.git").args(["fetch", "-q"]));
        ok_under_lease(&world, 0, "git pull -q --ff-only; git fetch -q; git ls-remote -q origin >/dev/null");
        let theirs = tip(&world, "other", "main");
        for name in ["main", "refs/remotes/origin/main", "refs/remotes/origin/new", "theirs^{}"] {
            assert_eq!(tip(&world, "work", name), theirs, "{name}");
        }
        ok_under_lease(
            &world,
            1,
            &format!("{COMMIT} git push -q; git clone -q {} ../again; cd ../again; git fetch -q", sh(&url)),
        );
        world.ok(world.git("work").args(["fsck"]));
    }
}

#[test]
fn repository_with_a_common_url_prefix_is_left_alone() {
    let world = bare();
    for name in ["server.git-infra", "elsewhere.git"] {
        world.ok(world.git(".").args(["init", "-q", "--bare", name]));
        world.ok(world.git("work").args(["remote", "add", name]).arg(world.path(name)));
    }
    world.ok(world.git("server.git-infra").args(["config", "receive.denyNonFastForwards", "true"]));
    ok_under_lease(&world, 0, "git push -q server.git-infra main; git push -q elsewhere.git main; git fetch -q --all");
    let refs = |dir: &str| world.ok(world.git(dir).args(["for-each-ref", "--format=%(refname)"]));
    assert_eq!(refs("server.git-infra"), "refs/heads/main");
    assert_eq!(refs("elsewhere.git"), "refs/heads/main");
    ok_under_lease(
        &world,
        0,
        "git push -q --dry-run server.git-infra main:dry; git push -q server.git-infra main:a main:b",
    );
    assert_eq!(refs("server.git-infra"), "refs/heads/a\nrefs/heads/b\nrefs/heads/main");
    let script = "git commit -q --amend --allow-empty -m other; git push server.git-infra +main HEAD:refs/heads/c";
    refused_under_lease(&world, script, "[remote rejected] main -> main (non-fast-forward)");
    assert_eq!(refs("server.git-infra"), "refs/heads/a\nrefs/heads/b\nrefs/heads/c\nrefs/heads/main", "not atomic");
    assert_eq!(tip(&world, "work", "refs/remotes/server.git-infra/c"), tip(&world, "work", "HEAD"));
    ok_under_lease(
        &world,
        0,
        "git push -q --delete server.git-infra c; git push -q --atomic --prune server.git-infra HEAD:refs/heads/d",
    );
}

#[test]
fn users_own_url_spellings_are_fenced() {
    let world = bare();
    let settings = [
        ("remote.origin.url", "../server.git".to_owned()),
        (&format!("url.{}/.insteadOf", world.path("").display().to_string().trim_end_matches('/')), "mine:".to_owned()),
        ("remote.short.url", "mine:server.git".to_owned()),
        ("remote.pushed.url", "mine:nowhere.git".to_owned()),
        ("remote.pushed.pushurl", "mine:server.git".to_owned()),
    ];
    for (key, value) in &settings {
        world.ok(world.git("work").args(["config", key, value]));
    }
    ok_under_lease(&world, 3, "git push -q origin main:a; git push -q short main:b; git push -q pushed main:c");
    let server = sh(world.server());
    ok_under_lease(
        &world,
        3,
        &format!("git push -q {server} main:d; git push -q file://{server} main:e; git push -q mine:server.git main:f"),
    );
    ok_under_lease(&world, 1, "mkdir -p sub/dir; cd sub/dir; git push -q origin main:g");

    // A rule for exactly this URL precedes ours: better no command than one that bypasses the fence.
    let key = format!("url.{}.pushInsteadOf", world.server().display());
    world.ok(world.git("work").args(["config", &key, "../server.git"]));
    refused_under_lease(&world, "git push -q origin main:h; exit 9", "bypass the fence");
    assert_eq!(world.server_ref("refs/heads/h"), None);
    world.ok(world.git("work").args(["config", "--unset", &key]));
    ok_under_lease(&world, 1, "git push -q origin main:h");
}

#[test]
fn another_clone_and_another_worktree_push_under_the_same_lease() {
    let world = bare();
    world.ok(world.git(".").args(["clone", "-q"]).arg(world.server()).arg("other"));
    ok_under_lease(&world, 1, "cd ../other; git commit -q --allow-empty -m there; git push -q");
    assert_eq!(world.server_ref("refs/heads/main"), Some(tip(&world, "other", "main")));
    assert_eq!(tip(&world, "other", "origin/main"), tip(&world, "other", "main"));
    ok_under_lease(
        &world,
        1,
        &format!("git worktree add -q ../tree -b topic; cd ../tree; {COMMIT} git push -q -u origin topic"),
    );
    ok_under_lease(&world, 1, "cd /; git --git-dir=\"$OLDPWD/.git\" push -q origin main:from-afar");
    // The lease can be acquired in a linked worktree as well.
    ok_in(&world, "tree", 1, "git push -q origin HEAD:refs/heads/from-tree");
    assert_eq!(world.server_ref("refs/heads/from-tree"), Some(tip(&world, "tree", "HEAD")));
}

#[test]
fn relative_url_in_another_clone_is_another_repository() {
    let world = bare();
    world.ok(world.git("work").args(["config", "remote.origin.url", "../server.git"]));
    fs::create_dir(world.path("deep")).unwrap();
    world.ok(world.git("deep").args(["init", "-q", "--bare", "server.git"]));
    world.ok(world.git("deep").args(["init", "-q", "work"]));
    world.ok(world.git("deep/work").args(["remote", "add", "origin", "../server.git"]));
    ok_under_lease(&world, 0, &format!("cd ../deep/work; {COMMIT} git push -q origin main; git fetch -q"));
    assert_eq!(world.ok(world.git("deep/server.git").args(["for-each-ref", "--format=%(refname)"])), "refs/heads/main");
}

#[test]
fn shallow_and_partial_clones_push_and_fetch() {
    let world = bare();
    world.configure("uploadpack.allowFilter", "true");
    world.configure("uploadpack.allowAnySHA1InWant", "true");
    fs::write(world.path("work/file"), "one\n").unwrap();
    world.ok(world.git("work").args(["add", "file"]));
    world.ok(world.git("work").args(["commit", "-q", "-m", "with a file"]));
    world.ok(world.git("work").args(["push", "-q"]));
    let url = format!("file://{}", world.server().display());
    for (name, how) in
        [("shallow", "--depth=1"), ("partial", "--filter=blob:none"), ("partial-bare", "--filter=tree:0")]
    {
        let bare: &[&str] = if name == "partial-bare" { &["--no-checkout"] } else { &[] };
        world.ok(world.git(".").args(["clone", "-q", how]).args(bare).args([&url, name]));
        for explicit in [false, true] {
            if explicit {
                world.ok(world.git(name).args(["config", "remote.origin.pushurl", &url]));
            }
            let script = format!(
                "{COMMIT} git push -q origin HEAD:refs/heads/{name}-{explicit}; git fetch -q; git cat-file -p origin/main:file"
            );
            assert_eq!(ok_in(&world, name, 1, &script), "one\n");
            assert_eq!(world.server_ref(&format!("refs/heads/{name}-{explicit}")), Some(tip(&world, name, "HEAD")));
            let config = fs::read_to_string(world.path(name).join(".git/config")).unwrap();
            assert_eq!(config.matches("[remote ").count(), 1, "{config}");
        }
    }
    let deepened = ok_in(&world, "shallow", 0, "git fetch -q --deepen=1; git rev-list --count origin/main");
    assert_eq!(deepened, "2\n");
    let whole = ok_in(&world, "shallow", 0, "git fetch -q --unshallow; git rev-parse --is-shallow-repository");
    assert_eq!(whole, "false\n");
}

#[test]
fn lost_lease_stops_every_plain_push() {
    for remote in Remote::BOTH {
        let world = world_of(remote, &any_git(), &[]);
        world.configure("fence.allowRevoke", "tester");
        world.ok(world.git(".").args(["clone", "-q"]).arg(world.server()).arg("other"));
        let main = world.server_ref("refs/heads/main");
        let (inside, go) = (world.path("inside"), world.path("go"));
        let script = format!(
            "set +e; touch {}; until [ -e {} ]; do sleep 0.02; done\n{COMMIT} git push; a=$?
             git push origin HEAD:refs/heads/b HEAD:refs/heads/c; b=$?; git push -f; echo $a $b $?",
            sh(&inside),
            sh(&go)
        );
        let output = thread::scope(|scope| {
            let run = scope.spawn(|| run_in(&world, "work", &[], &script).output().unwrap());
            wait_until("the command runs", || inside.exists());
            let revoked = fence(&world, "other").args(["revoke", "--reason", "it hung"]).output().unwrap();
            let acquired = fence(&world, "other").args(["acquire", "--owner", "theirs"]).output().unwrap();
            fs::write(&go, "").unwrap();
            assert!(revoked.status.success(), "{}", text(&revoked.stderr));
            assert!(acquired.status.success(), "{}", text(&acquired.stderr));
            run.join().unwrap()
        });
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(75), "1 1 1\n"), "{said}");
        let reason = "(FENCE-LEASE-LOST lost the lease of fence 'repo': 'theirs' holds it";
        assert!(said.contains(&format!("! [remote rejected] main -> main {reason}")), "{said}");
        assert!(said.contains("HEAD -> c (FENCE-LEASE-LOST"), "{said}");
        assert_eq!(world.server_ref("refs/heads/main"), main);
        assert_eq!((world.server_ref("refs/heads/b"), world.server_ref("refs/heads/c")), (None, None));
        assert_eq!(token(&world), 3);
        assert_tokens_that_moved(&world, remote, &[]);
    }
}

#[test]
fn command_that_outlives_its_lease_pushes_nothing() {
    for remote in Remote::BOTH {
        // It releases the lease itself.
        let world = world_of(remote, &any_git(), &[]);
        let script = format!("{} release; git push origin HEAD:refs/heads/a", sh(env!("CARGO_BIN_EXE_git-fence")));
        refused_under_lease(&world, &script, "(FENCE-LEASE-LOST");

        // A child has become a daemon, and pushes when everything is over.
        let [go, said, tried] = ["go", "said", "tried"].map(|name| world.path(name));
        let daemon = format!(
            "until [ -e {} ]; do sleep 0.02; done; git push origin HEAD:refs/heads/a >{} 2>&1; echo $? >{2}.new; mv {2}.new {2}",
            sh(&go),
            sh(&said),
            sh(&tried)
        );
        ok_under_lease(&world, 0, &format!("setsid sh -c {} >/dev/null 2>&1 &", sh(&daemon)));
        fs::write(go, "").unwrap();
        wait_until("the daemon has tried", || tried.exists());
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(fs::read_to_string(tried).unwrap(), "1\n", "{said}");
        assert!(said.contains("(FENCE-LEASE-LOST"), "{said}");
        assert_eq!((world.server_ref("refs/heads/a"), token(&world)), (None, 2));
        assert_tokens_that_moved(&world, remote, &[]);
    }
}

#[test]
fn non_ascii_and_non_utf8_names_are_pushed() {
    let world = bare();
    ok_under_lease(
        &world,
        2,
        "git branch grüße; b=$(printf 'b\\377'); git branch \"$b\"; git push -q origin grüße \"$b\"; git push -q --all
         git commit -q --allow-empty -m more; git push -q --force-with-lease origin HEAD:grüße \"HEAD:$b\"",
    );
    let head = tip(&world, "work", "HEAD");
    let listed =
        world.git("server.git").args(["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"]).output();
    let listed = listed.unwrap().stdout;
    for name in [&b"refs/heads/b\xff "[..], "refs/heads/grüße ".as_bytes()] {
        let line = [name, head.as_bytes()].concat();
        assert!(listed.split(|byte| *byte == b'\n').any(|found| found == line), "{}", listed.escape_ascii());
    }
}

#[test]
fn plain_push_makes_two_connections() {
    let world = bare();
    let trace = world.path("trace");
    ok_under_lease(&world, 1, &format!("{COMMIT} GIT_TRACE={} git push -q", sh(&trace)));
    let trace = fs::read_to_string(trace).unwrap();
    let started = |program: &str| {
        trace.lines().filter(|line| line.contains("run_command:") && line.contains(&format!("{program} "))).count()
    };
    assert_eq!((started("git-upload-pack"), started("git-receive-pack")), (1, 1), "{trace}");
    assert_eq!(started("git remote-fence origin"), 1, "{trace}");
}

#[test]
fn remote_with_several_push_urls_is_fenced_at_the_lease() {
    let world = bare();
    world.ok(world.git(".").args(["init", "-q", "--bare", "backup.git"]));
    world.ok(world.git("work").args(["remote", "set-url", "--add", "--push", "origin"]).arg(world.server()));
    world.ok(world.git("work").args(["remote", "set-url", "--add", "--push", "origin"]).arg(world.path("backup.git")));
    let server = world.server();
    let there = ["--remote", server.to_str().unwrap()];
    let ran = under_lease_in(&world, "work", &there, &format!("{COMMIT} git push -q"));
    assert!(ran.output.status.success(), "{}", text(&ran.output.stderr));
    assert_eq!(ran.pushes, 1);
    let here = tip(&world, "work", "main");
    assert_eq!(world.server_ref("refs/heads/main"), Some(here.clone()));
    assert_eq!(tip(&world, "backup.git", "main"), here);
}

#[test]
fn git_lfs_objects_reach_the_server() {
    if lacks(&[Need::GitLfs]) {
        return;
    }
    for explicit in [false, true] {
        let world = bare();
        world.ok(world.git("work").args(["lfs", "install", "--local"]));
        world.ok(world.git("work").args(["lfs", "track", "*.bin"]));
        if explicit {
            world.ok(world.git("work").args(["config", "remote.origin.pushurl"]).arg(world.server()));
        }
        let commit = "echo $0 $1 >$1.bin; git add -A; git commit -q -m $1; git push -q origin HEAD:refs/heads/$1";
        ok_under_lease(&world, 1, &format!("set one; {commit}"));
        ok_under_lease(&world, 1, &format!("git worktree add -q ../tree -b tree; cd ../tree; set two; {commit}"));
        ok_under_lease(&world, 0, "rm -rf .git/lfs/objects one.bin; git checkout -q one.bin; grep -q 'sh one' one.bin");
        // A clone gets the content, not the pointer.
        let mut clone = world.git(".");
        clone.args(["-c", "filter.lfs.smudge=git-lfs smudge -- %f", "-c", "filter.lfs.process=git-lfs filter-process"]);
        world.ok(clone.args(["clone", "-q", "--branch", "two"]).arg(world.server()).arg("again"));
        assert_eq!(fs::read_to_string(world.path("again/two.bin")).unwrap(), "sh two\n");
        assert_eq!(fs::read_to_string(world.path("again/one.bin")).unwrap(), "sh one\n");
    }
}

#[test]
fn gates_refusal_is_the_reason_shown_by_git() {
    let world = bare();
    world.configure("receive.advertisePushOptions", "true");
    let json = r#"{"verdict":"rejected","code":"FENCE-BUSY","fence":"repo","token":1,"retryable":true}"#;
    world.write_hook("pre-receive", &format!("! grep -q refs/heads/ || {{ echo 'fence: {json}' >&2; exit 1; }}"));
    let said = refused_under_lease(
        &world,
        "git push origin HEAD:refs/heads/a HEAD:refs/heads/b",
        "HEAD -> a (FENCE-BUSY pre-receive hook declined)",
    );
    assert!(said.contains("HEAD -> b (FENCE-BUSY"), "{said}");
}

#[test]
fn nested_runs_push_under_both_leases() {
    let world = bare();
    world.ok(world.git(".").args(["clone", "-q", "--bare"]).arg(world.server()).arg("second.git"));
    world.ok(world.git("work").args(["remote", "add", "second"]).arg(world.path("second.git")));
    let program = sh(env!("CARGO_BIN_EXE_git-fence"));
    let inner = format!(
        "git push -q origin HEAD:refs/heads/a && git push -q second HEAD:refs/heads/b && echo $GIT_FENCE_REMOTE\n\
         {program} progress --remote origin half && {program} push origin HEAD:refs/heads/d"
    );
    write_script(&world.path("inner"), &inner);
    let inner = sh(world.path("inner"));
    let script = format!("{program} run --remote second -- {inner}; git push -q origin HEAD:refs/heads/c");
    let said = ok_under_lease(&world, 3, &script);
    assert_eq!(said, "second\nlanded with token 2: refs/heads/d\n");
    assert_eq!(token_in(&world, "second.git"), 2);
}

#[test]
fn git_fence_push_creates_no_lease_refs_in_a_mirror() {
    let world = bare();
    world.ok(world.git(".").args(["clone", "-q", "--mirror"]).arg(world.server()).arg("mirror.git"));
    world.ok(fence(&world, "mirror.git").args(["push", "origin", "main:refs/heads/a"]));
    assert!(world.server_ref("refs/heads/a").is_some());
    let refs = world.ok(world.git("mirror.git").args(["for-each-ref", "--format=%(refname)", "refs/fence"]));
    assert_eq!(refs, "");
}

#[test]
fn allowed_protocols_are_kept() {
    let world = bare();
    let script = "git push -q origin HEAD:refs/heads/a; git ls-remote ext::false && exit 9 || true";
    world.ok(run_in(&world, "work", &[], script).env("GIT_ALLOW_PROTOCOL", "file"));
    assert_eq!(token(&world), 2);
}

/// The server dies after the lease and one of two branches have moved: git is told which ref moved and which did not.
#[test]
fn each_ref_of_a_push_that_landed_in_part_is_reported() {
    let world = bare();
    let moves = "mv refs/fence/repo/lease.lock refs/fence/repo/lease; mv refs/heads/a.lock refs/heads/a; kill -9 $PPID";
    // The lease itself is acquired and released as usual.
    let hook = format!("[ \"$1\" = prepared ] && [ -e refs/heads/b.lock ] || exit 0\n{moves}");
    world.write_hook("reference-transaction", &hook);
    let (said, pushes) = partly_refused_under_lease(&world, "git push origin HEAD:a HEAD:b", "landed in part");
    assert_eq!(pushes, 1, "{said}");
    assert!(said.contains("[new branch]      HEAD -> a"), "{said}");
    assert!(said.contains("! [remote rejected] HEAD -> b (the push landed in part"), "{said}");
    assert!(world.server_ref("refs/heads/a").is_some() && world.server_ref("refs/heads/b").is_none());
    assert_eq!(tip(&world, "work", "refs/remotes/origin/a"), tip(&world, "work", "HEAD"));
    assert!(!world.git("work").args(["rev-parse", "-q", "--verify", "origin/b"]).output().unwrap().status.success());
}
