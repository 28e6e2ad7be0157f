//! Redis and Valkey: one key for each record, and one script that compares and sets it.
//!
//! The script compares the whole body, which has a nonce: a replica that was promoted while behind knows other bodies.

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::TlsFiles,
};
use git_fence_core::{StoreFault, StoreReading, StoreRecord, text};
use git_fence_system::env;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, Script, ServerErrorKind, TlsCertificates,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use std::time::Duration;

const CONNECTING: Duration = Duration::from_secs(5);

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

/// Reading runs on the primary, too: only there scripts may write.
const READ: &str = "
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
    Watched(Box<SentinelClient>),
}

/// Whether a command may have been carried out.
struct Trouble {
    may_be_done: bool,
    fault: StoreFault,
}

type Row = (u8, Option<String>, String, String);

impl Redis {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Redis, StoreFault> {
        let files = TlsFiles::of(&mut address, TlsFiles::default())?;
        let prefix = address.take("prefix").unwrap_or_else(|| "git-fence:".to_owned());
        address.nothing_left("cacert, cert, key, prefix")?;
        let place = address.to_string();
        let wrong = |e: RedisError| {
            StoreFault::unusable(
                format!("the URL of the store is wrong: {}", shown(&e)),
                "use  redis://user:password@host:6379/0",
            )
        };
        let is_tls = matches!(address.scheme.as_str(), "rediss" | "rediss+sentinel");
        let mut login = RedisConnectionInfo::default();
        if let Some(user) = &address.user {
            login = login.set_username(user);
        }
        if let Some(password) = address.password.clone().or_else(|| around.text(env::REDISCLI_AUTH)) {
            login = login.set_password(password);
        }
        let at = |host: &str, port: u16| -> Result<ConnectionInfo, StoreFault> {
            let (host, port) = match host.rsplit_once(':') {
                Some((host, given)) if !given.contains(']') => (host, given.parse().unwrap_or(port)),
                _ => (host, port),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let place = match is_tls {
                true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
                false => ConnectionAddr::Tcp(host, port),
            };
            place.into_connection_info().map_err(wrong)
        };
        let certificates = certificates(&files)?;
        if address.scheme.ends_with("+sentinel") {
            let name = address.path.clone();
            let sentinels = address.hosts.iter().map(|host| at(host, 26379)).collect::<Result<Vec<_>, _>>()?;
            let mut node = SentinelNodeConnectionInfo::default().set_redis_connection_info(login);
            if is_tls {
                node = node.set_tls_mode(redis::TlsMode::Secure);
            }
            let watched = SentinelClient::build(sentinels, name, Some(node), SentinelServerType::Master);
            let server = Server::Watched(Box::new(watched.map_err(wrong)?));
            return Ok(Redis { server, connected: None, place, prefix });
        }
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
        let info = at(host, 6379)?.set_redis_settings(login.set_db(database));
        let client = if is_tls { Client::build_with_tls(info, certificates) } else { Client::open(info) };
        Ok(Redis { server: Server::Alone(Box::new(client.map_err(wrong)?)), connected: None, place, prefix })
    }

    fn connection(&mut self, until: &Deadline) -> Result<&mut Connection, StoreFault> {
        let left = until.time_for_an_attempt()?;
        if self.connected.is_none() {
            let made = match &mut self.server {
                Server::Alone(client) => client.get_connection_with_timeout(left.min(CONNECTING)),
                Server::Watched(client) => client.get_connection(),
            };
            self.connected = Some(made.map_err(|e| judge(&e, &self.place).fault)?);
        }
        let connection = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        let limited = connection.set_read_timeout(Some(left)).and_then(|()| connection.set_write_timeout(Some(left)));
        limited.map_err(|e| judge(&e, &self.place).fault)?;
        Ok(connection)
    }

    fn run(
        &mut self,
        script: &str,
        name: &str,
        values: &[&str],
        until: &Deadline,
    ) -> Result<(bool, StoreReading), Trouble> {
        let key = format!("{}{name}", self.prefix);
        let place = self.place.clone();
        let connection = self.connection(until).map_err(|fault| Trouble { may_be_done: false, fault })?;
        let script = Script::new(script);
        let mut call = script.key(key);
        for value in values {
            call.arg(*value);
        }
        let row: Result<Row, RedisError> = call.invoke(connection);
        match row {
            Ok((won, body, seconds, micros)) => {
                let number = |text: &str| text.parse::<u64>().ok();
                let now_ms = number(&seconds).zip(number(&micros)).map(|(s, us)| s * 1000 + us / 1000);
                let record = body.map(|body| StoreRecord { version: String::new(), body });
                Ok((won == 1, StoreReading { record, now_ms }))
            }
            Err(e) => {
                // After a cut, or on a server that is no longer the primary, the next attempt connects anew.
                self.connected = None;
                Err(judge(&e, &place))
            }
        }
    }
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
    let hint = "check user and password: in the URL or in REDISCLI_AUTH; the user needs  +eval +evalsha +get +set +time  on the keys";
    match (e.kind(), e.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            not(StoreFault::denied(why, hint))
        }
        (_, Some("WRONGTYPE")) => {
            not(StoreFault::unusable(why, "another program uses this key: set another  ?prefix="))
        }
        // A replica, a server that is starting, one without room: it has not done it.
        (ErrorKind::Server(kind), _) if kind != ServerErrorKind::ResponseError => not(StoreFault::unreachable(why)),
        (
            _,
            Some("MISCONF" | "OOM" | "READONLY" | "LOADING" | "MASTERDOWN" | "NOREPLICAS" | "BUSY" | "CLUSTERDOWN"),
        ) => not(StoreFault::unreachable(why)),
        (ErrorKind::InvalidClientConfig, _) => not(StoreFault::unusable(why, "check the URL and the files for TLS")),
        _ if is_certificate(e) => not(StoreFault::unusable(why, "set  ?cacert=FILE  to the file of whoever signed it")),
        _ if e.is_connection_refusal() => not(StoreFault::unreachable(why)),
        (ErrorKind::Io, _) => Trouble { may_be_done: true, fault: StoreFault::unreachable(why) },
        (ErrorKind::MasterNameNotFoundBySentinel, _) => not(StoreFault::unreachable(why)),
        _ => not(StoreFault::unusable(why, "check the URL: is it Redis that answers there?")),
    }
}

fn is_certificate(e: &RedisError) -> bool {
    e.to_string().contains("certificate")
}

fn shown(e: &RedisError) -> String {
    text::one_line(e.to_string().as_bytes(), 200)
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
