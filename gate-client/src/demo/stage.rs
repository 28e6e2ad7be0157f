//! The stage: a throw-away remote and two clones, with nothing of the user's configuration.

use crate::{
    demo::{agent::Agent, play::Kind, programs::Programs, troupe::Troupe},
    failure::Failure,
    git::Ran,
    surroundings::{Environment, GitSettings as _},
};
use git_fence_system::{
    env::{self, Variable},
    process::Pid,
    program,
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The remote.
pub(super) const REMOTE: &str = "shop.git";
/// How long a push may be frozen before a newer one ends it: less than the lease of the frozen one lasts.
const EVICT_AFTER: &str = "2s";

/// The hook as everyone writes it first.
const USUAL_HOOK: &str = include_str!("../../../fixtures/naive-hook.sh");
/// Stage machinery: where the first push to `live` is frozen. It decides nothing.
const UPDATE_HOOK: &str = r#"#!/bin/sh
case $1 in
refs/heads/live) [ -e frozen ] || { echo $$ >frozen.new && mv frozen.new frozen && kill -STOP $$; } ;;
esac
exit 0
"#;
/// The work of agent-2.
const UNDO: &str = "#!/bin/sh\nset -e\ngit revert --no-edit HEAD >/dev/null\ngit push \"$@\" origin HEAD:main\n";

/// Passed on to everything on the stage; nothing else is.
const KEPT: [Variable; 2] = [env::PATH, env::TMPDIR];

/// A throw-away remote, two clones, and the processes. They are gone when it is dropped: the processes first, then the
/// files.
pub(super) struct Stage {
    pub(super) troupe: Troupe,
    dir: TempDir,
    environment: Environment,
    /// How long it took to set it.
    pub(super) set_up: Duration,
}

impl Stage {
    /// Sets the stage.
    pub(super) fn set(
        kind: Kind,
        programs: &Programs,
        environment: &Environment,
        troupe: Troupe,
    ) -> Result<Stage, Failure> {
        let start = Instant::now();
        let made = troupe.settle(|| tempfile::Builder::new().prefix("git-fence-demo-").tempdir());
        let dir = made.map_err(cannot_write)?;
        let environment = hermetic(environment, dir.path());
        let mut stage = Stage { troupe, dir, environment, set_up: Duration::ZERO };
        stage.furnish(programs).map_err(cannot_write)?;
        stage.fill()?;
        stage.put_hooks(kind)?;
        stage.set_up = start.elapsed();
        Ok(stage)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What people see of a line: paths are cut to names, and object ids to their beginning.
    pub(super) fn shorten(&self, line: &str) -> String {
        let dir = format!("{}/", self.dir.path().display());
        let is_id = |word: &str| word.len() >= 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word = |word: &'_ str| if is_id(word.trim_end()) { format!("{} ", &word[..7]) } else { word.to_owned() };
        line.replace(&dir, "").split_inclusive(' ').map(word).collect()
    }

    /// The programs, by the names that git looks for, and a home.
    fn furnish(&self, programs: &Programs) -> io::Result<()> {
        fs::create_dir(self.path("home"))?;
        fs::create_dir(self.path("bin"))?;
        symlink(&programs.fence, self.path("bin/git-fence"))?;
        symlink(&programs.hook, self.path("bin/git-fence-hook"))?;
        symlink(&programs.helper, self.path("bin/git-remote-fence"))
    }

    /// Version 0 is live, version 1 is on main, and both agents have it.
    fn fill(&self) -> Result<(), Failure> {
        self.git(".", ["init", "-q", "--bare", "--template=", REMOTE])?;
        self.git(".", ["clone", "-q", "--template=", REMOTE, "agent-1"])?;
        for (version, branches) in [("version 0", &["HEAD:main", "HEAD:live"][..]), ("version 1", &["HEAD:main"])] {
            fs::write(self.path("agent-1/shop.html"), format!("{version}\n")).map_err(cannot_write)?;
            self.git("agent-1", ["add", "shop.html"])?;
            self.git("agent-1", ["commit", "-q", "-m", version])?;
            self.git("agent-1", [&["push", "-q", "origin"], branches].concat())?;
        }
        self.git(".", ["clone", "-q", "--template=", REMOTE, "agent-2"])?;
        self.write_program("agent-2/undo.sh", UNDO)
    }

    fn put_hooks(&self, kind: Kind) -> Result<(), Failure> {
        fs::create_dir_all(self.path(REMOTE).join("hooks")).map_err(cannot_write)?;
        match kind {
            Kind::Fence => {
                self.ask(self.command("bin/git-fence-hook", ".").args(["install", REMOTE]))?;
                self.git(REMOTE, ["config", "fence.evictAfter", EVICT_AFTER])?;
            }
            Kind::UsualHook => {
                self.write_program("shop.git/hooks/pre-receive", USUAL_HOOK)?;
                self.git(REMOTE, ["config", "receive.advertisePushOptions", "true"])?;
            }
            Kind::Hookless => {}
        }
        self.write_program("shop.git/hooks/update", UPDATE_HOOK)
    }

    fn write_program(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(cannot_write)?;
        // Git skips a hook that it may not run, and the play would have another end.
        if program::is_executable(&path) {
            return Ok(());
        }
        Err(Failure::broken(
            "programs cannot be run from the directory for temporary files",
            "set TMPDIR to another directory",
        ))
    }

    fn command(&self, program: &str, dir: &str) -> Command {
        let program = if program.contains('/') { self.path(program).into_os_string() } else { program.into() };
        let mut command = Command::new(program);
        self.environment.give_to(&mut command);
        command.current_dir(self.path(dir));
        command
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub(super) fn ask(&self, command: &mut Command) -> Result<String, Failure> {
        let ran = self.troupe.run(command).map_err(Failure::CannotRunGit)?;
        let ran = Ran { status: ran.status, stdout: ran.stdout, stderr: ran.stderr, gave_up_after: None };
        if !ran.status.success() {
            let what = format!("the demo cannot be played: {}", self.shorten(&ran.complaint()));
            return Err(Failure::broken(what, "it needs git 2.39 or newer, and a TMPDIR that allows programs"));
        }
        Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned())
    }

    /// The same for git.
    pub(super) fn git<S: AsRef<OsStr>>(&self, dir: &str, args: impl IntoIterator<Item = S>) -> Result<String, Failure> {
        self.ask(self.command("git", dir).args(args))
    }

    /// The same for the gate.
    pub(super) fn gate(&self, args: &[&str]) -> Result<String, Failure> {
        self.ask(self.command("bin/git-fence-hook", ".").args(args))
    }

    /// Starts a shell command as an agent, in its clone.
    pub(super) fn start(&self, agent: &str, line: &str) -> Result<Agent, Failure> {
        let mut command = self.command("sh", agent);
        command.args(["-c", &format!("exec {line}")]);
        Agent::start(command, &self.troupe).map_err(|e| {
            Failure::broken(format!("cannot start {agent}"), "check for free memory, and try again").because(e)
        })
    }

    /// The process in which the first push to `live` is frozen, once it is there.
    pub(super) fn frozen_at(&self) -> Option<Pid> {
        let written = fs::read_to_string(self.path(REMOTE).join("frozen")).ok()?;
        Pid::from_raw(written.trim().parse().ok()?)
    }

    /// The commit that a branch of the remote is at, by its first line.
    pub(super) fn branch(&self, name: &str) -> Result<String, Failure> {
        self.git(REMOTE, ["log", "-1", "--format=%s", &format!("refs/heads/{name}"), "--"])
    }
}

/// An environment in which only this demo's settings count.
fn hermetic(outside: &Environment, dir: &Path) -> Environment {
    let mut inside = Environment::default();
    for variable in KEPT {
        if let Some(value) = outside.get(variable) {
            inside.set(variable, value);
        }
    }
    let path = inside.get(env::PATH).map(std::env::split_paths).into_iter().flatten();
    // A directory with a colon in its name cannot be in the PATH, and TMPDIR may be one.
    if let Ok(path) = std::env::join_paths([dir.join("bin")].into_iter().chain(path)) {
        inside.set(env::PATH, path);
    }
    inside.set(env::HOME, dir.join("home"));
    inside.set(env::LC_ALL, "C");
    inside.set(env::GIT_CONFIG_NOSYSTEM, "1");
    inside.set(env::GIT_CONFIG_GLOBAL, "/dev/null");
    for (name, email) in
        [(env::GIT_AUTHOR_NAME, env::GIT_AUTHOR_EMAIL), (env::GIT_COMMITTER_NAME, env::GIT_COMMITTER_EMAIL)]
    {
        inside.set(name, "demo");
        inside.set(email, "demo@example.com");
    }
    let setting = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
    inside.set_settings(&[setting("init.defaultBranch", "main"), setting("protocol.file.allow", "always")]);
    inside
}

fn cannot_write(error: io::Error) -> Failure {
    Failure::broken("cannot write the files of the demo", "set TMPDIR to a directory with free space").because(error)
}
