//! PostgreSQL, with a database of its own.

use super::{Outcome, PASSWORD, programs, tied};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// It does not run as root.
const NOBODY: u32 = 65534;

pub(super) fn command(dir: &Path, port: u16, connections: u32) -> Outcome<(Command, String)> {
    let user = (fs::metadata("/proc/self")?.uid() == 0).then_some(NOBODY);
    let (data, password) = (dir.join("data"), dir.join("password"));
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    fs::create_dir(&data)?;
    chown(&data, user, user)?;
    fs::write(&password, PASSWORD)?;
    let mut initdb = tied(&program("initdb"), user);
    initdb.arg("-D").arg(&data).args(["-U", "fence", "-A", "scram-sha-256", "--pwfile"]).arg(&password);
    programs::output(initdb.args(["--no-sync", "--locale=C", "-E", "UTF8"]))?;
    let mut postgres = tied(&program("postgres"), user);
    postgres.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "unix_socket_directories="]);
    postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("max_connections={connections}")]);
    Ok((postgres, format!("postgres://fence:{PASSWORD}@127.0.0.1:{port}/postgres")))
}

/// Debian keeps the programs of the server out of the PATH.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let all = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file());
    all.max().unwrap_or_else(|| name.into())
}
