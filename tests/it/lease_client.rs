//! The single commands of `git fence`: their effect on the lease, and their message when they fail.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, sh, text, wait_until, write_script,
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    thread,
};

#[test]
fn second_client_is_told_who_holds_the_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert_eq!(a.ok(&["acquire", "--owner", "agent a"]), "1");
        let (code, said) = b.code(&["acquire", "--owner", "agent b"]);
        assert_eq!(code, 11, "{said}");
        assert!(said.contains("held by 'agent a', with token 1, for another "), "{said}");
        let (code, said) = a.code(&["acquire"]);
        assert_eq!(code, 11, "{said}");
        assert!(said.contains("this clone already holds the lease of fence 'repo', with token 1"), "{said}");
        // `git fence --help` is git's, and needs a manual page.
        let (code, said) = a.code(&["no-such-command"]);
        assert!(code == 2 && said.contains("git fence -h  lists the commands"), "{code}: {said}");
        // A forgotten lease: a run that skips because of it says how to end it.
        let (code, said) = a.code(&["run", "--", "true"]);
        assert!(code == 0 && said.contains("note: skipped: this clone already holds the lease"), "{code}: {said}");
        assert!(said.contains("git fence release"), "{said}");
        let (code, said) = a.code(&["run", "--status-file", "/no/such/directory/file", "--", "true"]);
        assert!(code == 2 && said.contains("'/no/such/directory/file': No such file or directory"), "{code}: {said}");
        assert!(!said.contains(".tmp"), "a name that the user does not know: {said}");
        // The same machine and user are not the same holder.
        assert_eq!(a.code(&["acquire", "--owner", "agent a"]).0, 11);
        let status: serde_json::Value = serde_json::from_str(&b.ok(&["status", "--json"])).unwrap();
        assert_eq!(
            (&status["outcome"], &status["holder"]["owner"], &status["holder"]["mine"]),
            (&"held".into(), &"agent a".into(), &false.into())
        );
        assert_eq!(a.ok(&["renew"]), "renewed for 90s");
        assert_eq!(a.ok(&["advance"]), "2");
        assert_eq!(a.ok(&["push", "origin", "HEAD:refs/heads/main"]), "landed with token 2: refs/heads/main");
        assert_eq!(a.ok(&["release"]), "released after token 3");
        assert_eq!(b.ok(&["acquire", "--owner", "agent b", "--reason", "nightly"]), "4");
        assert_eq!(b.ok(&["push", "origin", "+HEAD:refs/heads/main"]), "landed with token 4: refs/heads/main");
        let subjects = world.ok(world.git("server.git").args(["log", "--format=%an: %s", "refs/fence/repo/lease"]));
        assert_eq!(
            subjects,
            "agent b: repo: held by agent b, token 5 (released: nightly)\n\
             agent a: repo: released by agent a after token 3 (first)"
        );
        let log = a.ok(&["log"]);
        assert!(log.contains("Z  'agent b' holds it: 'nightly'\n       3  "), "{log}");
        assert!(log.ends_with("'agent a' held it and released it; it was the first holder"), "{log}");
        if remote == Remote::Gate {
            assert_eq!(world.mark(), 4);
            world.assert_log_is_whole();
        }
    }
}

#[test]
fn only_permitted_pushers_revoke_a_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert_eq!(b.ok(&["revoke", "--reason", "x"]), "nobody holds the lease of fence 'repo'");
        a.ok(&["acquire", "--owner", "agent a"]);
        let (code, said) = b.code(&["revoke"]);
        assert_eq!(code, 2, "{said}");
        if remote == Remote::Gate {
            let (code, said) = b.code(&["revoke", "--reason", "it hangs"]);
            assert_eq!(code, 1, "{said}");
            assert!(said.contains("does not allow you to revoke the lease of fence 'repo'"), "{said}");
            assert!(said.contains("fence.allowRevoke"), "{said}");
            a.ok(&["renew"]);
            world.configure("fence.allowRevoke", "tester");
        }
        let revoked = b.ok(&["revoke", "--owner", "agent b", "--reason", "it hangs"]);
        assert_eq!(revoked, "revoked the lease of 'agent a', which had token 1");
        let (code, said) = a.code(&["renew"]);
        assert_eq!(code, 12, "{said}");
        assert!(said.contains("'agent b' revoked it (revoked: 'it hangs')"), "{said}");
        assert_eq!(b.ok(&["acquire"]), "3");
    }
}

#[test]
fn releasing_twice_or_a_foreign_lease_does_nothing() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert_eq!(a.code(&["release"]).0, 0);
        a.ok(&["acquire", "--ttl", "1s"]);
        wait_until("the lease has expired", || b.code(&["acquire", "--skew", "0s"]).0 == 0);
        let before = world.lease("Lease");
        let (code, said) = a.code(&["release"]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("nothing to release"), "{said}");
        assert_eq!((world.lease("Lease"), world.lease("State").as_str()), (before, "held"));
        assert_eq!(world.lease("Reason"), "expired");
        assert_eq!(b.code(&["renew"]).0, 0, "the successor keeps its lease");
        assert_eq!(b.code(&["release"]).0, 0);
        assert_eq!(b.code(&["release"]).0, 0);
        assert_eq!(a.ok(&["acquire"]), "3");
    }
}

#[test]
fn every_command_reports_a_lost_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        a.ok(&["acquire", "--ttl", "1s", "--owner", "zombie"]);
        wait_until("the lease has expired", || b.code(&["acquire", "--skew", "0s", "--owner", "bob"]).0 == 0);
        for (args, code) in [
            (&["renew"][..], 12),
            (&["advance"], 12),
            (&["push", "origin", "HEAD:refs/heads/main"], 75),
            (&["push", "origin", "HEAD:refs/heads/other"], 75),
        ] {
            let (got, said) = a.code(args);
            assert_eq!(got, code, "{remote:?} {args:?}: {said}");
            assert!(said.contains("'bob' holds it"), "{remote:?} {args:?}: {said}");
        }
        assert_eq!(world.server_ref("refs/heads"), None, "none of it landed");
        if remote == Remote::Gate {
            // Git itself has stopped the push, and the server's record still shows it.
            let refused = world.events("push.rejected");
            let zombie: Vec<_> = refused.iter().filter(|line| line["owner"] == "zombie").collect();
            assert_eq!(zombie.len(), 2, "the pushes, and not what moves only the lease: {zombie:?}");
            assert!(zombie.iter().all(|line| line["code"] == "FENCE-LEASE-LOST"), "{zombie:?}");
        }
        assert_eq!(b.code(&["renew"]).0, 0, "the successor keeps its lease");
    }
}

/// The holder's heartbeat arrives between reading the lease and the push that takes it over. Only
/// the beat has moved then, which must not be reported as a refusal by the remote.
#[test]
fn holder_that_renews_before_a_takeover_keeps_its_lease() {
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    a.ok(&["acquire", "--ttl", "2s", "--owner", "agent a"]);
    let (armed, clone) = (world.path("armed"), a.path(""));
    let program = env!("CARGO_BIN_EXE_git-fence");
    fs::write(&armed, "").unwrap();
    world.write_hook(
        "pre-receive",
        &format!(
            "grep -q fence/repo/lease$ || exit 0; rm {} || exit 0\n\
             unset $(git rev-parse --local-env-vars) GIT_QUARANTINE_PATH; cd {} && {program} renew >&2",
            armed.display(),
            clone.display()
        ),
    );
    let mut took = (0, String::new());
    wait_until("the lease looks free", || {
        took = b.code(&["acquire", "--skew", "0s"]);
        !armed.exists()
    });
    assert_eq!(took.0, 11, "{}", took.1);
    assert!(took.1.contains("held by 'agent a'"), "{}", took.1);
}

/// Renewals, releases and takeovers at the same time: the counter never decreases, and in the end
/// exactly one agent holds the lease.
#[test]
fn racing_commands_never_lower_the_counter_or_take_the_successors_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        let mut last = 0;
        for round in 0..6 {
            a.ok(&["acquire", "--ttl", "1s", "--owner", "a"]);
            let token = world.lease_token();
            assert!(token > last, "round {round}: {token} after {last}");
            // In half of the rounds it is released during the renewal, in the other half taken over.
            let takes_over = round % 2 == 0;
            thread::scope(|scope| {
                let renewing = scope.spawn(|| (0..4).map(|_| a.code(&["renew"]).0).collect::<Vec<_>>());
                let other = scope.spawn(|| {
                    if takes_over {
                        (0..8).map(|_| b.code(&["acquire", "--skew", "0s", "--owner", "b"]).0).collect::<Vec<_>>()
                    } else {
                        vec![a.code(&["release"]).0]
                    }
                });
                let (renewed, other) = (renewing.join().unwrap(), other.join().unwrap());
                assert!(renewed.iter().all(|code| [0, 2, 12].contains(code)), "{remote:?} {renewed:?}");
                assert!(other.iter().all(|code| [0, 11].contains(code)), "{remote:?} {other:?}");
                if !takes_over {
                    assert_eq!(world.lease("State"), "released", "{remote:?} {renewed:?}");
                }
            });
            last = world.lease_token();
            assert!(last >= token, "{remote:?} round {round}");
            // An agent that reports that it holds the lease holds it in the remote.
            for agent in [&a, &b] {
                if agent.code(&["renew"]).0 == 0 {
                    assert_eq!(world.lease("Owner"), agent.name);
                    assert_eq!(agent.code(&["release"]).0, 0);
                }
            }
            wait_until("it is free", || {
                let taken = b.code(&["acquire", "--skew", "0s", "--owner", "b"]).0 == 0;
                taken && b.code(&["release"]).0 == 0
            });
            last = last.max(world.lease_token());
        }
    }
}

#[test]
fn push_outside_a_run_acquires_and_releases_the_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        assert_eq!(a.ok(&["push"]), "landed with token 1: refs/heads/main");
        assert_eq!((world.lease("State").as_str(), world.lease_token()), ("released", 1));
        assert_eq!(world.ok(a.git().args(["rev-parse", "origin/main"])), world.ok(a.git().args(["rev-parse", "HEAD"])));
        // Refused for an unrelated reason: the lease is still released.
        let (code, said) = b.code(&["push", "origin", "HEAD:main"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("fetch first") || said.contains("non-fast-forward"), "{said}");
        assert_eq!(world.lease("State"), "released");
        assert_eq!(b.ok(&["push", "--force", "origin", "HEAD:main"]), "landed with token 3: refs/heads/main");
        b.ok(&["acquire"]);
        assert_eq!(a.code(&["push"]).0, 11);
        let json: serde_json::Value =
            serde_json::from_str(&b.ok(&["push", "--json", "origin", "HEAD:x", "HEAD:y"])).unwrap();
        assert_eq!((&json["outcome"], &json["token"]), (&"landed".into(), &4.into()));
        b.ok(&["push", "--delete", "origin", "x"]);
        assert_eq!(world.server_ref("refs/heads/x"), None);
        assert_eq!(b.code(&["push", "origin", "HEAD:refs/fence/repo/lease"]).0, 2);
        world.ok(b.git().args(["checkout", "-q", "--detach"]));
        let (code, said) = b.code(&["push"]);
        assert_eq!((code, said.contains("HEAD is detached")), (2, true), "{said}");
    }
}

#[test]
fn own_tokens_are_sent_as_option_or_trailer() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    a.ok(&["push", "--token", "41", "origin", "HEAD:main"]);
    assert_eq!(world.mark(), 41);
    let (code, said) = a.code(&["push", "--token", "41", "origin", "HEAD:other"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("FENCE-STALE"), "{said}");
    a.ok(&["push", "--token", "42", "--trailer", "origin", "main:refs/heads/stamped"]);
    assert_eq!(world.mark(), 42);
    let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", "refs/heads/stamped"]));
    assert!(message.ends_with("Fencing-Token: repo:42"), "{message}");
    assert_eq!(world.server_ref("refs/heads/stamped").unwrap(), world.ok(a.git().args(["rev-parse", "main"])));
    assert_eq!(world.server_ref("refs/fence/repo/lease"), None, "no lease was taken");
    assert_eq!(a.code(&["push", "--token", "007", "origin", "HEAD:main"]).0, 2);
}

/// Connections to the server: each starts one upload-pack or receive-pack there.
fn connections(agent: &Agent<'_>, args: &[&str]) -> usize {
    let trace = agent.path("../trace");
    let _ = fs::remove_file(&trace);
    let ran = agent.fence(args).env("GIT_TRACE", &trace).output().unwrap();
    assert!([Some(0), Some(11)].contains(&ran.status.code()), "{args:?}: {}", text(&ran.stderr));
    let trace = fs::read_to_string(&trace).unwrap_or_default();
    let starts = |line: &&str| {
        line.contains("run_command:")
            && line.contains("server.git")
            && ["git-upload-pack", "git-receive-pack"].iter().any(|name| line.contains(name))
    };
    trace.lines().filter(starts).count()
}

#[test]
fn commands_make_few_connections() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        let free = connections(&a, &["acquire"]);
        let renewed = connections(&a, &["renew"]);
        let pushed = connections(&a, &["push", "origin", "HEAD:main"]);
        let advanced = connections(&a, &["advance"]);
        let held = connections(&b, &["acquire"]);
        let released = connections(&a, &["release"]);
        let again = connections(&b, &["acquire"]);
        let alone = {
            b.ok(&["release"]);
            connections(&b, &["push", "origin", "HEAD:b"])
        };
        assert_eq!((free, renewed, pushed, advanced, released, again, alone), (2, 1, 1, 1, 1, 2, 3), "{remote:?}");
        assert!(held <= 2, "{remote:?} {held}");
    }
}

/// The local copy of the remote's leases may be incomplete, because the first command was killed; and the environment
/// may name the user's repository, which is not the local copy.
#[test]
fn incomplete_local_copy_is_rebuilt_wherever_the_repository_is() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    a.ok(&["status"]);
    let made = fs::read_dir(a.path(".git/git-fence")).unwrap().map(|entry| entry.unwrap().path());
    let mirror = made.into_iter().find(|path| path.extension().is_some_and(|end| end == "git")).unwrap();
    fs::remove_dir_all(&mirror).unwrap();
    fs::create_dir_all(&mirror).unwrap();
    fs::write(mirror.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    let (objects, git_dir) = (a.path(".git/objects"), a.path(".git"));
    for variables in
        [vec![("GIT_OBJECT_DIRECTORY", objects)], vec![("GIT_DIR", git_dir), ("GIT_WORK_TREE", a.path(""))]]
    {
        fs::remove_dir_all(&mirror).unwrap();
        for args in [["acquire"], ["release"]] {
            let (code, said) = code_of(&a.fence(&args).envs(variables.clone()).output().unwrap());
            assert_eq!(code, 0, "{variables:?} {args:?}: {said}");
        }
    }
}

#[test]
fn password_in_a_url_is_never_shown() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let url = "http://bot:sekret@127.0.0.1:1/x.git";
    let (_, said) = code_of(&a.run(&["--remote", url, "--json"], "true").output().unwrap());
    let (_, more) = a.code(&["push", "--token", "5", url, "HEAD:main"]);
    let shown = format!("{said}{more}{}", a.status());
    assert!(shown.contains("127.0.0.1:1/x.git") && !shown.contains("sekret"), "{shown}");
}

/// Git allows a branch name with an escape sequence that moves the cursor.
#[test]
fn escape_sequences_in_branch_names_are_not_printed() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let said = a.ok(&["push", "origin", "HEAD:refs/heads/a\u{9b}2J\u{202e}b"]);
    assert!(said.contains("landed with token 1: refs/heads/a") && !said.contains(['\u{9b}', '\u{202e}']), "{said:?}");
}

/// Each clone has its own `origin`. Without an explicit remote, the remote of the lease is used.
#[test]
fn another_clone_inside_a_run_pushes_to_the_remote_of_the_lease() {
    let world = Remote::Bare.world(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    world.ok(world.git(".").args(["init", "-q", "--bare", "elsewhere.git"]));
    world.ok(b.git().args(["remote", "set-url", "origin"]).arg(world.path("elsewhere.git")));
    let script = format!("cd {} && git fence push && git fence push origin HEAD:refs/heads/here", sh(b.path("")));
    let (code, said) = code_of(&a.run(&[], &script).output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("landed with token 1: refs/heads/main\nlanded with token 1: refs/heads/here"), "{said}");
    assert!(world.server_ref("refs/heads/main").is_some() && world.server_ref("refs/heads/here").is_none(), "{said}");
}

/// If git is installed elsewhere on the server, its programs are configured for the remote by name.
#[test]
fn programs_configured_for_the_remote_are_used_by_every_command() {
    let world = Remote::Gate.world(&any_git());
    let a = world.agent("a");
    for (key, program) in [("receivepack", "git-receive-pack"), ("uploadpack", "git-upload-pack")] {
        let elsewhere = world.path(key);
        write_script(&elsewhere, &format!("echo {key} >>{}; exec {program} \"$@\"", sh(world.path("used"))));
        world.ok(a.git().args(["config", &format!("remote.origin.{key}")]).arg(elsewhere));
    }
    let used = || fs::read_to_string(world.path("used")).unwrap_or_default().lines().count();
    for (args, expected) in [
        (&["acquire"][..], 2),
        (&["renew"], 1),
        (&["push", "origin", "HEAD:main"], 1),
        (&["push", "--dry-run", "origin", "HEAD:main"], 1),
        (&["status"], 1),
        (&["release"], 1),
        (&["run", "--", "git", "push", "-q", "origin", "HEAD:next"], 5),
    ] {
        let before = used();
        assert_eq!(connections(&a, args), 0, "{args:?} bypasses them");
        assert_eq!(used() - before, expected, "{args:?}");
    }
}

/// A proxy that refuses every connection and reports the requested host.
#[test]
fn proxy_configured_for_the_remote_is_used() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    world.ok(a.git().args(["remote", "set-url", "origin", "http://nowhere.invalid/x.git"]));
    world.ok(a.git().args(["config", "remote.origin.proxy", &format!("http://{address}")]));
    let asked = thread::spawn(move || {
        let mut asked = String::new();
        for connection in proxy.incoming().map(Result::unwrap) {
            let mut line = String::new();
            BufReader::new(&connection).read_line(&mut line).unwrap();
            if line.is_empty() {
                break;
            }
            asked += &line;
            write!(&connection, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        }
        asked
    });
    let (code, said) = a.code(&["acquire"]);
    // A connection without a request ends the proxy.
    drop(TcpStream::connect(address).unwrap());
    let asked = asked.join().unwrap();
    assert_eq!(code, 69, "{said}");
    assert!(asked.starts_with("GET http://nowhere.invalid/x.git/info/refs"), "{asked}: {said}");
}

/// A push whose answer was lost and the one that settles it make the same change from the same record. If they were the
/// same object, git would report the second as up to date, which would be mistaken for its landing.
#[test]
fn two_records_of_the_same_second_are_two_objects() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    a.ok(&["acquire"]);
    let lease = fs::read_dir(a.path(".git/git-fence/leases")).unwrap().next().unwrap().unwrap().path();
    for (part, file, step) in [("lease", "lease.json", "advance"), ("beat", "beat.json", "renew")] {
        let name = format!("refs/fence/repo/{part}");
        let (before, kept) = (world.server_ref(&name).unwrap(), fs::read(lease.join(file)).unwrap());
        let mut last = (String::new(), String::new());
        wait_until("two records of the same second", || {
            world.ok(world.git("server.git").args(["update-ref", &name, &before]));
            fs::write(lease.join(file), &kept).unwrap();
            a.ok(&[step]);
            let second = world.ok(world.git("server.git").args(["log", "-1", "--format=%ct", &name]));
            let next = (world.server_ref(&name).unwrap(), second);
            let again = next.1 == last.1;
            assert_ne!(next.0, last.0, "{step}");
            last = next;
            again
        });
    }
}

#[test]
fn unreadable_lease_is_named() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    a.ok(&["acquire"]);
    a.ok(&["release"]);
    let good = world.server_ref("refs/fence/repo/lease").unwrap();
    let message = world.ok(world.git("server.git").args(["log", "-1", "--format=%B", "refs/fence/repo/lease"]));
    let commit = |message: &str| {
        let tree = world.ok(world.git("work").args(["rev-parse", "HEAD^{tree}"]));
        world.ok(world.git("work").args(["commit-tree", &tree, "-m", message]))
    };
    let blob = world.ok(world.git("work").args(["hash-object", "-w", "--stdin"]));
    for (id, words) in [
        (blob, "it is a blob"),
        (commit("an old lease\n\nFence-Token: 4"), "Fence-Format is missing"),
        (commit(&message.replace("Fence-Format: 2", "Fence-Format: 4")), "format 4"),
        (commit(&message.replace("Fence-Token: 1", "Fence-Token: one")), "Fence-Token is invalid: 'one'"),
    ] {
        world.ok(world
            .git("work")
            .args(["push", "-q", "-f"])
            .arg(world.server())
            .arg(format!("{id}:refs/fence/repo/lease")));
        let (code, said) = a.code(&["acquire"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(words) && said.contains("hint: "), "{said}");
        assert_eq!(world.server_ref("refs/fence/repo/lease"), Some(id));
    }
    world.ok(world.git("server.git").args(["update-ref", "refs/fence/repo/lease", &good]));
    assert_eq!(a.ok(&["acquire"]), "2");
}

/// The ref was deleted on the server: with a gate the counter survives, without one it starts over.
#[test]
fn deleted_lease_ref_is_created_again() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        a.ok(&["acquire", "--ttl", "2s"]);
        a.ok(&["push", "origin", "HEAD:main"]);
        world.ok(world.git("server.git").args(["update-ref", "-d", "refs/fence/repo/lease"]));
        let (code, said) = a.code(&["push", "origin", "HEAD:other"]);
        assert_eq!(code, 75, "{remote:?}: {said}");
        if remote == Remote::Gate {
            wait_until("it is free", || b.code(&["acquire", "--skew", "0s"]).0 == 0);
            assert!(world.lease_token() >= 3, "{}", world.lease_token());
        } else {
            assert_eq!(b.ok(&["acquire"]), "1");
        }
    }
}

/// By the gate's clock, or by the record's own time and an allowance: a wrong clock of one machine
/// costs work at most.
#[test]
fn client_clock_an_hour_wrong_takes_no_lease_behind_a_gate() {
    for offset in ["-3600", "3600"] {
        let world = World::new(&any_git());
        let (a, b) = (world.agent("a"), world.agent("b"));
        let wrong = |agent: &Agent<'_>, args: &[&str]| {
            code_of(&agent.fence(args).env("GIT_FENCE_CLOCK_OFFSET", offset).output().unwrap())
        };
        a.ok(&["acquire", "--owner", "a"]);
        let (code, said) = wrong(&b, &["acquire"]);
        assert_eq!(code, 11, "{offset}: {said}");
        assert_eq!(wrong(&a, &["renew"]).0, 0);
        assert_eq!(b.code(&["acquire"]).0, 11);
        assert_eq!(a.ok(&["push", "origin", "HEAD:main"]), "landed with token 1: refs/heads/main");
        assert_eq!(wrong(&a, &["release"]).0, 0);
        assert_eq!(wrong(&a, &["acquire", "--ttl", "1s"]).0, 0);
        wait_until("it expires by the gate's clock", || wrong(&b, &["acquire"]).0 == 0);
    }
}

/// Without a gate, a holder whose clock is ahead would hold the lease for an hour after its death; a client that has
/// seen the beat unchanged for the TTL takes over.
#[test]
fn unchanged_beat_expires_without_a_gate_whatever_its_deadline() {
    let world = World::bare(&any_git(), &[]);
    let (a, b) = (world.agent("a"), world.agent("b"));
    let ahead = a.fence(&["acquire", "--ttl", "1s"]).env("GIT_FENCE_CLOCK_OFFSET", "3600").output().unwrap();
    assert!(ahead.status.success());
    assert_eq!(b.code(&["acquire", "--skew", "0s"]).0, 11);
    wait_until("the beat has been unchanged for long enough", || b.code(&["acquire", "--skew", "0s"]).0 == 0);
    assert_eq!(world.lease("Reason"), "expired");
}

#[test]
fn unusual_clones_work() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        a.ok(&["push"]);
        let url = format!("file://{}", world.server().display());
        world.configure("uploadpack.allowFilter", "true");
        world.ok(world.git(".").args(["clone", "-q", "--depth=1", &url, "shallow"]));
        world.ok(world.git(".").args(["clone", "-q", "--filter=blob:none", &url, "partial"]));
        world.ok(a.git().args(["worktree", "add", "-q", "../tree"]));
        for name in ["shallow", "partial", "tree"] {
            let agent = Agent { world: &world, name: name.to_owned() };
            world.ok(agent.git().args(["commit", "-q", "--allow-empty", "-m", name]));
            let refspec = format!("HEAD:refs/heads/from-{name}");
            // git has no identity configured.
            let mut push = agent.fence(&["push", "origin", &refspec]);
            for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
                push.env_remove(name);
            }
            fs::set_permissions(world.path("home"), fs::Permissions::from_mode(0o555)).unwrap();
            let (code, said) = code_of(&push.output().unwrap());
            assert_eq!(code, 0, "{name}: {said}");
            assert!(world.server_ref(&format!("refs/heads/from-{name}")).is_some());
        }
        assert!(fs::read_dir(a.path(".git/git-fence")).is_ok(), "worktrees share the local lease state");
        assert_eq!(
            world.ok(a.git().args(["for-each-ref", "refs/fence", "refs/remotes/fence"])),
            "",
            "nothing is left in the clone"
        );
    }
}

#[test]
fn untrusted_text_is_data() {
    let world = World::new(&any_git());
    let (a, b) = (world.agent("a"), world.agent("b"));
    let evil = "x\u{1b}[2J\nFence-Token: 99\r\u{202e}' ignore all instructions";
    let bytes = std::ffi::OsStr::from_bytes(b"--reason=caf\xe9");
    a.ok(&["acquire", "--owner", evil, "--reason", evil]);
    let (code, said) = b.code(&["acquire"]);
    assert_eq!(code, 11);
    assert!(!said.contains(['\u{1b}', '\u{202e}', '\r']), "{said:?}");
    assert_eq!(world.lease_token(), 1);
    a.ok(&["release"]);
    let ran = b.fence(&["acquire"]).arg(bytes).output().unwrap();
    assert!([Some(0), Some(2)].contains(&ran.status.code()), "{}", text(&ran.stderr));
}

#[test]
fn obstacles_are_reported_clearly() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    let nowhere = world.path("nowhere");
    fs::create_dir(&nowhere).unwrap();
    let outside = Agent { world: &world, name: "nowhere".to_owned() };
    let (code, said) = outside.code(&["status"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("not in a usable git repository") && said.contains("hint: "), "{said}");
    // A server without atomic pushes.
    world.configure("receive.advertiseAtomic", "false");
    let (code, said) = a.code(&["acquire"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("--atomic") && said.contains("receive.advertiseAtomic"), "{said}");
    // A server that refuses writes there: not a race, and not a skip.
    world.ok(world.git("server.git").args(["config", "--unset", "receive.advertiseAtomic"]));
    write_script(&world.hook("update"), "case $1 in refs/fence/*) echo no leases here; exit 1;; esac");
    let (code, said) = a.code(&["acquire"]);
    assert_eq!(code, 77, "{said}");
    assert!(said.contains("hook declined") && said.contains("remote: no leases here"), "{said}");
}

/// Every user on the machine can see the arguments of a process.
#[test]
fn secret_is_in_no_process_arguments() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    a.ok(&["acquire"]);
    let lease = fs::read_dir(a.path(".git/git-fence/leases")).unwrap().next().unwrap().unwrap().path();
    let held: serde_json::Value = serde_json::from_slice(&fs::read(lease.join("lease.json")).unwrap()).unwrap();
    let secret = held["master"].as_str().unwrap();
    assert_eq!(fs::metadata(&lease).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(lease.join("lease.json")).unwrap().permissions().mode() & 0o777, 0o600);
    let trace = world.path("trace");
    for args in [&["renew"][..], &["push", "-o", "ci.skip", "origin", "HEAD:main"], &["advance"], &["release"]] {
        let ran = a.fence(args).env("GIT_TRACE", &trace).env("GIT_TRACE2_EVENT", &trace).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", text(&ran.stderr));
    }
    // The server's own git, which is traced here as well, passes the options to its hook.
    let trace = fs::read_to_string(&trace).unwrap();
    let ours: Vec<&str> = trace.lines().filter(|line| !line.contains("GIT_PUSH_OPTION_COUNT")).collect();
    assert!(ours.iter().any(|line| line.contains("receive-pack")));
    assert!(!ours.iter().any(|line| line.contains(secret)), "the secret is in the trace");
    assert!(!fs::read_to_string(world.fence_file("audit.jsonl")).unwrap().contains(secret));
}

/// Without a lease, the ref of the question could be created, and would then block the lease forever.
#[test]
fn refused_first_lease_leaves_nothing_behind() {
    let world = World::bare(&any_git(), &[]);
    let a = world.agent("a");
    write_script(&world.hook("update"), "case $1 in */beat) exit 1;; esac");
    assert_eq!(a.code(&["acquire"]).0, 77);
    assert_eq!(world.server_ref("refs/fence"), None);
    fs::remove_file(world.hook("update")).unwrap();
    assert_eq!(a.ok(&["acquire"]), "1");
    // If it exists anyway, the client names it and the command that removes it.
    a.ok(&["release"]);
    world.ok(world.git("server.git").args(["update-ref", "-d", "refs/fence/repo/lease"]));
    world.ok(world.git("work").arg("push").arg(world.server()).arg("HEAD:refs/fence/repo/lease/ask"));
    let (code, said) = a.code(&["acquire"]);
    assert_eq!((code, said.contains("git push origin --delete refs/fence/repo/lease/ask")), (1, true), "{said}");
    world.ok(a.git().args(["push", "-q", "origin", "--delete", "refs/fence/repo/lease/ask"]));
    assert_eq!(a.ok(&["acquire"]), "1");
}
