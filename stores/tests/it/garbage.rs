//! Records that no client of ours has written, and records that are too much: a clear fault, and no crash.

use crate::{
    engines::{Etcd, Kind, Postgres, run},
    faults::failed_within,
    helper::{Helper, WITHIN_MS},
    no_room::noise,
    web_server::Manner,
};
use git_fence_core::{StoreFault, StoreFaultKind, StoreRecord, StoreReply};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, process::Command};

/// The longest name and the longest record that every engine keeps.
const LONGEST_NAME: usize = 500;
const LONGEST_RECORD: usize = 512 * 1024;

/// Neither reading nor swapping does anything with it.
#[track_caller]
fn assert_not_text(url: &str) {
    let (fault, said) = failed_within(url, &[], WITHIN_MS);
    assert_eq!(fault.kind, StoreFaultKind::Unusable, "{fault}");
    assert!(fault.why.contains("not text"), "{said}");
    let answer = Helper::at(url).swap("n", None, "one");
    assert_unusable(&answer);
}

#[track_caller]
fn assert_unusable(answer: &StoreReply) -> &StoreFault {
    match answer {
        StoreReply::Failed(fault) if fault.kind == StoreFaultKind::Unusable => fault,
        other => panic!("not unusable: {other:.300?}"),
    }
}

#[test]
fn record_that_is_not_text_is_unusable() {
    if let Some(engine) = Kind::Etcd.start() {
        let hosts = engine.url.rsplit_once('/').unwrap().1;
        let mut put = Command::new("etcdctl");
        put.env("ETCDCTL_API", "3").args(["--endpoints", hosts, "put", "git-fence/n"]);
        run(put.arg(OsStr::from_bytes(b"\xff\xfe")));
        assert_not_text(&engine.url);
    }
    if let Some(engine) = Kind::Redis.start() {
        engine.redis_cli(&["EVAL", r"return redis.call('SET', KEYS[1], '\255\254')", "1", "git-fence:n"]);
        assert_not_text(&engine.url);
    }
    if let Some(engine) = (Postgres { encoding: Some("SQL_ASCII"), ..Postgres::default() }).start() {
        Helper::at(&engine.url).init();
        engine.psql(r"INSERT INTO git_fence_records (name, version, body) VALUES ('n', 1, E'\xff\xfe')");
        assert_not_text(&engine.url);
    }
    let engine = Kind::Http.start().unwrap();
    engine.web.as_ref().unwrap().behave([Manner::NotText; 2]);
    let (fault, _) = failed_within(&engine.url, &[], WITHIN_MS);
    assert_eq!(fault.kind, StoreFaultKind::Unusable, "{fault}");
}

#[test]
fn table_with_other_types_is_unusable() {
    let Some(engine) = Kind::Postgres.start() else { return };
    for change in [
        "ALTER TABLE git_fence_records ALTER version TYPE integer",
        "ALTER TABLE git_fence_records ALTER version TYPE bigint, ALTER body DROP NOT NULL",
    ] {
        engine.psql(change);
        engine.psql("DELETE FROM git_fence_records");
        engine.psql("INSERT INTO git_fence_records (name, version, body) VALUES ('n', 7, 'x')");
        if change.contains("DROP") {
            engine.psql("UPDATE git_fence_records SET body = NULL");
        }
        let (fault, _) = failed_within(&engine.url, &[], WITHIN_MS);
        assert_eq!(fault.kind, StoreFaultKind::Unusable, "{fault}");
        let expected = StoreRecord { version: "7".to_owned(), body: "x".to_owned() };
        let answer = Helper::at(&engine.url).swap("n", Some(&expected), "y");
        // With another type of version it may be done, and its answer cannot be read.
        assert!(!matches!(answer, StoreReply::Won { .. } | StoreReply::Lost(_)), "{answer:?}");
    }
}

#[test]
fn what_is_too_long_or_no_text_is_not_even_tried() {
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        let mut helper = Helper::at(&engine.url);
        let long = "n".repeat(LONGEST_NAME + 1);
        assert!(assert_unusable(&helper.swap(&long, None, "one")).why.contains("name"));
        assert!(matches!(helper.read(&long), Err(fault) if fault.kind == StoreFaultKind::Unusable));
        for body in ["x".repeat(2_000_000), "x".repeat(LONGEST_RECORD + 1), "a\0b".to_owned()] {
            assert!(assert_unusable(&helper.swap("n", None, &body)).why.contains("record"), "{kind:?}");
        }
        assert_eq!(helper.record("n"), None, "{kind:?}");
    }
}

#[test]
fn longest_name_and_longest_record_are_kept() {
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        let mut helper = Helper::at(&engine.url);
        // Letters that cannot be compressed, or an index of PostgreSQL would take more than it does.
        let name = noise(1, LONGEST_NAME);
        let first = helper.win(&name, None, &noise(2, LONGEST_RECORD));
        let second = helper.win(&name, Some(&first), &noise(3, LONGEST_RECORD));
        let stale = helper.swap(&name, Some(&first), "short");
        assert!(matches!(&stale, StoreReply::Lost(now) if now.record.as_ref() == Some(&second)), "{kind:?}");
        assert_eq!(helper.record(&name), Some(second), "{kind:?}");
    }
}

#[test]
fn etcd_that_takes_less_says_so() {
    let Some(engine) = (Etcd { more: &["--max-request-bytes", "5000"], ..Etcd::default() }).start() else { return };
    let mut helper = Helper::at(&engine.url);
    let answer = helper.swap("n", None, &"x".repeat(10_000));
    assert!(assert_unusable(&answer).hint.contains("max-request-bytes"), "{answer:?}");
    helper.win("n", None, "short");
}

#[test]
fn records_that_nobody_can_have_written_are_unusable() {
    if let Some(engine) = Kind::Redis.start() {
        let long = "return redis.call('SET', KEYS[1], string.rep('x', 3000000))";
        engine.redis_cli(&["EVAL", long, "1", "git-fence:n"]);
        assert_eq!(failed_within(&engine.url, &[], WITHIN_MS).0.kind, StoreFaultKind::Unusable);
    }
    if let Some(engine) = Kind::Postgres.start() {
        engine.psql("INSERT INTO git_fence_records (name, version, body) VALUES ('n', 1, repeat('x', 3000000))");
        assert_eq!(failed_within(&engine.url, &[], WITHIN_MS).0.kind, StoreFaultKind::Unusable);
    }
}
