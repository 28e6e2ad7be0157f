//! Which server to connect to: the one in the URL, or the primary that a sentinel names.

use super::faults::{judge, shown};
use crate::{
    address::Address,
    deadline::{Deadline, bounded},
    surroundings::Surroundings,
    tls::TlsFiles,
};
use git_fence_core::{StoreFault, StoreFaultKind};
use git_fence_system::env;
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, RedisError,
    TlsCertificates,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const CONNECTING: Duration = Duration::from_secs(5);

/// Where to connect to.
pub(super) struct Servers {
    server: Server,
    place: String,
}

enum Server {
    Alone(Box<Client>),
    /// Each sentinel, to be asked in a thread of its own, and which of them answered last.
    Watched(Vec<Arc<Mutex<SentinelClient>>>, usize),
}

impl Servers {
    pub(super) fn of(address: &Address, files: &TlsFiles, around: &Surroundings) -> Result<Servers, StoreFault> {
        let password = address.password.clone().or_else(|| around.text(env::REDISCLI_AUTH));
        let certificates = match address.scheme.starts_with("rediss") {
            true => Some(certificates(files)?),
            false => None,
        };
        let server = match address.scheme.ends_with("+sentinel") {
            true => watched(address, password.as_deref(), certificates.as_ref())?,
            false => alone(address, password, certificates)?,
        };
        Ok(Servers { server, place: address.to_string() })
    }

    pub(super) fn connect(&mut self, until: &Deadline) -> Result<Connection, StoreFault> {
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
