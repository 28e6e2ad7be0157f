//! A store that has lost its memory in a failover: whom it has forgotten, and whom it remembers, may not both write.

use super::{Place, agent_at, in_one_of, only_where, record, witness};
use crate::support::{
    World,
    agents::Agent,
    engines::{Engine, Kind, Lives, PASSWORD, redis_says},
    proxy::Proxy,
    wait_until,
};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Redis with a replica behind one address, as behind a sentinel.
struct Pair {
    primary: Engine,
    replica: Engine,
    address: Proxy,
    world: World,
}

impl Pair {
    fn new(place: Place) -> Pair {
        let primary = Kind::Redis.own();
        let port = primary.port().to_string();
        let follow = ["--requirepass", PASSWORD, "--masterauth", PASSWORD, "--replicaof", "127.0.0.1", &port];
        let replica = Engine::redis(Lives::InOneTest, &follow);
        wait_until("the replica follows", || redis_says_if_up(&replica, "INFO replication").contains("link_status:up"));
        let address = Proxy::to(primary.port());
        let world = place.world_at(&primary.url_at(address.port()));
        Pair { primary, replica, address, world }
    }

    fn url(&self) -> String {
        self.primary.url_at(self.address.port())
    }

    fn agents<const N: usize>(&self, names: [&str; N]) -> [Agent<'_>; N] {
        names.map(|name| agent_at(&self.world, name, &self.url()))
    }

    /// From now on the replica gets nothing more. It has what the primary has.
    fn falls_behind(&self) {
        redis_says(&self.primary, "SET marker 1");
        wait_until("the replica has all", || redis_says(&self.replica, "GET marker") == "1");
        assert_eq!(redis_says(&self.replica, "REPLICAOF NO ONE"), "+OK");
    }

    /// Everybody is sent to what was the replica. The primary is gone.
    fn fails_over(&mut self) {
        self.address.lead_to(self.replica.port());
        self.primary.processes.remove(0).kill();
    }
}

/// The whole answer, of a Redis that may not be up yet.
fn redis_says_if_up(engine: &Engine, command: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", engine.port())) else { return String::new() };
    let asked = write!(stream, "AUTH {PASSWORD}\r\n{command}\r\nQUIT\r\n");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    if asked.is_ok() && read.is_ok() { answer } else { String::new() }
}

#[test]
fn old_holder_that_a_failover_made_current_again_writes_nothing() {
    only_where(in_one_of(&[Kind::Redis]), |place| {
        let mut pair = Pair::new(place);
        {
            let [old] = pair.agents(["old"]);
            old.ok(&["acquire", "--ttl", "1s"]);
            old.ok(&["push", "origin", "HEAD:old"]);
            old.ok(&["renew"]);
            pair.falls_behind();
            let [new] = pair.agents(["new"]);
            wait_until("it has expired", || new.code(&["acquire", "--skew", "0s", "--ttl", "1h"]).0 == 0);
            // More than the old holder will try: the store must not catch up with the mark.
            for n in 0..8 {
                new.ok(&["push", "origin", &format!("HEAD:refs/heads/new{n}")]);
            }
        }
        pair.fails_over();
        let agent = |name: &str| Agent { world: &pair.world, name: name.to_owned() };
        let (old, new) = (agent("old"), agent("new"));
        assert_eq!(old.ok(&["renew"]), "renewed for 1s", "the store has forgotten its successor");
        let before = witness::tokens(&pair.world);
        for branch in ["late", "later", "latest", "old"] {
            let (code, said) = old.code(&["push", "origin", &format!("+HEAD:refs/heads/{branch}")]);
            assert_eq!(code, 75, "{branch}: {said}");
            assert!(said.contains("has moved its mark since, to token "), "{said}");
        }
        assert_eq!(new.code(&["push", "origin", "HEAD:new"]).0, 75, "it holds nothing any more");
        assert_eq!(witness::tokens(&pair.world), before);
        // A new grant begins above the mark, however low the counter of the store is.
        old.ok(&["release"]);
        let [next] = pair.agents(["next"]);
        let token: u64 = next.ok(&["acquire"]).parse().unwrap();
        assert!(token > *before.last().unwrap(), "{token} after {before:?}");
        next.ok(&["push", "origin", "HEAD:next"]);
        witness::assert_fenced(&pair.world);
    });
}

/// The counter was lost, and the same number was given twice.
#[test]
fn of_two_holders_of_the_same_number_one_writes() {
    only_where(in_one_of(&[Kind::Redis]), |place| {
        for first_writes in [true, false] {
            let mut pair = Pair::new(place);
            // The mark is there, and the record of the store begins anew.
            pair.falls_behind();
            assert_eq!(pair.agents(["one"])[0].ok(&["acquire", "--ttl", "1h"]), "1");
            pair.fails_over();
            assert_eq!(pair.agents(["two"])[0].ok(&["acquire", "--ttl", "1h"]), "1");
            let agent = |name: &str| Agent { world: &pair.world, name: name.to_owned() };
            // A gate asks the store, which knows nothing of the first one.
            let first_writes = first_writes && !place.has_gate();
            let (writes, other) = if first_writes { ("one", "two") } else { ("two", "one") };
            if place.has_gate() {
                assert_eq!(agent(other).code(&["push", "origin", "HEAD:early"]).0, 75);
            }
            assert_eq!(agent(writes).ok(&["push", "origin", "HEAD:a"]), "landed with token 1: refs/heads/a");
            for branch in ["b", "a", "c"] {
                let (code, said) = agent(other).code(&["push", "origin", &format!("+HEAD:refs/heads/{branch}")]);
                assert_eq!(code, 75, "{other}: {said}");
            }
            assert_eq!(witness::tokens(&pair.world), [1]);
            if !first_writes {
                assert_eq!(agent("two").ok(&["push", "origin", "HEAD:d"]), "landed with token 2: refs/heads/d");
            }
            assert_eq!(record(&pair.world, &pair.url())["lease"]["lease"]["state"], "held");
            witness::assert_fenced(&pair.world);
        }
    });
}
