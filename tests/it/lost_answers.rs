//! Lost answers, and servers and clients that die during a push: the outcome is determined, and what the
//! client reports is true.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, fixture,
    needs::{Need, lacks},
    sh, signal, text, wait_until,
};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

/// A server that dies at a certain point of a push, once.
fn die_once(world: &World, hook: &str, when: &str) {
    world.write_hook(hook, &format!("{when}\n[ -e died ] && exit 0\ntouch died\nkill -9 $PPID"));
}

/// The refs have moved and the answer is lost.
const COMMITTED: &str = "[ \"$1\" = committed ] || exit 0";

/// The refs have not moved, and never will.
const BEFORE: &str = "true";

#[test]
fn lost_answer_is_settled_and_not_guessed() {
    for remote in Remote::BOTH {
        for (hook, when, landed) in [("update", BEFORE, false), ("reference-transaction", COMMITTED, true)] {
            let world = remote.world(&any_git());
            let a = world.agent("a");
            a.ok(&["acquire"]);
            // The lease's own refs also move in separate transactions: only the push is cut off.
            die_once(&world, hook, when);
            let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/main"]);
            assert!(world.server().join("died").exists());
            assert_eq!(world.server_ref("refs/heads/main").is_some(), landed, "{remote:?} {hook}: {said}");
            assert_eq!(code, if landed { 0 } else { 1 }, "{remote:?} {hook}: {said}");
            assert_eq!(said.contains("did not land"), !landed, "{remote:?} {hook}: {said}");
            // We hold the lease, and the next push lands.
            let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/next"]);
            assert_eq!(code, 0, "{remote:?} {hook}: {said}");
            assert_eq!(a.code(&["release"]).0, 0);
        }
    }
}

/// Killed between two renames of one transaction, as git's files backend can be: the hook creates that
/// state on disk by doing the first rename. The lease is first in the order of names.
#[test]
fn push_that_landed_in_part_is_reported_correctly() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        a.ok(&["push", "origin", "HEAD:gone"]);
        let half =
            "[ \"$1\" = prepared ] || exit 0\n[ -e died ] || mv refs/fence/repo/lease.lock refs/fence/repo/lease";
        die_once(&world, "reference-transaction", half);
        let (code, said) = a.code(&["push", "origin", "HEAD:main", ":gone"]);
        assert_eq!(world.server_ref("refs/heads/main"), None, "{remote:?}: {said}");
        assert_eq!(code, 1, "{remote:?}: {said}");
        assert!(said.contains("landed in part") && said.contains("refs/heads/gone, refs/heads/main are"), "{said}");
        for lock in ["HEAD.lock", "refs/heads/main.lock", "refs/heads/gone.lock", "packed-refs.lock"] {
            let _ = fs::remove_file(world.server().join(lock));
        }
        // We hold the lease, with the next token, and pushing again fixes it.
        let (code, said) = a.code(&["push", "origin", "HEAD:main", ":gone"]);
        assert_eq!(code, 0, "{remote:?}: {said}");
        assert_eq!(world.server_ref("refs/heads/gone"), None);
        assert_eq!(world.lease_token(), 4);
        // The same for a server that fails half way without dying, and reports it.
        let fail = "[ \"$1\" = prepared ] || exit 0\n[ -e failed ] && exit 0\ntouch failed; rm refs/heads/next.lock";
        world.write_hook("reference-transaction", fail);
        let (code, said) = a.code(&["push", "origin", "HEAD:next"]);
        assert_eq!((code, world.server_ref("refs/heads/next")), (1, None), "{remote:?}: {said}");
        assert!(said.contains("landed in part") && said.contains("refs/heads/next is"), "{remote:?}: {said}");
        assert_eq!(a.code(&["push", "origin", "HEAD:next"]).0, 0, "{remote:?}: {said}");
    }
}

/// The client's connection is cut while the server continues the push, slowly.
#[test]
fn push_that_lands_after_its_connection_was_cut_is_reported_correctly() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let push =
            a.fence(&["push", "origin", "HEAD:refs/heads/slow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let push = push.unwrap();
        world.pid_in("stalled");
        signal(git_push_below(push.id()), "KILL");
        if remote == Remote::Gate {
            // The gate lets the question wait until the push is over.
            fs::write(world.server().join("go"), "").unwrap();
        }
        let (code, said) = code_of(&push.wait_with_output().unwrap());
        fs::write(world.server().join("go"), "").unwrap();
        let receive_pack: u32 = fs::read_to_string(world.server().join("stalled")).unwrap().trim().parse().unwrap();
        wait_until("the server has finished", || !PathBuf::from(format!("/proc/{receive_pack}/exe")).exists());
        let landed = world.server_ref("refs/heads/slow").is_some();
        assert_eq!(landed, remote == Remote::Gate, "{said}");
        assert_eq!(code, if landed { 0 } else { 1 }, "{remote:?}: {said}");
        assert_eq!(said.contains("did not land"), !landed, "{remote:?}: {said}");
        assert_eq!(a.code(&["push", "origin", "HEAD:refs/heads/next"]).0, 0);
    }
}

/// The answer is lost: what was sent was stored before it was sent, and the next command determines the outcome.
#[test]
fn client_killed_during_a_push_finds_out_its_outcome() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let mut push = a.fence(&["push", "origin", "HEAD:refs/heads/slow"]);
        let mut push = push.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        world.pid_in("stalled");
        let program = |args: &[&[u8]]| args[0].ends_with(b"git-fence") && args.get(1) == Some(&&b"push"[..]);
        signal(below(push.id(), program), "KILL");
        push.wait().unwrap();
        world.go();
        wait_until("it has landed", || world.server_ref("refs/heads/slow").is_some());
        assert_eq!(
            a.ok(&["push", "origin", "HEAD:refs/heads/next"]),
            "landed with token 2: refs/heads/next",
            "{remote:?}"
        );
        a.ok(&["release"]);
    }
}

#[test]
fn silent_remote_leaves_settling_for_later() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    a.ok(&["acquire"]);
    // It dies whenever refs have moved: the push lands, and so does the push that settles it, both without an answer.
    world.write_hook("reference-transaction", "[ \"$1\" = committed ] || exit 0\ntouch died\nkill -9 $PPID");
    let away = world.path("away.git");
    let (code, said) = {
        let push = a
            .fence(&["push", "origin", "HEAD:refs/heads/main"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("it has landed", || world.server().join("died").exists());
        fs::rename(world.server(), &away).unwrap();
        code_of(&push.wait_with_output().unwrap())
    };
    fs::rename(&away, world.server()).unwrap();
    fs::remove_file(world.hook("reference-transaction")).unwrap();
    // Either it could ask before the server went down, and knows, or it says that it does not know.
    assert!(code == 69 && said.contains("could not find out") || code == 0, "{code}: {said}");
    assert!(world.server_ref("refs/heads/main").is_some());
    assert_eq!(a.ok(&["advance"]), "3", "the lost push landed with 1, and left 2");
}

/// The connection breaks while the server is still working, and the retry meets the lost push.
#[test]
fn acquire_with_a_lost_answer_does_not_block_itself() {
    for remote in Remote::BOTH {
        let world = World::bare(&any_git(), &[]);
        let (once, twice) = (world.path("once"), world.path("twice"));
        let slowly = format!(
            "cat >/dev/null; if mkdir {} 2>/dev/null; then sleep 3; else mkdir {} 2>/dev/null && sleep 4; fi; exit 0",
            once.display(),
            twice.display()
        );
        world.write_hook("pre-receive", &slowly);
        if remote == Remote::Gate {
            world.ok(world.hook_program().arg("install").arg(world.server()));
        }
        let a = world.agent("a");
        let acquire = a.fence(&["acquire"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the push is running", || once.exists());
        signal(git_push_below(acquire.id()), "KILL");
        let (code, said) = code_of(&acquire.wait_with_output().unwrap());
        assert_eq!((code, said.lines().next()), (0, Some("1")), "{remote:?}: {said}");
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 0);
        assert_eq!(a.code(&["release"]).0, 0);
    }
}

fn git_push_below(pid: u32) -> u32 {
    below(pid, |args| {
        let has = |word: &[u8]| args.contains(&word);
        has(b"push") && has(b"--porcelain") && !has(b"fence")
    })
}

/// The process below `pid` with these arguments.
fn below(pid: u32, is_it: impl Fn(&[&[u8]]) -> bool) -> u32 {
    let children = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children: String =
            tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default()).collect();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    };
    let mut open = children(pid);
    while let Some(next) = open.pop() {
        let cmdline = fs::read(format!("/proc/{next}/cmdline")).unwrap_or_default();
        if is_it(&cmdline.split(|byte| *byte == 0).collect::<Vec<_>>()) {
            return next;
        }
        open.extend(children(next));
    }
    panic!("no such process below {pid}");
}

/// A server that fails as planned; after that it works.
fn fickle(agent: &Agent<'_>, plan: &str) {
    let words = agent.path("../plan");
    fs::write(&words, plan.replace(' ', "\n")).unwrap();
    let program = format!("FICKLE_PLAN={} {}", sh(&words), sh(fixture("fickle-receive-pack.py")));
    agent.world.ok(agent.git().args(["config", "remote.origin.receivepack", &program]));
}

/// The client learns from the gate's answer that there is a gate, and the answer to acquiring the lease was lost.
#[test]
fn gate_whose_answer_was_lost_is_discovered_while_settling() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    fickle(&a, "lost");
    a.ok(&["acquire"]);
    fickle(&a, "cut down");
    let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
    assert_eq!(code, 69, "{said}");
    let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
    assert_eq!(code, 0, "{said}");
    assert!(world.server_ref("refs/heads/main").is_some());
    a.ok(&["release"]);
}

/// A gate that has been removed by the time the client finds out.
#[test]
fn gate_removed_meanwhile_does_not_block() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    a.ok(&["acquire"]);
    fickle(&a, "cut down");
    assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 69);
    world.ok(world.hook_program().arg("uninstall").arg(world.server()));
    world.configure("receive.advertisePushOptions", "false");
    let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
    assert_eq!(code, 0, "{said}");
}

/// The lease has expired by the gate's clock. The gate is asked because this machine's clock is an hour behind.
#[test]
fn silent_gate_is_not_reported_as_held() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    a.ok(&["acquire", "--ttl", "1s"]);
    wait_until("it has expired", || world.status()["fences"][0]["lease"]["expires_in_ms"].as_u64().unwrap_or(0) == 0);
    fickle(&b, "down");
    let late =
        |options: &[&str]| code_of(&b.run(options, "true").env("GIT_FENCE_CLOCK_OFFSET", "-3600").output().unwrap());
    let (code, said) = late(&[]);
    assert_eq!((code, b.status()["outcome"].as_str()), (69, Some("unreachable")), "{said}");
    world.configure("fence.accept", "nonsense");
    let (code, said) = late(&[]);
    assert_eq!((code, b.status()["outcome"].as_str()), (1, Some("refused")), "{said}");
    world.configure("fence.accept", "above");
    let (code, said) = late(&[]);
    assert_eq!((code, b.status()["outcome"].as_str()), (0, Some("ran")), "{said}");
}

/// At no moment between the answer and storing it is the lease lost.
#[test]
fn client_killed_while_storing_the_answer_still_has_its_lease() {
    if lacks(&[Need::Strace]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        let traced = |options: &[&str]| {
            let mut strace = Command::new("strace");
            let push = a.fence(&["push", "origin", "HEAD:main"]);
            strace.envs(push.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(a.path(""));
            strace.args(["-qq", "-o"]).arg(world.path("trace")).args(options).arg(env!("CARGO_BIN_EXE_git-fence"));
            strace.args(["push", "origin", "HEAD:main"]).output().unwrap()
        };
        assert!(traced(&["-e", "trace=rename,renameat,renameat2"]).status.success());
        let trace = fs::read_to_string(world.path("trace")).unwrap();
        let name = trace.lines().find(|line| line.contains("lease.json")).unwrap().split('(').next().unwrap();
        let renames = trace.lines().filter(|line| line.split('(').next() == Some(name)).count();
        assert!(renames >= 2, "{trace}");
        for nth in 1..=renames {
            world.ok(a.git().args(["commit", "-q", "--allow-empty", "-m", "more"]));
            traced(&["-e", &format!("trace={name}"), "-e", &format!("inject={name}:signal=KILL:when={nth}")]);
            let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
            assert_eq!(code, 0, "{remote:?}, killed at {name} {nth}: {said}");
        }
        assert_eq!(a.code(&["release"]).0, 0);
        assert_eq!(world.lease("State"), "released");
    }
}

/// The lease is released, the answer is lost, and another agent takes the lease before the client finds out.
#[test]
fn run_with_a_lost_release_answer_still_counts_as_run() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        fickle(&a, "");
        let plan = sh(a.path("../plan"));
        // From here on only the release follows: it lands, its answer is lost, and nothing is answered for a while.
        let script = format!("printf 'lost\\ndown' >{plan}");
        let took = thread::scope(|scope| {
            let second = scope.spawn(|| {
                wait_until("it is released", || {
                    world.server_ref("refs/fence/repo/lease").is_some() && world.lease("State") == "released"
                });
                b.code(&["acquire"])
            });
            let (code, said) = code_of(&a.run(&[], &script).output().unwrap());
            assert_eq!((code, a.status()["outcome"].as_str()), (0, Some("ran")), "{remote:?}: {said}");
            second.join().unwrap()
        });
        assert_eq!(took.0, 0, "{remote:?}: {}", took.1);
    }
}

/// What was sent is kept until its outcome is known, no matter who holds the lease by then.
#[test]
fn push_with_a_lost_answer_is_found_in_the_history_after_a_takeover() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        a.ok(&["acquire", "--ttl", "1s"]);
        fickle(&a, "lost down");
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 69);
        wait_until("it has expired", || b.code(&["acquire", "--skew", "0s", "--owner", "bob"]).0 == 0);
        let (code, said) = a.code(&["advance"]);
        assert_eq!(code, 12, "{remote:?}: {said}");
        assert!(
            said.contains(
                "the lease moved with the push, but its refs may not all have moved; since then, 'bob' holds it"
            ),
            "{remote:?}: {said}"
        );
    }
}

#[test]
fn release_with_a_lost_answer_is_released_on_retry() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        fickle(&a, "lost down");
        assert_eq!(a.code(&["release"]).0, 69);
        let (code, said) = a.code(&["release"]);
        assert_eq!(code, 0, "{remote:?}: {said}");
    }
}

/// The refs of a push are read by exact name and compared with the commit at the time of sending.
#[test]
fn push_with_a_lost_answer_is_reported_as_landed_despite_similar_refs_and_new_commits() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["acquire"]);
        a.ok(&["push", "origin", "HEAD:refs/heads/topic", "HEAD:refs/heads/feature/topic"]);
        fickle(&a, "lost");
        let said = a.ok(&["push", "--delete", "origin", "topic"]);
        assert!(said.contains("topic"), "{remote:?}: {said}");
        // The branch moves on while the client determines the outcome of the push.
        world.write_hook(
            "post-receive",
            &format!("unset GIT_DIR; cd {} && git commit -q --allow-empty -m more", sh(a.path(""))),
        );
        fickle(&a, "lost");
        let said = a.ok(&["push", "origin", "main"]);
        assert!(said.contains("refs/heads/main"), "{remote:?}: {said}");
        let landed = world.server_ref("refs/heads/main").unwrap();
        assert_eq!(landed, world.ok(a.git().args(["rev-parse", "HEAD~"])));
    }
}

#[test]
fn own_token_push_with_a_lost_answer_is_settled() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    // The touch that settles the first one is refused, and that of the second one cannot be sent.
    for (plan, token, outcome, code) in
        [("lost", "5", "landed", 0), ("lost down", "6", "unknown", 69), ("", "6", "up-to-date", 0)]
    {
        fickle(&a, plan);
        if !plan.is_empty() {
            world.ok(a.git().args(["commit", "-q", "--allow-empty", "-m", plan]));
        }
        let said = a.fence(&["push", "--token", token, "--json", "origin", "HEAD:main"]).output().unwrap();
        let (found, said) = (said.status.code(), text(&said.stdout));
        assert!(found == Some(code) && said.contains(&format!("\"outcome\":\"{outcome}\"")), "{token}: {said}");
        assert_eq!(world.server_ref("refs/heads/main").unwrap(), world.ok(a.git().args(["rev-parse", "HEAD"])));
    }
    // If there is nothing to push, no token is checked.
    assert!(a.ok(&["push", "--token", "3", "origin", "HEAD:main"]).contains("nothing new"));
}

/// Another push blocks for longer than the gate waits.
#[test]
fn lease_that_a_busy_gate_cannot_release_is_reported() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    world.configure("fence.exempt", "tester");
    world.configure("fence.wait", "1s");
    world.stall_update_of("slow");
    let _go = world.go_in_the_end();
    let ready = sh(world.path("ready"));
    let run = a.run(&[], &format!("until [ -e {ready} ]; do sleep 0.02; done")).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || a.status()["token"] == 1);
    let mut slow = world.git("work");
    let mut slow = slow.args(["push", "-q"]).arg(world.server()).arg("HEAD:refs/heads/slow").spawn().unwrap();
    world.pid_in("stalled");
    fs::write(world.path("ready"), "").unwrap();
    let (code, said) = code_of(&run.wait_with_output().unwrap());
    assert_eq!((code, a.status()["outcome"].as_str()), (0, Some("ran")), "{said}");
    assert!(said.contains("could not release the lease") && said.contains("FENCE-BUSY"), "{said}");
    world.go();
    assert!(slow.wait().unwrap().success());
}

/// There is no answer: the message and the status file say so.
#[test]
fn lease_that_cannot_be_released_is_reported() {
    if lacks(&[Need::Python]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    fickle(&a, "");
    let script = format!("printf 'down\\ndown\\ndown\\ndown' >{}", sh(a.path("../plan")));
    let (code, said) = code_of(&a.run(&["--ttl", "2s"], &script).output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("could not release the lease"), "{said}");
    assert!(a.status()["message"].as_str().unwrap().contains("could not release the lease"), "{}", a.status());
}

/// Interrupted while the gate is still working: no lease is left held in any case.
#[test]
fn run_interrupted_while_acquiring_leaves_no_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        world.write_hook("update", "[ -e stalled ] && exit 0\necho $PPID >stalled.new; mv stalled.new stalled\nwhile ! [ -e go ]; do sleep 0.02; done");
        let _go = world.go_in_the_end();
        // Without git in between, which would exit at once.
        let through_git = a.run(&["--ttl", "1h"], "true");
        let mut run = Command::new(env!("CARGO_BIN_EXE_git-fence"));
        run.args(through_git.get_args().skip(1)).current_dir(a.path(""));
        run.envs(through_git.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let run = run.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let receive_pack = world.pid_in("stalled");
        signal(run.id(), "TERM");
        if remote == Remote::Gate {
            // It has to wait for its own first push.
            world.go();
        }
        let (code, said) = code_of(&run.wait_with_output().unwrap());
        assert_eq!((code, a.status()["outcome"].as_str()), (143, Some("interrupted")), "{remote:?}: {said}");
        world.go();
        wait_until("the first attempt is over", || !PathBuf::from(format!("/proc/{receive_pack}/exe")).exists());
        assert_eq!(world.lease("State"), "released", "{remote:?}: {said}");
    }
}
