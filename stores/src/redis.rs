//! Redis and Valkey: one key for each record, and one script that compares and sets it.
//!
//! The script compares the whole body, which has a nonce: a replica that was promoted while behind knows other bodies.
//! A user of its own needs no more than this; `store check` also removes its record, with `+del`, and a database other than
//! the first needs `+select`:
//!
//! ```text
//! ACL SETUSER git-fence on >PASSWORD ~git-fence:* +eval +get +set +persist +time
//! ```

use crate::{
    address::Address,
    deadline::{Deadline, bounded},
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::{FILES, TlsFiles, TlsTrouble},
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReading, StoreRecord, text};
use git_fence_system::env;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, ServerErrorKind, TlsCertificates,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const CONNECTING: Duration = Duration::from_secs(5);
const RIGHTS: &str = "check user and password: in the URL or in REDISCLI_AUTH; \
                      the user needs  ~git-fence:* +eval +get +set +persist +time";

/// Returns what is there after it: `won`, body, seconds, microseconds.
const SWAP: &str = "
    local now = redis.call('TIME')
    local is = redis.call('GET', KEYS[1])
    local won = 0
    if (ARGV[1] == 'absent' and not is) or (ARGV[1] == 'present' and is == ARGV[2]) then
        redis.call('SET', KEYS[1], ARGV[3])
        is = ARGV[3]
        won = 1
    end
    return {won, is, now[1], now[2]}";

/// Records do not expire, so PERSIST changes nothing. But it is a write, which a replica refuses: it may be behind.
const READ: &str = "
    redis.call('PERSIST', KEYS[1])
    local now = redis.call('TIME')
    return {0, redis.call('GET', KEYS[1]), now[1], now[2]}";

/// Redis, alone or behind sentinels.
pub(crate) struct Redis {
    server: Server,
    connected: Option<Connection>,
    place: String,
    prefix: String,
}

enum Server {
    Alone(Box<Client>),
    /// Each sentinel, to be asked in a thread of its own, and which of them answered last.
    Watched(Vec<Arc<Mutex<SentinelClient>>>, usize),
}

/// Whether a command may have been carried out.
struct Trouble {
    may_be_done: bool,
    fault: StoreFault,
}

type Row = (u8, Option<Vec<u8>>, String, String);

impl Redis {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Redis, StoreFault> {
        let files = TlsFiles::of(&mut address, TlsFiles::default())?;
        let prefix = address.take("prefix").unwrap_or_else(|| "git-fence:".to_owned());
        address.nothing_left("cacert, cert, key, prefix")?;
        let password = address.password.clone().or_else(|| around.text(env::REDISCLI_AUTH));
        let certificates = match address.scheme.starts_with("rediss") {
            true => Some(certificates(&files)?),
            false => None,
        };
        let server = match address.scheme.ends_with("+sentinel") {
            true => watched(&address, password.as_deref(), certificates.as_ref())?,
            false => alone(&address, password, certificates)?,
        };
        Ok(Redis { server, connected: None, place: address.to_string(), prefix })
    }

    fn connection(&mut self, until: &Deadline) -> Result<&mut Connection, StoreFault> {
        if self.connected.is_none() {
            self.connected = Some(self.connect(until)?);
        }
        // Connecting may have taken long: nothing is sent after the deadline.
        let left = until.time_for_an_attempt()?;
        let connection = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        let limited = connection.set_read_timeout(Some(left)).and_then(|()| connection.set_write_timeout(Some(left)));
        limited.map_err(|e| judge(&e, &self.place).fault)?;
        Ok(connection)
    }

    fn connect(&mut self, until: &Deadline) -> Result<Connection, StoreFault> {
        let most = until.time_for_an_attempt()?.min(CONNECTING);
        let fault = |e: RedisError| judge(&e, &self.place).fault;
        let (sentinels, current) = match &mut self.server {
            Server::Alone(client) => return client.get_connection_with_timeout(most).map_err(fault),
            Server::Watched(sentinels, current) => (sentinels, current),
        };
        let all = sentinels.len();
        let mut last = StoreFault::unreachable(format!("{} names no sentinel", self.place));
        for turn in 0..all {
            let at = (*current + turn) % all;
            let until = &until.share(u32::try_from(all - turn).unwrap_or(1), CONNECTING);
            let sentinel = sentinels[at].clone();
            // The library waits for a sentinel, and for the primary it names, without a limit.
            match bounded(until, move || primary_of(&sentinel, most)).map(|made| made.map_err(fault)) {
                Some(Ok(connection)) => {
                    *current = at;
                    return Ok(connection);
                }
                Some(Err(fault)) if fault.kind != StoreFaultKind::Unreachable => return Err(fault),
                Some(Err(fault)) => last = fault,
                None => last = StoreFault::unreachable(format!("a sentinel of {} did not answer in time", self.place)),
            }
        }
        Err(last)
    }

    fn run(
        &mut self,
        script: &str,
        name: &str,
        values: &[&str],
        until: &Deadline,
    ) -> Result<(bool, StoreReading), Trouble> {
        let key = format!("{}{name}", self.prefix);
        let connection = self.connection(until).map_err(|fault| Trouble { may_be_done: false, fault })?;
        // Not EVALSHA, which needs the right to load scripts, and after a failover another try.
        let row: Result<Row, RedisError> = redis::cmd("EVAL").arg(script).arg(1).arg(key).arg(values).query(connection);
        match row {
            Ok(row) => reading(row).map_err(|fault| Trouble { may_be_done: false, fault }),
            Err(e) => {
                // After a cut, or on a server that is no longer the primary, the next attempt connects anew.
                self.connected = None;
                Err(judge(&e, &self.place))
            }
        }
    }
}

fn reading((won, body, seconds, micros): Row) -> Result<(bool, StoreReading), StoreFault> {
    let number = |text: &str| text.parse::<u64>().ok();
    let now_ms = number(&seconds).zip(number(&micros)).map(|(s, us)| s * 1000 + us / 1000);
    let body = body.map(String::from_utf8).transpose().map_err(|_| {
        StoreFault::unusable("the record is not text", "another program uses this key: set another  ?prefix=")
    })?;
    let record = body.map(|body| StoreRecord { version: String::new(), body });
    Ok((won == 1, StoreReading { record, now_ms }))
}

fn alone(
    address: &Address,
    password: Option<String>,
    certificates: Option<TlsCertificates>,
) -> Result<Server, StoreFault> {
    let [host] = &address.hosts[..] else {
        let hint = "use  redis://host:6379,  or for sentinels  redis+sentinel://host:26379,host2:26379/NAME";
        return Err(StoreFault::unusable("the URL of the store names several hosts", hint));
    };
    let database = match address.path.as_str() {
        "" => 0,
        path => path
            .parse()
            .map_err(|_| StoreFault::unusable("the database in the URL is not a number", "redis://host/0"))?,
    };
    let mut login = RedisConnectionInfo::default().set_db(database);
    if let Some(user) = &address.user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    let info = place_of(host, 6379, certificates.is_some()).into_connection_info().map_err(|e| wrong(&e))?;
    let info = info.set_redis_settings(login);
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates),
        None => Client::open(info),
    };
    Ok(Server::Alone(Box::new(client.map_err(|e| wrong(&e))?)))
}

fn primary_of(sentinel: &Mutex<SentinelClient>, most: Duration) -> Result<Connection, RedisError> {
    let mut sentinel = sentinel.lock().unwrap_or_else(PoisonError::into_inner);
    sentinel.get_client()?.get_connection_with_timeout(most)
}

fn watched(
    address: &Address,
    password: Option<&str>,
    certificates: Option<&TlsCertificates>,
) -> Result<Server, StoreFault> {
    let sentinel = |host: &String| {
        let place = place_of(host, 26379, certificates.is_some());
        let built = sentinel_at(place, address, password, certificates);
        Ok(Arc::new(Mutex::new(built.map_err(|e| wrong(&e))?)))
    };
    let sentinels: Result<Vec<_>, StoreFault> = address.hosts.iter().map(sentinel).collect();
    Ok(Server::Watched(sentinels?, 0))
}

/// User and password are those of the servers: sentinels are asked without.
fn sentinel_at(
    place: ConnectionAddr,
    address: &Address,
    password: Option<&str>,
    certificates: Option<&TlsCertificates>,
) -> Result<SentinelClient, RedisError> {
    let mut builder = SentinelClientBuilder::new([place], &address.path, SentinelServerType::Master)?;
    if let Some(certificates) = certificates {
        builder = builder.set_client_to_sentinel_certificates(certificates.clone());
        builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        builder = builder.set_client_to_redis_certificates(certificates.clone());
    }
    if let Some(user) = &address.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = password {
        builder = builder.set_client_to_redis_password(password);
    }
    builder.build()
}

fn place_of(host: &str, port: u16, is_tls: bool) -> ConnectionAddr {
    let (host, port) = match host.rsplit_once(':') {
        Some((host, given)) if !given.contains(']') => (host, given.parse().unwrap_or(port)),
        _ => (host, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    match is_tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    }
}

fn wrong(e: &RedisError) -> StoreFault {
    let why = format!("the URL of the store is wrong: {}", shown(e));
    StoreFault::unusable(why, "use  redis://user:password@host:6379/0")
}

impl Engine for Redis {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        self.run(READ, name, &[], until).map(|(_, reading)| reading).map_err(|trouble| trouble.fault)
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        let values = match swap.expected {
            None => ["absent", "", swap.next],
            Some(StoreRecord { body, .. }) => ["present", body, swap.next],
        };
        match self.run(SWAP, swap.name, &values, until) {
            Ok((true, StoreReading { now_ms, .. })) => Ok(SwapAttempt::Won { version: String::new(), now_ms }),
            Ok((false, reading)) => Ok(SwapAttempt::Lost(reading)),
            Err(Trouble { may_be_done: true, fault }) => Ok(SwapAttempt::Unknown { why: fault.why }),
            Err(Trouble { fault, .. }) => Err(fault),
        }
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        let (key, place) = (format!("{}{name}", self.prefix), self.place.clone());
        let removed: Result<(), RedisError> = redis::cmd("DEL").arg(key).query(self.connection(until)?);
        removed.map_err(|e| judge(&e, &place).fault)
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let read = self.read("clock", until);
        vec![(self.place.clone(), read.map(|reading| reading.now_ms))]
    }
}

/// What an error means.
fn judge(e: &RedisError, place: &str) -> Trouble {
    let why = format!("{place} says: {}", shown(e));
    let not = |fault| Trouble { may_be_done: false, fault };
    if let Some(tls) = TlsTrouble::of(e, FILES) {
        return Trouble { may_be_done: !tls.is_handshake, fault: tls.fault(why) };
    }
    match (e.kind(), e.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            not(StoreFault::denied(why, RIGHTS))
        }
        // In a script it is another error.
        (_, Some("ERR")) if is_about_rights(e) => not(StoreFault::denied(why, RIGHTS)),
        (_, Some("WRONGTYPE")) => {
            not(StoreFault::unusable(why, "another program uses this key: set another  ?prefix="))
        }
        (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask), _) => {
            not(StoreFault::unusable(why, "use a server that is not part of a cluster; sentinels may watch it"))
        }
        (_, Some("OOM" | "MISCONF")) => {
            not(StoreFault { hint: "make room in Redis".to_owned(), ..StoreFault::unreachable(why) })
        }
        // A replica, or a server that is starting: it has not done it.
        (ErrorKind::Server(kind), _) if kind != ServerErrorKind::ResponseError => not(StoreFault::unreachable(why)),
        (_, Some("NOREPLICAS" | "BUSY")) => not(StoreFault::unreachable(why)),
        (ErrorKind::InvalidClientConfig, _) => not(StoreFault::unusable(why, "check the URL and the files for TLS")),
        _ if e.is_connection_refusal() => not(StoreFault::unreachable(why)),
        (ErrorKind::Io, _) => Trouble { may_be_done: true, fault: StoreFault::unreachable(why) },
        (ErrorKind::MasterNameNotFoundBySentinel, _) => not(StoreFault::unreachable(why)),
        _ => not(StoreFault::unusable(why, "check the URL: is it Redis that answers there?")),
    }
}

fn is_about_rights(e: &RedisError) -> bool {
    e.detail().is_some_and(|detail| detail.contains("NOPERM") || detail.contains("user executing the script can't"))
}

fn shown(e: &RedisError) -> String {
    match e.is_timeout() {
        true => "it did not answer in time".to_owned(),
        false => text::one_line(e.to_string().as_bytes(), 200),
    }
}

fn certificates(files: &TlsFiles) -> Result<TlsCertificates, StoreFault> {
    let root_cert = files.cacert.as_deref().map(TlsFiles::read).transpose()?;
    let client_tls = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            Some(ClientTlsConfig { client_cert: TlsFiles::read(cert)?, client_key: TlsFiles::read(key)? })
        }
        _ => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}
