//! Runs in the background, and what tests do with them.

use super::{World, agents::Agent, signal, text, try_signal, wait_until};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// A run in the background. Ended by pid when the test is over, with all its descendants.
pub(crate) struct Background(Option<Child>);

impl Background {
    pub(crate) fn start(command: &mut Command) -> Background {
        Background::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn of(child: Child) -> Background {
        Background(Some(child))
    }

    /// The pids of `git fence run` and everything below it, the outermost first.
    fn tree(&self) -> Vec<u32> {
        descendants(self.0.as_ref().unwrap().id())
    }

    /// The pid of the program itself, which git starts for `git fence`.
    pub(crate) fn pid(&self) -> u32 {
        self.program("run")
    }

    /// The pid of `git-fence <command>`.
    pub(crate) fn program(&self, command: &str) -> u32 {
        let is_it = |pid: &u32| {
            let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let args: Vec<&[u8]> = args.split(|b| *b == 0).collect();
            args.first().is_some_and(|name| name.ends_with(b"git-fence")) && args.get(1) == Some(&command.as_bytes())
        };
        self.tree().into_iter().find(is_it).expect("git-fence is there")
    }

    /// The arguments of all its processes.
    pub(crate) fn arguments(&self) -> String {
        let arguments = |pid| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let all: Vec<String> = self.tree().into_iter().map(|pid| text(&arguments(pid)).replace('\0', " ")).collect();
        all.join("\n")
    }

    /// The pid of git's push of a client, which is not the client.
    pub(crate) fn git_push(&self) -> u32 {
        let is_it = |pid: &u32| {
            let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let has = |word: &[u8]| args.split(|b| *b == 0).any(|arg| arg == word);
            has(b"push") && has(b"--porcelain") && !has(b"fence")
        };
        self.tree().into_iter().find(is_it).expect("git pushes")
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        !Path::new(&format!("/proc/{}/exe", self.0.as_ref().unwrap().id())).exists()
    }

    /// Whether it moves the mark of the fence 'repo', alone or not, and the gate of a remote on this machine has not let it
    /// through yet.
    pub(crate) fn is_at_the_gate(&self) -> bool {
        let arguments = self.arguments();
        arguments.contains(":refs/fence/repo/mark") && arguments.contains("git-fence-hook pre-receive")
    }

    /// Stops the run and the keeper of its command, so that nobody renews the lease.
    pub(crate) fn freeze(&self) -> Frozen {
        let frozen = Frozen([self.pid(), keeper_below(self.pid())]);
        frozen.0.iter().for_each(|pid| signal(*pid, "STOP"));
        frozen
    }

    pub(crate) fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        for pid in descendants(child.id()) {
            for name in ["KILL", "CONT"] {
                try_signal(pid, name);
            }
        }
        let _ = child.wait();
    }
}

/// Processes that were stopped.
#[must_use = "it stays frozen"]
pub(crate) struct Frozen([u32; 2]);

impl Frozen {
    pub(crate) fn thaw(self) {
        self.0.iter().rev().for_each(|pid| signal(*pid, "CONT"));
    }
}

/// A process and all its descendants.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(children.split_whitespace().flat_map(|child| descendants(child.parse().unwrap())));
    }
    found
}

pub(crate) fn keeper_below(run: u32) -> u32 {
    let is_keeper =
        |pid: &u32| text(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).contains("\0keeper\0");
    descendants(run).into_iter().find(is_keeper).expect("the keeper is there")
}

/// The shell code that writes a word to a file atomically.
pub(crate) fn word(path: &Path) -> String {
    format!("echo $$ >{0}.new; mv {0}.new {0}", path.display())
}

/// A script that waits for a file.
pub(crate) fn wait_for(path: &Path) -> String {
    format!("until [ -e {} ]; do sleep 0.02; done", path.display())
}

/// Holds the lease from `agent` with a run whose command reports that it has started and then waits for `go`
/// before it continues with `rest`.
pub(crate) fn holding(agent: &Agent<'_>, options: &[&str], rest: &str) -> Background {
    let (inside, go) = (agent.world.path("inside"), agent.world.path("go"));
    let script = format!("{}\n{}\n{rest}", word(&inside), wait_for(&go));
    let run = Background::start(&mut agent.run(options, &script));
    wait_until("the command runs", || inside.exists());
    run
}

pub(crate) fn go(world: &World) {
    fs::write(world.path("go"), "").unwrap();
}

pub(crate) fn heads(world: &World) -> String {
    world.ok(world.git("server.git").args(["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"]))
}

/// A run that waits until `agent` gets the lease.
pub(crate) fn taking_over(agent: &Agent<'_>, options: &[&str], script: &str) -> Command {
    agent.run(&[&["--if-held", "wait", "--wait", "2m", "--skew", "0s"], options].concat(), script)
}

/// Waits until `agent` gets the lease, and runs `script`.
pub(crate) fn take_over(agent: &Agent<'_>, options: &[&str], script: &str) {
    let ran = taking_over(agent, options, script).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert_eq!(agent.status()["outcome"], "ran", "{}", text(&ran.stderr));
}
