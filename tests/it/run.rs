//! `git fence run`: one runs, the other skips, and a run that lost its lease is refused.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, as_if_from_a_shell, fixture,
    needs::{Need, lacks},
    runs::{Background, go, heads, holding, keeper_below, take_over, wait_for, word},
    signal, text, wait_until, write_script,
};
use std::{fs, path::Path, process::Stdio, thread, time::Duration};

#[test]
fn one_of_two_concurrent_runs_works_and_the_other_skips() {
    for (remote, rounds) in [(Remote::Gate, 50), (Remote::Bare, 10)] {
        let world = remote.world(&any_git());
        let agents = [world.agent("a"), world.agent("b")];
        let (inside, both) = (world.path("in"), world.path("both"));
        for round in 0..rounds {
            // The one that runs stays until the other has skipped.
            let script = |other: &Agent<'_>| {
                let status = world.path(&format!("{}.json", other.name));
                format!(
                    "mkdir {0} || touch {1}; until grep -q skipped {2}; do sleep 0.01; done; rmdir {0}",
                    inside.display(),
                    both.display(),
                    status.display()
                )
            };
            for agent in &agents {
                let _ = fs::remove_file(world.path(&format!("{}.json", agent.name)));
            }
            let runs = [agents[0].run(&[], &script(&agents[1])), agents[1].run(&[], &script(&agents[0]))];
            let runs = runs.map(|mut run| Background::start(&mut run));
            for run in runs {
                let ended = run.end();
                assert_eq!(ended.status.code(), Some(0), "{remote:?} {round}: {}", text(&ended.stderr));
            }
            assert!(!both.exists(), "both ran at once in round {round}");
            let outcomes = agents.each_ref().map(Agent::status);
            let ran = outcomes.iter().position(|status| status["outcome"] == "ran").expect("one ran");
            let other = &outcomes[1 - ran];
            assert_eq!(other["outcome"], "skipped", "{other}");
            assert_eq!(other["holder"]["owner"], agents[ran].name, "{other}");
            assert_eq!(other["holder"]["token"], outcomes[ran]["token"], "{other}");
        }
        assert_eq!(world.lease_token(), rounds);
        if remote == Remote::Gate {
            let stats = world.ok(world.hook_program().args(["stats", "--json"]).arg(world.server()));
            let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
            assert_eq!(stats["leases"]["granted"], rounds, "{stats}");
            assert_eq!(stats["leases"]["found_held"], rounds, "{stats}");
            world.assert_log_is_whole();
        }
    }
}

/// The heartbeat is frozen past the TTL, another run takes over and writes, and then the command of
/// the first pushes.
#[test]
fn holder_that_slept_past_its_lease_is_refused_by_the_remote() {
    for remote in Remote::BOTH {
        for push in ["git push", "git fence push"] {
            let world = remote.world(&any_git());
            let (zombie, next) = (world.agent("zombie"), world.agent("next"));
            let said = world.path("said");
            let rest = format!(
                "{push} origin +HEAD:refs/heads/main >{0} 2>&1; echo code $? >>{0}\n\
                 {push} origin +HEAD:refs/heads/other >>{0} 2>&1; echo code $? >>{0}\n{1}",
                said.display(),
                word(&world.path("tried"))
            );
            let run = holding(&zombie, &["--ttl", "2s"], &rest);
            let (run_pid, keeper) = (run.pid(), keeper_below(run.pid()));
            signal(run_pid, "STOP");
            signal(keeper, "STOP");
            take_over(&next, &["--ttl", "60s"], &format!("{push} origin +HEAD:refs/heads/main"));
            let before = heads(&world);
            go(&world);
            wait_until("the stale holder has tried", || world.path("tried").exists());
            signal(keeper, "CONT");
            signal(run_pid, "CONT");
            let ended = run.end();
            let said = fs::read_to_string(said).unwrap();
            assert_eq!(ended.status.code(), Some(75), "{remote:?} {}\n{said}", text(&ended.stderr));
            assert_eq!(zombie.status()["outcome"], "lost", "{}", zombie.status());
            assert_eq!(heads(&world), before, "{remote:?}: a part of it landed\n{said}");
            assert_eq!(said.matches("code 0").count(), 0, "{remote:?}\n{said}");
            assert!(said.contains("lease") || said.contains("FENCE-STALE"), "{said}");
            let history = next.ok(&["log", "--json"]);
            assert!(history.contains("\"expired\""), "{history}");
        }
    }
}

#[test]
fn status_file_of_a_lost_run_names_the_new_holder() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (zombie, next) = (world.agent("zombie"), world.agent("next"));
        let run = holding(&zombie, &["--ttl", "5s"], "true");
        let (run_pid, keeper) = (run.pid(), keeper_below(run.pid()));
        signal(run_pid, "STOP");
        signal(keeper, "STOP");
        wait_until("the lease has expired", || next.code(&["acquire", "--owner", "next", "--skew", "0s"]).0 == 0);
        signal(keeper, "CONT");
        signal(run_pid, "CONT");
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{remote:?} {}", text(&ended.stderr));
        let status = zombie.status();
        assert_eq!((&status["outcome"], &status["holder"]["owner"]), (&"lost".into(), &"next".into()), "{status}");
    }
}

/// The stale holder is frozen inside its push: the server updates slowly, and meanwhile the lease moves on.
#[test]
fn holder_frozen_inside_its_push_does_not_land_after_its_successor() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (zombie, next) = (world.agent("zombie"), world.agent("next"));
        world.stall_update_of("slow");
        let _go = world.go_in_the_end();
        let said = world.path("said");
        let rest = format!("git fence push origin +HEAD:refs/heads/slow >{0} 2>&1; echo code $? >>{0}", said.display());
        let run = holding(&zombie, &["--ttl", "2s"], &rest);
        go(&world);
        world.pid_in("stalled");
        let (run_pid, keeper) = (run.pid(), keeper_below(run.pid()));
        signal(run_pid, "STOP");
        signal(keeper, "STOP");
        let landed = match remote {
            // Its refs may still move: the gate admits no other push meanwhile. When it is over, it has landed before
            // its successor.
            Remote::Gate => {
                let successor = thread::scope(|scope| {
                    let successor = scope
                        .spawn(|| take_over(&next, &["--ttl", "60s"], "git fence push origin +HEAD:refs/heads/main"));
                    wait_until("the lease has expired", || zombie_is_late(&world));
                    fs::write(world.server().join("go"), "").unwrap();
                    successor.join()
                });
                assert!(successor.is_ok());
                true
            }
            // The lease moves on meanwhile, and git's own compare-and-swap refuses the rest.
            Remote::Bare => {
                take_over(&next, &["--ttl", "60s"], "git fence push origin +HEAD:refs/heads/main");
                fs::write(world.server().join("go"), "").unwrap();
                false
            }
        };
        signal(keeper, "CONT");
        signal(run_pid, "CONT");
        let ended = run.end();
        let said = fs::read_to_string(&said).unwrap_or_default();
        assert_eq!(ended.status.code(), Some(75), "{remote:?} {}\n{said}", text(&ended.stderr));
        assert_eq!(world.server_ref("refs/heads/slow").is_some(), landed, "{remote:?}\n{said}");
        if remote == Remote::Gate {
            let tokens: Vec<u64> = world
                .events("push.settled")
                .iter()
                .filter(|line| line["moved"] != 0 && line["token"].is_u64())
                .map(|line| line["token"].as_u64().unwrap())
                .collect();
            assert!(tokens.windows(2).all(|two| two[0] < two[1]), "{tokens:?}");
            world.assert_log_is_whole();
        }
    }
}

/// The lease of the stalled push has expired by the server's clock: the answer to a question says so.
fn zombie_is_late(world: &World) -> bool {
    let status = world.status();
    status["fences"][0]["lease"]["state"] == "expired"
}

#[test]
fn stale_holder_that_guesses_the_next_token_is_refused() {
    let world = World::new(&any_git());
    let (zombie, next) = (world.agent("zombie"), world.agent("next"));
    let run = holding(&zombie, &["--ttl", "1s"], "true");
    let (run_pid, keeper) = (run.pid(), keeper_below(run.pid()));
    signal(run_pid, "STOP");
    signal(keeper, "STOP");
    take_over(&next, &[], "git push -q origin +HEAD:refs/heads/main");
    let commit = world.commit("by hand");
    for token in 1..=5 {
        let pushed = world.push(&[&format!("+{commit}:refs/heads/main")], &[&format!("fence-token={token}")]);
        assert!(!pushed.ok, "token {token} landed:\n{}", pushed.text);
        let code = pushed.code().unwrap();
        assert_eq!(code, if token <= 2 { "FENCE-STALE" } else { "FENCE-LEASE-REQUIRED" }, "token {token}");
    }
    go(&world);
    signal(keeper, "CONT");
    signal(run_pid, "CONT");
    run.end();
}

#[test]
fn next_run_starts_when_the_lease_of_a_killed_run_expires() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (first, next) = (world.agent("first"), world.agent("next"));
        let grandchild = world.path("grandchild");
        let inside = world.path("inside");
        let script = format!("sh -c '{}; exec sleep 1000' & {}; wait", word(&grandchild), word(&inside));
        let run = Background::start(&mut first.run(&["--ttl", "3s"], &script));
        wait_until("both are running", || inside.exists() && grandchild.exists());
        let pids = [&inside, &grandchild].map(|path| fs::read_to_string(path).unwrap().trim().to_owned());
        signal(run.pid(), "KILL");
        for pid in pids {
            wait_until("it is gone", || !Path::new("/proc").join(&pid).join("exe").exists());
        }
        run.end();
        take_over(&next, &[], "true");
        let history = next.ok(&["log", "--json", "-n", "1"]);
        assert!(history.contains("\"expired\""), "{history}");
    }
}

#[test]
fn stalled_command_is_ended_and_the_lease_released() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (wedged, next) = (world.agent("wedged"), world.agent("next"));
        let script = format!("git fence progress 'page 1 of 9'; {}; exec sleep 1000", word(&world.path("inside")));
        let ended = wedged.run(&["--stall-after", "1s"], &script).output().unwrap();
        assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
        assert_eq!(wedged.status()["outcome"], "stalled");
        let pid = fs::read_to_string(world.path("inside")).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).join("exe").exists());
        assert_eq!(world.lease("State"), "released");
        assert_eq!(code_of(&next.run(&[], "true").output().unwrap()).0, 0);
        assert_eq!(next.status()["outcome"], "ran");
    }
}

#[test]
fn overrunning_command_is_ended_and_the_lease_released() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let ended = agent.run(&["--max-hold", "1s"], "exec sleep 1000").output().unwrap();
    assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
    assert_eq!(agent.status()["outcome"], "overran");
    assert_eq!(world.lease("State"), "released");
}

#[test]
fn waiting_run_can_be_interrupted() {
    let world = World::bare(&any_git(), &[]);
    let (first, second) = (world.agent("first"), world.agent("second"));
    first.ok(&["acquire", "--ttl", "1h"]);
    let waits = ["--if-held", "wait", "--wait", "1h"];
    let said = world.path("said");
    let mut run = second.run(&waits, "echo ran");
    let child = run.stderr(fs::File::create(&said).unwrap()).stdout(Stdio::piped()).spawn().unwrap();
    let run = Background::of(child);
    wait_until("it waits", || fs::read_to_string(&said).unwrap().contains("waiting up to "));
    signal(run.pid(), "TERM");
    let ended = run.end();
    assert_eq!((ended.status.code(), text(&ended.stdout).as_str()), (Some(143), ""));
    assert_eq!(second.status()["outcome"], "interrupted");
    assert_eq!(first.ok(&["renew"]), "renewed for 3600s");
}

/// Progress reports keep it running, and reach the remote.
#[test]
fn progress_is_sent_with_the_heartbeat() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let script =
        format!("until [ -e {} ]; do git fence progress 'page 3 of 9'; sleep 0.3; done", world.path("go").display());
    let run = Background::start(&mut agent.run(&["--ttl", "5s", "--stall-after", "20s"], &script));
    wait_until("the beat shows the progress", || {
        let beat = world.git("server.git").args(["log", "-1", "--format=%B", "refs/fence/repo/beat"]).output().unwrap();
        text(&beat.stdout).contains("Fence-Progress: page 3 of 9")
    });
    go(&world);
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
}

#[test]
fn exit_codes_are_as_documented() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let ran = agent.run(&[], script).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{script}: {}", text(&ran.stderr));
        assert_eq!((&agent.status()["outcome"], &agent.status()["exit_code"]), (&"ran".into(), &code.into()));
    }
    let commands: [(&[&str], i32, &str); 9] = [
        (&["run", "--", "no-such-command-here"], 127, "was not found"),
        (&["run", "--", "/etc/passwd"], 126, "cannot run"),
        (&["run", "--ttl", "0", "--", "true"], 2, "invalid TTL '0'"),
        (&["run", "--ttl", "3650d", "--", "true"], 2, "invalid TTL '3650d'"),
        (&["run", "--ttl", "soon", "--", "true"], 2, "'soon' is not a duration"),
        (&["run", "--remote", "nowhere", "--", "true"], 2, "no such remote 'nowhere'"),
        (&["run", "--remote", "/no/such/place.git", "--", "true"], 69, "cannot reach the remote"),
        (&["run", "--fence", "A/B", "--", "true"], 2, "is not a valid fence name"),
        (&["run", "--owner", "\u{1b}\u{7}", "--", "true"], 2, "no printable characters"),
    ];
    for (args, code, words) in commands {
        let (got, said) = agent.code(args);
        assert_eq!(got, code, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(said.contains("hint: ") || code == 2, "{args:?}: {said}");
    }
    assert_eq!(world.lease("State"), "released");
}

#[test]
fn nested_run_on_the_same_fence_fails_at_once() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let script =
        "git fence run -- true; echo inner $?; git fence run --fence other -- git fence run -- true; echo deeper $?";
    let (code, said) = code_of(&agent.run(&[], script).output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("inner 2") && said.contains("deeper 2"), "{said}");
    assert!(said.contains("already inside a run"), "{said}");
}

#[test]
fn first_free_fence_of_several_is_taken() {
    let world = World::bare(&any_git(), &[]);
    let (first, second) = (world.agent("first"), world.agent("second"));
    let run = holding(&first, &["--fence", "one"], "true");
    let both = ["--fence", "one", "--fence", "two"];
    let ran = second.run(&both, "echo got $GIT_FENCE").output().unwrap();
    assert_eq!(text(&ran.stdout).trim(), "got two", "{}", text(&ran.stderr));
    // A remote that cannot be reached is never treated as held.
    let unreachable = second.run(&["--remote", "/no/such/place.git", "--remote", "origin", "--fence", "one"], "true");
    let (code, said) = code_of(&{ unreachable }.output().unwrap());
    assert_eq!(code, 69, "{said}");
    assert_eq!(second.status()["outcome"], "unreachable");
    go(&world);
    assert_eq!(run.end().status.code(), Some(0));
}

#[test]
fn min_hold_lets_a_late_second_machine_find_the_lease_held() {
    let world = World::bare(&any_git(), &[]);
    let (first, second) = (world.agent("first"), world.agent("second"));
    let ended = world.path("ended");
    let run = Background::start(&mut first.run(&["--min-hold", "10m"], &word(&ended)));
    wait_until("the command has ended", || ended.exists());
    let (code, said) = code_of(&second.run(&["-E", "42"], "true").output().unwrap());
    assert_eq!((code, &second.status()["outcome"]), (42, &"skipped".into()), "{said}");
    let (code, said) = code_of(&second.run(&["--if-held", "fail"], "true").output().unwrap());
    assert_eq!((code, &second.status()["outcome"]), (11, &"held".into()), "{said}");
    signal(run.pid(), "TERM");
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert_eq!(world.lease("State"), "released");
}

#[test]
fn signals_reach_the_command_and_the_lease_is_released() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    for (name, code) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        let inside = world.path("inside");
        let script = format!("{}; exec sleep 1000", word(&inside));
        let run = Background::start(&mut as_if_from_a_shell(&agent.run(&[], &script)));
        wait_until("the command runs", || inside.exists());
        let pid = fs::read_to_string(&inside).unwrap();
        wait_until("it is sleep", || {
            text(&fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default()).starts_with("sleep")
        });
        signal(run.pid(), name);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(code), "{name}: {}", text(&ended.stderr));
        assert_eq!(world.lease("State"), "released", "{name}");
        fs::remove_file(inside).unwrap();
    }
    assert!(fs::read_dir(agent.path(".git/git-fence/leases")).unwrap().next().is_none(), "nothing is left behind");
}

/// The release takes longer than a heartbeat interval. A heartbeat now would race with the successor.
#[test]
fn heartbeat_stops_before_the_lease_is_released() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    world.write_hook(
        "update",
        "case $1 in\n\
         refs/fence/repo/beat) echo beat >>order;;\n\
         refs/fence/repo/lease) git cat-file commit $3 | grep -q '^Fence-State: released' || exit 0\n\
         echo released >>order; sleep 3; echo done >>order;;\n\
         esac",
    );
    let ended = agent.run(&["--ttl", "3s"], "sleep 1.5").output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    let order = fs::read_to_string(world.server().join("order")).unwrap();
    assert!(order.starts_with("beat\nbeat\n"), "acquired and renewed: {order}");
    assert!(order.ends_with("\nreleased\ndone\n"), "{order}");
    assert_eq!(world.lease("State"), "released");
}

/// The upload takes longer than the TTL. The heartbeat continues beside it, over separate connections.
#[test]
fn long_upload_lands_while_heartbeats_keep_the_lease_alive() {
    if lacks(&[Need::Python]) {
        return;
    }
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (agent, other) = (world.agent("a"), world.agent("b"));
        let url = format!("ssh://server{}", world.server().display());
        world.ok(agent.git().args(["remote", "set-url", "origin", &url]));
        // Incompressible data: 480,000 bytes at 30,000 a second, with a lease of 12 seconds.
        let noise = "head -c 480000 /dev/urandom >noise && git add noise && git commit -qm noise";
        let script = format!("{noise} && {} && git push -q origin HEAD:refs/heads/big", word(&world.path("inside")));
        let mut run = agent.run(&["--ttl", "12s"], &script);
        run.env("GIT_SSH_COMMAND", fixture("slow-ssh.py")).env("SLOW_BYTES_PER_SECOND", "30000");
        run.env("SLOW_SSH_LOG", world.path("connections"));
        let run = Background::start(&mut run);
        wait_until("the upload has started", || world.path("inside").exists());
        // A client that asks meanwhile is told that it is held.
        let mut found_held = 0;
        let still_running = || agent.status()["outcome"] == "running";
        while still_running() {
            // Held, or already released: then the run is about to end normally.
            let (code, said) = other.code(&["acquire", "--skew", "0s"]);
            found_held += usize::from(code == 11);
            assert!(code == 11 || world.lease("Reason") == "released", "{remote:?}: {said}");
            thread::sleep(Duration::from_millis(500));
        }
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{remote:?}: {}", text(&ended.stderr));
        assert!(found_held >= 1);
        assert!(world.server_ref("refs/heads/big").is_some());
        let connections = fs::read_to_string(world.path("connections")).unwrap();
        let pushes = connections.lines().filter(|line| line.contains("receive-pack")).count();
        assert!(pushes >= 6, "acquire, push, three heartbeats, release: {connections}");
    }
}

#[test]
fn command_that_ignores_sigterm_is_killed_when_its_lease_is_lost() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        if remote == Remote::Gate {
            world.configure("fence.allowRevoke", "tester");
        }
        let (agent, other) = (world.agent("a"), world.agent("b"));
        let script = format!(
            "trap '' TERM; sh -c 'trap \"\" TERM; {}; sleep 1000' & {}; wait; sleep 1000",
            word(&world.path("child")),
            word(&world.path("inside"))
        );
        let run = Background::start(&mut agent.run(&["--ttl", "3s"], &script));
        wait_until("both are running", || world.path("inside").exists() && world.path("child").exists());
        other.ok(&["revoke", "--reason", "it hangs"]);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(75), "{remote:?}: {}", text(&ended.stderr));
        assert!(text(&ended.stderr).contains("it hangs"), "{}", text(&ended.stderr));
        for name in ["inside", "child"] {
            let pid = fs::read_to_string(world.path(name)).unwrap();
            assert!(!Path::new("/proc").join(pid.trim()).join("exe").exists(), "{name} is still alive");
        }
        assert_eq!(other.ok(&["acquire"]), "3");
    }
}

/// A remote that is unreachable for a while does no harm as long as the lease lasts; one that stays unreachable ends
/// the command before the lease expires.
#[test]
fn lease_is_lost_if_the_remote_stays_unreachable() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let away = world.path("away.git");
    let script = format!("{}; exec sleep 1000", word(&world.path("inside")));
    let run = Background::start(&mut agent.run(&["--ttl", "3s"], &script));
    wait_until("the command runs", || world.path("inside").exists());
    fs::rename(world.server(), &away).unwrap();
    let ended = run.end();
    fs::rename(&away, world.server()).unwrap();
    assert_eq!(ended.status.code(), Some(75), "{}", text(&ended.stderr));
    let said = text(&ended.stderr);
    assert!(said.contains("could not renew the lease") && said.contains("not renewed in time"), "{said}");
    assert_eq!(agent.status()["outcome"], "lost");
}

/// A process that a run has left behind must not acquire a new lease:
/// it would continue with outdated state, and overwrite its successor.
#[test]
fn process_that_outlives_its_run_gets_no_lease_of_its_own() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let (zombie, next) = (world.agent("zombie"), world.agent("next"));
        let (said, tried) = (world.path("said"), world.path("tried"));
        let late = format!(
            "{}; for try in 'git push -f' 'git fence push -f'; do $try origin HEAD:main; echo code $?; done\n\
             git fence acquire; echo code $?; git fence run -- true; echo code $?; {}",
            wait_for(&world.path("go")),
            word(&tried)
        );
        fs::write(world.path("late.sh"), late).unwrap();
        let script = format!("setsid -f sh {} >{} 2>&1 </dev/null", world.path("late.sh").display(), said.display());
        assert_eq!(code_of(&zombie.run(&[], &script).output().unwrap()).0, 0);
        take_over(&next, &[], "git push -q origin HEAD:main");
        let before = heads(&world);
        go(&world);
        wait_until("it has made all attempts", || tried.exists());
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(heads(&world), before, "{remote:?}\n{said}");
        assert_eq!(said.matches("code 0").count(), 0, "{remote:?}\n{said}");
        assert_eq!(said.matches("code 75").count(), 3, "{remote:?}\n{said}");
    }
}

/// A remote that accepts a connection and never answers.
#[test]
fn run_waiting_for_a_silent_remote_can_be_ended_and_blocks_nobody() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let mute = world.path("mute.sh");
    write_script(&mute, &format!("{}; exec sleep 1000", word(&world.path("connected"))));
    world.ok(agent.git().args(["remote", "add", "mute", "ssh://nowhere/x.git"]));
    let mut run = agent.run(&["--remote", "mute"], "true");
    let run = Background::start(run.env("GIT_SSH_COMMAND", &mute));
    wait_until("it has connected", || world.path("connected").exists());
    // Another remote of the same clone works.
    assert_eq!(agent.code(&["acquire", "--remote", "origin"]).0, 0);
    signal(run.pid(), "TERM");
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(143), "{}", text(&ended.stderr));
    assert_eq!(agent.status()["outcome"], "interrupted");
    let pid = fs::read_to_string(world.path("connected")).unwrap();
    wait_until("its children are gone", || !Path::new("/proc").join(pid.trim()).join("exe").exists());
}
