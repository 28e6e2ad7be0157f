//! Redis behind a sentinel: clients follow it to another primary. What the old one had not passed on is lost, which is why
//! nobody builds on a record without comparing it.

use crate::{
    authority::Authority,
    engines::{Engine, Sentinels, wait_until},
    faults::failed_within,
    helper::{Helper, WITHIN_MS},
    swaps::count_up,
};
use git_fence_core::StoreFaultKind;
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
fn sentinel_that_is_frozen_is_passed_over() {
    let Some(primary) = Engine::redis(&[]) else { return };
    let (Some(frozen), Some(sentinel)) = (Engine::sentinel(&primary, ""), Engine::sentinel(&primary, "")) else {
        return;
    };
    frozen.freeze(0);
    let both = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/leases", frozen.port(), sentinel.port());
    let first = Helper::at(&both).win("n", None, "one");
    assert_eq!(Helper::at(&primary.url).record("n"), Some(first));
    frozen.thaw(0);
}

#[test]
fn sentinel_that_does_not_know_the_name_is_unreachable() {
    let Some(both) = Sentinels::start() else { return };
    let (fault, _) = failed_within(&both.url.replace("leases", "others"), &[], 500);
    assert_eq!(fault.kind, StoreFaultKind::Unreachable, "{fault}");
    assert!(fault.why.contains("others"), "{fault}");
}

/// Its connections to sentinel and server are both verified.
#[test]
fn sentinel_and_its_servers_speak_tls() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    let (own, file) = (authority.server(), authority.file());
    let Some(primary) = Engine::redis_with_tls(&own, file, true) else { return };
    let settings = format!(
        "tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no\ntls-replication yes\n",
        own.cert.display(),
        own.key.display(),
        file.display()
    );
    let Some(sentinel) = Engine::sentinel(&primary, &settings) else { return };
    let client = authority.client();
    let own_files = format!("cert={}&key={}", client.cert.display(), client.key.display());
    let mut helper = Helper::at(&format!("{}?cacert={}&{own_files}", sentinel.url, file.display()));
    let first = helper.win("n", None, "one");
    assert_eq!(helper.record("n"), Some(first));
    let wrong = format!("{}?cacert={}&{own_files}", sentinel.url, other.file().display());
    assert_eq!(failed_within(&wrong, &[], WITHIN_MS).0.kind, StoreFaultKind::Unusable);
    let without = format!("{}?cacert={}", sentinel.url, file.display());
    assert_eq!(failed_within(&without, &[], WITHIN_MS).0.kind, StoreFaultKind::Denied);
}
