//! What the URL and the variables of PostgreSQL say.

use super::password_file;
use crate::{address::Address, surroundings::Surroundings, tls::TlsFiles};
use git_fence_core::StoreFault;
use git_fence_system::env;
use postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to connect.
pub(super) struct Settings {
    /// All but the host.
    pub(super) config: Config,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) tls: MakeRustlsConnect,
    /// For people.
    pub(super) place: String,
}

impl Settings {
    pub(super) fn of(mut address: Address, around: &Surroundings) -> Result<Settings, StoreFault> {
        let mut files = TlsFiles {
            cacert: address.take("sslrootcert").or_else(|| around.text(env::PGSSLROOTCERT)),
            cert: address.take("sslcert").or_else(|| around.text(env::PGSSLCERT)),
            key: address.take("sslkey").or_else(|| around.text(env::PGSSLKEY)),
        };
        files = TlsFiles::of(&mut address, files)?;
        let mode = address.take("sslmode").or_else(|| around.text(env::PGSSLMODE));
        let mut config = Config::new();
        let mut hosts = address.hosts.iter().map(|host| host_and_port(host)).collect::<Result<Vec<_>, _>>()?;
        for (name, value) in address.rest_of_query() {
            match name {
                "application_name" => drop(config.application_name(value)),
                "options" => drop(config.options(value)),
                "host" => hosts.push((value.to_owned(), 5432)),
                other => return Err(wrong(&format!("the parameter '{other}'"))),
            };
        }
        // On the same machine nobody is in between, and the certificate that Debian makes for it verifies nowhere.
        let needs_none = hosts.iter().all(|(host, _)| is_here(host)) && files.is_none();
        config.ssl_mode(ssl_mode(mode.as_deref(), needs_none)?);
        let user = address.user.clone().or_else(|| around.text(env::PGUSER));
        let user = user.unwrap_or_else(git_fence_system::user::own_name);
        // Not the user's name, as elsewhere: the gate's user would then look into another database than the clients'.
        let database =
            Some(address.path.clone()).filter(|path| !path.is_empty()).ok_or_else(|| wrong("no database"))?;
        let password = address.password.clone().or_else(|| around.text(env::PGPASSWORD));
        let password = password.or_else(|| password_file::password(around, &address, &user, &database));
        if let Some(password) = password {
            config.password(password);
        }
        config.user(&user).dbname(&database).target_session_attrs(TargetSessionAttrs::ReadWrite);
        let tls = MakeRustlsConnect::new(files.client_config()?);
        Ok(Settings { config, hosts, tls, place: address.to_string() })
    }
}

fn host_and_port(host: &str) -> Result<(String, u16), StoreFault> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().map_err(|_| wrong("its port"))?),
        _ => (host, 5432),
    };
    Ok((name.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn ssl_mode(mode: Option<&str>, needs_none: bool) -> Result<SslMode, StoreFault> {
    match mode {
        None if needs_none => Ok(SslMode::Disable),
        // With TLS the certificate is always verified, name and all.
        None | Some("require" | "verify-ca" | "verify-full") => Ok(SslMode::Require),
        Some("prefer" | "allow") => Ok(SslMode::Prefer),
        Some("disable") => Ok(SslMode::Disable),
        Some(_) => Err(wrong("'sslmode'")),
    }
}

/// Whether a host is this machine, or a socket on it.
fn is_here(host: &str) -> bool {
    matches!(host, "127.0.0.1" | "localhost" | "::1") || host.starts_with('/')
}

fn wrong(what: &str) -> StoreFault {
    let hint = "use  postgres://user@host:5432/database?sslmode=require&sslrootcert=FILE";
    StoreFault::unusable(format!("the URL of the store is wrong: {what}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_whole_name() {
        for here in ["localhost", "127.0.0.1", "::1", "/run/postgresql"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["localhost.example.org", "127.0.0.1.example.org", "db", "::1f"] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn only_this_machine_is_asked_without_tls() {
        for (url, expected) in [
            ("postgres://localhost:5433/db", SslMode::Disable),
            ("postgres://[::1]:5433,127.0.0.1/db", SslMode::Disable),
            ("postgres://localhost/db?sslrootcert=/no/such/file", SslMode::Require),
            ("postgres://localhost,example.org/db", SslMode::Require),
            ("postgres://localhost/db?host=example.org", SslMode::Require),
            ("postgres://localhost.example.org/db", SslMode::Require),
            ("postgres://example.org/db?sslmode=prefer", SslMode::Prefer),
        ] {
            // The file is read last.
            match Settings::of(Address::parse(url).unwrap(), &Surroundings::default()) {
                Ok(settings) => assert_eq!(settings.config.get_ssl_mode(), expected, "{url}"),
                Err(fault) => assert!(fault.why.contains("/no/such/file"), "{url}: {fault}"),
            }
        }
    }
}
