//! Engines whose parts die in the middle.

use crate::{
    engines::{Engine, Etcd, Kind, wait_until},
    helper::Helper,
    swaps::count_up,
};
use git_fence_core::{StoreFaultKind, StoreReply};
use std::thread;

#[test]
fn etcd_keeps_every_swap_when_a_node_dies() {
    let Some(mut engine) = Etcd { nodes: Some(3), ..Etcd::default() }.start() else { return };
    let url = engine.url.clone();
    let counting = thread::spawn(move || count_up(&url, 4, 15));
    wait_until("the count has begun", || Helper::at(&engine.url).record("counter").is_some());
    // The first is the leader or not: with two left there is one again.
    engine.kill(0);
    counting.join().unwrap().assert_truth();
}

#[test]
fn etcd_without_a_majority_answers_nobody() {
    let Some(mut engine) = Etcd { nodes: Some(3), ..Etcd::default() }.start() else { return };
    let mut helper = Helper::at(&engine.url);
    let first = helper.win("n", None, "one");
    engine.kill(0);
    engine.kill(0);
    let answer = helper.swap_within("n", Some(&first), "two", 3000);
    let is_open = match &answer {
        StoreReply::Failed(fault) => fault.kind == StoreFaultKind::Unreachable,
        other => matches!(other, StoreReply::Unknown { .. }),
    };
    assert!(is_open, "{answer:?}");
}

#[test]
fn postgres_keeps_every_swap_over_a_restart() {
    let Some(mut engine) = Kind::Postgres.start() else { return };
    let url = engine.url.clone();
    let counting = thread::spawn(move || count_up(&url, 4, 25));
    wait_until("the count has begun", || Helper::at(&engine.url).record("counter").is_some());
    engine.restart(0);
    counting.join().unwrap().assert_truth();
}

#[test]
fn host_of_postgres_that_is_frozen_is_passed_over() {
    let (Some(frozen), Some(engine)) = (Kind::Postgres.start(), Kind::Postgres.start()) else { return };
    frozen.freeze(0);
    let both = format!("@127.0.0.1:{},127.0.0.1:{}/", frozen.port(), engine.port());
    let both = engine.url.replace(&format!("@127.0.0.1:{}/", engine.port()), &both);
    let first = Helper::at(&both).win("n", None, "one");
    assert_eq!(Helper::at(&engine.url).record("n"), Some(first));
    frozen.thaw(0);
}

#[test]
fn postgres_that_takes_no_writes_is_unreachable_until_it_does() {
    let Some(engine) = Kind::Postgres.start() else { return };
    let mut helper = Helper::at(&engine.url);
    let first = helper.win("n", None, "one");
    let read_only = |state: &str| {
        engine.psql(&format!("ALTER SYSTEM SET default_transaction_read_only = {state}"));
        engine.psql("SELECT pg_reload_conf()");
        wait_until("it is so", || engine.psql("SHOW default_transaction_read_only").trim() == state);
    };
    read_only("on");
    wait_until("the helper is told", || {
        let answer = helper.swap_within("other", None, "x", 300);
        matches!(answer, StoreReply::Failed(fault) if fault.kind == StoreFaultKind::Unreachable)
    });
    read_only("off");
    helper.win("n", Some(&first), "two");
}

/// A replica that was behind is promoted: what was written last is gone, and nobody is told that it is still there.
#[test]
fn redis_that_lost_a_record_refuses_what_was_built_on_it() {
    let Some(primary) = Kind::Redis.start() else { return };
    let mut helper = Helper::at(&primary.url);
    let first = helper.win("n", None, "one");
    let port = primary.port().to_string();
    let Some(replica) = Engine::redis(&["--replicaof", "127.0.0.1", &port]) else { return };
    let cli = |args: &[&str]| replica.redis_cli(args);
    wait_until("the replica has the record", || cli(&["GET", "git-fence:n"]) == "one");
    let on_replica = Helper::at(&replica.url).swap_within("n", Some(&first), "two", 500);
    assert!(matches!(on_replica, StoreReply::Failed(_)), "a replica takes no writes: {on_replica:?}");
    assert!(Helper::at(&replica.url).read_within("n", 300).is_err(), "and what it has may be old");
    assert_eq!(cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    // Only the old primary has this one.
    let second = helper.win("n", Some(&first), "two");
    let mut promoted = Helper::at(&replica.url);
    let third = promoted.win("n", Some(&first), "another two");
    let late = promoted.swap("n", Some(&second), "three");
    assert!(matches!(&late, StoreReply::Lost(now) if now.record.as_ref() == Some(&third)), "{late:?}");
}
