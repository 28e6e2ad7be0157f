//! Engines that accept connections and do not answer, or too late: nothing is told that is not known.

use crate::{
    engines::{Etcd, Kind, wait_until},
    helper::Helper,
    proxy::Proxy,
    swaps::count_up,
};
use git_fence_core::{StoreFaultKind, StoreRecord, StoreReply};
use std::thread;

const REAL: [Kind; 3] = [Kind::Etcd, Kind::Postgres, Kind::Redis];

/// What was sent before may still land: whoever reads and swaps again wins some time.
fn assert_works_again(helper: &mut Helper) -> StoreRecord {
    let mut won = None;
    wait_until("a swap is won", || {
        let now = helper.record("n");
        if let StoreReply::Won { version, .. } = helper.swap("n", now.as_ref(), "three") {
            won = Some(StoreRecord { version, body: "three".to_owned() });
        }
        won.is_some()
    });
    won.unwrap()
}

#[test]
fn engine_that_stops_answering_is_used_again_when_it_goes_on() {
    for kind in REAL {
        let Some(engine) = kind.start() else { continue };
        let mut helper = Helper::at(&engine.url);
        let first = helper.win("n", None, "one");
        engine.freeze(0);
        let swap = helper.swap_within("n", Some(&first), "two", 1000);
        assert!(matches!(swap, StoreReply::Unknown { .. }), "{kind:?}: {swap:?}");
        let read = helper.read_within("n", 500);
        assert!(matches!(&read, Err(fault) if fault.kind == StoreFaultKind::Unreachable), "{kind:?}: {read:?}");
        let mut late = Helper::at(&engine.url);
        let swap = late.swap_within("n", Some(&first), "two by another", 500);
        let is_open = match &swap {
            StoreReply::Failed(fault) => fault.kind == StoreFaultKind::Unreachable,
            other => matches!(other, StoreReply::Unknown { .. }),
        };
        assert!(is_open, "{kind:?}: {swap:?}");
        engine.thaw(0);
        let third = assert_works_again(&mut helper);
        assert_eq!(late.record("n"), Some(third), "{kind:?}");
    }
}

#[test]
fn answer_after_the_deadline_is_not_taken_for_another_one() {
    for kind in REAL {
        let Some(engine) = kind.start() else { continue };
        let proxy = Proxy::to(engine.port());
        let behind = engine.url.replace(&format!(":{}", engine.port()), &format!(":{}", proxy.port));
        let mut helper = Helper::at(&behind);
        let first = helper.win("n", None, "one");
        proxy.hold();
        let swap = helper.swap_within("n", Some(&first), "two", 700);
        assert!(matches!(swap, StoreReply::Unknown { .. }), "{kind:?}: {swap:?}");
        let read = helper.read_within("another", 300);
        assert!(matches!(&read, Err(fault) if fault.kind == StoreFaultKind::Unreachable), "{kind:?}: {read:?}");
        proxy.release();
        assert_eq!(helper.record("another"), None, "{kind:?}");
        let third = assert_works_again(&mut helper);
        assert_eq!(Helper::at(&engine.url).record("n"), Some(third), "{kind:?}");
    }
}

#[test]
fn etcd_keeps_every_swap_when_its_leader_is_killed() {
    let Some(mut engine) = (Etcd { nodes: Some(3), ..Etcd::default() }).start() else { return };
    let url = engine.url.clone();
    let counting = thread::spawn(move || count_up(&url, 8, 25));
    wait_until("the count has begun", || Helper::at(&engine.url).record("counter").is_some());
    engine.kill(engine.leader());
    counting.join().unwrap().assert_truth();
}

#[test]
fn etcd_leader_that_was_cut_off_tells_nothing_false() {
    let Some(engine) = (Etcd { nodes: Some(3), ..Etcd::default() }).start() else { return };
    let url = engine.url.clone();
    let counting = thread::spawn(move || count_up(&url, 8, 25));
    let mut helper = Helper::at(&engine.url);
    wait_until("the count has begun", || helper.record("counter").is_some());
    let leader = engine.leader();
    engine.freeze(leader);
    let before = helper.record("counter");
    wait_until("the others count on", || helper.record("counter") != before);
    engine.thaw(leader);
    counting.join().unwrap().assert_truth();
}
