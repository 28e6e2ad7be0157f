//! Engines that are started for a run: on free ports of loopback, in directories of their own, and ended by pid.
//!
//! The kernel ends them with this process, however that ends.

mod etcd;
mod postgres;
mod redis;

use super::helper::Helper;
use crate::{Outcome, options::EngineKind, programs};
use std::{
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The password of the engines that have one.
const PASSWORD: &str = "tell-nobody";
/// How long an engine may take to start, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running engine.
pub(super) struct Engine {
    pub(super) kind: EngineKind,
    /// With its password.
    pub(super) url: String,
    pub(super) port: u16,
    process: Child,
    _dir: TempDir,
}

impl Engine {
    /// Starts one that can take so many connections, with what it needs for leases.
    pub(super) fn start(kind: EngineKind, connections: u32) -> Outcome<Engine> {
        Engine::start_with(kind, connections, &[])
    }

    /// The same, with more arguments.
    pub(super) fn start_with(kind: EngineKind, connections: u32, more: &[&str]) -> Outcome<Engine> {
        let dir = tempfile::Builder::new().prefix("git-fence-benches-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (mut command, url) = match kind {
            EngineKind::Etcd => etcd::command(dir.path(), port)?,
            EngineKind::Postgres => postgres::command(dir.path(), port, connections)?,
            EngineKind::Redis => redis::command(dir.path(), port),
        };
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let process = command.spawn().map_err(|e| format!("cannot start {}: {e}", kind.name()))?;
        let mut engine = Engine { kind, url, port, process, _dir: dir };
        engine.wait_until_it_answers()?;
        Ok(engine)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_it_answers(&mut self) -> Outcome<()> {
        let start = Instant::now();
        while !Helper::at(&self.url)?.init() {
            if self.process.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                return Err(format!("{} does not start: is it installed?", self.kind.name()).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `program`, which the kernel kills when the process that has started it ends. As another user where `id` is given: a
/// process that changes its user loses this, so that comes first.
fn tied(program: &Path, id: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(id) = id.map(|id| id.to_string()) {
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "setpriv"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program).current_dir("/");
    command
}
