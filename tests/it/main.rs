//! Journeys: real git, real repositories, real processes. Each test is named for what must hold,
//! and checks the transcript, the refs and the log.
#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod audit;
mod chaos;
mod clock_ahead;
mod clocks;
mod commands;
mod companion;
mod contention;
mod copies;
mod doctor;
mod faults;
mod history;
mod hostile;
mod install;
mod keeper;
mod killed_git;
mod kinds;
mod lease_client;
mod leases;
mod links;
mod locks;
mod lost_answers;
mod modes;
mod operations;
mod operator_commands;
mod patterns;
mod places;
mod plain_push;
mod pre_push;
mod proofs;
mod push_urls;
mod run;
mod spent;
mod spent_at_once;
mod state;
mod stats;
mod support;
mod time_namespaces;
mod tokens;
mod upgrade;
mod whose_settings;
mod window;
