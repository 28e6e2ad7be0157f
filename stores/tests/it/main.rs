//! Journeys with real engines: etcd, PostgreSQL, Redis and a small HTTP server, on loopback, each in a directory of its own.
#![allow(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod authority;
mod engines;
mod failover;
mod faults;
mod firestore;
mod frozen;
mod garbage;
mod helper;
mod lost_answers;
mod no_room;
mod passwords;
mod proxy;
mod sentinel;
mod swaps;
mod tls;
mod users;
mod web_server;
