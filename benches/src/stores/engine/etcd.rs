//! etcd, one node.

use super::{Outcome, tied};
use std::{net::TcpListener, path::Path, process::Command};

pub(super) fn command(dir: &Path, port: u16) -> Outcome<(Command, String)> {
    let peer = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let mut etcd = tied(Path::new("etcd"), None);
    etcd.args(["--name", "n0", "--data-dir"]).arg(dir.join("data"));
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("n0={peer}"), "--logger", "zap", "--log-outputs", "/dev/null"]);
    Ok((etcd, format!("etcd://127.0.0.1:{port}")))
}
