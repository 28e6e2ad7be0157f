//! PostgreSQL: one row for each record, and a table of what records have been.
//!
//! The compare-and-swap is one statement that compares version and body: versions fall back when a backup is restored, and
//! a body has a nonce. Only a server that accepts writes is asked, so no replica is read.

mod connection;
mod faults;
mod password_file;
mod settings;

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
};
use connection::Connection;
use faults::{OTHER_TABLE, OWN_SCHEMA, Trouble, judge, not_done};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReading, StoreRecord};
use postgres::{
    Row,
    types::{FromSql, ToSql, Type},
};
use settings::Settings;

const MAY_MAKE: &str = "let somebody make the tables who may, or  GRANT CREATE  on the schema to this user";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS git_fence_records (
        name text PRIMARY KEY,
        version bigint NOT NULL,
        body text NOT NULL,
        changed timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE TABLE IF NOT EXISTS git_fence_history (
        name text NOT NULL,
        version bigint NOT NULL,
        body text NOT NULL,
        changed timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE INDEX IF NOT EXISTS git_fence_history_name ON git_fence_history (name, version)";

const READ: &str = "
    SELECT version, body, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM (SELECT 1) one LEFT JOIN git_fence_records ON name = $1";

const REPLACE: &str = "
    UPDATE git_fence_records SET version = version + 1, body = $2, changed = clock_timestamp()
    WHERE name = $1 AND version = $3 AND body = $4";

const CREATE: &str = "
    INSERT INTO git_fence_records (name, version, body) VALUES ($1, 1, $2) ON CONFLICT (name) DO NOTHING";

/// What is answered of the row that has changed.
const ANSWER: &str = "version, (extract(epoch FROM changed) * 1000)::bigint";

/// One statement that makes the change and answers, and keeps the new row in the history if that is asked for. It is planned
/// each time, since a pooler may run it on any connection; so what keeps nothing, as a heartbeat, has no part that might.
fn statement(change: &str, keep: bool) -> String {
    match keep {
        false => format!("{change} RETURNING {ANSWER}"),
        true => format!(
            "WITH moved AS ({change} RETURNING name, version, body, changed), \
             kept AS (INSERT INTO git_fence_history SELECT name, version, body, changed FROM moved) \
             SELECT {ANSWER} FROM moved"
        ),
    }
}

/// A database of PostgreSQL.
pub(crate) struct Postgres {
    connection: Connection,
    place: String,
}

impl Postgres {
    pub(crate) fn open(address: Address, around: &Surroundings) -> Result<Postgres, StoreFault> {
        let place = address.to_string();
        Ok(Postgres { connection: Connection::new(Settings::of(address, around)?), place })
    }

    /// Runs a statement that returns at most one row, in one round trip: its types are known.
    fn row(
        &mut self,
        statement: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
        until: &Deadline,
    ) -> Result<Option<Row>, Trouble> {
        let client = self.connection.client(until).map_err(Trouble::Not)?;
        let result = client.query_typed_opt(statement, values);
        result.map_err(|e| {
            let trouble = judge(&e, &self.place);
            // The next attempt connects anew, perhaps to another host: this one may have become a replica.
            let is_over = match &trouble {
                Trouble::May(_) => true,
                Trouble::Not(fault) => fault.kind == StoreFaultKind::Unreachable,
                Trouble::Crowded => false,
            };
            if is_over {
                self.connection.leave();
            }
            trouble
        })
    }
}

impl Engine for Postgres {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let row = self.row(READ, &[(&name, Type::TEXT)], until).map_err(not_done)?;
        let row = row.ok_or_else(|| StoreFault::unusable("PostgreSQL answered with no row", "report it"))?;
        let now: i64 = value(&row, 2)?;
        let record = match value::<Option<i64>>(&row, 0)? {
            Some(version) => Some(StoreRecord { version: version.to_string(), body: value(&row, 1)? }),
            None => None,
        };
        Ok(StoreReading { record, now_ms: u64::try_from(now).ok() })
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        let RecordSwap { name, expected, next, keep } = *swap;
        let done = match expected {
            None => self.row(&statement(CREATE, keep), &[(&name, Type::TEXT), (&next, Type::TEXT)], until),
            Some(StoreRecord { version, body }) => {
                let version: i64 = version.parse().map_err(|_| wrong_record("its version is not a number"))?;
                let values: [(&(dyn ToSql + Sync), Type); 4] =
                    [(&name, Type::TEXT), (&next, Type::TEXT), (&version, Type::INT8), (body, Type::TEXT)];
                self.row(&statement(REPLACE, keep), &values, until)
            }
        };
        match done {
            Ok(Some(row)) => {
                let (version, now) = (value::<i64>(&row, 0), value::<i64>(&row, 1));
                // It is done, but no version means that the next swap cannot be.
                let Ok(version) = version else { return Ok(SwapAttempt::Unknown { why: OTHER_TABLE.to_owned() }) };
                let now_ms = now.ok().and_then(|now| u64::try_from(now).ok());
                Ok(SwapAttempt::Won { version: version.to_string(), now_ms })
            }
            Ok(None) | Err(Trouble::Crowded) => Ok(SwapAttempt::Lost(self.read(name, until)?)),
            Err(Trouble::May(why)) => Ok(SwapAttempt::Unknown { why }),
            Err(Trouble::Not(fault)) => Err(fault),
        }
    }

    fn init(&mut self, until: &Deadline) -> Result<Vec<String>, StoreFault> {
        let there =
            "SELECT to_regclass('git_fence_records') IS NOT NULL AND to_regclass('git_fence_history') IS NOT NULL";
        let row = self.row(there, &[], until).map_err(not_done)?;
        if row.is_some_and(|row| row.try_get(0).unwrap_or(false)) {
            return Ok(Vec::new());
        }
        let made = self.connection.client(until)?.batch_execute(TABLES);
        made.map_err(|e| match not_done(judge(&e, &self.place)) {
            denied if denied.kind == StoreFaultKind::Denied => StoreFault { hint: MAY_MAKE.to_owned(), ..denied },
            other => other,
        })?;
        Ok(vec!["the tables git_fence_records and git_fence_history".to_owned()])
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        self.row("DELETE FROM git_fence_records WHERE name = $1", &[(&name, Type::TEXT)], until)
            .map(drop)
            .map_err(not_done)
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let clock = self.row(now, &[], until).map_err(not_done);
        let clock = clock.map(|row| row.and_then(|row| u64::try_from(value::<i64>(&row, 0).ok()?).ok()));
        vec![(self.place.clone(), clock)]
    }
}

/// A column. One of another type is of another table.
fn value<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreFault> {
    row.try_get(column).map_err(|_| StoreFault::unusable(OTHER_TABLE, OWN_SCHEMA))
}

fn wrong_record(why: &str) -> StoreFault {
    StoreFault::unusable(format!("the record cannot be used: {why}"), "report it")
}
