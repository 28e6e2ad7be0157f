//! `git fence halt` and `git fence resume` on remotes that keep the leases themselves. Those of stores are in
//! [`stores::halting`](crate::stores).

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, fixture,
    needs::{Need, lacks},
    runs::Background,
    schema::assert_is,
    sh, text, wait_until,
};
use std::{fs, process::Output};

/// A remote whose pushers may halt.
fn world(remote: Remote) -> World {
    let world = remote.world(&any_git());
    if remote == Remote::Gate {
        world.configure("fence.allowRevoke", "tester");
    }
    world
}

fn json(ran: &Output) -> serde_json::Value {
    let report = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&ran.stderr)));
    assert_is("result", &report);
    report
}

/// What those are told who want the lease of a halted fence, or had it.
pub(crate) fn assert_halted(holder: &Agent<'_>, other: &Agent<'_>) {
    for (agent, args, code) in [
        (holder, &["push", "origin", "HEAD:main"][..], 75),
        (holder, &["renew"], 12),
        (holder, &["advance"], 12),
        (other, &["acquire"], 11),
        (other, &["acquire", "--wait", "1s"], 11),
        (other, &["push", "origin", "HEAD:main"], 75),
    ] {
        let ran = agent.fence(&[args, &["--json"]].concat()).output().unwrap();
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {said}");
        let report = json(&ran);
        assert_eq!(
            (&report["outcome"], &report["code"]),
            (&"halted".into(), &"FENCE-HALTED".into()),
            "{args:?}: {said}"
        );
        assert_eq!((&report["halt"]["by"], &report["halt"]["reason"]), (&"boss".into(), &"enough".into()), "{args:?}");
        assert!(said.contains("halted by 'boss' since "), "{args:?}: {said}");
    }
    for (options, code) in [(&[][..], 0), (&["-E", "42"], 42), (&["--wait", "10m"], 0), (&["--if-held", "fail"], 11)] {
        let ran = other.run(options, "exit 99").output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{options:?}: {}", text(&ran.stderr));
        let status = other.status();
        assert_eq!((&status["outcome"], &status["halt"]["by"]), (&"halted".into(), &"boss".into()), "{options:?}");
    }
    let status = json(&other.fence(&["status", "--json"]).output().unwrap());
    assert_eq!((&status["outcome"], &status["halt"]["reason"]), (&"halted".into(), &"enough".into()));
    assert!(other.ok(&["log"]).contains("'boss' halted it: 'enough'"));
}

#[test]
fn halted_fence_admits_nobody_until_it_is_resumed() {
    for remote in Remote::BOTH {
        let world = world(remote);
        let (a, b, boss) = (world.agent("a"), world.agent("b"), world.agent("boss"));
        assert_eq!(boss.ok(&["resume", "--reason", "x"]), "fence 'repo' is not halted: nothing was changed");
        a.ok(&["acquire", "--owner", "agent a"]);
        assert_eq!(boss.code(&["halt"]).0, 2, "without a reason");
        assert_eq!(boss.code(&["halt", "--reason", " "]).0, 2);
        let said = boss.ok(&["halt", "--owner", "boss", "--reason", "enough"]);
        assert_eq!(said, "halted fence 'repo'; 'agent a' held it, with token 1: no push with it has landed, or will");
        assert_halted(&a, &b);
        let said = boss.ok(&["halt", "--owner", "chief", "--reason", "again"]);
        assert!(
            said.starts_with("fence 'repo' was halted by 'boss' since ") && said.ends_with("nothing was changed"),
            "{said}"
        );
        assert_eq!(boss.ok(&["revoke", "--reason", "x"]), "nobody holds the lease of fence 'repo'");
        assert_eq!(world.server_ref("refs/heads/main"), None);
        let said = b.ok(&["resume", "--owner", "chief", "--reason", "go on"]);
        assert!(said.starts_with("resumed fence 'repo'; it was halted by 'boss' since "), "{said}");
        assert!(
            b.ok(&["status"]).contains("free (last: 'agent a', token 1, revoked by 'chief'"),
            "{}",
            b.ok(&["status"])
        );
        assert!(b.ok(&["log"]).contains("'chief' resumed it: 'go on'"), "{}", b.ok(&["log"]));
        assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75, "it stays lost");
        assert_eq!(b.ok(&["acquire"]), "3");
        assert_eq!(b.ok(&["push", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        if remote == Remote::Gate {
            let kinds: Vec<usize> = ["lease.halted", "lease.resumed"].map(|event| world.events(event).len()).into();
            assert_eq!(kinds, [1, 1]);
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn fence_that_nobody_has_held_is_halted_too() {
    for remote in Remote::BOTH {
        let world = world(remote);
        let (a, boss) = (world.agent("a"), world.agent("boss"));
        assert_eq!(boss.ok(&["halt", "--reason", "not yet"]), "halted fence 'repo'");
        assert_eq!(a.code(&["acquire"]).0, 11);
        boss.ok(&["resume", "--reason", "now"]);
        assert_eq!(a.ok(&["acquire"]), "2");
    }
}

#[test]
fn only_allowed_pushers_halt_where_there_is_a_gate() {
    let world = Remote::Gate.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    a.ok(&["acquire"]);
    let (code, said) = b.code(&["halt", "--reason", "x"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("does not allow you to halt the lease of fence 'repo'"), "{said}");
    assert!(said.contains("git-fence-hook halt"), "{said}");
    a.ok(&["push", "origin", "HEAD:main"]);
    let operator = |command: &str| {
        let ran = world.hook_program().args([command, "--reason", "enough"]).arg(world.server()).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    };
    operator("halt");
    assert_eq!(a.code(&["renew"]).0, 12);
    let (code, said) = b.code(&["resume", "--reason", "x"]);
    assert!(code == 1 && said.contains("does not allow you to resume"), "{said}");
    assert_eq!(b.code(&["acquire"]).0, 11);
    operator("resume");
    b.ok(&["acquire"]);
}

/// A record that another version of git-fence has written is not replaced.
#[test]
fn state_that_is_not_known_is_left_alone() {
    let world = world(Remote::Bare);
    let (a, boss) = (world.agent("a"), world.agent("boss"));
    a.ok(&["acquire"]);
    let git = |args: &[&str]| world.ok(world.git("server.git").args(args));
    let message = git(&["log", "-1", "--format=%B", "refs/fence/repo/lease"]).replace("State: held", "State: strange");
    let tree = git(&["hash-object", "-w", "-t", "tree", "/dev/null"]);
    let strange = git(&["commit-tree", &tree, "-m", &message]);
    git(&["update-ref", "refs/fence/repo/lease", &strange]);
    for args in [&["halt", "--reason", "x"][..], &["resume", "--reason", "x"], &["acquire"]] {
        let (code, said) = boss.code(args);
        assert_eq!(code, 1, "{args:?}: {said}");
        assert!(said.contains("Fence-State"), "{args:?}: {said}");
    }
    assert_eq!(world.server_ref("refs/fence/repo/lease"), Some(strange));
}

/// Commands that try to push when they are told to end.
const STUBBORN: &str = "trap 'git commit -q --allow-empty -m late; git push -q origin HEAD:refs/heads/$NAME; exit 3' TERM\n\
    git push -q origin HEAD:refs/heads/$NAME && echo >inside; sleep 1000 & wait";

/// Twenty live runs, each of its own fence, whose commands try to push once more when they are told to end: all end, none
/// lands afterwards, and a resumption lets them in.
pub(crate) fn twenty_runs_end_and_come_back(world: &World, agent: impl Fn(&str) -> String) {
    let names: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    for name in &names {
        agent(name);
    }
    let agent = |name: &str| Agent { world, name: name.to_owned() };
    let boss = agent("f0");
    let runs: Vec<(&String, Background)> = names
        .iter()
        .map(|name| {
            let mut run = agent(name).run(&["--fence", name, "--ttl", "30s"], STUBBORN);
            (name, Background::start(run.env("NAME", name)))
        })
        .collect();
    wait_until("all have pushed", || names.iter().all(|name| agent(name).path("inside").exists()));
    let ran = boss.fence(&["halt", "--all", "--owner", "boss", "--reason", "enough", "--json"]).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let heads = || world.ok(world.git("server.git").args(["for-each-ref", "refs/heads"]));
    let before = heads();
    let lines: Vec<serde_json::Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 21, "repo, too");
    assert!(lines.iter().all(|line| line["outcome"] == "halted"), "{lines:?}");
    for (name, run) in runs {
        let (code, said) = code_of(&run.end());
        assert_eq!(code, 75, "{name}: {said}");
        assert_eq!(agent(name).status()["outcome"], "halted", "{name}: {said}");
        assert_eq!(agent(name).code(&["acquire", "--fence", name]).0, 11);
    }
    assert_eq!(heads(), before, "nothing landed after the halt");
    boss.ok(&["resume", "--all", "--reason", "go on"]);
    for name in &names {
        let pushed =
            agent(name).fence(&["push", "--fence", name, "origin", &format!("HEAD:refs/heads/{name}")]).output();
        let (code, said) = code_of(&pushed.unwrap());
        assert_eq!(code, 0, "{name}: {said}");
    }
}

#[test]
fn twenty_live_runs_end_and_come_back() {
    let world = world(Remote::Bare);
    twenty_runs_end_and_come_back(&world, |name| world.agent(name).name);
}

#[test]
fn live_run_ends_its_command_within_a_heartbeat() {
    for remote in Remote::BOTH {
        let world = world(remote);
        let (a, boss) = (world.agent("a"), world.agent("boss"));
        let inside = world.path("inside");
        let script = format!("echo >{}; exec sleep 1000", inside.display());
        let run = Background::start(&mut a.run(&["--ttl", "9s"], &script));
        wait_until("it runs", || inside.exists());
        boss.ok(&["halt", "--owner", "boss", "--reason", "enough"]);
        let ended = run.end();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(75), "{said}");
        let status = a.status();
        assert_eq!((&status["outcome"], &status["code"]), (&"halted".into(), &"FENCE-HALTED".into()));
        assert!(said.contains("lost the lease of fence 'repo': it is halted by 'boss' since "), "{said}");
    }
}

/// A push that the server has, and whose refs have not moved yet. Without a gate, the halt stops it; a gate lets it land first.
#[test]
fn halt_meets_a_push_that_is_on_its_way() {
    for remote in Remote::BOTH {
        let world = world(remote);
        let (a, boss) = (world.agent("a"), world.agent("boss"));
        a.ok(&["acquire"]);
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let push = Background::start(&mut a.fence(&["push", "origin", "HEAD:refs/heads/slow"]));
        world.pid_in("stalled");
        let halt = Background::start(&mut boss.fence(&["halt", "--owner", "boss", "--reason", "enough"]));
        if remote == Remote::Gate {
            wait_until("it waits at the gate", || halt.arguments().contains("git-fence-hook pre-receive"));
        } else {
            wait_until("it is done", || halt.has_ended());
        }
        world.go();
        let (code, said) = code_of(&halt.end());
        assert_eq!(code, 0, "{said}");
        let landed = remote == Remote::Gate;
        let token = if landed { 2 } else { 1 };
        assert_eq!(
            said,
            format!(
                "halted fence 'repo'; '{}' held it, with token {token}: no push with it has landed, or will\n",
                owner(&said)
            )
        );
        let (code, said) = code_of(&push.end());
        assert_eq!(code, if landed { 0 } else { 75 }, "{said}");
        assert_eq!(world.server_ref("refs/heads/slow").is_some(), landed);
        assert_eq!(a.code(&["push", "origin", "HEAD:refs/heads/slow"]).0, 75);
    }
}

fn owner(said: &str) -> &str {
    said.split('\'').nth(3).unwrap()
}

/// Whatever answer is lost: what is said is true.
#[test]
fn halt_and_resume_whose_answers_are_lost_are_settled() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        for plan in ["lost", "cut", "lost lost", "cut lost", "lost cut lost", "cut cut cut cut"] {
            let world = world(remote);
            let (a, boss) = (world.agent("a"), world.agent("boss"));
            a.ok(&["acquire"]);
            let words = boss.path("../plan");
            let program = format!("FICKLE_PLAN={} {}", sh(&words), sh(fixture("fickle-receive-pack.py")));
            world.ok(boss.git().args(["config", "remote.origin.receivepack", &program]));
            for (command, state) in [("halt", "halted"), ("resume", "released")] {
                fs::write(&words, plan.replace(' ', "\n")).unwrap();
                let (code, said) = boss.code(&[command, "--reason", "x"]);
                assert_eq!(code, 0, "{remote:?} {plan} {command}: {said}");
                assert!(!said.contains("already"), "{remote:?} {plan}: {said}");
                assert_eq!(world.lease("State"), state, "{remote:?} {plan} {command}: {said}");
            }
            assert_eq!(a.code(&["push", "origin", "HEAD:main"]).0, 75, "{remote:?} {plan}");
            assert!(boss.ok(&["release"]).contains("no lease is held here"), "nothing of it is kept");
        }
    }
}

/// Its fleet pushes all the time, and each push moves the record that the halt replaces.
#[test]
fn halt_gets_through_under_a_steady_stream_of_pushes() {
    for remote in Remote::BOTH {
        let world = world(remote);
        let (a, boss) = (world.agent("a"), world.agent("boss"));
        let script = "git push -q origin HEAD:refs/heads/b0 && echo >inside\n\
            while git commit -q --allow-empty -m more && git push -q origin HEAD:refs/heads/b0; do :; done; exit 4";
        let run = Background::start(&mut a.run(&[], script));
        wait_until("it pushes", || a.path("inside").exists());
        let (code, said) = boss.code(&["halt", "--owner", "boss", "--reason", "enough"]);
        assert_eq!(code, 0, "{remote:?}: {said}");
        let at = world.server_ref("refs/heads/b0");
        let (code, said) = code_of(&run.end());
        assert_eq!(code, 75, "{remote:?}: {said}");
        assert_eq!(world.server_ref("refs/heads/b0"), at, "nothing lands after the halt");
    }
}

/// The gate has been told of a store, which does not know of the halt.
#[test]
fn halted_fence_does_not_move_to_a_store() {
    let world = world(Remote::Gate);
    let (a, boss) = (world.agent("a"), world.agent("boss"));
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    boss.ok(&["halt", "--reason", "enough"]);
    let store = "https://127.0.0.1:1/leases";
    world.configure("fence.store", store);
    world.configure("fence.resource", "app");
    let (code, said) = a.code(&["store", "move", "remote", store]);
    assert!(code != 0 && said.contains("is halted by"), "{said}");
    assert_eq!(world.lease("State"), "halted");
}
