//! Installing and uninstalling the gate over existing hooks and settings.

use crate::support::{
    Git, Pushed, World, any_git, copy_program, fixture, gits,
    lease::Agent,
    needs::{Need, lacks},
    sh, text, tree, tree_without,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Output, Stdio},
};

fn install(world: &World, args: &[&str]) -> Output {
    world.hook_program().arg("install").args(args).arg(world.server()).output().unwrap()
}

#[track_caller]
fn installed(world: &World, args: &[&str]) -> String {
    let ran = install(world, args);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    text(&ran.stdout)
}

#[track_caller]
fn uninstalled(world: &World) -> String {
    world.ok(world.hook_program().arg("uninstall").arg(world.server()))
}

/// What may differ after a journey with pushes: the record and the pushed objects.
fn without_pushes(world: &World) -> Vec<(String, u32, Vec<u8>)> {
    tree_without(&world.server(), &["fence", "objects", "refs", "ran"])
}

fn runs(world: &World) -> usize {
    fs::read_to_string(world.server().join("ran")).unwrap_or_default().lines().count()
}

/// A server with a hook that records each of its runs and then executes `body`.
fn world_with_hook(git: &Git, body: &str) -> World {
    let world = World::bare(git, &[]);
    world.write_hook("pre-receive", &format!("echo run >>ran\n{body}"));
    world
}

#[test]
fn existing_hook_runs_first_and_is_restored_exactly() {
    for git in gits() {
        let world = world_with_hook(&git, "cat >input; echo \"$0|$#|$PWD|$GIT_DIR|$GIT_PUSH_OPTION_0\" >surroundings");
        fs::set_permissions(world.hook("pre-receive"), fs::Permissions::from_mode(0o715)).unwrap();
        let before = without_pushes(&world);
        let said = installed(&world, &[]);
        assert!(said.contains("kept-by-git-fence/pre-receive  runs first  done"), "{said}");
        let again = tree(&world.server());
        installed(&world, &[]);
        assert!(tree(&world.server()) == again, "a second install changes nothing");

        world.push_token("main", "5").assert_landed();
        let tip = world.server_ref("refs/heads/main").unwrap();
        let zero = "0".repeat(tip.len());
        assert_eq!(
            fs::read_to_string(world.server().join("input")).unwrap(),
            format!("{zero} {tip} refs/heads/main\n")
        );
        let server = fs::canonicalize(world.server()).unwrap();
        assert_eq!(
            fs::read_to_string(world.server().join("surroundings")).unwrap().trim_end(),
            format!("hooks/kept-by-git-fence/pre-receive|0|{}|.|fence-token=5", server.display())
        );
        world.push_token("main", "4").assert_refused("FENCE-STALE");
        assert_eq!(runs(&world), 2, "even if the gate refuses afterwards");

        uninstalled(&world);
        fs::remove_file(world.server().join("input")).unwrap();
        fs::remove_file(world.server().join("surroundings")).unwrap();
        assert_eq!(without_pushes(&world), before);
        world.push(&["HEAD:refs/heads/free"], &[]).assert_landed();
        assert_eq!(runs(&world), 3);
        assert!(world.fence_file("audit.jsonl").exists(), "the record stays");
        installed(&world, &[]);
        world.push_token("main", "5").assert_refused("FENCE-STALE");
    }
}

#[test]
fn refusal_by_a_kept_hook_skips_the_gate() {
    for git in gits() {
        let world = world_with_hook(&git, "echo 'not on Fridays'; exit 7");
        installed(&world, &[]);
        let pushed = world.push_token("main", "5");
        assert!(!pushed.ok && pushed.remote.contains("not on Fridays"), "{}", pushed.text);
        assert!(world.events("push.accepted").is_empty());
        assert_eq!(world.server_ref("refs/heads/main"), None);
        world.write_hook("kept-by-git-fence/pre-receive", "exit 0");
        world.push_token("main", "5").assert_landed();
    }
}

/// git does not show the exit code that it gets from the hook, so the hook is run directly.
#[test]
fn exit_code_of_a_kept_hook_is_passed_on_and_a_signal_is_128_plus_n() {
    for (body, code) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)] {
        let world = world_with_hook(&any_git(), body);
        installed(&world, &[]);
        let mut hook = world.git("server.git");
        let ran = hook.args(["hook", "run", "pre-receive"]).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{body}");
        let pushed = world.push_token("main", "5");
        assert!(!pushed.ok && pushed.text.contains("pre-receive hook declined"), "{}", pushed.text);
        assert_eq!(world.server_ref("refs/heads/main"), None);
    }
}

#[test]
fn kept_hook_that_reads_nothing_or_prints_a_lot_does_not_block() {
    for git in gits() {
        let world = world_with_hook(&git, "exec <&-\nseq 1 40000; seq 1 40000 >&2");
        installed(&world, &[]);
        let names: Vec<String> =
            (0..2000).map(|n| format!("HEAD:refs/heads/a-branch-with-a-long-name-{n:050}")).collect();
        let refspecs: Vec<&str> = names.iter().map(String::as_str).collect();
        let pushed = world.push(&refspecs, &["fence-token=5"]);
        pushed.assert_landed();
        assert_eq!(pushed.remote.lines().filter(|line| *line == "40000").count(), 2);
        assert_eq!(world.mark(), 5);
    }
}

#[test]
fn kept_hook_finds_its_helpers_and_its_name() {
    let world = World::bare(&any_git(), &[]);
    world.write_hook("helper.sh", "echo helped");
    world.write_hook("pre-receive", "\"$(dirname \"$0\")/helper.sh\"; echo \"I am $(basename \"$0\")\"");
    let before = tree(&world.server());
    installed(&world, &[]);
    let pushed = world.push_token("main", "5");
    assert!(pushed.remote.contains("helped") && pushed.remote.contains("I am pre-receive"), "{}", pushed.text);
    pushed.assert_landed();
    uninstalled(&world);
    let hooks = |tree: Vec<(String, u32, Vec<u8>)>| -> Vec<_> {
        tree.into_iter().filter(|(name, ..)| name.starts_with("hooks")).collect()
    };
    assert_eq!(hooks(tree(&world.server())), hooks(before));
}

#[test]
fn links_binaries_scripts_without_shebang_and_non_executable_files_are_kept_unchanged() {
    let git = any_git();
    type Make = fn(&World, &Path);
    let cases: [(&str, Make, bool); 6] = [
        (
            "a relative link",
            |world, hook| {
                fs::create_dir(world.path("shared")).unwrap();
                fs::write(world.path("shared/real"), "#!/bin/sh\necho run >>ran\n").unwrap();
                fs::set_permissions(world.path("shared/real"), fs::Permissions::from_mode(0o755)).unwrap();
                symlink("./../../shared/real", hook).unwrap();
            },
            true,
        ),
        ("an absolute link to a binary", |_, hook| symlink("/bin/true", hook).unwrap(), false),
        (
            "a binary",
            |_, hook| {
                copy_program("/bin/true", hook);
            },
            false,
        ),
        ("a link to nowhere", |_, hook| symlink("no/such/thing", hook).unwrap(), false),
        ("not executable", |_, hook| fs::write(hook, "#!/bin/sh\necho run >>ran; exit 1\n").unwrap(), false),
        (
            "no first line",
            |_, hook| {
                fs::write(hook, "echo run >>ran\n").unwrap();
                fs::set_permissions(hook, fs::Permissions::from_mode(0o755)).unwrap();
            },
            true,
        ),
    ];
    for (what, make, leaves_word) in cases {
        let world = World::bare(&git, &[]);
        make(&world, &world.hook("pre-receive"));
        let before = without_pushes(&world);
        installed(&world, &[]);
        let again = tree(&world.server());
        installed(&world, &[]);
        assert!(tree(&world.server()) == again, "{what}");
        world.push(&["HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
        world.push_token("main", "1").assert_landed();
        assert_eq!(runs(&world), if leaves_word { 2 } else { 0 }, "{what}");
        uninstalled(&world);
        assert_eq!(without_pushes(&world), before, "{what}");
    }
}

#[test]
fn install_refuses_a_hook_it_cannot_keep_and_changes_nothing() {
    let world = World::bare(&any_git(), &[]);
    let hook = world.hook("pre-receive");
    let refused = |words: &str| {
        let before = tree(&world.server());
        let ran = install(&world, &[]);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.contains("hint: "), "{said}");
        assert!(tree(&world.server()) == before, "{words}");
    };
    fs::create_dir(&hook).unwrap();
    refused("is not a file or link");
    fs::remove_dir(&hook).unwrap();
    symlink("/tmp", &hook).unwrap();
    refused("is not a file or link");
    fs::remove_file(&hook).unwrap();
    // As a kept hook it would be a second gate.
    world.write_hook("pre-receive", "exec /usr/local/bin/git-fence-hook pre-receive");
    refused("already calls the gate");
    // Another hook has replaced ours.
    world.write_hook("pre-receive", "exit 0");
    installed(&world, &[]);
    world.write_hook("pre-receive", "exit 1");
    refused("there are two hooks to keep");
}

#[test]
fn failed_install_is_rolled_back() {
    let world = world_with_hook(&any_git(), "");
    let config_lock = world.server().join("config.lock");
    fs::write(&config_lock, "").unwrap();
    let before = tree(&world.server());
    let ran = install(&world, &["--observe"]);
    assert!(!ran.status.success());
    assert!(text(&ran.stderr).contains("config"), "{}", text(&ran.stderr));
    assert!(tree(&world.server()) == before, "nothing half-installed");
    fs::remove_file(config_lock).unwrap();
    fs::write(world.hook("kept-by-git-fence"), "in the way").unwrap();
    let before = tree(&world.server());
    assert!(!install(&world, &[]).status.success());
    assert!(tree(&world.server()) == before, "nothing half-installed");
}

#[test]
fn slow_kept_hook_blocks_no_other_push() {
    for git in gits() {
        let world = world_with_hook(
            &git,
            "read -r old new ref; [ $ref = refs/heads/slow ] || exit 0\n\
             echo $$ >waiting.new; mv waiting.new waiting; while ! [ -e go ]; do sleep 0.02; done",
        );
        installed(&world, &[]);
        let _go = world.go_in_the_end();
        let slow = world.start_push("slow", "5");
        world.pid_in("waiting");
        world.push_token("main", "6").assert_landed();
        world.go();
        slow.wait().assert_refused("FENCE-STALE");
    }
}

#[test]
fn concurrent_installs_leave_one_complete_gate() {
    let world = world_with_hook(&any_git(), "");
    let start = |_| {
        let mut command = world.hook_program();
        command.args(["install", "--exempt", "anna"]).arg(world.server());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..8).map(start).collect();
    for child in started {
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    }
    assert_eq!(world.ok(world.git("server.git").args(["config", "--get-all", "fence.exempt"])), "anna");
    assert!(world.hook_program().arg("doctor").arg(world.server()).output().unwrap().status.success());
    world.push_token("main", "1").assert_landed();
    assert_eq!(runs(&world), 1);
}

/// Killed at its first change, at its second, and so on through all of them. (strace counts
/// each system call separately.)
#[test]
fn killed_install_leaves_a_hook_and_is_completed_by_the_next() {
    if lacks(&[Need::Strace]) {
        return;
    }
    let mut killed = 0;
    for call in ["mkdirat", "unlinkat", "renameat", "linkat", "symlinkat", "fchmod", "flock", "write", "pwrite64"] {
        for at in 1.. {
            let world = world_with_hook(&any_git(), "");
            world.write_hook("helper", "");
            let before = without_pushes(&world);
            let mut install = Command::new("strace");
            world.hermetic(&mut install);
            install.args(["-qq", "-o", "/dev/null", "-e", &format!("inject={call}:signal=KILL:when={at}")]);
            install.arg(env!("CARGO_BIN_EXE_git-fence-hook")).args(["install", "--observe"]).arg(world.server());
            if install.output().unwrap().status.success() {
                break;
            }
            killed += 1;
            let when = format!("killed at {call} number {at}");
            world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
            assert_eq!(runs(&world), 1, "{when}: the existing hook runs, directly or as a kept hook");
            installed(&world, &["--observe"]);
            assert!(
                world.hook_program().arg("doctor").arg(world.server()).output().unwrap().status.success(),
                "{when}"
            );
            world.push(&["HEAD:refs/heads/other"], &[]).assert_landed();
            assert_eq!(runs(&world), 2, "{when}");
            assert_eq!(world.events("push.accepted").last().unwrap()["code"], "FENCE-MISSING", "{when}");
            uninstalled(&world);
            assert_eq!(without_pushes(&world), before, "{when}");
        }
    }
    assert!(killed > 20, "strace saw only {killed} changes");
}

#[test]
fn options_become_settings_once_and_uninstall_removes_them() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        world.configure("receive.advertisePushOptions", "false");
        world.configure("fence.exempt", "anna");
        let before = tree_without(&world.server(), &["fence"]);
        let options =
            ["--observe", "--allow-tokenless", "--exempt", "bob", "--exempt", "anna", "--refs", "refs/heads/*"];
        let options =
            [&options[..], &["--fence", "deploy=refs/heads/deploy/*", "--fence", "docs=refs/heads/docs"]].concat();
        let dry = installed(&world, &[&options[..], &["--dry-run"]].concat());
        assert_eq!(dry.matches("would be done").count(), 10, "{dry}");
        assert_eq!(tree_without(&world.server(), &[]), before, "a dry run changes nothing");

        let done = installed(&world, &options);
        assert_eq!(dry.replace("would be done", "done"), done);
        let get = |key: &str| world.ok(world.git("server.git").args(["config", "--get-all", key]));
        assert_eq!((get("fence.mode").as_str(), get("fence.tokenless").as_str()), ("observe", "allow"));
        assert_eq!((get("fence.exempt").as_str(), get("fence.refs").as_str()), ("anna\nbob", "refs/heads/*"));
        assert_eq!(get("fence.deploy.refs"), "refs/heads/deploy/*");
        let once = tree(&world.server());
        installed(&world, &options);
        installed(&world, &[]);
        assert!(tree(&world.server()) == once);
        world.push(&["HEAD:refs/heads/main"], &[]).assert_landed();
        assert_eq!(world.status()["fences"].as_array().unwrap().len(), 3);

        world.ok(world.git("server.git").args(["config", "fence.mode", "enforce"]));
        uninstalled(&world);
        assert_eq!(get("fence.mode"), "enforce", "settings changed by others stay");
        world.ok(world.git("server.git").args(["config", "--unset", "fence.mode"]));
        assert_eq!(tree_without(&world.server(), &["fence", "objects", "refs"]), {
            let mut before = before;
            before.retain(|(name, ..)| !["objects", "refs"].iter().any(|dir| Path::new(name).starts_with(dir)));
            before
        });
    }
}

#[test]
fn invalid_options_change_nothing() {
    let world = World::bare(&any_git(), &[]);
    let before = tree(&world.server());
    for (options, code) in [
        (&["--refs", "heads/*"][..], 1),
        (&["--fence", "Deploy=refs/heads/x"], 1),
        (&["--fence", "deploy"], 2),
        (&["--fence", "deploy=main"], 1),
        (&["--layout", "github"], 2),
        (&["--layout", "dispatcher"], 1),
    ] {
        let ran = install(&world, options);
        assert_eq!(ran.status.code(), Some(code), "{options:?}: {}", text(&ran.stderr));
        assert!(tree(&world.server()) == before, "{options:?}");
    }
}

#[test]
fn gate_runs_last_behind_a_dispatcher_which_is_not_changed() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        fs::create_dir(world.hook("pre-receive.d")).unwrap();
        world.write_hook("pre-receive.d/gitea", "echo run >>ran; cat >/dev/null");
        copy_program(fixture("dispatcher.sh"), &world.hook("pre-receive"));
        let before = without_pushes(&world);
        installed(&world, &[]);
        let names: Vec<_> = tree(&world.hook("pre-receive.d")).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["gitea", "zz-git-fence"]);
        let again = tree(&world.server());
        installed(&world, &[]);
        installed(&world, &["--layout", "dispatcher"]);
        assert!(tree(&world.server()) == again);
        world.push(&["HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
        world.push_token("main", "1").assert_landed();
        assert_eq!(runs(&world), 2);
        let twice = install(&world, &["--layout", "bare"]);
        assert!(text(&twice.stderr).contains("already installed as"), "{}", text(&twice.stderr));
        uninstalled(&world);
        assert_eq!(without_pushes(&world), before);
        installed(&world, &["--layout", "bare"]);
        world.push_token("main", "2").assert_landed();
        assert_eq!(runs(&world), 3, "as a kept hook, the dispatcher still finds its directory");
    }
}

#[test]
fn gitolite_hooks_and_links_are_not_changed() {
    let world = World::bare(&any_git(), &[]);
    fs::create_dir_all(world.path("home/.gitolite/hooks/common")).unwrap();
    let common = world.path("home/.gitolite/hooks/common/update");
    fs::write(&common, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&common, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&common, world.hook("update")).unwrap();
    symlink(&common, world.hook("pre-receive")).unwrap();
    let ran = install(&world, &[]);
    assert!(text(&ran.stderr).contains("a link of gitolite's"), "{}", text(&ran.stderr));
    fs::remove_file(world.hook("pre-receive")).unwrap();
    installed(&world, &["--layout", "gitolite"]);
    assert_eq!(fs::read_link(world.hook("update")).unwrap(), common);
    world.push(&["HEAD:refs/heads/main"], &[]).assert_refused("FENCE-MISSING");
    world.push_token("main", "1").assert_landed();
    let again = tree(&world.server());
    installed(&world, &[]);
    assert!(tree(&world.server()) == again);
}

#[test]
fn marks_are_raised_to_existing_leases_and_never_lowered() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let lease = |fence: &str, message: &str| {
            let commit = world.commit(message);
            world.push(&[&format!("+{commit}:refs/fence/{fence}/lease")], &[]).assert_landed();
        };
        world.configure("fence.deploy.refs", "refs/heads/deploy/*");
        world.configure("fence.deploy.accept", "at-or-above");
        lease("repo", &Agent::new("anna").lease(41, "held", "expired"));
        // Not a git-fence record, and of an unknown format, but it contains a token.
        lease("deploy", "held\n\nFence-Lease: x\nFence-Token: 7\n");
        lease("odd", "held\n\nFence-Lease: x\nFence-Token: none\n");
        let ran = install(&world, &[]);
        assert!(ran.status.success());
        for name in ["refs/fence/odd/lease", "refs/fence/deploy/lease"] {
            let warned = format!("'{name}' is not a git-fence lease, so pushes to its fence are refused: remove it");
            assert!(text(&ran.stderr).contains(&warned), "{}", text(&ran.stderr));
        }
        let marks = || {
            world.status()["fences"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["mark"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(marks(), [7, 40]);
        let raised = world.events("mark.raised");
        assert_eq!(raised.len(), 2);
        assert!(
            raised[1]["reason"].as_str().unwrap().contains("refs/fence/repo/lease") && raised[1]["pusher"].is_string()
        );
        world.push_token("main", "40").assert_refused("FENCE-STALE");
        world.push_token("main", "41").assert_refused("FENCE-LEASE-REQUIRED");
        world.push(&["HEAD:refs/heads/deploy/x"], &["fence-token=deploy:7"]).assert_refused("FENCE-LEASE-INVALID");
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/fence/deploy/lease"]));
        world.push(&["HEAD:refs/heads/deploy/x"], &["fence-token=deploy:7"]).assert_landed();
        installed(&world, &[]);
        assert_eq!((marks(), world.events("mark.raised").len()), (vec![7, 40], 2));
        assert!(world.ok(world.hook_program().arg("audit").arg(world.server())).contains("raised"));
    }
}

#[test]
fn hook_of_an_older_version_is_replaced() {
    let world = World::new(&any_git());
    let hook = world.hook("pre-receive");
    let now = fs::read(&hook).unwrap();
    let old = "#!/no/such/git-fence-hook pre-receive\n# git-fence: the gate of this repository\n";
    fs::write(&hook, old).unwrap();
    assert!(!world.push_token("main", "1").ok, "git cannot start it, and refuses the push");
    installed(&world, &[]);
    assert_eq!(fs::read(&hook).unwrap(), now);
    assert!(!world.hook("kept-by-git-fence").exists());
    world.push_token("main", "1").assert_landed();
}

#[test]
fn foreign_repository_and_missing_permission_are_reported_clearly() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::bare(&any_git(), &[]);
    // As a user who owns nothing here, but may read.
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |env: &[(&str, &str)]| {
        let mut command = Command::new("setpriv");
        world.hermetic(&mut command);
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_git-fence-hook")]);
        command.arg("install").arg(world.server()).envs(env.iter().copied());
        let ran = command.output().unwrap();
        assert_eq!(ran.status.code(), Some(1));
        text(&ran.stderr)
    };
    let before = tree(&world.server());
    let said = as_nobody(&[]);
    assert!(said.contains("belongs to another user") && said.contains("safe.directory"), "{said}");
    let trusted = [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")];
    let config = world.path("trusting");
    fs::write(&config, "[safe]\n\tdirectory = *\n").unwrap();
    let said = as_nobody(&[&trusted[..], &[("GIT_CONFIG_GLOBAL", config.to_str().unwrap())]].concat());
    assert!(said.contains("Permission denied"), "{said}");
    assert!(tree(&world.server()) == before);
}

#[test]
fn files_made_by_root_belong_to_the_owner_of_the_repository() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = world_with_hook(&any_git(), "");
    world.ok(Command::new("chown").arg("-R").arg("65534:65534").arg(world.server()));
    installed(&world, &["--observe"]);
    let foreign = || world.ok(Command::new("find").arg(world.server()).args(["!", "-type", "l", "!", "-uid", "65534"]));
    assert_eq!(foreign(), "");
    assert!(world.hook_program().arg("doctor").arg(world.server()).output().unwrap().status.success());
    uninstalled(&world);
    assert_eq!(foreign(), "");
}

#[test]
fn shared_hooks_directory_gives_a_warning() {
    let world = World::bare(&any_git(), &[]);
    let global = world.path("global");
    fs::write(&global, format!("[core]\n\thooksPath = {}\n", world.path("all-hooks").display())).unwrap();
    let mut command = world.hook_program();
    let ran = command.env("GIT_CONFIG_GLOBAL", &global).arg("install").arg(world.server()).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("warning: core.hooksPath is set for all repositories"), "{}", text(&ran.stderr));
    let mut push = world.push_command(&["HEAD:refs/heads/main"], &[]);
    Pushed::from(&push.env("GIT_CONFIG_GLOBAL", &global).output().unwrap()).assert_refused("FENCE-MISSING");
}

#[test]
fn two_hundred_repositories_are_installed_by_one_command_and_broken_ones_are_named() {
    let world = World::bare(&any_git(), &[]);
    let all = world.path("all");
    fs::create_dir(&all).unwrap();
    // Copies of one repository: two hundred `git init` are slow.
    let copy = format!(
        "for n in $(seq 1 200); do mkdir -p {0}/team$((n % 7)); cp -r {1} {0}/team$((n % 7))/r$n.git; done",
        sh(&all),
        sh(world.server())
    );
    world.ok(Command::new("sh").args(["-c", &copy]));
    world.ok(world.git(".").args(["init", "-q", "all/with-a-worktree"]));
    fs::write(all.join("team1/r1.git/config"), "[core\n").unwrap();
    fs::remove_file(all.join("team2/r2.git/HEAD")).unwrap();
    fs::create_dir(all.join("team3/r3.git/hooks/pre-receive")).unwrap();
    let run = |args: &[&str]| world.hook_program().args(args).arg("--recursive").arg(&all).output().unwrap();

    let dry = tree(&all);
    let ran = run(&["install", "--dry-run"]);
    assert!(
        text(&ran.stdout).contains(
            "would change: log, receive.advertisePushOptions  not set -> true, companion, hook  mode no gate -> enforce"
        ),
        "{}",
        text(&ran.stdout)
    );
    assert!(tree(&all) == dry, "a dry run changes nothing");
    let ran = run(&["install"]);
    let (said, failed) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(
        said.lines()
            .filter(|line| line.starts_with("ok ") && line.ends_with("  installed  mode no gate -> enforce"))
            .count(),
        198,
        "{said}"
    );
    assert_eq!(said.lines().filter(|line| line.starts_with("failed ")).count(), 3, "{said}");
    for (broken, why) in
        [("r1.git", "configuration"), ("r2.git", "not a git repository"), ("r3.git", "is not a file or link")]
    {
        assert!(said.lines().any(|line| line.contains(broken) && line.contains(why)), "{broken}: {said}");
    }
    assert!(failed.starts_with("error: 3 of 201 repositories failed\nhint: ") && !failed.contains('\r'), "{failed}");
    let once = tree(&all);
    let again = text(&run(&["install"]).stdout);
    assert_eq!(again.matches("  already there").count(), 198);
    assert!(tree(&all) == once);
    let examined = text(&run(&["doctor", "--verbose"]).stdout);
    assert_eq!(examined.lines().filter(|line| line.starts_with("ok ")).count(), 198, "{examined}");
    assert_eq!(examined.lines().filter(|line| line.starts_with("error: ")).count(), 4, "{examined}");
    let grouped = text(&run(&["doctor"]).stdout);
    assert_eq!(grouped.lines().filter(|line| line.starts_with("error: ")).count(), 4, "{grouped}");
    assert!(grouped.ends_with("\n201 repositories: 198 ok, 0 with notes, 3 with problems\n"), "{grouped}");
    assert!(tree(&all) == once, "reading changes nothing");
    let gone = text(&run(&["uninstall"]).stdout);
    assert_eq!(gone.matches("  uninstalled").count(), 198, "{gone}");
    let nothing = world.hook_program().args(["install", "--recursive"]).arg(world.path("home")).output().unwrap();
    assert!(text(&nothing.stderr).contains("no repository found below"), "{}", text(&nothing.stderr));
}
