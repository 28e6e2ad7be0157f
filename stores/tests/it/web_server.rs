//! A small HTTP service with conditional writes, which can misbehave on purpose.

use crate::authority::Certificate;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

/// How the next requests are answered; then as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    WeakTag,
    NoTag,
    FromCache,
    Moved,
    /// Does it, and answers 500.
    FailsAfterwards,
    /// Answers 503 without doing it.
    FailsBefore,
    /// Answers 429 without doing it.
    TooBusy,
    Forbidden,
    /// Does it, and answers nothing.
    Silent,
    Garbage,
    /// Answers with a body that is not UTF-8.
    NotText,
}

#[derive(Default)]
struct Contents {
    records: BTreeMap<String, (u64, String)>,
    writes: u64,
    manners: VecDeque<Manner>,
    /// Waits for ever instead of answering.
    is_frozen: bool,
}

/// A server; it ends with the test.
pub(crate) struct WebServer {
    port: u16,
    scheme: &'static str,
    contents: Arc<Mutex<Contents>>,
}

impl WebServer {
    pub(crate) fn start() -> WebServer {
        WebServer::listen(None)
    }

    /// With TLS; of clients it wants certificates of this authority, or none.
    pub(crate) fn start_with_tls(own: &Certificate, clients: Option<&Path>) -> WebServer {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ServerConfig::builder();
        let config = match clients {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
                config.with_client_cert_verifier(WebPkiClientVerifier::builder(roots.into()).build().unwrap())
            }
            None => config.with_no_client_auth(),
        };
        let chain = vec![CertificateDer::from_pem_file(&own.cert).unwrap()];
        let config = config.with_single_cert(chain, PrivateKeyDer::from_pem_file(&own.key).unwrap()).unwrap();
        WebServer::listen(Some(Arc::new(config)))
    }

    fn listen(tls: Option<Arc<ServerConfig>>) -> WebServer {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let contents = Arc::new(Mutex::new(Contents::default()));
        let of_all = contents.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (contents, tls) = (of_all.clone(), tls.clone());
                thread::spawn(move || match tls {
                    Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &contents),
                    None => serve(stream, &contents),
                });
            }
        });
        WebServer { port, scheme, contents }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/leases", self.scheme, self.port)
    }

    pub(crate) fn behave(&self, manners: impl IntoIterator<Item = Manner>) {
        self.contents.lock().unwrap().manners = manners.into_iter().collect();
    }

    pub(crate) fn freeze(&self) {
        self.contents.lock().unwrap().is_frozen = true;
    }

    /// How many writes were carried out.
    pub(crate) fn writes(&self) -> u64 {
        self.contents.lock().unwrap().writes
    }
}

fn serve(stream: impl Read + Write, contents: &Mutex<Contents>) {
    let mut input = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if input.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        if contents.lock().unwrap().is_frozen {
            thread::park();
        }
        match answer(&first, &headers, String::from_utf8(body).unwrap(), contents) {
            Some(answer) if input.get_mut().write_all(&answer).is_ok() => {}
            _ => return,
        }
    }
}

fn answer(
    first: &str,
    headers: &BTreeMap<String, String>,
    body: String,
    contents: &Mutex<Contents>,
) -> Option<Vec<u8>> {
    let mut words = first.split(' ');
    let (method, path) = (words.next()?, words.next()?.to_owned());
    let mut contents = contents.lock().unwrap();
    let manner = contents.manners.pop_front();
    let (mut status, mut tag, mut content) = (200, None, String::new());
    let now = contents.records.get(&path).cloned();
    let current = now.as_ref().map(|(version, _)| format!("\"{version}\""));
    match (method, manner) {
        (_, Some(Manner::FailsBefore)) => status = 503,
        (_, Some(Manner::TooBusy)) => status = 429,
        (_, Some(Manner::Forbidden)) => status = 403,
        (_, Some(Manner::Moved)) => status = 302,
        ("GET", _) => match now {
            Some((_, body)) => (tag, content) = (current, body),
            None => status = 404,
        },
        ("PUT", _) => {
            let fits = match (headers.get("if-match"), headers.get("if-none-match")) {
                (Some(expected), None) => current.as_ref() == Some(expected),
                (None, Some(star)) => star == "*" && current.is_none(),
                _ => false,
            };
            if fits {
                contents.writes += 1;
                let version = contents.writes;
                contents.records.insert(path, (version, body));
                tag = Some(format!("\"{version}\""));
            } else {
                status = 412;
            }
        }
        ("DELETE", _) => drop(contents.records.remove(&path)),
        _ => status = 405,
    }
    let mut more = String::new();
    match manner {
        Some(Manner::WeakTag) => tag = tag.map(|tag| format!("W/{tag}")),
        Some(Manner::NoTag) => tag = None,
        Some(Manner::FromCache) => more = "Age: 7\r\n".to_owned(),
        Some(Manner::FailsAfterwards) => status = 500,
        Some(Manner::Silent) => return None,
        Some(Manner::Garbage) => return Some(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Some(Manner::NotText) => {
            return Some(b"HTTP/1.1 200 x\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\n\xff\xfe".to_vec());
        }
        _ => {}
    }
    let tag = tag.map_or(String::new(), |tag| format!("ETag: {tag}\r\n"));
    let answer = format!(
        "HTTP/1.1 {status} x\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nLocation: http://127.0.0.1:1/\r\n{tag}{more}Content-Length: {}\r\n\r\n{content}",
        content.len()
    );
    Some(answer.into_bytes())
}
