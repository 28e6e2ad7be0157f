//! Where leases can be kept besides the remote: engines that teams already run.
//!
//! An engine reads a record and compare-and-swaps it, and nothing else: the rules of leases are in `git-fence-core`, once.
//! Every record has a nonce, so an engine compares bodies and not only its own versions, which some of them use again after
//! a restored backup or a failover. A store without a compare-and-swap or with stale reads is not offered.
//!
//! The network code is in its own program, `git-fence-store`, so that the hook and the client stay small: they talk to it
//! over a pipe ([`serve`]), with the lines of [`git_fence_core::StoreRequest`]. A connection stays open as long as the pipe.
//!
//! Called by that program alone. To add an engine, write a file with an [`Engine`] and add a line to
//! [`open`].

mod address;
#[cfg(any(feature = "firestore", feature = "http"))]
mod bearer;
mod deadline;
pub mod engine;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "firestore")]
mod firestore;
#[cfg(feature = "http")]
mod http;
mod limits;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod retrying;
mod serve;
mod surroundings;
mod tls;
mod trial;
#[cfg(any(feature = "etcd", feature = "firestore", feature = "http"))]
mod web;

pub use deadline::Deadline;
pub use serve::serve;
pub use surroundings::Surroundings;

use address::Address;
use engine::Engine;
use git_fence_core::StoreFault;
use git_fence_system::Environment;
use std::{io, process::ExitCode};

/// The engine for a URL. Nothing is connected yet.
pub fn open(url: &str, around: &Surroundings) -> Result<Box<dyn Engine + Send>, StoreFault> {
    let address = Address::parse(url)?;
    Ok(match address.scheme.as_str() {
        #[cfg(feature = "etcd")]
        "etcd" | "etcd+http" | "etcd+https" => Box::new(etcd::Etcd::open(address, around)?),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Box::new(postgres::Postgres::open(address, around)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" => Box::new(redis::Redis::open(address, around)?),
        #[cfg(feature = "firestore")]
        "firestore" => Box::new(firestore::Firestore::open(&address, around)?),
        #[cfg(feature = "http")]
        "http" | "https" => Box::new(http::Http::open(address, around)?),
        other => {
            let hint = "git-fence keeps leases in etcd (etcd+https://…), PostgreSQL (postgres://…), Redis (redis://…), \
                        Firestore (firestore://…) or an HTTP service (https://…)";
            return Err(StoreFault::unusable(format!("there is no store for '{other}://'"), hint));
        }
    })
}

/// The program `git-fence-store`.
pub fn main() -> ExitCode {
    // One implementation of cryptography for all engines. It fails only if it was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let around = Surroundings::of(Environment::read());
    match serve(io::stdin().lock(), io::stdout().lock(), &around) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever started it has gone.
        Err(_) => ExitCode::FAILURE,
    }
}
