//! Real repositories: two servers with a gate, and the work that is pushed to them.

use crate::{Outcome, programs};
use git_fence_core::{FenceName, MarkRecord, Secret, Token};
use std::{
    cell::RefCell,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const MARK: &str = "refs/fence/repo/mark";

/// A repository to push from, in a directory of its own.
pub(super) struct Work {
    dir: TempDir,
    empty_tree: String,
}

/// A server, and the commit that was pushed to it last.
pub(super) struct Repository {
    path: PathBuf,
    last: RefCell<Option<String>>,
}

impl Work {
    pub(super) fn new() -> Outcome<Work> {
        let dir = tempfile::Builder::new().prefix("git-fence-benches-").tempdir()?;
        let mut work = Work { dir, empty_tree: String::new() };
        programs::output(work.git(".").args(["init", "-q", "work"]))?;
        work.empty_tree = programs::output(work.git("work").args(["hash-object", "-w", "-t", "tree", "/dev/null"]))?;
        Ok(work)
    }

    /// A bare repository with the gate. Nothing else runs there after a push.
    pub(super) fn server(&self, name: &str) -> Outcome<Repository> {
        programs::output(self.git(".").args(["init", "-q", "--bare", name]))?;
        let server = Repository { path: self.dir.path().join(name), last: RefCell::default() };
        programs::output(
            self.hermetic(Command::new(programs::own("git-fence-hook")?)).arg("install").arg(&server.path),
        )?;
        self.configure(&server, "receive.autogc", "false")?;
        Ok(server)
    }

    pub(super) fn configure(&self, server: &Repository, key: &str, value: &str) -> Outcome<()> {
        programs::output(self.git(".").arg("-C").arg(&server.path).args(["config", key, value])).map(drop)
    }

    /// Pushes the first mark, alone. Returns its commit.
    pub(super) fn push_mark(&self, server: &Repository, mark: &MarkRecord) -> Outcome<String> {
        let commit = self.commit(&mark.message(&FenceName::repo(), None), None)?;
        let refspec = format!("{commit}:{MARK}");
        programs::output(self.git("work").args(["push", "-q", "--atomic"]).arg(&server.path).arg(refspec))?;
        Ok(commit)
    }

    /// Pushes a new commit together with the mark, as the client does. Returns the commit of the mark, and how long git took.
    pub(super) fn push(
        &self,
        server: &Repository,
        mark: &MarkRecord,
        after: Option<&str>,
        proof: Option<&Secret>,
        token: Token,
    ) -> Outcome<(String, Duration)> {
        let before = server.last.borrow().clone();
        let work = self.commit(&format!("work with token {token}"), before.as_deref())?;
        let mark = self.commit(&mark.message(&FenceName::repo(), proof), after)?;
        let mut push = self.git("work");
        push.args(["push", "-q", "--atomic", &format!("--push-option=fence-token={token}")]);
        push.arg(format!("--force-with-lease={MARK}:{}", after.unwrap_or_default()));
        push.arg(&server.path).arg(format!("{work}:refs/heads/main")).arg(format!("{mark}:{MARK}"));
        let start = Instant::now();
        programs::output(&mut push)?;
        let took = start.elapsed();
        *server.last.borrow_mut() = Some(work);
        Ok((mark, took))
    }

    fn commit(&self, message: &str, parent: Option<&str>) -> Outcome<String> {
        let mut commit = self.git("work");
        commit.args(["commit-tree", &self.empty_tree, "-m", message]);
        programs::output(commit.args(parent.iter().flat_map(|parent| ["-p", parent])))
    }

    fn git(&self, dir: &str) -> Command {
        let mut git = self.hermetic(Command::new("git"));
        git.current_dir(self.dir.path().join(dir));
        git
    }

    /// Nobody's configuration.
    fn hermetic(&self, mut command: Command) -> Command {
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_COUNT"] {
            command.env_remove(name);
        }
        command.env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Bench").env(format!("GIT_{who}_EMAIL"), "bench@example.com");
        }
        command
    }
}
