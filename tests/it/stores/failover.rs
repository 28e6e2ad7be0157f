//! Engines whose parts die in the middle: tokens only grow, and every client is told the truth.

use super::{agent_at, record, witness};
use crate::support::{
    World,
    agents::Agent,
    any_git,
    engines::{Engine, Kind, Lives, PASSWORD, redis_says},
    needs::{Need, lacks},
    proxy::Proxy,
    text, wait_until,
};
use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What runs were told, by outcome: branch and exit code.
type Told = Mutex<BTreeMap<String, Vec<String>>>;

fn world() -> World {
    let world = World::bare(&any_git(), &[]);
    witness::watch(&world, "");
    world
}

/// Many runs by several clients at the same time, each of which pushes a branch of its own. `meanwhile` is told how many
/// have begun.
fn many_runs(world: &World, url: &str, clients: usize, each: usize, meanwhile: impl FnOnce(&AtomicUsize)) -> Told {
    let (told, begun) = (Told::default(), AtomicUsize::new(0));
    let agents: Vec<Agent<'_>> = (0..clients).map(|n| agent_at(world, &format!("a{n}"), url)).collect();
    thread::scope(|scope| {
        for agent in &agents {
            let (told, begun) = (&told, &begun);
            scope.spawn(move || {
                for turn in 0..each {
                    begun.fetch_add(1, Ordering::SeqCst);
                    one_run(agent, turn, told);
                }
            });
        }
        meanwhile(&begun);
    });
    told
}

/// A run that pushes one branch. It waits a little for its turn, so that most of them do.
fn one_run(agent: &Agent<'_>, turn: usize, told: &Told) {
    let branch = format!("{}-{turn}", agent.name);
    let ran = agent.run(&[], &format!("git push -q origin HEAD:refs/heads/{branch}")).output().unwrap();
    let outcome = agent.status()["outcome"].as_str().unwrap_or_default().to_owned();
    let code = ran.status.code().unwrap_or(-1);
    let fits = match outcome.as_str() {
        "ran" | "skipped" => [0, 1].contains(&code),
        "unreachable" | "busy" | "unknown" => code == 69,
        "lost" => code == 75,
        _ => false,
    };
    assert!(fits, "{outcome} {code}: {}", text(&ran.stderr));
    let what = if outcome == "ran" { format!("ran {code}") } else { outcome };
    told.lock().unwrap().entry(what).or_default().push(branch);
}

/// What succeeded is there, what was skipped is not, and tokens only grew.
#[track_caller]
fn assert_truth(world: &World, told: &Told, at_least: usize) {
    let told = told.lock().unwrap();
    let is_there = |branch: &String| world.server_ref(&format!("refs/heads/{branch}")).is_some();
    let of = |what: &str| told.get(what).cloned().unwrap_or_default();
    assert!(of("ran 0").iter().all(is_there), "told as landed: {told:?}");
    assert!(!of("skipped").iter().any(is_there), "told as skipped: {told:?}");
    assert!(!of("busy").iter().any(is_there), "told as busy: {told:?}");
    assert!(of("ran 0").len() >= at_least, "{told:?}");
    witness::assert_fenced(world);
}

/// What a node says of itself.
fn status_of(host: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(host).ok()?;
    let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// The number of the leader among the nodes.
fn leader(cluster: &Engine) -> usize {
    let hosts: Vec<&str> = cluster.url.trim_start_matches("etcd://").split(',').collect();
    let mut found = None;
    wait_until("there is a leader", || {
        found = hosts
            .iter()
            .position(|host| status_of(host).is_some_and(|status| status["leader"] == status["header"]["member_id"]));
        found.is_some()
    });
    found.unwrap()
}

fn cluster() -> Engine {
    let cluster = Engine::etcd(3, Lives::InOneTest);
    cluster.wait_until_it_answers();
    cluster
}

#[test]
fn tokens_only_grow_when_the_leader_of_etcd_is_killed() {
    if lacks(&[Need::Etcd]) {
        return;
    }
    let (world, mut cluster) = (world(), cluster());
    let (url, leads) = (cluster.url.clone(), leader(&cluster));
    let told = many_runs(&world, &url, 8, 25, |begun| {
        wait_until("half have begun", || begun.load(Ordering::SeqCst) >= 100);
        cluster.processes.remove(leads).kill();
    });
    assert_truth(&world, &told, 10);
}

#[test]
fn tokens_only_grow_when_the_leader_of_etcd_sleeps_and_wakes_up() {
    if lacks(&[Need::Etcd]) {
        return;
    }
    let (world, cluster) = (world(), cluster());
    let leads = leader(&cluster);
    let told = many_runs(&world, &cluster.url, 4, 12, |begun| {
        wait_until("some have begun", || begun.load(Ordering::SeqCst) >= 16);
        cluster.processes[leads].signal("STOP");
        wait_until("more have begun", || begun.load(Ordering::SeqCst) >= 32);
        cluster.processes[leads].signal("CONT");
    });
    assert_truth(&world, &told, 4);
}

#[test]
fn tokens_only_grow_over_a_restart_of_postgres() {
    if lacks(&[Need::Postgres]) {
        return;
    }
    let (world, mut engine) = (world(), Kind::Postgres.own());
    let url = engine.url.clone();
    let told = many_runs(&world, &url, 4, 12, |begun| {
        wait_until("some have begun", || begun.load(Ordering::SeqCst) >= 20);
        engine.processes.remove(0).kill();
        engine.start_postgres();
    });
    engine.wait_until_it_answers();
    assert_truth(&world, &told, 4);
}

/// Redis with a replica behind one address, as behind a sentinel.
struct Pair {
    primary: Engine,
    replica: Engine,
    address: Proxy,
    world: World,
}

impl Pair {
    fn new() -> Pair {
        let primary = Kind::Redis.own();
        let port = primary.port().to_string();
        let follow = ["--requirepass", PASSWORD, "--masterauth", PASSWORD, "--replicaof", "127.0.0.1", &port];
        let replica = Engine::redis(Lives::InOneTest, &follow);
        wait_until("the replica follows", || redis_says_if_up(&replica, "INFO replication").contains("link_status:up"));
        let address = Proxy::to(primary.port());
        Pair { primary, replica, address, world: world() }
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
    if lacks(&[Need::Redis]) {
        return;
    }
    let mut pair = Pair::new();
    {
        let [old] = pair.agents(["old"]);
        old.ok(&["acquire", "--ttl", "1s"]);
        old.ok(&["push", "origin", "HEAD:old"]);
        old.ok(&["renew"]);
        pair.falls_behind();
        let [new] = pair.agents(["new"]);
        wait_until("it has expired", || new.code(&["acquire", "--skew", "0s", "--ttl", "1h"]).0 == 0);
        for n in 0..3 {
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
        assert!(said.contains("has written with token "), "{said}");
    }
    assert_eq!(new.code(&["push", "origin", "HEAD:new"]).0, 75, "it holds nothing any more");
    assert_eq!(witness::tokens(&pair.world), before);
    // A new grant begins above the mark, however low the counter of the store is.
    let [next] = pair.agents(["next"]);
    let mut token = String::new();
    wait_until("it has expired", || {
        let (code, said) = next.code(&["acquire", "--skew", "0s"]);
        token = said.lines().next().unwrap_or_default().to_owned();
        code == 0
    });
    assert!(token.parse::<u64>().unwrap() > *before.last().unwrap(), "{token} after {before:?}");
    next.ok(&["push", "origin", "HEAD:next"]);
    witness::assert_fenced(&pair.world);
}

/// The counter was lost, and the same number was given twice.
#[test]
fn of_two_holders_of_the_same_number_one_writes() {
    if lacks(&[Need::Redis]) {
        return;
    }
    for first_writes in [true, false] {
        let mut pair = Pair::new();
        // The mark is there, and the record of the store begins anew.
        pair.falls_behind();
        assert_eq!(pair.agents(["one"])[0].ok(&["acquire", "--ttl", "1h"]), "1");
        pair.fails_over();
        assert_eq!(pair.agents(["two"])[0].ok(&["acquire", "--ttl", "1h"]), "1");
        let agent = |name: &str| Agent { world: &pair.world, name: name.to_owned() };
        let (writes, other) = if first_writes { ("one", "two") } else { ("two", "one") };
        assert_eq!(agent(writes).ok(&["push", "origin", "HEAD:a"]), "landed with token 1: refs/heads/a");
        for branch in ["b", "a", "c"] {
            let (code, said) = agent(other).code(&["push", "origin", &format!("+HEAD:refs/heads/{branch}")]);
            assert_eq!(code, 75, "{other}: {said}");
        }
        assert_eq!(witness::tokens(&pair.world), [1]);
        if !first_writes {
            assert_eq!(agent("two").ok(&["push", "origin", "HEAD:d"]), "landed with token 2: refs/heads/d");
        }
        assert!(record(&pair.world, &pair.url())["lease"]["lease"]["owner"].as_str().is_some());
        witness::assert_fenced(&pair.world);
    }
}
