//! What an engine's own client does: a read, and as many compare-and-swaps as a lease takes, of bodies as long.

mod etcd;
mod postgres;
mod redis;

pub(super) use etcd::BareEtcd;

use super::{engine::Engine, random};
use crate::{Outcome, options::EngineKind};

/// Acquire, renew and release: a lease is swapped so often.
const SWAPS: usize = 3;

/// Whoever compares and swaps a record of its own, as simply as the engine allows.
pub(super) trait Bare {
    /// Reads the record, and swaps it as often as a lease is.
    fn cycle(&mut self, bodies: &[String; SWAPS]) -> Outcome<()>;
}

/// Connects to the engine.
pub(super) fn connect(engine: &Engine) -> Outcome<Box<dyn Bare>> {
    Ok(match engine.kind {
        EngineKind::Etcd => Box::new(BareEtcd::at(engine)?),
        EngineKind::Postgres => Box::new(postgres::BarePostgres::at(engine)?),
        EngineKind::Redis => Box::new(redis::BareRedis::at(engine)?),
    })
}

/// Bodies like this one, all different: engines compress them, so they must be as hard to compress.
pub(super) fn bodies_like(body: &str) -> [String; SWAPS] {
    std::array::from_fn(|_| {
        let nonce = random::nonce();
        format!("{}{nonce}", body.get(..body.len().saturating_sub(nonce.len())).unwrap_or_default())
    })
}
