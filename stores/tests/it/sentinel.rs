//! Redis behind a sentinel: clients follow it to another primary. What the old one had not passed on is lost, which is why
//! nobody builds on a record without comparing it.

use crate::{
    engines::{Sentinels, wait_until},
    helper::Helper,
    swaps::count_up,
};
use std::thread;

#[test]
fn clients_follow_the_sentinel_to_another_primary() {
    let Some(both) = Sentinels::start() else { return };
    let url = both.url.clone();
    let counting = thread::spawn(move || count_up(&url, 4, 25));
    let mut helper = Helper::at(&both.url);
    wait_until("the count has begun", || helper.record("counter").is_some());
    let old = both.primary();
    both.servers[0].freeze(0);
    wait_until("another one is the primary", || both.primary() != old);
    both.servers[0].thaw(0);
    counting.join().unwrap().assert_one_fork_at_most();
    wait_until("the old primary is a replica", || both.servers[0].redis_cli(&["ROLE"]).starts_with("slave"));
    // A helper that asks it directly learns nothing, rather than what may be old.
    assert!(Helper::at(&both.servers[0].url).read_within("counter", 500).is_err());
}

#[test]
fn sentinel_that_does_not_know_the_name_is_unreachable() {
    let Some(both) = Sentinels::start() else { return };
    let (fault, _) = crate::faults::failed_within(&both.url.replace("leases", "others"), &[], 500);
    assert_eq!(fault.kind, git_fence_core::StoreFaultKind::Unreachable, "{fault}");
    assert!(fault.why.contains("others"), "{fault}");
}
