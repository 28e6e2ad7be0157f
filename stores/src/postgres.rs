//! PostgreSQL: one row for each record, and a table of what records have been.
//!
//! The compare-and-swap is one statement that compares version and body: versions fall back when a backup is restored, and
//! a body has a nonce. Only a server that accepts writes is asked, so no replica is read.

use crate::{
    address::Address,
    deadline::{Deadline, bounded},
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::{TlsFiles, TlsTrouble},
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReading, StoreRecord, text};
use git_fence_system::env;
use postgres::{
    Client, Config, Row,
    config::{SslMode, TargetSessionAttrs},
    error::{DbError, Severity, SqlState},
    types::{FromSql, ToSql, Type},
};
use std::{error::Error, fs, time::Duration};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The parameters of the URL for authority, certificate and key.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];
const CONNECTING: Duration = Duration::from_secs(5);
const NO_PASSWORD: &str = "check user and password: in the URL, PGPASSWORD or PGPASSFILE";
const MAY_MAKE: &str = "let somebody make the tables who may, or  GRANT CREATE  on the schema to this user";
const OTHER_TABLE: &str = "the table git_fence_records is another one than git-fence makes";
const OWN_SCHEMA: &str = "use a database or a schema of its own, and make the tables there";

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
    /// All but the host.
    config: Config,
    hosts: Vec<(String, u16)>,
    /// The host that was connected to last.
    current: usize,
    tls: MakeRustlsConnect,
    connected: Option<Connected>,
    place: String,
}

/// A connection, and how long the server lets a statement take on it.
struct Connected {
    client: Client,
    limit: Option<Duration>,
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
        let mut hosts = Vec::new();
        for host in &address.hosts {
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.contains(']') => (name, port.parse().map_err(|_| wrong("its port"))?),
                _ => (host.as_str(), 5432),
            };
            hosts.push((name.trim_start_matches('[').trim_end_matches(']').to_owned(), port));
        }
        for (name, value) in address.rest_of_query() {
            match name {
                "application_name" => drop(config.application_name(value)),
                "options" => drop(config.options(value)),
                "host" => hosts.push((value.to_owned(), 5432)),
                other => return Err(wrong(&format!("the parameter '{other}'"))),
            };
        }
        // On the same machine nobody is in between, and the certificate that Debian makes for it verifies nowhere.
        let is_here = address.hosts.iter().all(|host| is_loopback(host)) && files.is_none();
        config.ssl_mode(match mode.as_deref() {
            None if is_here => SslMode::Disable,
            // With TLS the certificate is always verified, name and all.
            None | Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some(_) => return Err(wrong("'sslmode'")),
        });
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
        Ok(Postgres { config, hosts, current: 0, tls, connected: None, place: address.to_string() })
    }

    /// The connection; a new one if there is none, or if it broke.
    fn client(&mut self, until: &Deadline) -> Result<&mut Client, StoreFault> {
        if self.connected.as_ref().is_none_or(|connected| connected.client.is_closed()) {
            self.connected = None;
            let client = self.connect(until)?;
            self.connected = Some(Connected { client, limit: None });
        }
        // Connecting may have taken long: nothing is sent after the deadline.
        let limit = limit_for(until.time_for_an_attempt()?);
        let connected = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        if let Err(e) = connected.limit_to(limit) {
            self.connected = None;
            return Err(not_done(judge(&e, &self.place)));
        }
        let connected = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        Ok(&mut connected.client)
    }

    /// Connects to the first host that takes writes. One that accepts the connection and then says nothing is left.
    fn connect(&mut self, until: &Deadline) -> Result<Client, StoreFault> {
        let all = self.hosts.len();
        let mut last = StoreFault::unreachable(format!("{} names no host", self.place));
        for turn in 0..all {
            let at = (self.current + turn) % all;
            let until = &until.share(u32::try_from(all - turn).unwrap_or(1), CONNECTING);
            match self.connect_to(at, until) {
                Ok(client) => {
                    self.current = at;
                    return Ok(client);
                }
                Err(fault) if fault.kind == StoreFaultKind::Unreachable => last = fault,
                Err(fault) => return Err(fault),
            }
        }
        Err(last)
    }

    fn connect_to(&self, at: usize, until: &Deadline) -> Result<Client, StoreFault> {
        let left = until.time_for_an_attempt()?;
        let (host, port) = &self.hosts[at];
        let mut config = self.config.clone();
        config.host(host).port(*port).connect_timeout(left).tcp_user_timeout(CONNECTING);
        config.keepalives_idle(Duration::from_secs(30));
        let tls = self.tls.clone();
        match bounded(until, move || config.connect(tls)) {
            Some(connected) => connected.map_err(|e| self.not_connected(&e)),
            None => Err(StoreFault::unreachable(format!("{host}:{port} did not answer in time"))),
        }
    }

    fn not_connected(&self, e: &postgres::Error) -> StoreFault {
        match TlsTrouble::of(e, FILES) {
            Some(tls) => tls.fault(format!("{}: {}", self.place, causes(e))),
            None => not_done(judge(e, &self.place)),
        }
    }

    /// Runs a statement that returns at most one row, in one round trip: its types are known.
    fn row(
        &mut self,
        statement: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
        until: &Deadline,
    ) -> Result<Option<Row>, Trouble> {
        let place = self.place.clone();
        let client = self.client(until).map_err(Trouble::Not)?;
        let result = client.query_typed_opt(statement, values);
        result.map_err(|e| {
            let trouble = judge(&e, &place);
            // The next attempt connects anew, perhaps to another host: this one may have become a replica.
            let is_over = match &trouble {
                Trouble::May(_) => true,
                Trouble::Not(fault) => fault.kind == StoreFaultKind::Unreachable,
                Trouble::Crowded => false,
            };
            if is_over {
                self.connected = None;
            }
            trouble
        })
    }
}

impl Connected {
    /// The server ends what takes longer, and then it was not done. A commit that is not on disk is not one.
    fn limit_to(&mut self, limit: Duration) -> Result<(), postgres::Error> {
        if self.limit == Some(limit) {
            return Ok(());
        }
        self.limit = None;
        self.client.batch_execute(&format!(
            "SET statement_timeout = {}; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            limit.as_millis()
        ))?;
        self.limit = Some(limit);
        Ok(())
    }
}

/// The limit for a statement: whole seconds, so that it is not set anew for each of them.
fn limit_for(left: Duration) -> Duration {
    match left.as_secs() {
        0 | 1 => left,
        seconds => Duration::from_secs(seconds.min(3600)),
    }
}

impl Engine for Postgres {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let row = self.row(READ, &[(&name, Type::TEXT)], until).map_err(not_done)?;
        let row = row.ok_or_else(|| StoreFault::unusable("PostgreSQL answered with no row", "report it"))?;
        let now: i64 = value(&row, 2)?;
        let record = match value::<Option<i64>>(&row, 0)? {
            Some(version) => Some(StoreRecord { version: version.to_string(), body: value(&row, 1)? }),
            None => None,
        };
        Ok(StoreReading { record, now_ms: u64::try_from(now).ok() })
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        let RecordSwap { name, expected, next, keep } = *swap;
        let done = match expected {
            None => self.row(CREATE, &[(&name, Type::TEXT), (&next, Type::TEXT), (&keep, Type::BOOL)], until),
            Some(StoreRecord { version, body }) => {
                let version: i64 = version.parse().map_err(|_| wrong_record("its version is not a number"))?;
                let values: [(&(dyn ToSql + Sync), Type); 5] = [
                    (&name, Type::TEXT),
                    (&next, Type::TEXT),
                    (&keep, Type::BOOL),
                    (&version, Type::INT8),
                    (body, Type::TEXT),
                ];
                self.row(REPLACE, &values, until)
            }
        };
        match done {
            Ok(Some(row)) => {
                let (version, now) = (value::<i64>(&row, 0), value::<i64>(&row, 1));
                // It is done, but no version means that the next swap cannot be.
                let Ok(version) = version else { return Ok(SwapAttempt::Unknown { why: OTHER_TABLE.to_owned() }) };
                let now_ms = now.ok().and_then(|now| u64::try_from(now).ok());
                Ok(SwapAttempt::Won { version: version.to_string(), now_ms })
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
        if row.is_some_and(|row| row.try_get(0).unwrap_or(false)) {
            return Ok(Vec::new());
        }
        let client = self.client(until)?;
        client.batch_execute(TABLES).map_err(|e| match not_done(judge(&e, &place)) {
            denied if denied.kind == StoreFaultKind::Denied => StoreFault { hint: MAY_MAKE.to_owned(), ..denied },
            other => other,
        })?;
        Ok(vec!["the tables git_fence_records and git_fence_history".to_owned()])
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        self.row("DELETE FROM git_fence_records WHERE name = $1", &[(&name, Type::TEXT)], until)
            .map(drop)
            .map_err(not_done)
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let clock = self.row(now, &[], until).map_err(not_done);
        let clock = clock.map(|row| row.and_then(|row| u64::try_from(value::<i64>(&row, 0).ok()?).ok()));
        vec![(self.place.clone(), clock)]
    }
}

/// A column. One of another type is of another table.
fn value<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreFault> {
    row.try_get(column).map_err(|_| StoreFault::unusable(OTHER_TABLE, OWN_SCHEMA))
}

/// What an error means.
fn judge(e: &postgres::Error, place: &str) -> Trouble {
    let Some(said) = e.as_db_error() else {
        let why = format!("{place}: {}", causes(e));
        return judge_broken(e, why);
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
        "28" if said.message().contains("certificate") => {
            let hint = "set  sslcert=FILE&sslkey=FILE  in the URL to a certificate that the server accepts";
            Trouble::Not(StoreFault::denied(why, hint))
        }
        "28" if said.message().contains("no encryption") => {
            Trouble::Not(StoreFault::denied(why, "set  sslmode=require  in the URL, or let this user in"))
        }
        "28" => Trouble::Not(StoreFault::denied(why, NO_PASSWORD)),
        _ if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
            let hint = "let only git-fence write the table git_fence_records, in a database whose encoding is UTF8";
            Trouble::Not(StoreFault::unusable(format!("the record is not text: {why}"), hint))
        }
        _ if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Trouble::May(why),
        // The connection ends with it, and perhaps only after a commit.
        "57" | "53" | "58" if said.parsed_severity() != Some(Severity::Error) => Trouble::May(why),
        _ if *code == SqlState::DISK_FULL => {
            let hint = "make room on the disk of PostgreSQL".to_owned();
            Trouble::Not(StoreFault { hint, ..StoreFault::unreachable(why) })
        }
        // It rolls back what it was doing. A server that takes no writes has become a replica.
        "57" | "53" | "58" | "25" => Trouble::Not(StoreFault::unreachable(why)),
        _ => Trouble::Not(StoreFault::unusable(
            why,
            "check the database and its tables git_fence_records and git_fence_history",
        )),
    }
}

/// What an error means that is not one of the server's words.
fn judge_broken(e: &postgres::Error, why: String) -> Trouble {
    if let Some(tls) = TlsTrouble::of(e, FILES).filter(|tls| tls.is_handshake) {
        return Trouble::Not(tls.fault(why));
    }
    if why.contains("password missing") {
        return Trouble::Not(StoreFault::denied(why, NO_PASSWORD));
    }
    if why.contains("does not support TLS") {
        let hint = "set  ssl = on  for the server, or  sslmode=disable  in the URL where nobody is in between";
        return Trouble::Not(StoreFault::unusable(why, hint));
    }
    // Sent with another type than that of the column, so not sent.
    if why.contains("error serializing") {
        return Trouble::Not(StoreFault::unusable(OTHER_TABLE, OWN_SCHEMA));
    }
    Trouble::May(why)
}

/// The class of an error.
fn kind_of(said: &DbError) -> &str {
    said.code().code().get(..2).unwrap_or_default()
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

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|here| host.strip_prefix(here).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')))
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
    fn this_machine_is_known_by_its_whole_name() {
        for here in ["localhost", "localhost:5433", "127.0.0.1", "[::1]:5432", "[::1]"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["localhost.example.org", "127.0.0.1.example.org:5432", "db", "[::1f]"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn line_of_a_password_file_has_five_fields() {
        let five = |line: &str| fields_of(line).map(|fields| fields[4].clone());
        assert_eq!(five("h:5432:db:me:se:cret").as_deref(), Some("se:cret"));
        assert_eq!(five(r"h:5432:db:me:a\:b\\c").as_deref(), Some(r"a:b\c"));
        assert_eq!(five("# h:5432:db:me:x"), None);
        assert_eq!(five("h:5432:db:me"), None);
    }
}
