//! `status --watch`: kept up to date, on a terminal in place and in a pipe whenever something has changed.

use crate::support::{
    agents::{Agent, Remote},
    any_git,
    needs::{Need, lacks},
    wait_until,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A command that goes on until the test is over, and what it has written.
struct Watching {
    child: Child,
    seen: PathBuf,
}

impl Watching {
    fn start(command: &mut Command, seen: &Path) -> Watching {
        let child = command.stdin(Stdio::null()).stdout(File::create(seen).unwrap()).spawn().unwrap();
        Watching { child, seen: seen.to_owned() }
    }

    fn wait_for(&self, words: &str) {
        wait_until(words, || self.seen().contains(words));
    }

    fn seen(&self) -> String {
        fs::read_to_string(&self.seen).unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program itself: killing git would leave it running.
fn status_of(agent: &Agent<'_>, args: &[&str]) -> Command {
    let (mut command, git) = (Command::new(env!("CARGO_BIN_EXE_git-fence")), agent.git());
    command.env_clear().envs(git.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["status", "--watch"]).args(args).current_dir(agent.path(""));
    command
}

#[test]
fn client_shows_a_lease_that_changes_hands() {
    let world = Remote::Gate.world(&any_git());
    let agent = world.agent("a");
    agent.ok(&["acquire", "--owner", "first@host", "--ttl", "1h"]);
    let prose = Watching::start(&mut status_of(&agent, &[]), &world.path("prose"));
    let json = Watching::start(&mut status_of(&agent, &["--json"]), &world.path("json"));
    prose.wait_for("first@host");
    json.wait_for("first@host");
    agent.ok(&["release"]);
    agent.ok(&["acquire", "--owner", "second@host", "--ttl", "1h"]);
    prose.wait_for("second@host");
    json.wait_for("second@host");
    // A line for each change, and no escape codes for a terminal that is not there.
    assert!(!prose.seen().contains('\u{1b}'), "{}", prose.seen());
    for line in json.seen().lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].is_string(), "{line}");
    }
}

#[test]
fn client_goes_on_when_the_remote_is_away_for_a_while() {
    let world = Remote::Bare.world(&any_git());
    let agent = world.agent("a");
    agent.ok(&["acquire", "--owner", "first@host", "--ttl", "1h"]);
    let watching = Watching::start(&mut status_of(&agent, &["--json"]), &world.path("json"));
    watching.wait_for("first@host");
    fs::rename(world.server(), world.path("away.git")).unwrap();
    watching.wait_for("\"outcome\":\"unreachable\"");
    fs::rename(world.path("away.git"), world.server()).unwrap();
    wait_until("it is there again", || watching.seen().lines().last().is_some_and(|line| line.contains("first@host")));
}

#[test]
fn gate_shows_a_lease_that_is_taken() {
    let world = Remote::Gate.world(&any_git());
    let agent = world.agent("a");
    let mut status = world.hook_program();
    status.args(["status", "--watch=200ms"]).arg(world.server());
    let watching = Watching::start(&mut status, &world.path("seen"));
    watching.wait_for("server.git");
    agent.ok(&["acquire", "--owner", "first@host", "--ttl", "1h"]);
    watching.wait_for("first@host");
    assert!(!watching.seen().contains('\u{1b}'), "{}", watching.seen());
}

#[test]
fn terminal_is_written_over_in_place() {
    if lacks(&[Need::Terminal]) {
        return;
    }
    let world = Remote::Gate.world(&any_git());
    let program = env!("CARGO_BIN_EXE_git-fence-hook");
    let mut script = Command::new("script");
    world.hermetic(&mut script);
    // It ends itself: killing `script` would leave it running.
    let line = format!("timeout 60 {program} status --watch=100ms {}", world.server().display());
    script.args(["-qefc", &line, "/dev/null"]);
    let watching = Watching::start(&mut script, &world.path("seen"));
    wait_until("it was written twice", || watching.seen().matches("\u{1b}[H").count() > 2);
    assert!(watching.seen().contains("\u{1b}[K\r\n"), "{:?}", watching.seen());
}
