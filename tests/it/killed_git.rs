//! A supervisor knows the pid of git: SIGKILL for `git fence` does not reach the program that git has
//! started, which has to notice by itself that git is gone.

use crate::support::{World, agents::Remote, any_git, sh, signal, text, try_signal, wait_until, write_script};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A running `git fence …`. Ended by pid when the test is over, with all its descendants.
struct Started {
    git: Child,
    below: Vec<u32>,
}

impl Started {
    fn by(command: &mut Command) -> Started {
        let git = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Started { git, below: Vec::new() }
    }

    /// Kills only git.
    fn kill_git(&mut self) {
        self.below = below(self.git.id());
        assert!(!self.below.is_empty(), "git has started the program");
        self.git.kill().unwrap();
        self.git.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.git.kill();
        let _ = self.git.wait();
        for pid in self.below.iter().filter(|pid| is_ours(**pid)) {
            try_signal(*pid, "KILL");
        }
    }
}

fn below(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().map(|child| child.parse().unwrap()) {
            found.push(child);
            found.extend(below(child));
        }
    }
    found
}

fn arguments(pid: u32) -> String {
    text(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

fn is_ours(pid: u32) -> bool {
    let arguments = arguments(pid);
    arguments.contains("git-fence") || arguments.contains("git\0")
}

fn is_gone(pid: u32) -> bool {
    arguments(pid).is_empty()
}

/// The shell code that writes the pid to a file atomically.
fn word(path: &Path) -> String {
    format!("echo $$ >{0}.new; mv {0}.new {0}", sh(path))
}

fn pid_in(path: &PathBuf) -> u32 {
    wait_until("it has written its file", || path.exists());
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn run_whose_git_is_killed_ends_its_command_and_releases_the_lease() {
    for remote in Remote::BOTH {
        let world = remote.world(&any_git());
        let agent = world.agent("a");
        let inside = world.path("inside");
        // A command that ignores SIGTERM is killed in the end.
        let script = format!("trap '' TERM; {}; while :; do sleep 0.05; done", word(&inside));
        let mut run = Started::by(&mut agent.run(&["--ttl", "6s"], &script));
        let command = pid_in(&inside);
        run.kill_git();
        wait_until("the command has ended", || is_gone(command));
        wait_until("the run has ended", || agent.status()["exit_code"] == 143);
        assert_eq!(agent.status()["outcome"], "interrupted", "{}", agent.status());
        assert_eq!(world.lease("State"), "released", "{remote:?}");
    }
}

#[test]
fn waiting_run_exits_when_its_git_is_killed() {
    let world = World::bare(&any_git(), &[]);
    let (first, second) = (world.agent("first"), world.agent("second"));
    first.ok(&["acquire", "--ttl", "1h"]);
    let asked = second.path(".git/git-fence");
    let mut run = Started::by(&mut second.run(&["--if-held", "wait", "--wait", "1h"], "true"));
    wait_until("it has asked", || asked.is_dir());
    run.kill_git();
    wait_until("the run has ended", || second.status()["exit_code"] == 143);
    assert_eq!(second.status()["outcome"], "interrupted", "{}", second.status());
}

#[test]
fn push_stops_when_its_git_is_killed() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    agent.ok(&["acquire", "--ttl", "1h"]);
    // The connection is open, and nothing has been sent yet.
    let (begun, go) = (world.path("begun"), world.path("go"));
    let slow = format!("{}; until [ -e {} ]; do sleep 0.02; done; exec git-receive-pack \"$@\"", word(&begun), sh(&go));
    write_script(&world.path("slow"), &slow);
    world.ok(agent.git().args(["config", "remote.origin.receivepack"]).arg(world.path("slow")));
    let mut push = Started::by(&mut agent.fence(&["push", "origin", "HEAD:refs/heads/a"]));
    pid_in(&begun);
    push.kill_git();
    let ours = push.below.clone();
    let is_client = |pid: &&u32| !arguments(**pid).contains("slow");
    wait_until("all its processes are gone", || ours.iter().filter(is_client).all(|pid| is_gone(*pid)));
    fs::write(go, "").unwrap();
    wait_until("the push is over on the server", || ours.iter().all(|pid| is_gone(*pid)));
    assert_eq!(world.server_ref("refs/heads/a"), None);
}

#[test]
fn killed_plain_push_under_a_lease_stops() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let (begun, go, inside) = (world.path("begun"), world.path("go"), world.path("inside"));
    let slow = format!(
        "[ -e {0} ] || {{ {1}; until [ -e {2} ]; do sleep 0.02; done; }}; exec git-receive-pack \"$@\"",
        sh(&begun),
        word(&begun),
        sh(&go)
    );
    write_script(&world.path("slow"), &slow);
    let script = format!(
        "git config remote.origin.receivepack {}; git push -q origin HEAD:refs/heads/a & echo $! >{1}.new; mv {1}.new {1}\n\
         until [ -e {2} ]; do sleep 0.02; done",
        sh(world.path("slow")),
        sh(&inside),
        sh(world.path("end"))
    );
    let run = Started::by(&mut agent.run(&["--ttl", "1h"], &script));
    let (push, slow) = (pid_in(&inside), pid_in(&begun));
    signal(push, "KILL");
    let left = || below(run.git.id()).into_iter().any(|pid| arguments(pid).contains("remote-fence"));
    wait_until("all its processes are gone", || !left());
    fs::write(go, "").unwrap();
    wait_until("the push is over on the server", || is_gone(slow));
    fs::write(world.path("end"), "").unwrap();
    wait_until("the run has ended", || agent.status()["exit_code"].is_number());
    assert_eq!(world.server_ref("refs/heads/a"), None);
}

/// Started as git starts it, and git is gone before the program checks its parent. A shell stands in for git here.
#[test]
fn run_whose_git_died_before_its_first_check_acquires_nothing() {
    let world = World::bare(&any_git(), &[]);
    let agent = world.agent("a");
    let ran = world.path("ran");
    for (path, takes) in [("PATH=$(git --exec-path):$PATH", false), ("true", true)] {
        let status = world.path("status.json");
        let _ = fs::remove_file(&status);
        // The inner shell waits until its parent has changed, and then becomes the program.
        write_script(
            &world.path("orphan"),
            &format!(
                "{path}; until [ \"$(cut -d' ' -f4 /proc/$$/stat)\" != $1 ]; do sleep 0.01; done\n\
                 exec {} run --status-file {} -- touch {}",
                sh(env!("CARGO_BIN_EXE_git-fence")),
                sh(&status),
                sh(&ran)
            ),
        );
        let mut starter = Command::new("setsid");
        world.hermetic(&mut starter);
        starter.args(["sh", "-c", "\"$0\" $$ & exit 0"]).arg(world.path("orphan")).current_dir(agent.path(""));
        starter.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(starter.status().unwrap().success());
        let outcome = || -> serde_json::Value {
            serde_json::from_slice(&fs::read(&status).unwrap_or_default()).unwrap_or_default()
        };
        wait_until("it has ended", || outcome()["exit_code"].is_number());
        assert_eq!(outcome()["outcome"], if takes { "ran" } else { "interrupted" }, "{}", outcome());
        assert_eq!(ran.exists(), takes);
    }
}
