//! Each kind of damage is found, named, and fixed by the command that doctor gives.

use crate::support::{
    Git, World, any_git, copy_program, fixture, gits,
    lease::Agent,
    needs::{Need, lacks},
    sh, text, tree,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime},
};

fn doctor(world: &World) -> (Output, Vec<serde_json::Value>) {
    let ran = world.hook_program().args(["doctor", "--json"]).arg(world.server()).output().unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", text(&ran.stderr)));
    let findings = report["findings"].as_array().unwrap().clone();
    let worst = findings.iter().any(|finding| finding["severity"] != "note");
    assert_eq!(ran.status.code(), Some(i32::from(worst)), "{report}");
    assert_eq!(report["sound"], !worst);
    (ran, findings)
}

#[track_caller]
fn assert_clean(world: &World) {
    let (_, findings) = doctor(world);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Runs a command through a shell that finds `git-fence-hook` as an operator's shell would.
#[track_caller]
fn run_in_shell(world: &World, command: &str) {
    let mut shell = Command::new("sh");
    world.hermetic(&mut shell);
    let program = Path::new(env!("CARGO_BIN_EXE_git-fence-hook")).parent().unwrap();
    let path = shell.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    shell.env("PATH", [program.as_os_str(), &path].join(&OsString::from(":"))).current_dir("/");
    world.ok(shell.args(["-ec", command]));
}

/// Asserts that the finding exists and that the command it gives leaves no findings.
#[track_caller]
fn assert_found_and_fixed(world: &World, name: &str, severity: &str) {
    let (_, findings) = doctor(world);
    let Some(finding) = findings.iter().find(|finding| finding["name"] == name) else {
        panic!("{name} is not among {findings:#?}");
    };
    assert_eq!(finding["severity"], severity, "{finding:#}");
    assert!(finding["sentence"].as_str().unwrap().len() > 20, "{finding:#}");
    let prose = world.hook_program().arg("doctor").arg(world.server()).output().unwrap();
    let prose = text(&prose.stdout);
    assert!(prose.contains(&format!("{severity}: {name}: {}", finding["sentence"].as_str().unwrap())), "{prose}");
    let fix = finding["mend"].as_str().unwrap_or_else(|| panic!("{finding:#}"));
    assert!(prose.contains(&format!("\n  fix: {fix}\n")), "{prose}");
    run_in_shell(world, fix);
    let (_, left) = doctor(world);
    assert!(left.iter().all(|finding| finding["name"] != name), "{fix}\n{left:#?}");
    // The next push records the first by itself; a new fence has no refs yet.
    let is_left = |finding: &serde_json::Value| finding["name"] == "lease-moved" || finding["name"] == "guards-nothing";
    assert!(left.iter().all(is_left), "{fix}\n{left:#?}");
}

/// Applies `damage` to a server that has been pushed to.
#[track_caller]
fn found_and_fixed_by(git: &Git, name: &str, severity: &str, damage: impl FnOnce(&World)) {
    let world = World::new(git);
    world.push_token("main", "5").assert_landed();
    assert_clean(&world);
    damage(&world);
    let before = tree(&world.server());
    doctor(&world);
    assert!(tree(&world.server()) == before, "reading changes nothing");
    assert_found_and_fixed(&world, name, severity);
    world.push_token("main", "6").assert_landed();
    world.push(&["HEAD:refs/heads/unchecked"], &[]).assert_refused("FENCE-MISSING");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn bypassed_gate_is_found_and_fixed() {
    for git in gits() {
        let fixed = |name: &str, damage: &dyn Fn(&World)| found_and_fixed_by(&git, name, "error", damage);
        fixed("hook-missing", &|world| fs::remove_file(world.hook("pre-receive")).unwrap());
        fixed("hook-not-executable", &|world| mode(&world.hook("pre-receive"), 0o644));
        fixed("hook-not-ours", &|world| world.write_hook("pre-receive", "exit 0"));
        fixed("hook-not-ours", &|world| {
            fs::create_dir(world.hook("kept-by-git-fence")).unwrap();
            world.write_hook("kept-by-git-fence/pre-receive", "exit 1");
            world.write_hook("pre-receive", "exit 0");
        });
        fixed("hook-not-a-file", &|world| {
            fs::remove_file(world.hook("pre-receive")).unwrap();
            fs::create_dir(world.hook("pre-receive")).unwrap();
        });
        fixed("program-missing", &|world| {
            let gone = "#!/no/such/git-fence-hook pre-receive\n# git-fence: the gate of this repository\n";
            fs::write(world.hook("pre-receive"), gone).unwrap();
        });
        fixed("hook-missing", &|world| world.configure("core.hooksPath", world.path("other hooks").to_str().unwrap()));
        fixed("hook-missing", &|world| world.configure("core.hooksPath", "/dev/null"));
        fixed("hook-disabled", &|world| world.configure("hook.pre-receive.enabled", "false"));
        fixed("installed-twice", &|world| {
            fs::create_dir(world.hook("pre-receive.d")).unwrap();
            fs::copy(world.hook("pre-receive"), world.hook("pre-receive.d/zz-git-fence")).unwrap();
        });
        found_and_fixed_by(&git, "push-options-off", "warning", |world| {
            world.ok(world.git("server.git").args(["config", "receive.advertisePushOptions", "false"]));
        });
    }
}

#[test]
fn damaged_files_are_found_and_fixed() {
    for git in gits() {
        let fixed =
            |name: &str, severity: &str, damage: &dyn Fn(&World)| found_and_fixed_by(&git, name, severity, damage);
        let log = |world: &World| world.fence_file("audit.jsonl");
        fixed("fence-not-writable", "error", &|world| mode(&log(world), 0o444));
        fixed("log-missing", "error", &|world| fs::remove_dir_all(world.fence_file("")).unwrap());
        fixed("log-lost", "error", &|world| fs::remove_file(log(world)).unwrap());
        fixed("log-cut", "error", &|world| {
            let lines = fs::read_to_string(log(world)).unwrap();
            fs::write(log(world), lines.lines().next().unwrap().to_owned() + "\n").unwrap();
        });
        fixed("log-damaged", "error", &|world| {
            let lines = fs::read_to_string(log(world)).unwrap();
            fs::write(log(world), lines.replacen("log.begun", "log.bogus", 1)).unwrap();
        });
        fixed("log-damaged", "error", &|world| fs::write(log(world), "").unwrap());
        fixed("log-torn", "warning", &|world| {
            let lines = fs::read_to_string(log(world)).unwrap();
            fs::write(log(world), lines + "{\"seq\":").unwrap();
        });
        for name in ["mutex", "writer", "state.json"] {
            fixed("fence-not-a-file", "error", &|world| {
                let _ = fs::remove_file(world.fence_file(name));
                std::os::unix::fs::symlink("/dev/null", world.fence_file(name)).unwrap();
                world.push_token("main", "6").assert_refused("FENCE-BROKEN");
            });
        }
        fixed("checkpoint-damaged", "warning", &|world| fs::write(world.fence_file("state.json"), "{}").unwrap());
    }
}

#[test]
fn files_of_another_owner_are_found_and_returned() {
    if lacks(&[Need::AnotherUser]) {
        return;
    }
    let world = World::new(&any_git());
    chown(world.fence_file("audit.jsonl"), Some(65534), Some(65534)).unwrap();
    assert_found_and_fixed(&world, "fence-foreign-owner", "error");
}

#[test]
fn leftover_ref_locks_are_found_and_locks_in_use_are_not() {
    for git in gits() {
        for lock in ["refs/heads/main.lock", "refs/heads/a/b.lock", "packed-refs.lock", "reftable/tables.list.lock"] {
            found_and_fixed_by(&git, "lock-left", "error", |world| {
                let path = world.server().join(lock);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let file = File::create(&path).unwrap();
                assert_clean(world);
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
            });
        }
    }
}

#[test]
fn misleading_settings_are_found_and_fixed() {
    for git in gits() {
        let fixed = |name: &str, severity: &str, key: &str, value: &str| {
            found_and_fixed_by(&git, name, severity, |world| world.configure(key, value));
        };
        fixed("setting-unreadable", "error", "fence.mode", "of");
        fixed("setting-unreadable", "error", "fence.deploy.wait", "2m");
        fixed("setting-unreadable", "error", "fence.refs", "");
        fixed("setting-unreadable", "error", "fence.repo.refs", "");
        fixed("setting-unreadable", "error", "fence.De ploy.refs", "refs/heads/x");
        fixed("setting-unknown", "warning", "fence.mod", "observe");
        fixed("setting-unknown", "warning", "fence.repo.receivePack", "none");
        fixed("bounded-form", "warning", "fence.receivePack", "none");
        fixed("proc-receive", "warning", "receive.procReceiveRefs", "refs/heads");
    }
    let world = World::new(&any_git());
    world.configure("fence.tokenles", "allow");
    let (_, findings) = doctor(&world);
    assert_eq!(findings[0]["sentence"], "fence.tokenles has no effect: did you mean tokenless?");
    world.ok(world.git("server.git").args(["config", "--unset", "fence.tokenles"]));
    world.configure("receive.procReceiveRefs", "refs/for");
    assert_clean(&world);
}

#[test]
fn notes_are_not_failures() {
    let world = World::new(&any_git());
    world.configure("fence.mode", "observe");
    world.configure("fence.deploy.refs", "refs/heads/deploy/*");
    world.configure("fence.deploy.mode", "off");
    let (ran, findings) = doctor(&world);
    assert!(ran.status.success());
    let names: Vec<_> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mode-off", "mode-observe"]);
    for finding in &findings {
        run_in_shell(&world, finding["mend"].as_str().unwrap());
    }
    assert_clean(&world);
    world.configure("core.hooksPath", "hooks");
    let (_, findings) = doctor(&world);
    assert_eq!(findings[0]["name"], "hooks-path-relative");
    run_in_shell(&world, findings[0]["mend"].as_str().unwrap());
    assert_clean(&world);
    world.write_hook("pre-receive", "exec git-fence-hook pre-receive");
    assert_eq!(doctor(&world).1[0]["name"], "hook-calls-gate");
}

#[test]
fn stalled_push_is_found_and_evicted() {
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "5").assert_landed();
        world.stall_update_of("t6");
        let _go = world.go_in_the_end();
        let six = world.start_push("t6", "6");
        let pid = world.pid_in("stalled");
        assert_clean(&world);
        world.configure("fence.wait", "1ms");
        let (_, findings) = doctor(&world);
        assert_eq!(findings[0]["name"], "push-stalled", "{findings:#?}");
        assert!(findings[0]["sentence"].as_str().unwrap().contains(&format!("process {pid}")));
        run_in_shell(&world, findings[0]["mend"].as_str().unwrap());
        assert!(!six.wait().ok);
        crate::support::wait_until("the receive-pack is gone", || doctor(&world).1.is_empty());
        world.ok(world.git("server.git").args(["config", "--unset", "fence.wait"]));
        world.push_token("main", "6").assert_landed();
    }
}

#[test]
fn private_program_is_found_if_other_users_push() {
    let world = World::bare(&any_git(), &[]);
    fs::create_dir(world.path("bin")).unwrap();
    let program = world.path("bin/git-fence-hook");
    copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &program);
    let mut install = Command::new(&program);
    world.hermetic(&mut install);
    world.ok(install.arg("install").arg(world.server()));
    mode(&world.path("."), 0o700);
    assert_clean(&world);
    world.configure("core.sharedRepository", "group");
    assert_found_and_fixed(&world, "program-private", "warning");
    mode(&program, 0o750);
    assert_found_and_fixed(&world, "program-private", "warning");
}

#[test]
fn both_hooks_are_checked_behind_a_dispatcher() {
    let world = World::bare(&any_git(), &[]);
    fs::create_dir(world.hook("pre-receive.d")).unwrap();
    copy_program(fixture("dispatcher.sh"), &world.hook("pre-receive"));
    assert_found_and_fixed(&world, "hook-missing", "error");
    world.push_token("main", "1").assert_landed();
    mode(&world.hook("pre-receive"), 0o644);
    assert_found_and_fixed(&world, "dispatcher-not-executable", "error");
    mode(&world.hook("pre-receive.d/zz-git-fence"), 0o644);
    assert_found_and_fixed(&world, "hook-not-executable", "error");
}

#[test]
fn unreadable_repository_is_a_finding_in_a_tree_and_an_error_alone() {
    let world = World::new(&any_git());
    world.ok(Command::new("sh").args([
        "-c",
        &format!(
            "mkdir {0} && cp -r {1} {0}/good.git && cp -r {1} {0}/bad.git",
            sh(world.path("all")),
            sh(world.server())
        ),
    ]));
    fs::write(world.path("all/bad.git/config"), "[core\n").unwrap();
    let ran = world.hook_program().args(["doctor", "--recursive", "--json"]).arg(world.path("all")).output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let said = text(&ran.stdout);
    let reports: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&reports[0]["sound"], &reports[1]["sound"]), (&false.into(), &true.into()), "{said}");
    assert_eq!(reports[0]["findings"][0]["name"], "repository-unreadable");
    let alone = world.hook_program().arg("doctor").arg(world.path("all/bad.git")).output().unwrap();
    assert!(alone.status.code() == Some(1) && text(&alone.stderr).starts_with("error: "), "{}", text(&alone.stderr));
}

/// Last night's log beside today's leases.
#[test]
fn mark_behind_a_lease_is_found() {
    let world = World::new(&any_git());
    world.ok(world.hook_program().args(["raise", "--to", "3", "--reason", "x"]).arg(world.server()));
    let lease = world.commit(&Agent::new("anna").lease(9, "held", "expired"));
    world.push(&[&format!("{lease}:refs/outside/object")], &[]).assert_landed();
    world.ok(world.git("server.git").args(["update-ref", "refs/fence/repo/lease", &lease]));
    assert_found_and_fixed(&world, "mark-behind-lease", "error");
    assert_eq!(world.mark(), 8);
    world.push_token("main", "8").assert_refused("FENCE-STALE");
    world.push_token("main", "9").assert_refused("FENCE-LEASE-REQUIRED");
}

#[test]
fn same_finding_in_a_tree_is_shown_once_with_a_summary() {
    let world = World::bare(&any_git(), &[]);
    world.ok(world.hook_program().args(["install", "--observe"]).arg(world.server()));
    let copy = format!(
        "mkdir {0} && for n in $(seq 1 40); do cp -r {1} {0}/r$n.git; done",
        sh(world.path("all")),
        sh(world.server())
    );
    world.ok(Command::new("sh").args(["-c", &copy]));
    fs::remove_file(world.path("all/r7.git/hooks/pre-receive")).unwrap();
    world.ok(world.hook_program().arg("enforce").arg(world.path("all/r9.git")));
    let doctor = |args: &[&str]| {
        let ran =
            world.hook_program().args(["doctor", "--recursive"]).args(args).arg(world.path("all")).output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let shown = doctor(&[]);
    let all = world.path("all").display().to_string();
    let expected = format!(
        "note: mode-observe: fence 'repo' only observes and refuses nothing\n  fix: git-fence-hook enforce REPO\n  \
         in 39 repositories:\n    {all}/r1.git\n    {all}/r10.git\n    {all}/r11.git\n    and 36 more: --verbose names \
         them\nerror: hook-missing: hook '{all}/r7.git/hooks/pre-receive' is missing: no push is checked\n  \
         fix: git-fence-hook install {all}/r7.git\n  in {all}/r7.git\n\
         40 repositories: 1 ok, 38 with notes, 1 with problems\n"
    );
    assert_eq!(shown, expected);
    let verbose = doctor(&["--verbose"]);
    assert_eq!(verbose.matches("note: mode-observe").count(), 39);
    assert!(verbose.ends_with("40 repositories: 1 ok, 38 with notes, 1 with problems\n"), "{verbose}");
    let json = doctor(&["--json"]);
    assert_eq!(json.lines().filter(|line| line.starts_with("{\"repository\":")).count(), 40);
    assert_eq!(json.lines().count(), 40);
}
