//! Encrypted connections: only to a server whose certificate is verified, and with our own where it wants one.

use crate::{
    authority::{Authority, Certificate},
    engines::{Engine, Etcd, Kind, Postgres},
    faults::failed_within,
    helper::{Helper, WITHIN_MS},
    web_server::WebServer,
};
use git_fence_core::{StoreFaultKind, StoreReply};
use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

/// The engine, with TLS; `clients` is the authority of the certificates that clients need.
fn start(kind: Kind, own: &Certificate, authority: &Authority, clients: Option<&Path>) -> Option<Engine> {
    match kind {
        Kind::Etcd => Etcd { tls: Some(own), clients, ..Etcd::default() }.start(),
        Kind::Postgres => Postgres { tls: Some(own), clients, ..Postgres::default() }.start(),
        Kind::Redis => Engine::redis_with_tls(own, authority.file(), clients.is_some()),
        Kind::Http => Some(Engine::web(WebServer::start_with_tls(own, clients))),
    }
}

/// Its URL for clients that trust this authority and have this certificate.
fn url(kind: Kind, engine: &Engine, trusted: Option<&Authority>, client: Option<&Certificate>) -> String {
    let names = match kind {
        Kind::Postgres => ["sslrootcert", "sslcert", "sslkey"],
        _ => ["cacert", "cert", "key"],
    };
    let files = [trusted.map(Authority::file), client.map(|own| &*own.cert), client.map(|own| &*own.key)];
    let mut pairs: Vec<String> = if kind == Kind::Postgres { vec!["sslmode=require".to_owned()] } else { vec![] };
    pairs.extend(names.iter().zip(files).filter_map(|(name, file)| Some(format!("{name}={}", file?.display()))));
    format!("{}?{}", engine.url, pairs.join("&"))
}

#[track_caller]
fn assert_works(kind: Kind, url: &str) {
    let mut helper = Helper::at(url);
    let made = helper.init();
    assert!(matches!(made, StoreReply::Made { .. }), "{kind:?}: {made:?}");
    let first = helper.win("n", None, "one");
    assert_eq!(Helper::at(url).record("n"), Some(first), "{kind:?}");
}

/// A fault that no second attempt would change.
#[track_caller]
fn assert_fails(kind: Kind, url: &str, expected: StoreFaultKind, hint: &str) {
    let (fault, _) = failed_within(url, &[], WITHIN_MS);
    assert_eq!(fault.kind, expected, "{kind:?}: {fault}");
    assert!(fault.hint.contains(hint), "{kind:?}: {fault}; hint: {}", fault.hint);
}

#[test]
fn server_is_verified_by_the_authority_in_the_url() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    for kind in Kind::ALL {
        let Some(engine) = start(kind, &authority.server(), &authority, None) else { continue };
        assert_works(kind, &url(kind, &engine, Some(&authority), None));
        for wrong in [Some(&other), None] {
            let hint = if kind == Kind::Postgres { "sslrootcert" } else { "cacert" };
            assert_fails(kind, &url(kind, &engine, wrong, None), StoreFaultKind::Unusable, hint);
        }
    }
}

#[test]
fn certificate_of_another_name_is_unusable() {
    let Some(authority) = Authority::new() else { return };
    for kind in Kind::ALL {
        let own = authority.server_named("DNS:elsewhere.example.org");
        let Some(engine) = start(kind, &own, &authority, None) else { continue };
        assert_fails(kind, &url(kind, &engine, Some(&authority), None), StoreFaultKind::Unusable, "name");
    }
}

#[test]
fn client_shows_its_certificate() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    for kind in Kind::ALL {
        let clients = Some(authority.file());
        let Some(engine) = start(kind, &authority.server(), &authority, clients) else { continue };
        assert_works(kind, &url(kind, &engine, Some(&authority), Some(&authority.client())));
        let hint = if kind == Kind::Postgres { "sslcert" } else { "cert" };
        for wrong in [None, Some(&other.client())] {
            assert_fails(kind, &url(kind, &engine, Some(&authority), wrong), StoreFaultKind::Denied, hint);
        }
    }
}

#[test]
fn server_without_tls_gets_nothing_to_read() {
    let Some(authority) = Authority::new() else { return };
    for (kind, scheme) in [(Kind::Etcd, "etcd+https"), (Kind::Postgres, "postgres")] {
        let Some(mut engine) = kind.start() else { continue };
        engine.url = format!("{scheme}://{}", engine.url.split_once("://").unwrap().1);
        let (fault, _) = failed_within(&url(kind, &engine, Some(&authority), None), &[], 2000);
        assert!(format!("{} {}", fault.hint, fault.why).contains("TLS"), "{fault:?}");
    }
    if let Some(engine) = Kind::Redis.start() {
        // Redis waits for the end of the line.
        let url = format!("rediss://{}", engine.url.split_once("://").unwrap().1);
        assert_eq!(failed_within(&url, &[], 1000).0.kind, StoreFaultKind::Unreachable);
    }
    let says_so = listener(|one| one.write_all(b"HTTP/1.1 400 no\r\n\r\n"));
    assert_fails(Kind::Http, &says_so, StoreFaultKind::Unusable, "TLS");
    // What is closed with something unread is reset.
    let resets = listener(|one| one.read_exact(&mut [0]));
    assert_fails(Kind::Http, &resets, StoreFaultKind::Unreachable, "TLS");
}

/// The address of a server that does this with each connection, and closes it.
fn listener(answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut one in listener.incoming().flatten() {
            let _ = answer(&mut one);
        }
    });
    format!("https://127.0.0.1:{port}")
}

#[test]
fn server_that_wants_tls_on_the_same_machine_says_so() {
    let Some(authority) = Authority::new() else { return };
    let Some(engine) = start(Kind::Postgres, &authority.server(), &authority, None) else { return };
    assert_fails(Kind::Postgres, &engine.url, StoreFaultKind::Denied, "sslmode=require");
}
