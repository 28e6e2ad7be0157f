//! Programs that must not outlive this process, however it ends.

use super::try_signal;
use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

/// Starts a program, names its pid, and ends it at the end of its own input, which comes when this process ends in any way.
/// If the shell itself is killed, the kernel kills the program. A shell lets what runs in its background ignore QUIT, so a program that
/// is ended while it starts would never end.
const SHELL: &str = "signal=$1 dir=$2; shift 2
env --default-signal=INT,QUIT \"$@\" </dev/null >/dev/null 2>&1 & echo $!; exec >&-
read -r _; kill -$signal $!; kill -CONT $!; wait
[ -z \"$dir\" ] || rm -rf -- \"$dir\"";

/// A running program. It is ended by pid on drop, or with this process.
pub(crate) struct Guarded {
    shell: Child,
    pid: u32,
}

impl Guarded {
    /// Starts `program`, which `signal` ends. `dir` is removed after that, where it is given.
    pub(crate) fn start(program: &Command, signal: &str, dir: Option<&Path>) -> Guarded {
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL, "sh", signal]).arg(dir.unwrap_or(Path::new("")));
        shell.arg(program.get_program()).args(program.get_args()).current_dir("/").process_group(0);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        Guarded { pid: pid.trim().parse().unwrap(), shell }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops it, and lets it continue with "CONT".
    pub(crate) fn signal(&self, name: &str) {
        assert!(try_signal(self.pid, name), "it runs");
    }

    /// Kills it, without a chance to do anything.
    pub(crate) fn kill(self) {
        self.signal("KILL");
    }

    /// Kills the shell that would end it.
    pub(crate) fn kill_shell(mut self) {
        self.shell.kill().unwrap();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// `program`, which the kernel kills when the process that has started it ends. As another user where `id` is given: a
/// process that changes its user loses this, so that comes first.
pub(crate) fn tied(program: &Path, id: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(id) = id.map(|id| id.to_string()) {
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "setpriv"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}
