//! Commands that are interrupted give back what they took, and a clone knows its own lease again.

use crate::support::{
    World,
    agents::{Agent, Remote, code_of},
    any_git, as_if_from_a_shell, sh, signal, text, wait_until, write_script,
};
use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
};

/// Makes the clone's connection number `nth` for pushing stall until `go`: 1 takes the lease, 2 is the push.
fn stall_connection(agent: &Agent<'_>, nth: usize) {
    let world = agent.world;
    let (calls, stalled, go) = (world.path("calls"), world.path("stalled"), world.path("go"));
    let script = world.path("receive-pack");
    write_script(
        &script,
        &format!(
            "echo >>{calls}\nif [ $(wc -l <{calls}) = {nth} ]; then echo $$ >{stalled}.new; mv {stalled}.new {stalled}\n\
             while ! [ -e {go} ]; do sleep 0.05; done; fi\nexec git-receive-pack \"$@\"",
            calls = sh(&calls),
            stalled = sh(&stalled),
            go = sh(&go)
        ),
    );
    world.ok(agent.git().args(["config", "remote.origin.receivepack", &script.to_string_lossy()]));
}

/// A command under way.
struct Started(Child);

impl Started {
    fn by(command: &Command) -> Started {
        let mut command = as_if_from_a_shell(command);
        Started(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The same, once its connection stalls.
    fn stalled(world: &World, command: &Command) -> Started {
        let started = Started::by(command);
        wait_until("the connection stalls", || world.path("stalled").exists());
        started
    }

    fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// How it ended, and what it said.
    fn wait(self) -> (ExitStatus, String) {
        let output = self.0.wait_with_output().unwrap();
        (output.status, text(&output.stderr))
    }
}

/// `git-fence` itself, without the git that starts it.
fn directly(agent: &Agent<'_>, args: &[&str]) -> Command {
    let git = agent.git();
    let mut command = Command::new(env!("CARGO_BIN_EXE_git-fence"));
    agent.world.hermetic(&mut command);
    command.envs(git.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(git.get_current_dir().unwrap()).args(args);
    command
}

fn go(world: &World) {
    fs::write(world.path("go"), "").unwrap();
}

#[test]
fn interrupted_push_gives_its_lease_back() {
    for remote in Remote::BOTH {
        let signals = [("TERM", 15), ("INT", 2), ("HUP", 1)];
        for (name, number) in signals.into_iter().take(if remote == Remote::Gate { 1 } else { 3 }) {
            let world = remote.world(&any_git());
            let a = world.agent("a");
            stall_connection(&a, 2);
            let push = Started::stalled(&world, &directly(&a, &["push", "--ttl", "1h", "origin", "HEAD:refs/heads/x"]));
            push.signal(name);
            let (status, said) = push.wait();
            assert_eq!(status.signal(), Some(number), "{remote:?} {name}: {said}");
            assert!(said.contains("error: interrupted: "), "{said}");
            assert!(said.contains("error: interrupted: the push did not land; the lease was given back\n"), "{said}");
            assert_eq!(world.lease("State"), "released", "{remote:?} {name}: {said}");
            go(&world);
            assert_eq!(world.agent("b").code(&["push", "origin", "HEAD:refs/heads/y"]).0, 0);
            assert_eq!(world.server_ref("refs/heads/x"), None, "a push that nobody waits for");
        }
    }
}

#[test]
fn signal_through_git_is_one_signal() {
    // Git passes it on, so that it comes twice from a terminal.
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    stall_connection(&a, 2);
    let push = Started::stalled(&world, &a.fence(&["push", "--ttl", "1h", "origin", "HEAD:refs/heads/x"]));
    push.signal("INT");
    let (status, said) = push.wait();
    assert!(!status.success() && said.contains("error: interrupted: "), "{said}");
    assert_eq!(world.lease("State"), "released", "{said}");
    go(&world);
}

#[test]
fn interrupted_acquire_gives_its_lease_back() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = world.agent("a");
        stall_connection(&a, 1);
        let acquire = Started::stalled(&world, &directly(&a, &["acquire", "--ttl", "1h"]));
        acquire.signal("TERM");
        let (status, said) = acquire.wait();
        assert_eq!(status.signal(), Some(15), "{said}");
        assert!(said.contains("error: interrupted: "), "{said}");
        assert_eq!(world.lease("State"), "released", "{remote:?}: {said}");
        go(&world);
        assert!(a.ok(&["release"]).contains("no lease is held here"));
        assert_eq!(world.agent("b").code(&["acquire"]).0, 0);
    }
}

/// A push that was killed: its lease is held for an hour, and the clone has only its files.
fn killed_push<'w>(world: &'w World) -> Agent<'w> {
    let a = world.agent("a");
    stall_connection(&a, 2);
    let args = ["push", "--ttl", "1h", "--owner", "agent a", "origin", "HEAD:refs/heads/x"];
    let push = Started::stalled(world, &directly(&a, &args));
    push.signal("KILL");
    push.wait();
    assert_eq!(world.lease("State"), "held");
    a
}

#[test]
fn clone_calls_the_lease_of_its_killed_push_its_own_and_releases_it() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let a = killed_push(&world);
        let (code, said) = world.agent("b").code(&["acquire"]);
        assert!(code == 11 && said.contains("held by 'agent a'"), "{said}");
        let said = a.ok(&["status"]);
        assert!(said.contains("held by 'agent a' (this clone), from an interrupted push"), "{said}");
        let json: serde_json::Value = serde_json::from_str(&a.ok(&["status", "--json"])).unwrap();
        assert_eq!(json["holder"]["mine"], true, "{json}");
        let said = a.ok(&["release"]);
        assert!(said.contains("released after token "), "{said}");
        assert_eq!(world.lease("State"), "released");
        go(&world);
        assert_eq!(world.agent("c").code(&["acquire"]).0, 0);
        assert_eq!(world.server_ref("refs/heads/x"), None, "the killed push was settled first");
    }
}

#[test]
fn next_push_or_acquire_of_the_clone_takes_over_from_its_killed_push() {
    for remote in Remote::BOTH {
        for next in [&["push", "origin", "HEAD:refs/heads/y"][..], &["acquire"]] {
            let world = remote.world(&any_git());
            let a = killed_push(&world);
            let (code, said) = a.code(next);
            assert_eq!(code, 0, "{remote:?} {next:?}: {said}");
            assert!(
                said.contains("note: this clone held the lease of fence 'repo' from an interrupted push"),
                "{said}"
            );
            go(&world);
            assert_eq!(world.server_ref("refs/heads/y").is_some(), next[0] == "push");
        }
    }
}

#[test]
fn lease_that_a_running_command_of_the_clone_uses_is_not_taken_over() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let inside = world.path("inside");
    let script = format!("touch {}; while ! [ -e {} ]; do sleep 0.05; done", sh(&inside), sh(world.path("go")));
    let run = Started::by(&a.run(&["--ttl", "1h"], &script));
    wait_until("it runs", || inside.exists());
    for args in [&["push", "origin", "HEAD:refs/heads/x"][..], &["acquire"]] {
        let (code, said) = a.code(args);
        assert_eq!(code, 11, "{said}");
        assert!(said.contains("another command in this clone holds the lease of fence 'repo'"), "{said}");
    }
    let (code, said) = a.code(&["release"]);
    assert!(code == 0 && said.contains("another command in this clone"), "{said}");
    let skipped = code_of(&a.fence(&["run", "--json", "--", "true"]).output().unwrap());
    assert!(skipped.0 == 0 && skipped.1.contains(r#""mine":true"#), "{}", skipped.1);
    go(&world);
    assert!(run.wait().0.success());
    assert_eq!(world.lease("State"), "released");
}

#[test]
fn run_that_was_killed_leaves_a_lease_that_release_finds() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    let inside = world.path("inside");
    let script = format!("touch {}; while ! [ -e {} ]; do sleep 0.05; done", sh(&inside), sh(world.path("go")));
    let run = Started::by(&directly(&a, &["run", "--ttl", "1h", "--", "sh", "-c", &script]));
    wait_until("it runs", || inside.exists());
    run.signal("KILL");
    run.wait();
    let (code, said) = a.code(&["push", "origin", "HEAD:refs/heads/x"]);
    assert_eq!(code, 11, "{said}");
    assert!(said.contains("from a run that was killed") && said.contains("git fence release"), "{said}");
    assert!(a.ok(&["release"]).contains("released after token "));
    go(&world);
    assert_eq!(world.lease("State"), "released");
}

#[test]
fn push_that_cannot_give_its_lease_back_says_so() {
    let world = Remote::Bare.world(&any_git());
    let a = world.agent("a");
    stall_connection(&a, 2);
    let push = Started::stalled(&world, &directly(&a, &["push", "--ttl", "1h", "origin", "HEAD:refs/heads/x"]));
    let away = world.path("away.git");
    fs::rename(world.server(), &away).unwrap();
    push.signal("TERM");
    let (_, said) = push.wait();
    assert!(said.contains("this clone still holds the lease of fence 'repo'"), "{said}");
    assert!(said.contains("git fence release"), "{said}");
    go(&world);
    fs::rename(&away, world.server()).unwrap();
    assert!(a.ok(&["release"]).contains("released after token "));
}
