//! Redis, alone, with a replica, or watched by a sentinel.

use super::{Engine, Process, find, free_port, run, wait_until, wait_until_it_listens};
use crate::authority::Certificate;
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

impl Engine {
    pub(crate) fn redis(more: &[&str]) -> Option<Engine> {
        let dir = TempDir::new().unwrap();
        let data = dir.path().to_owned();
        Engine::redis_in(&data, more).map(|engine| Engine { dir: Some(dir), ..engine })
    }

    /// With its data in this directory.
    pub(crate) fn redis_in(data: &Path, more: &[&str]) -> Option<Engine> {
        let port = free_port();
        let process = redis_server(data, &["--port", &port.to_string()], more)?;
        wait_until_it_listens(port);
        Some(Engine { url: format!("redis://127.0.0.1:{port}"), processes: vec![process], web: None, dir: None })
    }

    /// With TLS only; of clients it wants certificates, or none.
    pub(crate) fn redis_with_tls(own: &Certificate, authority: &Path, wants: bool) -> Option<Engine> {
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let files = [&own.cert, &own.key, authority].map(|path| path.to_str().unwrap());
        let wants = if wants { "yes" } else { "no" };
        let files = ["--tls-cert-file", files[0], "--tls-key-file", files[1], "--tls-ca-cert-file", files[2]];
        let more = [&files[..], &["--tls-auth-clients", wants]].concat();
        let process = redis_server(dir.path(), &["--port", "0", "--tls-port", &port.to_string()], &more)?;
        wait_until_it_listens(port);
        let url = format!("rediss://127.0.0.1:{port}");
        Some(Engine { url, processes: vec![process], web: None, dir: Some(dir) })
    }

    /// A sentinel that knows a primary as `leases`, with more settings in its file.
    pub(crate) fn sentinel(primary: &Engine, more: &str) -> Option<Engine> {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("sentinel.conf");
        let own = free_port();
        let (listen, scheme) = if more.contains("tls") { ("port 0\ntls-port", "rediss") } else { ("port", "redis") };
        let settings = format!(
            "{listen} {own}\nbind 127.0.0.1\ndir {}\n{more}sentinel monitor leases 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds leases 1000\nsentinel failover-timeout leases 5000\n",
            dir.path().display(),
            primary.port()
        );
        fs::write(&file, settings).unwrap();
        let mut sentinel = Command::new(find("redis-server")?);
        sentinel.arg(&file).arg("--sentinel");
        let processes = vec![Process::start(sentinel)];
        wait_until_it_listens(own);
        Some(Engine {
            url: format!("{scheme}+sentinel://127.0.0.1:{own}/leases"),
            processes,
            web: None,
            dir: Some(dir),
        })
    }

    /// `redis-cli`; what it printed, error or not.
    pub(crate) fn redis_cli(&self, arguments: &[&str]) -> String {
        cli(self.port(), arguments)
    }
}

fn cli(port: u16, arguments: &[&str]) -> String {
    run(Command::new("redis-cli").args(["-p", &port.to_string()]).args(arguments)).trim().to_owned()
}

fn redis_server(data: &Path, listen: &[&str], more: &[&str]) -> Option<Process> {
    let mut redis = Command::new(find("redis-server")?);
    redis.args(listen).args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(data).args(more);
    Some(Process::start(redis))
}

/// A primary, a replica, and a sentinel that knows the primary as `leases`.
pub(crate) struct Sentinels {
    /// The URL by which clients ask the sentinel.
    pub(crate) url: String,
    /// Two servers; the first is the primary at the beginning.
    pub(crate) servers: [Engine; 2],
    sentinel: Engine,
}

impl Sentinels {
    pub(crate) fn start() -> Option<Sentinels> {
        let primary = Engine::redis(&[])?;
        let port = primary.port().to_string();
        let replica = Engine::redis(&["--replicaof", "127.0.0.1", &port])?;
        let sentinel = Engine::sentinel(&primary, "")?;
        let both = Sentinels { url: sentinel.url.clone(), servers: [primary, replica], sentinel };
        wait_until("the sentinel knows the replica", || {
            let replicas = both.sentinel.redis_cli(&["SENTINEL", "REPLICAS", "leases"]);
            replicas.contains("master-link-status\nok")
        });
        Some(both)
    }

    /// The port of the server that the sentinel calls the primary.
    pub(crate) fn primary(&self) -> u16 {
        let said = self.sentinel.redis_cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "leases"]);
        said.lines().nth(1).unwrap().parse().unwrap()
    }
}
