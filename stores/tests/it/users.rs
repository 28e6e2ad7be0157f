//! Users who may do no more than leases need, and those who may do less.

use crate::{
    engines::{Engine, Etcd, Kind, PASSWORD, Postgres, find, run},
    faults::failed_within,
    helper::{Helper, WITHIN_MS},
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReply};
use std::{process::Command, thread, time::Duration};
use tempfile::TempDir;

/// The URL for the user `bot`.
fn as_bot(engine: &Engine) -> String {
    let (scheme, rest) = engine.url.split_once("://").unwrap();
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    format!("{scheme}://bot:{PASSWORD}@{hosts}")
}

#[track_caller]
fn assert_denied(url: &str) -> StoreFault {
    let (fault, said) = failed_within(url, &[], WITHIN_MS);
    assert_eq!(fault.kind, StoreFaultKind::Denied, "{fault}");
    assert!(!said.contains("wrong-secret"), "{said}");
    fault
}

#[track_caller]
fn assert_swap_is_denied(url: &str, name: &str) -> StoreFault {
    match Helper::at(url).swap(name, None, "one") {
        StoreReply::Failed(fault) if fault.kind == StoreFaultKind::Denied => fault,
        other => panic!("not denied: {other:?}"),
    }
}

/// etcd with authentication, and the user `bot`, who may read and write below `git-fence/`.
fn etcd_with_users(more: &[&str]) -> Option<Engine> {
    let engine = Etcd { more, ..Etcd::default() }.start()?;
    for arguments in [
        "user add root:of-root",
        "role add root",
        "user grant-role root root",
        "role add leases",
        "role grant-permission --prefix=true leases readwrite git-fence/",
        &format!("user add bot:{PASSWORD}"),
        "user grant-role bot leases",
        "auth enable",
    ] {
        engine.etcdctl(&arguments.split(' ').collect::<Vec<_>>());
    }
    Some(engine)
}

#[test]
fn user_of_etcd_needs_only_the_prefix() {
    let Some(engine) = etcd_with_users(&[]) else { return };
    let url = as_bot(&engine);
    let mut helper = Helper::at(&url);
    let first = helper.win("n", None, "one");
    assert_eq!(helper.record("n"), Some(first));
    for wrong in [url.replace(PASSWORD, "wrong-secret"), format!("{url}/elsewhere"), engine.url.clone()] {
        assert_denied(&wrong);
    }
    assert_swap_is_denied(&format!("{url}/elsewhere"), "n");
    let mut helper = Helper::start(&[("ETCDCTL_USER", &format!("bot:{PASSWORD}"))]);
    helper.open(&engine.url);
    assert!(helper.read("n").is_ok(), "from the variable");
}

#[test]
fn etcd_forgets_tokens_and_the_helper_logs_in_again() {
    let Some(mut engine) = etcd_with_users(&[]) else { return };
    let mut helper = Helper::at(&as_bot(&engine));
    let first = helper.win("n", None, "one");
    engine.restart(0);
    let second = helper.win("n", Some(&first), "two");
    // Every change of users makes older tokens useless.
    engine.etcdctl(&["--user", "root:of-root", "user", "add", "other:x"]);
    let third = helper.win("n", Some(&second), "three");
    assert_eq!(helper.record("n"), Some(third));
}

#[test]
fn token_of_etcd_that_is_old_is_replaced() {
    if find("openssl").is_none() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let [private, public] = ["private", "public"].map(|name| dir.path().join(name));
    run(Command::new("openssl").args(["genrsa", "-out"]).arg(&private).arg("2048"));
    run(Command::new("openssl").args(["rsa", "-pubout", "-in"]).arg(&private).arg("-out").arg(&public));
    let [private, public] = [private, public].map(|path| path.display().to_string());
    let tokens = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=1s");
    let Some(engine) = etcd_with_users(&["--auth-token", &tokens]) else { return };
    let mut helper = Helper::at(&as_bot(&engine));
    let first = helper.win("n", None, "one");
    // Such tokens name the state of the users, too.
    engine.etcdctl(&["--user", "root:of-root", "user", "add", "other:x"]);
    let second = helper.win("n", Some(&first), "two");
    // Expired.
    thread::sleep(Duration::from_millis(2100));
    let third = helper.win("n", Some(&second), "three");
    assert_eq!(helper.record("n"), Some(third));
}

#[test]
fn etcd_without_users_ignores_the_login() {
    let Some(engine) = Kind::Etcd.start() else { return };
    let mut helper = Helper::at(&as_bot(&engine));
    let first = helper.win("n", None, "one");
    assert_eq!(helper.record("n"), Some(first));
}

#[test]
fn user_of_redis_needs_only_these_rights() {
    let Some(engine) = Kind::Redis.start() else { return };
    let url = as_bot(&engine);
    let password = format!(">{PASSWORD}");
    let rights = ["~git-fence:*", "+eval", "+get", "+set", "+persist", "+time"];
    let grant = |rights: &[&str]| {
        let user = [&["ACL", "SETUSER", "bot", "reset", "on", &password][..], rights].concat();
        assert_eq!(engine.redis_cli(&user), "OK");
    };
    grant(&rights);
    let mut helper = Helper::at(&url);
    let first = helper.win("n", None, "one");
    assert_eq!(helper.record("n"), Some(first));
    assert_denied(&format!("{url}?prefix=elsewhere:"));
    assert_denied(&url.replace(PASSWORD, "wrong-secret"));
    for missing in rights {
        grant(&rights.iter().copied().filter(|right| *right != missing).collect::<Vec<_>>());
        let fault = assert_swap_or_read_is_denied(&url);
        assert!(fault.hint.contains(missing), "{missing}: {}", fault.hint);
    }
}

#[track_caller]
fn assert_swap_or_read_is_denied(url: &str) -> StoreFault {
    match Helper::at(url).read("another") {
        Ok(_) => assert_swap_is_denied(url, "another"),
        Err(fault) if fault.kind == StoreFaultKind::Denied => fault,
        Err(fault) => panic!("{fault:?}"),
    }
}

#[test]
fn user_of_postgres_needs_only_these_rights() {
    let Some(engine) = Kind::Postgres.start() else { return };
    let url = as_bot(&engine);
    engine.psql(&format!("CREATE ROLE bot LOGIN PASSWORD '{PASSWORD}'"));
    assert!(assert_denied(&url).hint.contains("git_fence_records"));
    engine.psql("GRANT SELECT ON git_fence_records TO bot");
    assert_eq!(Helper::at(&url).record("n"), None);
    assert_swap_is_denied(&url, "n");
    engine.psql("GRANT INSERT, UPDATE ON git_fence_records TO bot");
    assert!(assert_swap_is_denied(&url, "n").hint.contains("git_fence_history"));
    engine.psql("GRANT INSERT ON git_fence_history TO bot");
    let mut helper = Helper::at(&url);
    let first = helper.win("n", None, "one");
    helper.win("n", Some(&first), "two");
    assert_eq!(helper.init(), StoreReply::Made { what: Vec::new() }, "nothing to make");
}

#[test]
fn user_of_postgres_who_may_make_no_tables_is_told_who_can() {
    let Some(engine) = Postgres::default().start() else { return };
    engine.psql(&format!("CREATE ROLE bot LOGIN PASSWORD '{PASSWORD}'"));
    // Before PostgreSQL 15 everybody may.
    engine.psql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    match Helper::at(&as_bot(&engine)).init() {
        StoreReply::Failed(fault) => {
            assert_eq!(fault.kind, StoreFaultKind::Denied, "{fault}");
            assert!(fault.hint.contains("CREATE"), "{}", fault.hint);
        }
        other => panic!("{other:?}"),
    }
}
