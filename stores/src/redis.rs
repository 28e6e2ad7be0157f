//! Redis and Valkey: one key for each record, and one script that compares and sets it.
//!
//! The script compares the whole body, which has a nonce: a replica that was promoted while behind knows other bodies.
//! A user of its own needs no more than this; `store check` also removes its record, with `+del`, and a database other than
//! the first needs `+select`:
//!
//! ```text
//! ACL SETUSER git-fence on >PASSWORD ~git-fence:* +eval +get +set +persist +time
//! ```

mod faults;
mod servers;

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::TlsFiles,
};
use faults::{Trouble, judge};
use git_fence_core::{StoreFault, StoreReading, StoreRecord};
use redis::{Connection, RedisError};
use servers::Servers;
use std::time::Duration;

/// One answer may take this long: then perhaps another server has become the primary.
const ONE_ANSWER: Duration = Duration::from_secs(5);

/// Returns `won`, the body that is in the way, seconds, microseconds. Our own body does not come back: we know it.
const SWAP: &str = "
    local now = redis.call('TIME')
    local is = redis.call('GET', KEYS[1])
    local won = 0
    if (ARGV[1] == 'absent' and not is) or (ARGV[1] == 'present' and is == ARGV[2]) then
        redis.call('SET', KEYS[1], ARGV[3])
        is = false
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
    servers: Servers,
    connected: Option<Connected>,
    place: String,
    prefix: String,
}

/// A connection, and how long it waits for the server.
struct Connected {
    connection: Connection,
    limit: Option<Duration>,
}

type Row = (u8, Option<Vec<u8>>, String, String);

impl Redis {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Redis, StoreFault> {
        let files = TlsFiles::of(&mut address, TlsFiles::default())?;
        let prefix = address.take("prefix").unwrap_or_else(|| "git-fence:".to_owned());
        address.nothing_left("cacert, cert, key, prefix")?;
        let place = address.to_string();
        let servers = Servers::of(&address, &files, around)?;
        Ok(Redis { servers, connected: None, place, prefix })
    }

    fn connection(&mut self, until: &Deadline) -> Result<&mut Connection, StoreFault> {
        if self.connected.is_none() {
            self.connected = Some(Connected { connection: self.servers.connect(until)?, limit: None });
        }
        // Connecting may have taken long: nothing is sent after the deadline.
        let left = until.time_for_an_attempt()?.min(ONE_ANSWER);
        let connected = self.connected.as_mut().ok_or_else(|| StoreFault::unreachable("no connection"))?;
        connected.limit_to(left).map_err(|e| judge(&e, &self.place).fault)?;
        Ok(&mut connected.connection)
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

impl Connected {
    /// It is mostly the same limit, and already set.
    fn limit_to(&mut self, limit: Duration) -> Result<(), RedisError> {
        if self.limit != Some(limit) {
            self.limit = None;
            self.connection.set_read_timeout(Some(limit))?;
            self.connection.set_write_timeout(Some(limit))?;
            self.limit = Some(limit);
        }
        Ok(())
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
