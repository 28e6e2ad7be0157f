//! Root, and others, on a repository that belongs to somebody else.

use crate::support::{
    World, any_git, gits,
    needs::{Need, lacks},
    text,
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    process::Command,
};

const NOBODY: u32 = 65534;

/// A server that belongs to another user, with a gate.
fn theirs(world: &World) {
    world.ok(Command::new("chmod").arg("755").arg(world.path(".")));
    world.ok(Command::new("chown").args(["-R", "65534:65534"]).arg(world.server()));
}

/// Git refuses to work there for root, and says "not in a git directory".
#[test]
fn commands_that_doctor_gives_root_work_and_files_keep_their_owner() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.mod", "observe");
        world.configure("fence.mode", "enforce");
        world.configure("fence.repo.mode", "observe");
        theirs(&world);
        let doctor = || {
            let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
            let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
            report["findings"].as_array().unwrap().clone()
        };
        let found = doctor();
        let names: Vec<&str> = found.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["setting-unknown", "mode-observe", "setting-overridden"]);
        for finding in [&found[0], &found[2]] {
            let fix = finding["mend"].as_str().unwrap();
            let mut shell = Command::new("sh");
            world.hermetic(&mut shell);
            world.ok(shell.args(["-ec", fix]));
        }
        assert!(doctor().is_empty(), "{:#?}", doctor());
        world.ok(world.hook_program().arg("observe").arg(world.server()));
        world.ok(world.hook_program().arg("enforce").arg(world.server()));
        world.ok(world.hook_program().arg("install").arg(world.server()));
        let foreign = ["!", "-type", "l", "!", "-uid", "65534"];
        assert_eq!(world.ok(Command::new("find").arg(world.server()).args(foreign)), "");
    }
}

#[test]
fn user_who_may_not_write_is_told_who_may() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    world.ok(Command::new("chmod").arg("755").arg(world.path(".")));
    let mut raise = world.hook_program();
    raise.args(["raise", "--to", "9", "--reason", "restored"]).arg(world.server());
    let said = text(&raise.uid(NOBODY).output().unwrap().stderr);
    assert!(said.contains("cannot lock") && said.contains("hint: run it as the owner of the repository"), "{said}");
}

/// Otherwise the owner could let root put programs into any directory.
#[test]
fn root_installs_only_where_the_owner_of_the_repository_may_write() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    world.ok(world.hook_program().arg("uninstall").arg(world.server()));
    fs::create_dir(world.path("roots")).unwrap();
    fs::create_dir(world.path("theirs")).unwrap();
    chown(world.path("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
    let install = |hooks: &str| {
        world.ok(Command::new("chown").args(["-R", "0:0"]).arg(world.server()));
        world.configure("core.hooksPath", world.path(hooks).to_str().unwrap());
        theirs(&world);
        world.hook_program().arg("install").arg(world.server()).output().unwrap()
    };
    for hooks in ["roots", "roots/new", "roots/new/hooks", "server.git/../roots"] {
        let ran = install(hooks);
        let said = text(&ran.stderr);
        assert!(!ran.status.success() && said.contains("does not belong to the repository's owner"), "{hooks}: {said}");
        assert!(said.contains("runuser -u nobody -- git-fence-hook install"), "{said}");
        assert_eq!(fs::read_dir(world.path("roots")).unwrap().count(), 0, "{hooks}");
    }
    for hooks in ["theirs", "theirs/new"] {
        let ran = install(hooks);
        assert!(ran.status.success(), "{hooks}: {}", text(&ran.stderr));
        assert_eq!(fs::metadata(world.path(hooks).join("pre-receive")).unwrap().uid(), NOBODY);
    }
    // Root's own setting may lead to root's own directory.
    world.ok(Command::new("chown").args(["-R", "0:0"]).arg(world.server()));
    world.configure("core.hooksPath", world.path("roots").to_str().unwrap());
    theirs(&world);
    chown(world.server().join("config"), Some(0), Some(0)).unwrap();
    let ran = world.hook_program().args(["install", "--dry-run"]).arg(world.server()).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
}

/// Pushes are served by the owner, whose own configuration sends git to other hooks.
#[test]
fn doctor_run_by_root_sees_the_hooks_path_of_the_owner() {
    if lacks(&[Need::AnotherUser, Need::Mount]) {
        return;
    }
    let world = World::new(&any_git());
    theirs(&world);
    let home = world.path("theirs");
    fs::create_dir(&home).unwrap();
    let config = home.join(".gitconfig");
    fs::write(&config, "[core]\n\thooksPath = ~/elsewhere\n").unwrap();
    for path in [&home, &config] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let passwd = world.path("passwd");
    let lines = format!("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::{}:/bin/sh\n", home.display());
    fs::write(&passwd, lines).unwrap();
    let mut command = Command::new("unshare");
    world.hermetic(&mut command);
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/passwd && exec \"$@\""]).arg(&passwd);
    command.arg(env!("CARGO_BIN_EXE_git-fence-hook")).arg("doctor").arg(world.server());
    let ran = command.env_remove("GIT_CONFIG_GLOBAL").output().unwrap();
    let said = text(&ran.stdout);
    let elsewhere = home.join("elsewhere/pre-receive");
    let missing = format!("error: hook-missing: hook '{}' (set by core.hooksPath) is missing", elsewhere.display());
    assert!(ran.status.code() == Some(1) && said.contains(&missing), "{said}{}", text(&ran.stderr));
    assert!(said.contains("note: hooks-path-shared: core.hooksPath is set for all repositories (global)"), "{said}");
}

#[test]
fn client_in_somebody_elses_clone_says_whose_it_is_and_what_to_do() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    world.ok(Command::new("chown").args(["-R", "65534:65534"]).arg(world.path("work")));
    assert_eq!(fs::metadata(world.path("work")).unwrap().uid(), NOBODY);
    let mut client = Command::new(env!("CARGO_BIN_EXE_git-fence"));
    world.hermetic(&mut client);
    let ran = client.args(["status", "--remote", "x"]).current_dir(world.path("work")).output().unwrap();
    let said = text(&ran.stderr);
    assert!(
        said.contains("belongs to another user") && said.contains("run this as its owner, or trust it with"),
        "{said}"
    );
    assert!(said.contains("safe.directory") && !said.contains("dubious"), "{said}");
}
