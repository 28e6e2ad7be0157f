//! etcd, alone or with several nodes.

use super::{Engine, Process, find, free_port, run, wait_until_it_listens};
use crate::authority::Certificate;
use std::{path::Path, process::Command};
use tempfile::TempDir;

/// How etcd is started.
#[derive(Default)]
pub(crate) struct Etcd<'a> {
    /// One, if there is no number.
    pub(crate) nodes: Option<usize>,
    pub(crate) tls: Option<&'a Certificate>,
    /// The authority of the certificates that clients need.
    pub(crate) clients: Option<&'a Path>,
    /// More arguments.
    pub(crate) more: &'a [&'a str],
}

impl Etcd<'_> {
    pub(crate) fn start(&self) -> Option<Engine> {
        let (program, _) = (find("etcd")?, find("etcdctl")?);
        let dir = TempDir::new().unwrap();
        let ports: Vec<(u16, u16)> = (0..self.nodes.unwrap_or(1)).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("n{n}=http://127.0.0.1:{peer}")).collect();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let processes = ports.iter().enumerate().map(|(n, (client, peer))| {
            let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let mut etcd = Command::new(&program);
            etcd.args(["--name", &format!("n{n}"), "--data-dir"]).arg(dir.path().join(format!("n{n}")));
            etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            etcd.args(["--initial-cluster", &peers.join(","), "--logger", "zap", "--log-outputs", "/dev/null"]);
            // Files on these machines sync slowly.
            etcd.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]).args(self.more);
            if let Some(own) = self.tls {
                etcd.arg("--cert-file").arg(&own.cert).arg("--key-file").arg(&own.key);
            }
            if let Some(authority) = self.clients {
                etcd.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authority);
            }
            Process::start(etcd)
        });
        let processes = processes.collect();
        let hosts: Vec<String> = ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
        let own = if self.tls.is_some() { "etcd+https" } else { "etcd" };
        let engine = Engine { url: format!("{own}://{}", hosts.join(",")), processes, web: None, dir: Some(dir) };
        match self.tls {
            Some(_) => ports.iter().for_each(|(client, _)| wait_until_it_listens(*client)),
            None => engine.wait_until_it_answers(),
        }
        Some(engine)
    }
}

impl Engine {
    /// `etcdctl`, which talks to all nodes.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let hosts = self.url.rsplit_once('/').unwrap().1;
        run(Command::new("etcdctl").env("ETCDCTL_API", "3").args(["--endpoints", hosts]).args(arguments))
    }

    /// Which of the nodes leads.
    pub(crate) fn leader(&self) -> usize {
        let status = self.etcdctl(&["endpoint", "status"]);
        let lines: Vec<Vec<&str>> = status.lines().map(|line| line.split(", ").collect()).collect();
        lines.iter().position(|fields| fields[4] == "true").unwrap()
    }
}
