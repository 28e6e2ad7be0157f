//! Engines whose parts die and come back in the middle: tokens only grow, and every client is told the truth.

use super::{agent_at, in_one_of, only_where, record, witness};
use crate::support::{
    World,
    agents::Agent,
    engines::{Engine, Kind, Lives},
    partition::Network,
    runs::{go, holding},
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
    leader_of(cluster, |_| true)
}

/// The same, among some of them.
fn leader_of(cluster: &Engine, counts: impl Fn(usize) -> bool) -> usize {
    let mut found = None;
    wait_until("there is a leader", || {
        let leads =
            |host: &&str| status_of(host).is_some_and(|status| status["leader"] == status["header"]["member_id"]);
        found = hosts(cluster).into_iter().enumerate().filter(|(n, _)| counts(*n)).find(|(_, host)| leads(host));
        found.is_some()
    });
    found.unwrap().0
}

fn hosts(cluster: &Engine) -> Vec<&str> {
    cluster.url.trim_start_matches("etcd://").split(',').collect()
}

fn cluster() -> Engine {
    let cluster = Engine::etcd(3, Lives::InOneTest);
    cluster.wait_until_it_answers();
    cluster
}

#[test]
fn tokens_only_grow_when_the_leader_of_etcd_is_killed() {
    only_where(in_one_of(&[Kind::Etcd]), |place| {
        let mut cluster = cluster();
        let (url, leads) = (cluster.url.clone(), leader(&cluster));
        let world = place.world_at(&url);
        // A gate asks with each push, and so takes longer.
        let (clients, each) = if place.has_gate() { (4, 12) } else { (8, 25) };
        let told = many_runs(&world, &url, clients, each, |begun| {
            wait_until("half have begun", || begun.load(Ordering::SeqCst) >= clients * each / 2);
            cluster.processes.remove(leads).kill();
        });
        assert_truth(&world, &told, 4);
    });
}

#[test]
fn tokens_only_grow_when_the_leader_of_etcd_sleeps_and_wakes_up() {
    only_where(in_one_of(&[Kind::Etcd]), |place| {
        let cluster = cluster();
        let (world, leads) = (place.world_at(&cluster.url), leader(&cluster));
        let told = many_runs(&world, &cluster.url, 4, 12, |begun| {
            wait_until("some have begun", || begun.load(Ordering::SeqCst) >= 16);
            cluster.processes[leads].signal("STOP");
            wait_until("more have begun", || begun.load(Ordering::SeqCst) >= 32);
            cluster.processes[leads].signal("CONT");
        });
        assert_truth(&world, &told, 4);
    });
}

/// The others elect a new leader, while the old one still answers whoever asks it.
#[test]
fn tokens_only_grow_when_the_leader_of_etcd_is_cut_off() {
    only_where(in_one_of(&[Kind::Etcd]), |place| {
        let network = Network::default();
        let cluster = Engine::etcd_with_peers_at(3, Lives::InOneTest, |port| network.relay(port));
        cluster.wait_until_it_answers();
        let (world, leads) = (place.world_at(&cluster.url), leader(&cluster));
        let told = many_runs(&world, &cluster.url, 4, 12, |begun| {
            let enough = |n| wait_until("enough have begun", || begun.load(Ordering::SeqCst) >= n);
            enough(12);
            let status = status_of(hosts(&cluster)[leads]).unwrap();
            network.cut_off(leads, status["header"]["member_id"].as_str().unwrap().parse().unwrap());
            leader_of(&cluster, |n| n != leads);
            enough(32);
            let left_alone = status_of(hosts(&cluster)[leads]).unwrap();
            assert!(left_alone["leader"].is_null(), "it still has a leader: {left_alone}");
            network.heal();
        });
        assert_truth(&world, &told, 4);
    });
}

#[test]
fn tokens_only_grow_over_a_restart_of_postgres() {
    only_where(in_one_of(&[Kind::Postgres]), |place| {
        let mut engine = Kind::Postgres.own();
        let url = engine.url.clone();
        let world = place.world_at(&url);
        let told = many_runs(&world, &url, 4, 12, |begun| {
            wait_until("some have begun", || begun.load(Ordering::SeqCst) >= 20);
            engine.processes.remove(0).kill();
            engine.start_postgres();
        });
        engine.wait_until_it_answers();
        assert_truth(&world, &told, 4);
    });
}

/// In the middle of one run, which holds its lease before and after.
#[test]
fn run_goes_on_over_a_restart_of_postgres() {
    only_where(in_one_of(&[Kind::Postgres]), |place| {
        let mut engine = Kind::Postgres.own();
        let world = place.world_at(&engine.url);
        let a = agent_at(&world, "a", &engine.url);
        a.ok(&["push", "origin", "HEAD:before"]);
        let pushes = "git push -q origin HEAD:first && git push -q origin HEAD:second";
        let run = holding(&a, &["--ttl", "60s"], pushes);
        engine.processes.remove(0).kill();
        engine.start_postgres();
        engine.wait_until_it_answers();
        go(&world);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert_eq!(witness::tokens(&world), [1, 2, 3]);
        assert_eq!(record(&world, &engine.url)["lease"]["lease"]["state"], "released");
        witness::assert_fenced(&world);
    });
}
