//! Processes that are killed, stopped, slow or nested at the worst moment.

use crate::support::{
    Door, Pushed, World, any_git, copy_program, gits,
    needs::{Need, lacks},
    sh, signal, signal_group, story, strace, text, wait_until, write_script,
};

/// Long enough that a test that waited for it would fail: it gives up much earlier.
const FOREVER: &str = "10m";

#[test]
fn killed_receive_pack_blocks_nobody_and_is_settled_in_the_log() {
    for git in gits() {
        for door in [Door::Fence, Door::FenceBehindDispatcher] {
            let world = World::with(&git, door, &[]);
            world.configure("fence.wait", FOREVER);
            world.write_hook("update", "case $1 in refs/heads/killed) kill -KILL $PPID;; esac");
            assert!(!world.push_token("killed", "5").ok);
            assert_eq!(world.server_ref("refs/heads/killed"), None);
            world.push_token("main", "4").assert_landed();
            let settled = &world.events("push.settled")[0];
            assert_eq!((&settled["token"], &settled["moved"]), (&5.into(), &0.into()));
            assert_eq!(settled["evidence"], "receive-pack-gone");
            assert_eq!(world.mark(), 4);
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn receive_pack_killed_after_some_refs_moved_has_spent_its_token() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", FOREVER);
        // Newer versions of git update all refs in one batch, after all update hooks: kill it when the refs
        // have moved, from the hook that git then runs.
        world.write_hook(
            "reference-transaction",
            "[ \"$1\" = committed ] || exit 0\ngrep -q refs/heads/b && kill -KILL $PPID; exit 0",
        );
        let pushed = world.push(&["HEAD:refs/heads/a", "HEAD:refs/heads/b", "HEAD:refs/heads/c"], &["fence-token=5"]);
        assert!(!pushed.ok, "its receive-pack was killed");
        assert!(world.server_ref("refs/heads/b").is_some());
        std::fs::remove_file(world.hook("reference-transaction")).unwrap();
        world.push_token("main", "5").assert_refused("FENCE-STALE");
        world.push_token("main", "6").assert_landed();
        assert_eq!(world.mark(), 6);
        world.assert_log_is_whole();
    }
}

#[test]
fn mark_and_refs_agree_after_the_client_is_killed() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", FOREVER);
        world.stall_update_of("t5");
        let five = world.start_push("t5", "5");
        world.pid_in("stalled");
        signal(five.pid(), "KILL");
        five.wait();
        world.go();
        world.push_token("main", "6").assert_landed();
        let landed = world.server_ref("refs/heads/t5").is_some();
        let settled = &world.events("push.settled")[0];
        assert_eq!((&settled["token"], &settled["moved"]), (&5.into(), &u64::from(landed).into()));
        assert_eq!(world.mark(), 6);
        world.assert_log_is_whole();
    }
}

/// The hook is killed at its first system call, at its second, and so on: before each call, and
/// so after the previous one.
#[test]
fn hook_killed_at_any_system_call_loses_nothing_and_blocks_nobody() {
    if lacks(&[Need::Strace]) {
        return;
    }
    let world = World::new(&any_git());
    world.configure("fence.wait", FOREVER);
    let installed = std::fs::read(world.hook("pre-receive")).unwrap();
    let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
    let (trace, mut token) = (world.path("trace"), 1);
    world.push_token("main", "1").assert_landed();
    let push_under_strace = |token: u64, options: &str| {
        world.write_hook("pre-receive", &format!("exec strace -qq -o {} {options} {gate} pre-receive", sh(&trace)));
        let pushed = world.push_token("main", &token.to_string());
        std::fs::write(world.hook("pre-receive"), &installed).unwrap();
        (pushed, std::fs::read_to_string(&trace).unwrap())
    };
    token += 1;
    let (pushed, trace) = push_under_strace(token, "");
    pushed.assert_landed();
    let calls = strace::system_calls_in(&trace);
    let mut killed = 0;
    for call in &calls {
        token += 1;
        let (pushed, trace) = push_under_strace(token, &format!("-e {}", call.kill()));
        if pushed.ok {
            // Reading a longer log takes a call more or less.
            assert!(!trace.contains("killed by"), "{call:?} was killed and landed");
            continue;
        }
        assert!(!pushed.text.contains("FENCE-"), "killed, not refused: {}", pushed.text);
        assert!(world.verify().status.success(), "killed at {call:?}");
        assert_eq!(world.mark(), token - 1, "killed at {call:?}");
        // The same token has not been spent, and nobody has to wait for the dead push.
        world.push_token("main", &token.to_string()).assert_landed();
        assert_eq!(world.mark(), token);
        killed += 1;
    }
    println!("killed at {killed} of {} system calls", calls.len());
    assert!(killed > 80 && killed * 10 > calls.len() * 9, "killed at {killed} of {}", calls.len());
    for needed in ["flock", "write", "fdatasync", "pwrite64", "exit_group"] {
        assert!(calls.iter().any(|call| call.kill().contains(&format!("={needed}:"))), "{needed} is not among them");
    }
    world.assert_log_is_whole();
}

/// The accepted path: one process, one sync, no object opened, no repository scanned.
#[test]
fn accepted_push_starts_no_process_and_syncs_once() {
    if lacks(&[Need::Strace]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        world.push_token("main", "1").assert_landed();
        let gate = sh(env!("CARGO_BIN_EXE_git-fence-hook"));
        let trace = world.path("trace");
        world.write_hook(
            "pre-receive",
            &format!("exec strace -f -qq -e trace=process,file,desc -o {} {gate} pre-receive", sh(&trace)),
        );
        world.push_token("main", "2").assert_landed();
        let trace = std::fs::read_to_string(trace).unwrap();
        // Without the program's path and the loader's search there: these depend on the machine.
        let built = std::path::Path::new(env!("CARGO_BIN_EXE_git-fence-hook")).parent().unwrap().to_str().unwrap();
        let own: Vec<&str> = trace.lines().filter(|line| line.contains("execve(") || !line.contains(built)).collect();
        let calls = |names: &[&str]| {
            let name_of = |line: &str| line.split_whitespace().nth(1)?.split('(').next().map(str::to_owned);
            own.iter().filter_map(|line| name_of(line)).filter(|name| names.contains(&name.as_str())).count()
        };
        assert_eq!(calls(&["execve", "execveat"]), 1, "{trace}");
        assert_eq!(calls(&["clone", "clone3", "fork", "vfork"]), 0, "{trace}");
        assert_eq!(calls(&["fdatasync", "fsync"]), 1, "{trace}");
        assert_eq!(calls(&["getdents", "getdents64"]), 0, "{trace}");
        assert_eq!(own.iter().filter(|line| line.contains("objects")).count(), 0, "{trace}");
        world.assert_log_is_whole();
    }
}

#[test]
fn slow_post_receive_blocks_nobody() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", FOREVER);
        world.write_hook(
            "post-receive",
            "grep -q refs/heads/deploy || exit 0\n>deploying; while [ -e deploying ] && ! [ -e go ]; do sleep 0.02; done",
        );
        let deploy = world.start_push("deploy", "5");
        wait_until("the deployment runs", || world.server().join("deploying").exists());
        world.push_token("main", "6").assert_landed();
        world.push_token("main", "6").assert_refused("FENCE-STALE");
        let settled = &world.events("push.settled")[0];
        assert_eq!((&settled["token"], &settled["evidence"]), (&5.into(), &"reported".into()));
        world.go();
        deploy.wait().assert_landed();
    }
}

#[test]
fn push_from_inside_a_hook_of_the_push_in_flight_is_refused_at_once() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", FOREVER);
        let inner = sh(world.path("inner.txt"));
        // GIT_DIR and the quarantine belong to the outer push; an inner push needs a clean environment.
        let push_inside = |hook: &str| {
            world.write_hook(
                hook,
                &format!(
                    "[ -n \"$INNER\" ] && exit 0\nexport INNER=1\nunset $(git rev-parse --local-env-vars) GIT_QUARANTINE_PATH\n\
                     cd {} && git push {} HEAD:refs/heads/from-{hook} -o fence-token=7 2>{inner}; exit 0",
                    sh(world.path("work")),
                    sh(world.server())
                ),
            );
        };
        push_inside("update");
        world.push_token("main", "5").assert_landed();
        let said = std::fs::read_to_string(world.path("inner.txt")).unwrap();
        assert!(said.contains("FENCE-NESTED") && said.contains("inside a hook"), "{said}");
        assert_eq!(world.mark(), 5);
        std::fs::remove_file(world.hook("update")).unwrap();

        // Once the refs have moved, the outer push is over, and its post-receive may push.
        push_inside("post-receive");
        world.push_token("main", "6").assert_landed();
        assert!(world.server_ref("refs/heads/from-post-receive").is_some());
        assert_eq!(world.mark(), 7);
        world.assert_log_is_whole();
    }
}

#[test]
fn gate_installed_twice_says_so() {
    let world = World::with(&any_git(), Door::FenceBehindDispatcher, &[]);
    world.configure("fence.wait", FOREVER);
    let dir = world.server().join("hooks/pre-receive.d");
    std::fs::copy(dir.join("gate"), dir.join("gate-again")).unwrap();
    let pushed = world.push_token("main", "5");
    pushed.assert_refused("FENCE-NESTED");
    assert!(pushed.text.contains("installed twice"), "{}", pushed.text);
    std::fs::remove_file(dir.join("gate-again")).unwrap();
    world.push_token("main", "5").assert_landed();
}

#[test]
fn stalled_older_push_is_evicted_by_a_newer_one_if_configured() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", FOREVER);
        world.configure("fence.evictAfter", "100ms");
        story::listen(&world);
        world.write_hook("update", "case $1 in refs/heads/t5) kill -STOP $PPID;; esac");
        let five = world.start_push("t5", "5");
        wait_until("five is in flight", || !world.status()["fences"][0]["in_flight"].as_array().unwrap().is_empty());
        world.push_token("t6", "6").assert_landed();
        assert!(!five.wait().ok);
        assert_eq!(story::tokens_moved(&world), [6]);
        assert_eq!(world.events("push.evicted").len(), 1);
        world.assert_log_is_whole();
    }
}

/// No push waits as long as a push may stay in the slot: the time in the slot counts.
#[test]
fn push_in_the_slot_for_too_long_is_evicted_by_a_push_that_just_arrived() {
    for git in gits() {
        let world = World::new(&git);
        world.configure("fence.wait", "200ms");
        world.configure("fence.evictAfter", "2s");
        world.write_hook("update", "case $1 in refs/heads/t5) kill -STOP $PPID;; esac");
        let five = world.start_push("t5", "5");
        wait_until("five is in flight", || !world.status()["fences"][0]["in_flight"].as_array().unwrap().is_empty());
        wait_until("six lands", || world.push_token("t6", "6").ok);
        assert!(!five.wait().ok);
        assert_eq!(world.events("push.evicted").len(), 1);
        world.assert_log_is_whole();
    }
}

/// Runs the hook as a host that starts hooks elsewhere: it has no receive-pack among its ancestors.
fn hook_by_hand(world: &World, input: &std::path::Path, token: &str) -> Pushed {
    let mut hook = world.hook_program();
    hook.arg("pre-receive").current_dir(world.server()).env("GIT_DIR", ".");
    hook.env("GIT_PUSH_OPTION_COUNT", "1").env("GIT_PUSH_OPTION_0", format!("fence-token={token}"));
    Pushed::from(&hook.stdin(std::fs::File::open(input).unwrap()).output().unwrap())
}

#[test]
fn hook_without_a_receive_pack_refuses_unless_configured() {
    let world = World::new(&any_git());
    let tip = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
    world.ok(world.git("work").arg("push").arg(world.server()).arg("HEAD:refs/unguarded/x"));
    let input = world.path("input");
    std::fs::write(&input, format!("{} {tip} refs/heads/main\n", "0".repeat(40))).unwrap();
    let run = |token: &str| hook_by_hand(&world, &input, token);
    run("5").assert_refused("FENCE-UNSEEN");
    // The bounded form: its end cannot be seen, so it is over when its refs have moved or
    // fence.wait has passed.
    world.configure("fence.receivePack", "none");
    world.configure("fence.wait", "10m");
    run("5").assert_landed();
    assert_eq!(world.status()["fences"][0]["in_flight"][0]["form"], "bounded");
    world.ok(world.git("server.git").args(["update-ref", "refs/heads/main", &tip]));
    run("5").assert_refused("FENCE-STALE");
    assert_eq!(world.mark(), 5);
    std::fs::write(&input, format!("{} {tip} refs/heads/second\n", "0".repeat(40))).unwrap();
    run("6").assert_landed();
    world.configure("fence.wait", "0");
    run("7").assert_landed();
    assert_eq!(world.events("push.settled").last().unwrap()["evidence"], "time-passed");
    // Its time starts when it is accepted, not when it started to wait.
    let uptime = |line: &serde_json::Value| line["place"]["uptime_ms"].as_u64().unwrap();
    let accepted = world.events("push.accepted");
    assert!(accepted.windows(2).all(|two| uptime(&two[0]) <= uptime(&two[1])));
}

#[test]
fn push_whose_process_cannot_be_seen_is_waited_for_until_fence_wait() {
    let world = World::new(&any_git());
    world.configure("fence.receivePack", "none");
    world.configure("fence.wait", "1s");
    let tip = world.ok(world.git("work").args(["rev-parse", "HEAD"]));
    world.ok(world.git("work").arg("push").arg(world.server()).arg("HEAD:refs/unguarded/x"));
    let input = world.path("input");
    std::fs::write(&input, format!("{} {tip} refs/heads/main\n", "0".repeat(40))).unwrap();
    hook_by_hand(&world, &input, "5").assert_landed();
    hook_by_hand(&world, &input, "6").assert_landed();
    let let_through = |line: &serde_json::Value| line["place"]["uptime_ms"].as_u64().unwrap();
    let accepted = world.events("push.accepted");
    let waited = let_through(&accepted[1]) - let_through(&accepted[0]);
    assert!(waited >= 1000, "the push in the slot had {waited} ms");
}

/// The waits of twelve pushes time out at the same moment: all refusals are recorded.
#[test]
fn every_refusal_is_recorded_under_concurrency() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "500ms");
    world.stall_update_of("t5");
    let five = world.start_push("t5", "5");
    world.pid_in("stalled");
    let waiting: Vec<_> = (10..22).map(|token| world.start_push(&format!("t{token}"), &token.to_string())).collect();
    for push in waiting {
        push.wait().assert_refused("FENCE-BUSY");
    }
    assert_eq!(world.events("push.rejected").len(), 12);
    world.go();
    five.wait().assert_landed();
    world.assert_log_is_whole();
}

/// A hook that is stopped while it holds the lock blocks all others, for as long as they wait.
#[test]
fn wait_for_a_lock_that_is_never_released_is_bounded() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "200ms");
    let mutex = std::fs::File::open(world.fence_file("mutex")).unwrap();
    mutex.lock().unwrap();
    world.push_token("main", "5").assert_refused("FENCE-BUSY");
    assert_eq!(world.server_ref("refs/heads/main"), None);
    mutex.unlock().unwrap();
    world.push_token("main", "5").assert_landed();
}

/// Two processes with two mutexes, because the first was deleted while it was held, still
/// exclude each other by the second lock.
#[test]
fn mutex_deleted_while_held_still_excludes_others() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "200ms");
    world.push_token("main", "1").assert_landed();
    let holder = std::fs::File::open(world.fence_file("writer")).unwrap();
    holder.lock().unwrap();
    std::fs::remove_file(world.fence_file("mutex")).unwrap();
    world.push_token("main", "5").assert_refused("FENCE-BUSY");
    holder.unlock().unwrap();
    world.push_token("main", "5").assert_landed();
    world.assert_log_is_whole();
}

/// The log at the time when a process started to wait for the lock may be an archive when it gets it.
#[test]
fn push_that_waited_during_a_rotation_writes_to_the_new_log() {
    let world = World::new(&any_git());
    world.configure("fence.wait", FOREVER);
    world.push_token("main", "5").assert_landed();
    let path = world.fence_file("audit.jsonl");
    let lock = world.fence_file("writer");
    let held = std::fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let push = world.start_push("main", "6");
    wait_until("it waits for the lock", || a_hook_has_open(&lock));
    // What a rotation does to the name, without moving lines.
    let (archive, new) = (world.path("archive"), world.path("new"));
    std::fs::copy(&path, &new).unwrap();
    std::fs::hard_link(&path, &archive).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let before = std::fs::read(&archive).unwrap();
    held.unlock().unwrap();
    push.wait().assert_landed();
    assert_eq!(std::fs::read(&archive).unwrap(), before);
    assert_eq!(world.mark(), 6);
    world.assert_log_is_whole();
}

/// Whether a hook has the file at `path` open. (A process that is just starting has its parent's files open.)
fn a_hook_has_open(path: &std::path::Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_hook = |process: &std::path::PathBuf| {
        let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
        text(&cmdline).contains("git-fence-hook")
    };
    let hooks = processes.filter(is_hook);
    let mut open = hooks.flat_map(|process| std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten());
    open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
}

/// The hook file names the program as its interpreter. If the program is missing, git cannot start the hook, and
/// must refuse the push.
#[test]
fn gate_is_closed_if_its_program_is_missing() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let program = world.path("git-fence-hook");
        copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &program);
        let mut install = std::process::Command::new(&program);
        world.hermetic(&mut install);
        world.ok(install.arg("install").arg(world.server()));
        world.push_token("main", "5").assert_landed();
        std::fs::remove_file(&program).unwrap();
        let pushed = world.push_token("main", "6");
        assert!(!pushed.ok, "{}", pushed.text);

        // A path that does not fit in a first line goes through a shell, with the same effect.
        let spaced = world.path("a dir with spaces and 'quotes'");
        std::fs::create_dir(&spaced).unwrap();
        let program = spaced.join("git-fence-hook");
        copy_program(env!("CARGO_BIN_EXE_git-fence-hook"), &program);
        let mut install = std::process::Command::new(&program);
        world.hermetic(&mut install);
        world.ok(install.arg("install").arg(world.server()));
        world.push_token("main", "6").assert_landed();
        std::fs::remove_file(&program).unwrap();
        assert!(!world.push_token("main", "7").ok);
    }
}

/// Ctrl-Z on a local push stops client, receive-pack and hook together.
#[test]
fn fully_stopped_push_is_waited_for_like_any_other() {
    let world = World::new(&any_git());
    world.configure("fence.wait", "300ms");
    let script = world.path("stop-all");
    write_script(&script, "kill -STOP 0");
    world.write_hook(
        "update",
        &format!("case $1 in refs/heads/t5) echo $PPID >stalled.new; mv stalled.new stalled; {};; esac", sh(&script)),
    );
    let mut five = world.push_token_command("t5", "5");
    std::os::unix::process::CommandExt::process_group(&mut five, 0);
    let five = crate::support::Running::start(&mut five);
    world.pid_in("stalled");
    world.push_token("t6", "6").assert_refused("FENCE-BUSY");
    signal_group(five.pid(), "CONT");
    five.wait().assert_landed();
    world.push_token("t6", "6").assert_landed();
}
