//! A small HTTP service with conditional writes, and with a clock that can be set.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// A record with its version.
type Records = BTreeMap<String, (u64, String)>;

/// A server, which runs as long as the tests.
#[derive(Clone)]
pub(crate) struct WebStore {
    port: u16,
    /// How far its clock is ahead, in seconds.
    ahead: Arc<AtomicI64>,
}

impl WebStore {
    pub(crate) fn start() -> WebStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = WebStore { port: listener.local_addr().unwrap().port(), ahead: Arc::default() };
        let (ahead, records) = (store.ahead.clone(), Arc::new(Mutex::new(Records::new())));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (ahead, records) = (ahead.clone(), records.clone());
                thread::spawn(move || while serve(&stream, &ahead, &records).is_some() {});
            }
        });
        store
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/leases", self.port)
    }

    /// Sets its clock this many seconds ahead of the real time.
    pub(crate) fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, Ordering::SeqCst);
    }
}

/// One request and its answer; none at the end of the connection.
fn serve(mut stream: &TcpStream, ahead: &AtomicI64, records: &Mutex<Records>) -> Option<()> {
    let mut input = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = line()?.split_once(": ") {
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let (status, tag, content) = answer(method, path, &headers, String::from_utf8(body).ok()?, records);
    let tag = tag.map_or(String::new(), |version| format!("ETag: \"{version}\"\r\n"));
    let (date, length) = (date(ahead.load(Ordering::SeqCst)), content.len());
    let answer = format!("HTTP/1.1 {status} x\r\nDate: {date}\r\n{tag}Content-Length: {length}\r\n\r\n{content}");
    stream.write_all(answer.as_bytes()).ok()
}

fn answer(
    method: &str,
    path: &str,
    headers: &BTreeMap<String, String>,
    body: String,
    records: &Mutex<Records>,
) -> (u16, Option<u64>, String) {
    let mut records = records.lock().unwrap();
    let now = records.get(path).cloned();
    match (method, &now) {
        ("GET", Some((version, body))) => (200, Some(*version), body.clone()),
        ("GET", None) => (404, None, String::new()),
        ("PUT", _) => {
            let version = now.as_ref().map_or(0, |(version, _)| *version);
            let fits = match (headers.get("if-match"), headers.get("if-none-match")) {
                (Some(expected), None) => now.is_some() && *expected == format!("\"{version}\""),
                (None, Some(star)) => star == "*" && now.is_none(),
                _ => false,
            };
            if fits {
                records.insert(path.to_owned(), (version + 1, body));
            }
            if fits { (200, Some(version + 1), String::new()) } else { (412, None, String::new()) }
        }
        _ => (405, None, String::new()),
    }
}

/// The time as HTTP writes it, `ahead` seconds from now.
fn date(ahead: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed() + ahead;
    let (days, seconds) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(days.rem_euclid(7)).unwrap()];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{weekday}, {day:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", months[month])
}

/// Year, month from 0, and day of the month of a day since 1970.
fn civil(mut days: i64) -> (i64, usize, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month, days + 1)
}
