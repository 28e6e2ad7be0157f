//! Any HTTP service with conditional writes: `GET` answers with an `ETag`, `PUT` obeys `If-Match` and `If-None-Match: *`.

use crate::{
    address::{Address, one_segment},
    bearer::{Bearer, denied, is_denied},
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::{PARAMETERS, TlsFiles},
    web::{Answer, Web},
};
use git_fence_core::{StoreFault, StoreReading, StoreRecord};
use reqwest::{
    Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH},
};

/// A service at a URL, with one resource for each record below it.
#[derive(Debug)]
pub(crate) struct Http {
    web: Web,
    bearer: Bearer,
    login: Option<(String, String)>,
    base: String,
}

impl Http {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Http, StoreFault> {
        let files = TlsFiles::of(&mut address, TlsFiles::default())?;
        address.nothing_left(PARAMETERS)?;
        let login = address.user.clone().zip(Some(address.password.clone().unwrap_or_default()));
        let base = address.as_written().trim_end_matches('/').to_owned();
        Ok(Http { web: Web::new(&files)?, bearer: Bearer::new(around, None)?, login, base })
    }

    fn request(&self, method: Method, name: &str) -> reqwest::blocking::RequestBuilder {
        let request = self.web.request(method, &format!("{}/{}", self.base, one_segment(name)));
        let request = request.header(CACHE_CONTROL, "no-cache");
        match &self.login {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }

    fn get(&mut self, name: &str, until: &Deadline) -> Result<Answer, StoreFault> {
        let answer = self.bearer.send(&self.request(Method::GET, name), until).map_err(|no| no.fault(&self.base))?;
        match answer.status {
            StatusCode::OK | StatusCode::NOT_FOUND => Ok(answer),
            _ if is_denied(&answer) => Err(denied(&self.base, &answer)),
            status if status.is_server_error() || is_too_busy(status) => Err(self.cannot_now(&answer)),
            _ => Err(self.unusable(&answer.in_words())),
        }
    }

    fn reading(&self, answer: Answer) -> Result<StoreReading, StoreFault> {
        let now_ms = answer.date_ms();
        if answer.is_from_a_cache() {
            return Err(self.unusable("a cache has answered (it sends the header Age)"));
        }
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(StoreReading { record: None, now_ms });
        }
        let version = self.strong(answer.etag())?;
        Ok(StoreReading { record: Some(StoreRecord { version, body: answer.body }), now_ms })
    }

    /// A weak tag may stand for two bodies, and `If-Match` never matches it.
    fn strong(&self, etag: Option<&str>) -> Result<String, StoreFault> {
        match etag {
            Some(tag) if !tag.starts_with("W/") => Ok(tag.to_owned()),
            Some(_) => Err(self.unusable("its ETag is a weak one (W/…)")),
            None => Err(self.unusable("it sends no ETag")),
        }
    }

    fn cannot_now(&self, answer: &Answer) -> StoreFault {
        StoreFault::unreachable(format!("{} says {}", self.base, answer.in_words()))
    }

    fn unusable(&self, why: &str) -> StoreFault {
        let hint = "it must answer GET with a strong ETag or 404, and PUT by If-Match and If-None-Match, with 412 where they do not hold";
        StoreFault::unusable(format!("{} cannot keep leases: {why}", self.base), hint)
    }
}

impl Engine for Http {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let answer = self.get(name, until)?;
        self.reading(answer)
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        let put = self.request(Method::PUT, swap.name).header(CONTENT_TYPE, "application/json");
        let put = match swap.expected {
            Some(StoreRecord { version, .. }) => put.header(IF_MATCH, version),
            None => put.header(IF_NONE_MATCH, "*"),
        };
        let answer = match self.bearer.send(&put.body(swap.next.to_owned()), until) {
            Ok(answer) => answer,
            Err(no) if no.may_have_arrived => return Ok(SwapAttempt::Unknown { why: no.why }),
            Err(no) => return Err(no.fault(&self.base)),
        };
        match answer.status {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => match self.strong(answer.etag()) {
                Ok(version) => Ok(SwapAttempt::Won { version, now_ms: answer.date_ms() }),
                // The answer has no tag: read it. If others were faster, that says nothing about our own write.
                Err(_) => match self.read(swap.name, until) {
                    Ok(StoreReading { record: Some(record), now_ms }) if record.body == swap.next => {
                        Ok(SwapAttempt::Won { version: record.version, now_ms })
                    }
                    Ok(_) => Ok(SwapAttempt::Unknown { why: "the answer to the write has no ETag".to_owned() }),
                    Err(fault) => Ok(SwapAttempt::Unknown { why: fault.why }),
                },
            },
            StatusCode::PRECONDITION_FAILED => Ok(SwapAttempt::Lost(self.read(swap.name, until)?)),
            _ if is_denied(&answer) => Err(denied(&self.base, &answer)),
            status if is_too_busy(status) => Err(self.cannot_now(&answer)),
            status if status.is_server_error() => Ok(SwapAttempt::Unknown { why: answer.in_words() }),
            _ => Err(self.unusable(&answer.in_words())),
        }
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        let sent = self.bearer.send(&self.request(Method::DELETE, name), until);
        let answer = sent.map_err(|no| no.fault(&self.base))?;
        if answer.status.is_success() { Ok(()) } else { Err(self.unusable(&answer.in_words())) }
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let answer = self.get("clock", until);
        vec![(self.base.clone(), answer.map(|answer| answer.date_ms()))]
    }
}

/// Whether it says that it has not done it, and may do it later.
fn is_too_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
}
