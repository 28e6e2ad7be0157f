//! PostgreSQL: one row, and prepared statements.

use super::{super::engine::Engine, Bare, Outcome, SWAPS};
use postgres::{Client, NoTls, Statement};

pub(super) struct BarePostgres {
    client: Client,
    read: Statement,
    replace: Statement,
}

impl BarePostgres {
    pub(super) fn at(engine: &Engine) -> Outcome<BarePostgres> {
        let mut client = Client::connect(&engine.url, NoTls)?;
        client.batch_execute(
            "CREATE TABLE bare (name text PRIMARY KEY, version bigint NOT NULL, body text NOT NULL); \
             INSERT INTO bare VALUES ('bare', 1, '')",
        )?;
        let read = client.prepare("SELECT version, body FROM bare WHERE name = $1")?;
        let replace =
            client.prepare("UPDATE bare SET version = version + 1, body = $2 WHERE name = $1 AND version = $3")?;
        Ok(BarePostgres { client, read, replace })
    }
}

impl Bare for BarePostgres {
    fn cycle(&mut self, bodies: &[String; SWAPS]) -> Outcome<()> {
        let row = self.client.query_one(&self.read, &[&"bare"])?;
        let first: i64 = row.get(0);
        for (version, body) in (first..).zip(bodies) {
            if self.client.execute(&self.replace, &[&"bare", body, &version])? != 1 {
                return Err("PostgreSQL did not swap".into());
            }
        }
        Ok(())
    }
}
