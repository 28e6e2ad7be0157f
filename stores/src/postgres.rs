//! PostgreSQL: one row for each record, and a table of what records have been.
//!
//! The compare-and-swap is one statement that compares version and body: versions fall back when a backup is restored, and
//! a body has a nonce. Only a server that accepts writes is asked, so no replica is read.

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::TlsFiles,
};
use git_fence_core::{StoreFault, StoreReading, StoreRecord, text};
use git_fence_system::env;
use postgres::{
    Client, Config,
    config::{SslMode, TargetSessionAttrs},
    error::{DbError, SqlState},
    types::ToSql,
};
use std::{error::Error, fs, time::Duration};
use tokio_postgres_rustls::MakeRustlsConnect;

const CONNECTING: Duration = Duration::from_secs(5);
const NO_PASSWORD: &str = "check user and password: in the URL, PGPASSWORD or PGPASSFILE";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS git_fence_records (
        name text PRIMARY KEY,
        version bigint NOT NULL,
        body text NOT NULL,
        changed timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE TABLE IF NOT EXISTS git_fence_history (
        name text NOT NULL,
        version bigint NOT NULL,
        body text NOT NULL,
        changed timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE INDEX IF NOT EXISTS git_fence_history_name ON git_fence_history (name, version)";

const READ: &str = "
    SELECT version, body, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM (SELECT 1) one LEFT JOIN git_fence_records ON name = $1";

const REPLACE: &str = "
    WITH moved AS (
        UPDATE git_fence_records SET version = version + 1, body = $2, changed = clock_timestamp()
        WHERE name = $1 AND version = $4 AND body = $5 RETURNING name, version, body, changed),
    kept AS (INSERT INTO git_fence_history SELECT name, version, body, changed FROM moved WHERE $3)
    SELECT version, (extract(epoch FROM changed) * 1000)::bigint FROM moved";

const CREATE: &str = "
    WITH moved AS (
        INSERT INTO git_fence_records (name, version, body) VALUES ($1, 1, $2)
        ON CONFLICT (name) DO NOTHING RETURNING name, version, body, changed),
    kept AS (INSERT INTO git_fence_history SELECT name, version, body, changed FROM moved WHERE $3)
    SELECT version, (extract(epoch FROM changed) * 1000)::bigint FROM moved";

/// A database of PostgreSQL.
pub(crate) struct Postgres {
    config: Config,
    tls: MakeRustlsConnect,
    connected: Option<Client>,
    place: String,
}

/// Why a statement failed.
enum Trouble {
    /// The connection broke: it may have been done.
    May(String),
    /// It was not done.
    Not(StoreFault),
    /// Others were changing the same row.
    Crowded,
}

impl Postgres {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Postgres, StoreFault> {
        let mut files = TlsFiles {
            cacert: address.take("sslrootcert").or_else(|| around.text(env::PGSSLROOTCERT)),
            cert: address.take("sslcert").or_else(|| around.text(env::PGSSLCERT)),
            key: address.take("sslkey").or_else(|| around.text(env::PGSSLKEY)),
        };
        files = TlsFiles::of(&mut address, files)?;
        let mode = address.take("sslmode").or_else(|| around.text(env::PGSSLMODE));
        let mut config = Config::new();
        for host in &address.hosts {
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.contains(']') => (name, port.parse().map_err(|_| wrong("its port"))?),
                _ => (host.as_str(), 5432),
            };
            config.host(name.trim_start_matches('[').trim_end_matches(']')).port(port);
        }
        for (name, value) in address.rest_of_query() {
            match name {
                "application_name" => config.application_name(value),
                "options" => config.options(value),
                "host" => config.host(value),
                other => return Err(wrong(&format!("the parameter '{other}'"))),
            };
        }
        config.ssl_mode(match mode.as_deref() {
            // With TLS the certificate is always verified, name and all.
            None | Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some(_) => return Err(wrong("'sslmode'")),
        });
        // On the same machine nobody is in between.
        let is_here = address.hosts.iter().all(|host| is_loopback(host));
        if mode.is_none() && is_here {
            config.ssl_mode(SslMode::Prefer);
        }
        let user = address.user.clone().or_else(|| around.text(env::PGUSER));
        let user = user.unwrap_or_else(git_fence_system::user::own_name);
        let database = if address.path.is_empty() { user.clone() } else { address.path.clone() };
        let password = address.password.clone().or_else(|| around.text(env::PGPASSWORD));
        let password = password.or_else(|| of_password_file(around, &address, &user, &database));
        if let Some(password) = password {
            config.password(password);
        }
        config.user(&user).dbname(&database).target_session_attrs(TargetSessionAttrs::ReadWrite);
        let tls = MakeRustlsConnect::new(files.client_config()?);
        Ok(Postgres { config, tls, connected: None, place: address.to_string() })
    }

    /// The connection; a new one if there is none, or if it broke. Everything on it takes no longer than what is left.
    fn client(&mut self, until: &Deadline) -> Result<&mut Client, StoreFault> {
        let left = until.time_for_an_attempt()?;
        if self.connected.as_ref().is_none_or(Client::is_closed) {
            self.connected = None;
            let mut config = self.config.clone();
            config.connect_timeout(left.min(CONNECTING)).tcp_user_timeout(left.max(CONNECTING));
            config.keepalives_idle(Duration::from_secs(30));
            let client = config.connect(self.tls.clone()).map_err(|e| not_done(self.trouble(&e)))?;
            self.connected = Some(client);
        }
        let place = self.place.clone();
        let client = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        // The server ends what takes longer, and then it was not done. A commit that is not on disk is not one.
        let milliseconds = left.as_millis().clamp(1, 3_600_000);
        let limits = format!(
            "SET statement_timeout = {milliseconds}; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        );
        let limited = client.batch_execute(&limits);
        if let Err(e) = limited {
            self.connected = None;
            return Err(not_done(judge(&e, &place)));
        }
        self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))
    }

    fn trouble(&self, e: &postgres::Error) -> Trouble {
        judge(e, &self.place)
    }

    /// Runs a statement that returns at most one row.
    fn row(
        &mut self,
        statement: &str,
        values: &[&(dyn ToSql + Sync)],
        until: &Deadline,
    ) -> Result<Option<postgres::Row>, Trouble> {
        let place = self.place.clone();
        let client = self.client(until).map_err(Trouble::Not)?;
        let result = client.query_opt(statement, values);
        result.map_err(|e| {
            let trouble = judge(&e, &place);
            if matches!(trouble, Trouble::May(_)) {
                self.connected = None;
            }
            trouble
        })
    }
}

impl Engine for Postgres {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let row = self.row(READ, &[&name], until).map_err(not_done)?;
        let row = row.ok_or_else(|| StoreFault::unusable("PostgreSQL answered with no row", "report it"))?;
        let now: i64 = row.get(2);
        let version: Option<i64> = row.get(0);
        let record = version.map(|version| StoreRecord { version: version.to_string(), body: row.get(1) });
        Ok(StoreReading { record, now_ms: u64::try_from(now).ok() })
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        let RecordSwap { name, expected, next, keep } = *swap;
        let done = match expected {
            None => self.row(CREATE, &[&name, &next, &keep], until),
            Some(StoreRecord { version, body }) => {
                let version: i64 = version.parse().map_err(|_| wrong_record("its version is not a number"))?;
                self.row(REPLACE, &[&name, &next, &keep, &version, body], until)
            }
        };
        match done {
            Ok(Some(row)) => {
                let (version, now): (i64, i64) = (row.get(0), row.get(1));
                Ok(SwapAttempt::Won { version: version.to_string(), now_ms: u64::try_from(now).ok() })
            }
            Ok(None) | Err(Trouble::Crowded) => Ok(SwapAttempt::Lost(self.read(name, until)?)),
            Err(Trouble::May(why)) => Ok(SwapAttempt::Unknown { why }),
            Err(Trouble::Not(fault)) => Err(fault),
        }
    }

    fn init(&mut self, until: &Deadline) -> Result<Vec<String>, StoreFault> {
        let place = self.place.clone();
        let there =
            "SELECT to_regclass('git_fence_records') IS NOT NULL AND to_regclass('git_fence_history') IS NOT NULL";
        let row = self.row(there, &[], until).map_err(not_done)?;
        if row.is_some_and(|row| row.get(0)) {
            return Ok(Vec::new());
        }
        let client = self.client(until)?;
        client.batch_execute(TABLES).map_err(|e| not_done(judge(&e, &place)))?;
        Ok(vec!["the tables git_fence_records and git_fence_history".to_owned()])
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        self.row("DELETE FROM git_fence_records WHERE name = $1", &[&name], until).map(drop).map_err(not_done)
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let clock = self.row(now, &[], until).map_err(not_done);
        let clock = clock.map(|row| row.and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()));
        vec![(self.place.clone(), clock)]
    }
}

/// What an error means.
fn judge(e: &postgres::Error, place: &str) -> Trouble {
    let Some(said) = e.as_db_error() else {
        let why = format!("{place}: {}", causes(e));
        let is_tls = causes(e).contains("certificate");
        if causes(e).contains("password missing") {
            return Trouble::Not(StoreFault::denied(why, NO_PASSWORD));
        }
        return match (is_tls, e.is_closed() || is_of_the_network(e)) {
            (true, _) => Trouble::Not(StoreFault::unusable(why, "set sslrootcert to the file of whoever signed it")),
            (false, true) => Trouble::May(why),
            (false, false) => Trouble::Not(StoreFault::unreachable(why)),
        };
    };
    let why = format!("{place} says: {}", text::one_line(said.message().as_bytes(), 200));
    let code = said.code();
    match kind_of(said) {
        _ if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => Trouble::Crowded,
        _ if *code == SqlState::UNDEFINED_TABLE => {
            Trouble::Not(StoreFault::unusable(why, "make its tables first: git_fence_records and git_fence_history"))
        }
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            let hint = "let this user select, insert and update git_fence_records and insert into git_fence_history";
            Trouble::Not(StoreFault::denied(why, hint))
        }
        "28" => Trouble::Not(StoreFault::denied(why, NO_PASSWORD)),
        // The database ends, or has no room: it rolls back what it was doing.
        "57" | "53" | "58" => Trouble::Not(StoreFault::unreachable(why)),
        _ => Trouble::Not(StoreFault::unusable(
            why,
            "check the database and its tables git_fence_records and git_fence_history",
        )),
    }
}

/// The class of an error.
fn kind_of(said: &DbError) -> &str {
    said.code().code().get(..2).unwrap_or_default()
}

fn is_of_the_network(e: &postgres::Error) -> bool {
    let mut next = e.source();
    while let Some(cause) = next {
        if cause.is::<std::io::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}

fn causes(e: &postgres::Error) -> String {
    let all = std::iter::successors(Some(e as &dyn Error), |e| (*e).source());
    text::one_line(all.map(ToString::to_string).collect::<Vec<_>>().join(": ").as_bytes(), 200)
}

fn not_done(trouble: Trouble) -> StoreFault {
    match trouble {
        Trouble::Not(fault) => fault,
        Trouble::May(why) => StoreFault::unreachable(why),
        Trouble::Crowded => StoreFault::unreachable("others are changing the same row"),
    }
}

fn wrong(what: &str) -> StoreFault {
    let hint = "use  postgres://user@host:5432/database?sslmode=require&sslrootcert=FILE";
    StoreFault::unusable(format!("the URL of the store is wrong: {what}"), hint)
}

fn wrong_record(why: &str) -> StoreFault {
    StoreFault::unusable(format!("the record cannot be used: {why}"), "report it")
}

fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|here| host.split(':').next() == Some(here) || host.starts_with(here))
}

/// The password in the file that every client of PostgreSQL reads: `host:port:database:user:password` in each line.
fn of_password_file(around: &Surroundings, address: &Address, user: &str, database: &str) -> Option<String> {
    let file = around.text(env::PGPASSFILE).or_else(|| Some(around.text(env::HOME)? + "/.pgpass"))?;
    let lines = fs::read_to_string(file).ok()?;
    let host = address.hosts.first()?;
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
    lines.lines().find_map(|line| {
        let fields = fields_of(line)?;
        let fits = [host, port, database, user].iter().zip(&fields).all(|(have, field)| field == "*" || field == have);
        fits.then(|| fields[4].clone())
    })
}

/// The five fields of a line, in which a backslash stands before a colon or a backslash that is meant.
fn fields_of(line: &str) -> Option<[String; 5]> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => fields.last_mut()?.extend(letters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    (!line.starts_with('#')).then_some(fields)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_password_file_has_five_fields() {
        let five = |line: &str| fields_of(line).map(|fields| fields[4].clone());
        assert_eq!(five("h:5432:db:me:se:cret").as_deref(), Some("se:cret"));
        assert_eq!(five(r"h:5432:db:me:a\:b\\c").as_deref(), Some(r"a:b\c"));
        assert_eq!(five("# h:5432:db:me:x"), None);
        assert_eq!(five("h:5432:db:me"), None);
    }
}
