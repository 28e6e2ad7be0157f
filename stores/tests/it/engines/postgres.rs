//! PostgreSQL, with a database of its own.

use super::{Engine, PASSWORD, Process, as_nobody, find, free_port, give_away, run};
use crate::authority::Certificate;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// How PostgreSQL is started.
#[derive(Default)]
pub(crate) struct Postgres<'a> {
    pub(crate) tls: Option<&'a Certificate>,
    /// The authority of the certificates that clients need.
    pub(crate) clients: Option<&'a Path>,
    /// The directory of its data, where it is not one of its own.
    pub(crate) data: Option<&'a Path>,
    /// The encoding of its databases.
    pub(crate) encoding: Option<&'a str>,
    /// More settings, `name=value`.
    pub(crate) more: &'a [&'a str],
}

impl Postgres<'_> {
    pub(crate) fn start(&self) -> Option<Engine> {
        let (initdb, postgres) = (find_postgres("initdb")?, find_postgres("postgres")?);
        let dir = TempDir::new().unwrap();
        let data = self.data.map_or_else(|| dir.path().join("data"), |path| path.join("data"));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&data).unwrap();
        give_away(&data);
        let password = dir.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        let mut initdb = as_nobody(&initdb);
        initdb.arg("-D").arg(&data).args(["-U", "fence", "-A", "scram-sha-256", "--pwfile"]).arg(&password);
        initdb.args(["--no-sync", "--locale=C", "-E", self.encoding.unwrap_or("UTF8")]).current_dir("/");
        run(&mut initdb);
        let port = free_port();
        let mut command = as_nobody(&postgres);
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "unix_socket_directories="]);
        command.args(["-c", "listen_addresses=127.0.0.1"]).current_dir("/");
        for setting in self.more {
            command.args(["-c", setting]);
        }
        self.secure(&data, &mut command);
        let url = format!("postgres://fence:{PASSWORD}@127.0.0.1:{port}/postgres");
        let engine = Engine { url, processes: vec![Process::start(command)], web: None, dir: Some(dir) };
        match self.tls {
            Some(_) => super::wait_until_it_listens(port),
            None => engine.wait_until_it_answers(),
        }
        Some(engine)
    }

    /// It reads keys only if they are its own, and nobody else's to read.
    fn secure(&self, data: &Path, command: &mut Command) {
        let Some(own) = self.tls else { return };
        for (from, name) in [(&own.cert, "server.crt"), (&own.key, "server.key")] {
            let to = data.join(name);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
            give_away(&to);
        }
        command.args(["-c", "ssl=on"]);
        let mut access = "hostssl all all 127.0.0.1/32 scram-sha-256".to_owned();
        if let Some(authority) = self.clients {
            fs::copy(authority, data.join("root.crt")).unwrap();
            fs::set_permissions(data.join("root.crt"), Permissions::from_mode(0o644)).unwrap();
            command.args(["-c", "ssl_ca_file=root.crt"]);
            access.push_str(" clientcert=verify-ca");
        }
        fs::write(data.join("pg_hba.conf"), access + "\n").unwrap();
    }
}

impl Engine {
    /// Runs a statement as the owner of the database; what it printed.
    pub(crate) fn psql(&self, statement: &str) -> String {
        run(Command::new("psql").arg(&self.url).args(["-AtqXv", "ON_ERROR_STOP=1", "-c", statement]))
    }
}

/// Debian keeps the programs of the server out of the PATH.
fn find_postgres(program: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(program)).collect();
    all.sort();
    all.into_iter().rev().find(|file| file.is_file()).or_else(|| find(program))
}
