//! No password in what the helper prints, nor in what other users see of its process. Every helper of these tests is looked
//! at when it ends; here are the faults that have passwords in reach.

use crate::{
    authority::Authority,
    engines::{Engine, Etcd, Kind, PASSWORD, free_port},
    helper::Helper,
};
use git_fence_core::{StoreReply, StoreRequest};
use std::net::TcpListener;

/// The URL with a user and a password.
fn with_login(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    format!("{scheme}://fence:{password}@{hosts}")
}

/// Asks for everything, whatever comes of it, and returns all that was said.
fn ask_everything(url: &str) -> String {
    let mut helper = Helper::start(&[]);
    let within_ms = 300;
    let name = || "n".to_owned();
    helper.ask(&StoreRequest::Open { url: url.to_owned() });
    helper.ask(&StoreRequest::Read { name: name(), within_ms });
    let (next, expected) = ("x".to_owned(), None);
    helper.ask(&StoreRequest::Swap { name: name(), expected, next, keep: true, within_ms });
    helper.ask(&StoreRequest::Init { within_ms });
    helper.ask(&StoreRequest::Check { within_ms });
    helper.everything_shown()
}

#[track_caller]
fn assert_silent(url: &str) {
    let shown = ask_everything(url);
    assert!(!shown.contains(PASSWORD) && !shown.contains("nobody"), "{shown}");
}

#[test]
fn no_fault_shows_a_password() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [free_port(), silent.local_addr().unwrap().port()] {
        for scheme in ["etcd", "etcd+https", "postgres", "redis", "rediss", "redis+sentinel", "http", "https"] {
            assert_silent(&format!("{scheme}://fence:{PASSWORD}@127.0.0.1:{port}/leases"));
        }
    }
    for kind in Kind::ALL {
        let Some(engine) = kind.start() else { continue };
        // In Redis and etcd there is no such user, in PostgreSQL it has another password, or it is the right one.
        for url in [&engine.url, &engine.url.replace("/postgres", "/nowhere"), &engine.url.replace("://", "s://")] {
            for password in [PASSWORD, "tell-nobody-else"] {
                assert_silent(&with_login(url, password));
            }
        }
        if kind != Kind::Http {
            engine.freeze(0);
            assert_silent(&with_login(&engine.url, PASSWORD));
            engine.thaw(0);
        }
    }
    if let Some(engine) = Kind::Postgres.start() {
        engine.psql("DROP TABLE git_fence_records; CREATE TABLE git_fence_records (name text)");
        assert_silent(&engine.url);
    }
}

#[test]
fn no_certificate_shows_a_password() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    let own = authority.server();
    let engines =
        [Etcd { tls: Some(&own), ..Etcd::default() }.start(), Engine::redis_with_tls(&own, authority.file(), true)];
    for engine in engines.into_iter().flatten() {
        for trusted in [&authority, &other] {
            assert_silent(&format!("{}?cacert={}", with_login(&engine.url, PASSWORD), trusted.file().display()));
        }
    }
}

#[test]
fn url_that_is_wrong_does_not_show_its_password() {
    for url in [
        "nowhere://fence:tell-nobody@host",
        "redis://fence:tell-nobody@",
        "redis://fence:tell-nobody@a,b",
        "redis://fence:tell-nobody@host/not-a-number",
        "etcd://fence:tell-nobody@a b",
        "postgres://fence:tell-nobody@host:x/db",
        "postgres://fence:tell-nobody@host/db?sslmode=maybe",
        "postgres://fence:tell-nobody@host/db?password=tell-nobody",
        "https://fence:tell-nobody@host?token=tell-nobody",
        "firestore://fence:tell-nobody@project/a/b",
        // What would have to be written as %2F, %3F, %23 or %40.
        "redis://fence:tell/nobody@host",
        "redis://fence:tell?nobody@host",
        "redis://fence:tell#nobody@host",
        "redis://fence:tell@nobody@host",
        "postgres://fence:tell/nobody?x@host/db",
        "https://fence:/tell-nobody@host/leases",
    ] {
        assert_silent(url);
    }
}

#[test]
fn password_from_the_environment_is_not_shown() {
    let Some(engine) = Kind::Postgres.start() else { return };
    let bare = engine.url.replace(&format!(":{PASSWORD}"), "");
    for url in [bare.clone(), bare.replace("/postgres", "/nowhere")] {
        let mut helper = Helper::start(&[("PGPASSWORD", PASSWORD)]);
        assert!(matches!(helper.ask(&StoreRequest::Open { url }), StoreReply::Opened { .. }));
        let _ = helper.read("n");
        assert!(!helper.everything_shown().contains(PASSWORD));
    }
}
