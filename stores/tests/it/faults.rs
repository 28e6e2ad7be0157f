//! Bad input and faults: a clear kind, a sentence, and never a password.

use crate::{
    engines::{Kind, free_port},
    helper::Helper,
    web_server::Manner,
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReply, StoreRequest};
use std::net::TcpListener;

/// The fault of reading there, and all that the helper said.
fn failed(url: &str, environment: &[(&str, &str)]) -> (StoreFault, String) {
    failed_within(url, environment, 2000)
}

/// The same within this time.
pub(crate) fn failed_within(url: &str, environment: &[(&str, &str)], within_ms: u64) -> (StoreFault, String) {
    let mut helper = Helper::start(environment);
    let reply = match helper.ask(&StoreRequest::Open { url: url.to_owned() }) {
        StoreReply::Opened { .. } => helper.ask(&StoreRequest::Read { name: "n".to_owned(), within_ms }),
        failed => failed,
    };
    match reply {
        StoreReply::Failed(fault) => (fault, helper.said.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_urls_are_unusable() {
    for url in [
        "nowhere",
        "memcached://host",
        "postgres://h:x/db",
        "postgres://h/db?sslmode=maybe",
        "postgres://h/db?no_such=1",
        "redis://a,b",
        "redis://a/x",
        "redis://a?no_such=1",
        "etcd://a?cert=/only/one",
        "etcd+https://a?cacert=/no/such/file",
        "https://a?no_such=1",
        "firestore://project/a/b",
    ] {
        let (fault, _) = failed(url, &[]);
        assert_eq!(fault.kind, StoreFaultKind::Unusable, "{url}: {fault}");
        assert!(!fault.hint.is_empty(), "{url}");
    }
}

#[test]
fn nobody_there_is_unreachable() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [free_port(), silent.local_addr().unwrap().port()] {
        for scheme in ["etcd", "postgres", "redis", "http"] {
            let (fault, said) = failed(&format!("{scheme}://bot:tell-nobody@127.0.0.1:{port}/0"), &[]);
            assert_eq!(fault.kind, StoreFaultKind::Unreachable, "{scheme}: {fault}");
            assert!(!said.contains("tell-nobody"), "{said}");
        }
        let emulator = format!("127.0.0.1:{port}");
        let (fault, _) = failed("firestore://project", &[("FIRESTORE_EMULATOR_HOST", &emulator)]);
        assert_eq!(fault.kind, StoreFaultKind::Unreachable, "{fault}");
    }
}

#[test]
fn wrong_password_is_denied_and_not_shown() {
    if let Some(engine) = Kind::Postgres.start() {
        let (fault, said) = failed(&engine.url.replace("tell-nobody", "wrong-secret"), &[]);
        assert_eq!(fault.kind, StoreFaultKind::Denied, "{fault}");
        assert!(!said.contains("wrong-secret"), "{said}");
        let bare = engine.url.replace(":tell-nobody", "");
        assert_eq!(failed(&bare, &[]).0.kind, StoreFaultKind::Denied, "none at all");
        let mut helper = Helper::start(&[("PGPASSWORD", "tell-nobody")]);
        helper.open(&bare);
        assert!(helper.read("n").is_ok(), "from the variable");
        let file = engine.dir().join("pgpass");
        std::fs::write(&file, "127.0.0.1:*:postgres:fence:tell-nobody\n").unwrap();
        let mut helper = Helper::start(&[("PGPASSFILE", file.to_str().unwrap())]);
        helper.open(&bare);
        assert!(helper.read("n").is_ok(), "from the file");
    }
    if let Some(engine) = crate::engines::Engine::redis(&["--requirepass", "tell-nobody"]) {
        assert_eq!(failed(&engine.url, &[]).0.kind, StoreFaultKind::Denied);
        let (fault, said) = failed(&engine.url.replace("redis://", "redis://:wrong-secret@"), &[]);
        assert_eq!(fault.kind, StoreFaultKind::Denied, "{fault}");
        assert!(!said.contains("wrong-secret"), "{said}");
        let mut helper = Helper::start(&[("REDISCLI_AUTH", "tell-nobody")]);
        helper.open(&engine.url);
        assert!(helper.read("n").is_ok(), "from the variable");
    }
}

#[test]
fn what_is_no_store_of_ours_is_unusable() {
    if let Some(engine) = Kind::Redis.start() {
        engine.redis_cli(&["RPUSH", "git-fence:n", "x"]);
        assert_eq!(failed(&engine.url, &[]).0.kind, StoreFaultKind::Unusable, "a key of another type");
    }
    if let Some(engine) = Kind::Postgres.start() {
        engine.psql("DROP TABLE git_fence_records; CREATE TABLE git_fence_records (name text)");
        assert_eq!(failed(&engine.url, &[]).0.kind, StoreFaultKind::Unusable, "another table of this name");
        assert_eq!(failed(&engine.url.replace("/postgres", "/nowhere"), &[]).0.kind, StoreFaultKind::Unusable);
    }
}

#[test]
fn service_that_cannot_keep_leases_is_not_used() {
    for (manner, kind) in [
        (Manner::WeakTag, StoreFaultKind::Unusable),
        (Manner::NoTag, StoreFaultKind::Unusable),
        (Manner::FromCache, StoreFaultKind::Unusable),
        (Manner::Moved, StoreFaultKind::Unusable),
        (Manner::Forbidden, StoreFaultKind::Denied),
        (Manner::FailsBefore, StoreFaultKind::Unreachable),
        (Manner::TooBusy, StoreFaultKind::Unreachable),
        (Manner::Garbage, StoreFaultKind::Unreachable),
    ] {
        let engine = Kind::Http.start().unwrap();
        Helper::at(&engine.url).win("n", None, "one");
        engine.web.as_ref().unwrap().behave([manner; 100]);
        let (fault, _) = failed(&engine.url, &[]);
        assert_eq!(fault.kind, kind, "{manner:?}: {fault}");
    }
}

#[test]
fn service_that_never_answers_is_given_up_in_time() {
    let engine = Kind::Http.start().unwrap();
    engine.web.as_ref().unwrap().freeze();
    assert_eq!(failed(&engine.url, &[]).0.kind, StoreFaultKind::Unreachable);
}

#[test]
fn lines_that_are_no_requests_are_answered() {
    let mut helper = Helper::start(&[]);
    let early = helper.ask(&StoreRequest::Read { name: "n".to_owned(), within_ms: 100 });
    assert!(matches!(early, StoreReply::Failed(_)), "{early:?}");
}
