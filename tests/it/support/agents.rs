//! Agents: clones of the server that run `git fence`.

use super::{Git, World, schema::assert_is, text};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Where the leases live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// A repository with git-fence installed.
    Gate,
    /// A bare repository without any hook.
    Bare,
}

impl Remote {
    pub(crate) const BOTH: [Remote; 2] = [Remote::Gate, Remote::Bare];

    pub(crate) fn world(self, git: &Git) -> World {
        match self {
            Remote::Gate => World::new(git),
            Remote::Bare => World::bare(git, &[]),
        }
    }
}

/// A clone of the server with one commit of its own.
pub(crate) struct Agent<'w> {
    pub(crate) world: &'w World,
    pub(crate) name: String,
}

impl World {
    pub(crate) fn agent(&self, name: &str) -> Agent<'_> {
        self.ok(self.git(".").args(["clone", "-q", "server.git", name]));
        self.ok(self.git(name).args(["commit", "-q", "--allow-empty", "-m", &format!("work of {name}")]));
        Agent { world: self, name: name.to_owned() }
    }

    /// The holder of the fence 'repo', read from the tip of its lease.
    pub(crate) fn lease(&self, trailer: &str) -> String {
        let format = format!("--format=%(trailers:key=Fence-{trailer},valueonly)");
        self.ok(self.git("server.git").args(["log", "-1", &format, "refs/fence/repo/lease"])).trim().to_owned()
    }

    pub(crate) fn lease_token(&self) -> u64 {
        self.lease("Token").parse().unwrap()
    }
}

impl Agent<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.path(&self.name).join(name)
    }

    /// `git fence <args>` in the clone.
    pub(crate) fn fence(&self, args: &[&str]) -> Command {
        let mut command = self.git();
        command.arg("fence").args(args);
        command
    }

    /// `git` in the clone, with our programs in its PATH.
    pub(crate) fn git(&self) -> Command {
        let mut command = self.world.git(&self.name);
        let ours = Path::new(env!("CARGO_BIN_EXE_git-fence")).parent().unwrap();
        let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap();
        let mut path = path.to_owned();
        path.push(":");
        path.push(OsString::from(ours));
        command.env("PATH", path);
        command
    }

    /// `git fence run <options> -- sh -c <script>`; the owner is the name of the clone.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.fence(&["run", "--owner", &self.name]);
        command.arg("--status-file").arg(self.path("../").join(format!("{}.json", self.name)));
        command.args(options).args(["--", "sh", "-c", script]);
        command
    }

    /// The status file of the last run.
    pub(crate) fn status(&self) -> serde_json::Value {
        let written = fs::read(self.world.path(&format!("{}.json", self.name))).unwrap_or_default();
        let Ok(status) = serde_json::from_slice(&written) else { return serde_json::Value::Null };
        assert_is("result", &status);
        status
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        self.world.ok(&mut self.fence(args))
    }

    pub(crate) fn code(&self, args: &[&str]) -> (i32, String) {
        code_of(&self.fence(args).output().unwrap())
    }
}

/// The exit code and the output.
pub(crate) fn code_of(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}
