//! What the errors of PostgreSQL and of the connection to it mean.

use crate::tls::TlsTrouble;
use git_fence_core::{StoreFault, text};
use postgres::error::{DbError, Severity, SqlState};
use std::error::Error;

/// The parameters of the URL for authority, certificate and key.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];
const NO_PASSWORD: &str = "check user and password: in the URL, PGPASSWORD or PGPASSFILE";
pub(super) const OTHER_TABLE: &str = "the table git_fence_records is another one than git-fence makes";
pub(super) const OWN_SCHEMA: &str = "use a database or a schema of its own, and make the tables there";

/// Why a statement failed.
pub(super) enum Trouble {
    /// The connection broke: it may have been done.
    May(String),
    /// It was not done.
    Not(StoreFault),
    /// Others were changing the same row.
    Crowded,
}

/// Why there is no connection.
pub(super) fn not_connected(e: &postgres::Error, place: &str) -> StoreFault {
    match TlsTrouble::of(e, FILES) {
        Some(tls) => tls.fault(format!("{place}: {}", causes(e))),
        None => not_done(judge(e, place)),
    }
}

/// What an error of a connection means.
pub(super) fn judge(e: &postgres::Error, place: &str) -> Trouble {
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

pub(super) fn not_done(trouble: Trouble) -> StoreFault {
    match trouble {
        Trouble::Not(fault) => fault,
        Trouble::May(why) => StoreFault::unreachable(why),
        Trouble::Crowded => StoreFault::unreachable("others are changing the same row"),
    }
}
