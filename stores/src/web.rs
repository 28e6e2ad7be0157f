//! Requests over HTTP, for etcd, Firestore and services of one's own.

use crate::{
    deadline::Deadline,
    tls::{FILES, TlsFiles, TlsTrouble, is_reset},
};
use git_fence_core::{StoreFault, text};
use reqwest::{
    Certificate, Identity, Method, StatusCode,
    blocking::{Client, RequestBuilder},
    header::{AGE, DATE, ETAG, HeaderMap, HeaderName},
    redirect::Policy,
};
use std::{error::Error, io::Read as _, iter, time::Duration};

/// How long connecting may take: another endpoint may be quicker.
const CONNECTING: Duration = Duration::from_secs(3);
/// No record is longer, in base64 either.
const LONGEST_ANSWER: u64 = 2 << 20;

/// A client that keeps its connections.
#[derive(Debug)]
pub(crate) struct Web(Client);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    /// Whether the request may have arrived.
    pub(crate) may_have_arrived: bool,
    pub(crate) why: String,
    /// What another attempt would not change.
    lasting: Option<Lasting>,
}

#[derive(Debug)]
enum Lasting {
    Tls(TlsTrouble),
    /// What is there cannot be a record.
    NoRecord,
}

impl NoAnswer {
    /// The request was not sent.
    pub(crate) fn unsent(why: String) -> NoAnswer {
        NoAnswer { may_have_arrived: false, why, lasting: None }
    }

    fn of(e: &reqwest::Error) -> NoAnswer {
        let tls = TlsTrouble::of(e, FILES).or_else(|| is_reset_in_the_handshake(e).then(TlsTrouble::cut));
        let is_handshake = tls.as_ref().is_some_and(|tls| tls.is_handshake);
        let may_have_arrived = !e.is_connect() && !is_handshake;
        NoAnswer { may_have_arrived, why: causes(e), lasting: tls.map(Lasting::Tls) }
    }

    fn no_record(why: &str) -> NoAnswer {
        NoAnswer { may_have_arrived: true, why: why.to_owned(), lasting: Some(Lasting::NoRecord) }
    }

    pub(crate) fn fault(&self, endpoint: &str) -> StoreFault {
        let why = format!("no answer from {endpoint}: {}", self.why);
        match &self.lasting {
            Some(Lasting::Tls(tls)) => tls.fault(why),
            Some(Lasting::NoRecord) => {
                let why = format!("the answer from {endpoint} cannot be used: {}", self.why);
                StoreFault::unusable(why, "check the URL: is it a store of leases?")
            }
            None => StoreFault::unreachable(why),
        }
    }
}

/// A server without TLS may close the connection before it has read all of our greeting: then the kernel resets it. Connecting itself
/// is refused, not reset.
fn is_reset_in_the_handshake(e: &reqwest::Error) -> bool {
    e.is_connect() && e.url().is_some_and(|url| url.scheme() == "https") && is_reset(e)
}

impl Web {
    pub(crate) fn new(files: &TlsFiles) -> Result<Web, StoreFault> {
        // A redirect would carry the credentials elsewhere, and a proxy may cache.
        let mut builder = Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(CONNECTING);
        let wrong = |path: &str, e: reqwest::Error| {
            StoreFault::unusable(format!("cannot use '{path}': {}", causes(&e)), "it must be a PEM file")
        };
        if let Some(path) = &files.cacert {
            let all = Certificate::from_pem_bundle(&TlsFiles::read(path)?).map_err(|e| wrong(path, e))?;
            builder = builder.tls_certs_only(all);
        }
        if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
            let both = [TlsFiles::read(cert)?, TlsFiles::read(key)?].join(&b'\n');
            builder = builder.identity(Identity::from_pem(&both).map_err(|e| wrong(cert, e))?);
        }
        let client = builder.build().map_err(|e| StoreFault::unusable(causes(&e), "check the files for TLS"))?;
        Ok(Web(client))
    }

    pub(crate) fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.0.request(method, url)
    }

    /// Sends a request. It takes no longer than `most`, and not beyond the deadline, which is checked first.
    pub(crate) fn send(request: RequestBuilder, most: Duration, until: &Deadline) -> Result<Answer, NoAnswer> {
        let left = until.time_for_an_attempt();
        let left = left.map_err(|fault| NoAnswer::unsent(fault.why))?;
        let response = request.timeout(left.min(most)).send().map_err(|e| NoAnswer::of(&e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let read = response.take(LONGEST_ANSWER + 1).read_to_end(&mut body);
        read.map_err(|e| NoAnswer { may_have_arrived: true, ..NoAnswer::unsent(causes(&e)) })?;
        if body.len() as u64 > LONGEST_ANSWER {
            return Err(NoAnswer::no_record("it is longer than any record"));
        }
        let body = String::from_utf8(body).map_err(|_| NoAnswer::no_record("it is not text"))?;
        Ok(Answer { status, headers, body })
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The server's clock.
    pub(crate) fn date_ms(&self) -> Option<u64> {
        let date = jiff::fmt::rfc2822::parse(self.header(&DATE)?).ok()?;
        u64::try_from(date.timestamp().as_millisecond()).ok()
    }

    pub(crate) fn etag(&self) -> Option<&str> {
        self.header(&ETAG)
    }

    /// Whether a cache has answered.
    pub(crate) fn is_from_a_cache(&self) -> bool {
        self.header(&AGE).is_some_and(|age| age.trim() != "0")
    }

    /// Status and the beginning of the body, for people.
    pub(crate) fn in_words(&self) -> String {
        let body = text::one_line(self.body.as_bytes(), 200);
        format!("HTTP {}{}{body}", self.status.as_u16(), if body.is_empty() { "" } else { ": " })
    }
}

/// An error with its causes, without the URL, which may hold a password.
fn causes(e: &(dyn Error + 'static)) -> String {
    let mut all: Vec<String> = iter::successors(Some(e), |e| (*e).source())
        .map(|e| match e.downcast_ref::<reqwest::Error>() {
            Some(_) => String::new(),
            None => text::one_line(e.to_string().as_bytes(), 200),
        })
        .filter(|text| !text.is_empty())
        .collect();
    // Outer errors often repeat inner ones.
    all.dedup();
    match (all.last(), e.downcast_ref::<reqwest::Error>()) {
        (_, Some(e)) if e.is_timeout() => "it did not answer in time".to_owned(),
        (Some(last), _) => last.clone(),
        (None, _) => "the request failed".to_owned(),
    }
}
