//! Redis, which writes what it is told to a file and syncs it every second, as its documentation recommends.

use super::{PASSWORD, tied};
use std::{path::Path, process::Command};

pub(super) fn command(dir: &Path, port: u16) -> (Command, String) {
    let mut redis = tied(Path::new("redis-server"), None);
    redis.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]);
    redis.args(["--appendonly", "yes", "--dir"]).arg(dir);
    (redis, format!("redis://:{PASSWORD}@127.0.0.1:{port}"))
}
