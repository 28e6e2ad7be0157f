//! No right to read or to write: the outcome `denied`, exit code 77, and everything that the remote says.

use crate::support::{
    Running, World,
    agents::{Agent, Remote, code_of},
    any_git, gits,
    hosts::Keys,
    needs::{Need, lacks},
    sh, text, wait_until, write_script,
};
use std::fs;

/// `acquire`, `push` and `run` end with 77, show all of `words`, and claim no doubt about what has landed.
#[track_caller]
fn assert_denied(agent: &Agent<'_>, words: &[&str]) {
    let ran = agent.world.path("ran");
    let script = format!("touch {}", sh(&ran));
    for mut command in
        [agent.fence(&["acquire"]), agent.fence(&["push", "origin", "HEAD:main"]), agent.run(&[], &script)]
    {
        let (code, said) = code_of(&command.output().unwrap());
        assert_eq!(code, 77, "{command:?}: {said}");
        for word in words {
            assert_eq!(said.matches(word).count(), 1, "'{word}' of {command:?}: {said}");
        }
        assert!(!said.contains("could not find out"), "{said}");
        assert!(said.contains("\nhint: "), "{said}");
    }
    assert!(!ran.exists());
    let status = agent.status();
    assert_eq!((&status["outcome"], &status["exit_code"]), (&"denied".into(), &77.into()), "{status}");
    assert!(status["retryable"] != true, "{status}");
    assert_eq!(agent.world.server_ref("refs/heads/main"), None);
    assert_eq!(agent.world.server_ref("refs/fence/repo/lease"), None);
}

#[test]
fn reader_over_ssh_is_denied_in_the_words_of_the_host() {
    if lacks(&[Need::Sshd]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        let (keys, a) = (Keys::new(&world), world.agent("a"));
        a.moves_to(&keys.url(&world));
        a.uses_ssh(&keys.ssh(&world, "reader"));
        assert_denied(&a, &["FATAL: W any app reader DENIED by fallthru", "(or you mis-spelled the reponame)"]);
        a.uses_ssh(&keys.ssh(&world, "stranger"));
        assert_denied(&a, &["Permission denied (publickey"]);
        a.uses_ssh(&keys.ssh(&world, "open"));
        a.ok(&["push", "origin", "HEAD:main"]);
    }
}

#[test]
fn reader_over_http_is_denied_in_the_words_of_the_host() {
    if lacks(&[Need::Python]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        let a = world.agent("a");
        let [login, reader, late] = ["login", "read-only", "late"].map(|rule| world.web(rule));
        a.moves_to(&reader.url);
        assert_denied(&a, &["remote: bot may read this repository", "remote: but not write to it", "error: 403"]);
        a.moves_to(&late.url);
        assert_denied(&a, &["HTTP 403"]);
        a.moves_to(&login.url);
        assert_denied(&a, &["could not read Username for"]);
        a.moves_to(&login.url.replace("://", "://bot:wrong@"));
        assert_denied(&a, &["remote: log in first", "Authentication failed for"]);
        a.moves_to(&login.url.replace("://", "://bot:right@"));
        a.ok(&["push", "origin", "HEAD:main"]);
    }
}

/// The gate is not the last to decide: its host's own hook and settings come after it.
#[test]
fn host_that_declines_the_refs_of_leases_is_named_with_its_words() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        let only_branches =
            "case $1 in refs/fence/*) echo 'policy: only branches here'; echo 'ask anna'; exit 1;; esac";
        world.write_hook("update", only_branches);
        assert_denied(&a, &["remote: policy: only branches here", "remote: ask anna"]);
        let (_, said) = a.code(&["acquire"]);
        assert!(said.contains("does not accept refs/fence/*") && said.contains("update hook"), "{said}");
        assert!(!said.contains("the gate says granted"), "{said}");
        fs::remove_file(world.hook("update")).unwrap();
        world.configure("receive.hideRefs", "refs/fence");
        assert_denied(&a, &["refs/fence/repo/lease [remote rejected] (deny updating a hidden ref)"]);
    }
}

/// The user's own ref is declined behind the gate: what the hook says is shown once, and who said it.
#[test]
fn hook_behind_the_gate_that_declines_a_branch_is_named_with_its_words() {
    for remote in Remote::BOTH {
        for (words, code) in [("the moon is full", 1), ("W refs/heads/main app a DENIED by refex", 77)] {
            let world = remote.world(&any_git());
            let a = world.agent("a");
            world.write_hook(
                "update",
                &format!("case $1 in refs/heads/*) echo '{words}'; echo 'and that is that'; exit 1;; esac"),
            );
            let check = |(got, said): (i32, String), expected: i32| {
                assert_eq!(got, expected, "{remote:?}: {said}");
                for line in [words, "and that is that"] {
                    assert_eq!(said.matches(line).count(), 1, "{remote:?}: {said}");
                }
                assert!(said.contains("hook declined"), "{said}");
                assert!(!said.contains("the gate says") && !said.contains("could not find out"), "{said}");
            };
            check(a.code(&["push", "origin", "HEAD:main"]), code);
            // Nothing is left behind.
            a.ok(&["acquire"]);
            check(a.code(&["push", "origin", "HEAD:main"]), code);
            a.ok(&["release"]);
            check(code_of(&a.run(&[], "git push origin HEAD:main").output().unwrap()), 1);
            assert_eq!(a.status()["outcome"], "ran");
        }
    }
}

/// Some refs of a push that is not atomic can move.
#[test]
fn push_with_an_own_token_moves_all_refs_or_none() {
    let world = World::new(&any_git());
    let a = world.agent("a");
    a.ok(&["push", "--token", "1", "origin", "HEAD:old"]);
    let other = world.ok(a.git().args(["commit-tree", "-m", "another root", "HEAD^{tree}"]));
    let (code, said) = a.code(&["push", "--token", "2", "origin", "HEAD:new", &format!("{other}:refs/heads/old")]);
    assert_eq!((code, world.server_ref("refs/heads/new"), world.mark()), (1, None, 1), "{said}");
    assert!(said.contains("non-fast-forward"), "{said}");
}

/// Git's server leaves hidden refs out of an atomic push and moves the others. Its client does not send such a push.
#[test]
fn lease_that_is_hidden_while_it_is_held_still_fences_the_push() {
    for git in gits() {
        let world = World::bare(&git, &[]);
        let a = world.agent("a");
        a.ok(&["acquire"]);
        world.configure("receive.hideRefs", "refs/fence");
        let (code, said) = a.code(&["push", "origin", "HEAD:main"]);
        assert_eq!((code, world.server_ref("refs/heads/main")), (1, None), "{said}");
    }
}

#[test]
fn heartbeat_that_is_declined_shows_what_the_host_says() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        let go = world.path("go");
        let script = format!("while ! [ -e {} ]; do sleep 0.1; done", sh(&go));
        let running = Running::start(&mut a.run(&["--ttl", "20s"], &script));
        wait_until("it runs", || a.status()["outcome"] == "running" && a.status()["token"] == 1);
        world.write_hook("update", "echo 'closed for the night'; echo 'back at six'; exit 1");
        wait_until("the heartbeat has failed", || running.has_said("could not renew the lease"));
        wait_until("the words are shown", || running.has_said("closed for the night"));
        assert!(running.has_said("back at six"));
        fs::remove_file(world.hook("update")).unwrap();
        fs::write(&go, "").unwrap();
        let ended = running.wait();
        assert!(ended.ok, "{}", ended.text);
    }
}

/// `run` with `options` on a terminal, where a person could type. Returns the exit code, and what was shown there.
fn run_on_a_terminal(agent: &Agent<'_>, script: &str) -> (i32, String) {
    let run = agent.run(&["--ttl", "30s"], script);
    let words: Vec<String> = run.get_args().map(sh).collect();
    let shell = agent.world.path("shell");
    write_script(&shell, &format!("git {}", words.join(" ")));
    let mut terminal = std::process::Command::new("script");
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal.args(["-qec", &sh(&shell), "/dev/null"]).env("SHELL", "/bin/sh").current_dir(agent.path(""));
    let mut child = terminal
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody types anything, and the terminal stays open.
    let keyboard = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(keyboard);
    (ended.status.code().unwrap_or(-1), text(&ended.stdout))
}

/// Whether git or ssh asks for something.
fn asks(said: &str) -> bool {
    said.lines()
        .any(|line| ["Username for ", "Password for ", "Enter passphrase "].iter().any(|ask| line.starts_with(ask)))
}

#[test]
fn run_asks_for_no_password_and_no_passphrase() {
    if lacks(&[Need::Sshd, Need::Python, Need::Terminal]) {
        return;
    }
    for git in gits() {
        let world = World::new(&git);
        let (keys, web, a) = (Keys::new(&world), world.web("login"), world.agent("a"));
        let (asked, ran) = (world.path("asked"), world.path("ran"));
        let ask = world.path("ask");
        write_script(&ask, &format!("echo \"$1\" >>{}; echo secret", sh(&asked)));
        let command = format!("touch {}", sh(&ran));
        for url in [&keys.url(&world), &web.url] {
            a.moves_to(url);
            a.uses_ssh(&keys.ssh(&world, "locked"));
            for setting in ["none", "core.askPass"] {
                if setting != "none" {
                    world.ok(a.git().args(["config", setting, ask.to_str().unwrap()]));
                }
                let (code, said) = run_on_a_terminal(&a, &command);
                assert_eq!(code, 77, "{setting}: {said}");
                assert!(!asks(&said), "{said}");
                assert!(!asked.exists(), "{setting}: {said}");
                assert_eq!(a.status()["outcome"], "denied");
            }
            world.ok(a.git().args(["config", "--unset", "core.askPass"]));
            let mut run = a.run(&[], &command);
            let run = run.env("SSH_ASKPASS", &ask).env("DISPLAY", ":0").env("SSH_ASKPASS_REQUIRE", "force");
            let (code, said) = code_of(&run.output().unwrap());
            assert_eq!(code, 77, "{said}");
            assert!(!asked.exists(), "{said}");
        }
        assert!(!ran.exists());
        assert_eq!(world.server_ref("refs/fence/repo/lease"), None, "no lease was taken");
        // A single command may ask: somebody is there.
        let mut acquire = a.fence(&["acquire"]);
        acquire.env("GIT_ASKPASS", &ask);
        let (code, said) = code_of(&acquire.output().unwrap());
        assert_eq!(code, 77, "{said}");
        assert!(asked.exists(), "{said}");
    }
}

/// A password that comes from a credential helper or a program is not typed.
#[test]
fn run_uses_credentials_that_nobody_types() {
    if lacks(&[Need::Sshd, Need::Python]) {
        return;
    }
    let world = World::new(&any_git());
    let (keys, web, a) = (Keys::new(&world), world.web("login"), world.agent("a"));
    a.moves_to(&keys.url(&world));
    a.uses_ssh(&keys.ssh(&world, "open"));
    assert_eq!(code_of(&a.run(&[], "git push origin HEAD:main").output().unwrap()).0, 0);
    // The variables of git that name an ssh of the user's own. A simple ssh gets no options from git.
    world.ok(a.git().args(["config", "--unset", "core.sshCommand"]));
    let (code, said) = code_of(&a.run(&[], "true").env("GIT_SSH_COMMAND", keys.ssh(&world, "open")).output().unwrap());
    assert_eq!(code, 0, "{said}");
    let wrapper = world.path("an ssh");
    write_script(&wrapper, &format!("exec {} \"$@\"", keys.ssh(&world, "open")));
    for variant in ["", "ssh", "simple"] {
        let mut run = a.run(&[], "git push origin HEAD:next");
        run.env("GIT_SSH", &wrapper);
        if !variant.is_empty() {
            run.env("GIT_SSH_VARIANT", variant);
        }
        let (code, said) = code_of(&run.output().unwrap());
        assert_eq!(code, 0, "{variant}: {said}");
    }
    a.moves_to(&web.url);
    world.ok(a.git().args(["config", "credential.helper", "!f() { echo username=bot; echo password=right; }; f"]));
    let (code, said) = code_of(&a.run(&[], "git push origin HEAD:other").output().unwrap());
    assert_eq!(code, 0, "{said}");
    world.ok(a.git().args(["config", "--unset", "credential.helper"]));
    let answers = world.path("answers");
    write_script(&answers, "case $1 in Username*) echo bot;; *) echo right;; esac");
    let (code, said) = code_of(&a.run(&[], "true").env("GIT_ASKPASS", &answers).output().unwrap());
    assert_eq!(code, 0, "{said}");
}

/// The password is gone by the time the lease is released: `run` says so, and does not ask for it.
#[test]
fn run_asks_nothing_after_its_end() {
    if lacks(&[Need::Python, Need::Terminal]) {
        return;
    }
    let world = World::new(&any_git());
    let (web, a) = (world.web("login"), world.agent("a"));
    a.moves_to(&web.url);
    let known = world.path("known");
    fs::write(&known, "").unwrap();
    let helper = format!("!f() {{ [ -e {} ] && echo username=bot && echo password=right; }}; f", sh(&known));
    world.ok(a.git().args(["config", "credential.helper", &helper]));
    let (code, said) = run_on_a_terminal(&a, &format!("rm {}", sh(&known)));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("could not release the lease"), "{said}");
    assert!(!asks(&said), "{said}");
}
