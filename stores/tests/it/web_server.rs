//! A small HTTP service with conditional writes, which can misbehave on purpose.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
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
    Forbidden,
    /// Does it, and answers nothing.
    Silent,
    Garbage,
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
    contents: Arc<Mutex<Contents>>,
}

impl WebServer {
    pub(crate) fn start() -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let contents = Arc::new(Mutex::new(Contents::default()));
        let of_all = contents.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let contents = of_all.clone();
                thread::spawn(move || serve(stream, &contents));
            }
        });
        WebServer { port, contents }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/leases", self.port)
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

fn serve(mut stream: TcpStream, contents: &Mutex<Contents>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
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
            Some(text) if stream.write_all(text.as_bytes()).is_ok() => {}
            _ => return,
        }
    }
}

fn answer(first: &str, headers: &BTreeMap<String, String>, body: String, contents: &Mutex<Contents>) -> Option<String> {
    let mut words = first.split(' ');
    let (method, path) = (words.next()?, words.next()?.to_owned());
    let mut contents = contents.lock().unwrap();
    let manner = contents.manners.pop_front();
    let (mut status, mut tag, mut content) = (200, None, String::new());
    let now = contents.records.get(&path).cloned();
    let current = now.as_ref().map(|(version, _)| format!("\"{version}\""));
    match (method, manner) {
        (_, Some(Manner::FailsBefore)) => status = 503,
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
        Some(Manner::Garbage) => return Some("SSH-2.0-OpenSSH_9.2\r\n".to_owned()),
        _ => {}
    }
    let tag = tag.map_or(String::new(), |tag| format!("ETag: {tag}\r\n"));
    Some(format!(
        "HTTP/1.1 {status} x\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nLocation: http://127.0.0.1:1/\r\n{tag}{more}Content-Length: {}\r\n\r\n{content}",
        content.len()
    ))
}
