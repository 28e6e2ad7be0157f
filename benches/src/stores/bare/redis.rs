//! Redis: one key, and the script that everybody writes for a compare-and-swap.

use super::{super::engine::Engine, Bare, Outcome, SWAPS};
use redis::Connection;

const SWAP: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 end return 0";

pub(super) struct BareRedis(Connection);

impl BareRedis {
    pub(super) fn at(engine: &Engine) -> Outcome<BareRedis> {
        let mut connection = redis::Client::open(&*engine.url)?.get_connection()?;
        redis::cmd("SET").arg("bare").arg("").exec(&mut connection)?;
        Ok(BareRedis(connection))
    }
}

impl Bare for BareRedis {
    fn cycle(&mut self, bodies: &[String; SWAPS]) -> Outcome<()> {
        let mut now: String = redis::cmd("GET").arg("bare").query(&mut self.0)?;
        for body in bodies {
            let won: bool = redis::cmd("EVAL").arg(SWAP).arg(1).arg("bare").arg(&now).arg(body).query(&mut self.0)?;
            if !won {
                return Err("Redis did not swap".into());
            }
            now.clone_from(body);
        }
        Ok(())
    }
}
