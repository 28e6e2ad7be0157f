//! Certificates, made with the command-line tool of OpenSSL.

use crate::engines::{find, run};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Whoever signs certificates.
pub(crate) struct Authority {
    dir: TempDir,
    own: Certificate,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Nothing but what the command line says.
const SETTINGS: &str = "[req]\ndistinguished_name = name\n[name]\n";

impl Authority {
    pub(crate) fn new() -> Option<Authority> {
        find("openssl")?;
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("settings"), SETTINGS).unwrap();
        let extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"];
        let own = make(dir.path(), "authority", &extensions, None);
        Some(Authority { dir, own })
    }

    /// The file that those who trust it name.
    pub(crate) fn file(&self) -> &Path {
        &self.own.cert
    }

    /// A certificate for a server at `127.0.0.1`. etcd's gateway shows it to etcd, too, as a client.
    pub(crate) fn server(&self) -> Certificate {
        self.server_named("IP:127.0.0.1,DNS:localhost")
    }

    /// One for other names.
    pub(crate) fn server_named(&self, names: &str) -> Certificate {
        let names = format!("subjectAltName={names}");
        let extensions = [&*names, "extendedKeyUsage=serverAuth,clientAuth"];
        make(self.dir.path(), "server", &extensions, Some(&self.own))
    }

    pub(crate) fn client(&self) -> Certificate {
        make(self.dir.path(), "client", &["extendedKeyUsage=clientAuth"], Some(&self.own))
    }
}

fn make(dir: &Path, name: &str, extensions: &[&str], signed_by: Option<&Certificate>) -> Certificate {
    let made = Certificate { cert: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.arg("-config").arg(dir.join("settings")).args(["-subj", &format!("/CN={name}")]);
    openssl.arg("-out").arg(&made.cert).arg("-keyout").arg(&made.key);
    for extension in extensions {
        openssl.args(["-addext", extension]);
    }
    if let Some(by) = signed_by {
        openssl.arg("-CA").arg(&by.cert).arg("-CAkey").arg(&by.key);
    }
    run(&mut openssl);
    made
}
