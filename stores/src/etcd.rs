//! etcd, 3.4 and newer, over its JSON gateway.
//!
//! The compare-and-swap is one transaction that compares revision and value: revisions fall back when a snapshot is
//! restored, and a value has a nonce. Its own leases are not used: it has revoked live ones.

mod faults;

use crate::{
    address::Address,
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::{PARAMETERS, TlsFiles},
    web::{Answer, NoAnswer, Web},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use faults::{Trouble, garbage, is_old_token, judged, not_done, words_of};
use git_fence_core::{StoreFault, StoreFaultKind, StoreReading, StoreRecord};
use git_fence_system::env;
use reqwest::{Method, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

const DEFAULT_PORT: &str = ":2379";
/// An endpoint that takes longer is given up for the next one.
const ONE_ENDPOINT: Duration = Duration::from_secs(5);

/// etcd at one or several endpoints.
#[derive(Debug)]
pub(crate) struct Etcd {
    web: Web,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: usize,
    login: Option<(String, String)>,
    token: Option<String>,
    prefix: String,
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    value: Option<String>,
    mod_revision: String,
}

#[derive(Debug, Deserialize, Default)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

impl Etcd {
    pub(crate) fn open(mut address: Address, around: &Surroundings) -> Result<Etcd, StoreFault> {
        let otherwise = TlsFiles {
            cacert: around.text(env::ETCDCTL_CACERT),
            cert: around.text(env::ETCDCTL_CERT),
            key: around.text(env::ETCDCTL_KEY),
        };
        let files = TlsFiles::of(&mut address, otherwise)?;
        address.nothing_left(PARAMETERS)?;
        let http = if address.scheme == "etcd+https" { "https" } else { "http" };
        let endpoint = |host: &String| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
            format!("{http}://{host}{}", if has_port { "" } else { DEFAULT_PORT })
        };
        let variable = around.text(env::ETCDCTL_USER);
        let variable = variable.as_deref().and_then(|both| both.split_once(':'));
        let login = match (address.user, address.password, variable) {
            (Some(user), Some(password), _) => Some((user, password)),
            (None, None, Some((user, password))) => Some((user.to_owned(), password.to_owned())),
            _ => None,
        };
        let prefix = if address.path.is_empty() { "git-fence".to_owned() } else { address.path.clone() };
        let endpoints = address.hosts.iter().map(endpoint).collect();
        Ok(Etcd { web: Web::new(&files)?, endpoints, current: 0, login, token: around.token()?, prefix })
    }

    fn key(&self, name: &str) -> String {
        BASE64_STANDARD.encode(format!("{}/{name}", self.prefix))
    }

    /// Asks one endpoint after the other. `is_write` says whether a lost answer leaves it open whether it was done.
    fn ask(&mut self, path: &str, body: &Value, is_write: bool, until: &Deadline) -> Result<Answer, Trouble> {
        let mut last = StoreFault::unreachable("no endpoint");
        let all = self.endpoints.len();
        for turn in 0..all {
            let at = (self.current + turn) % all;
            let until = &until.share(u32::try_from(all - turn).unwrap_or(1), ONE_ENDPOINT);
            match self.ask_endpoint(at, path, body, is_write, until) {
                Ok(answer) => {
                    self.current = at;
                    return Ok(answer);
                }
                Err(Trouble::Not(fault)) if fault.kind == StoreFaultKind::Unreachable => last = fault,
                Err(other) => {
                    self.current = (at + 1) % self.endpoints.len();
                    return Err(other);
                }
            }
        }
        Err(Trouble::Not(last))
    }

    fn ask_endpoint(
        &mut self,
        at: usize,
        path: &str,
        body: &Value,
        is_write: bool,
        until: &Deadline,
    ) -> Result<Answer, Trouble> {
        if self.token.is_none() && self.login.is_some() {
            self.log_in(at, until)?;
        }
        let answer = self.post(at, path, body, is_write, until)?;
        // What was refused for its token was not done.
        if is_old_token(&answer) && self.login.is_some() {
            self.log_in(at, until)?;
            let again = self.post(at, path, body, is_write, until)?;
            return judged(again, &self.endpoints[at], is_write);
        }
        judged(answer, &self.endpoints[at], is_write)
    }

    fn post(&self, at: usize, path: &str, body: &Value, is_write: bool, until: &Deadline) -> Result<Answer, Trouble> {
        let endpoint = &self.endpoints[at];
        let mut request = self.web.request(Method::POST, &format!("{endpoint}{path}")).json(body);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        Web::send(request, ONE_ENDPOINT, until).map_err(|no: NoAnswer| match is_write && no.may_have_arrived {
            true => Trouble::May(no.why),
            false => Trouble::Not(no.fault(endpoint)),
        })
    }

    fn log_in(&mut self, at: usize, until: &Deadline) -> Result<(), Trouble> {
        #[derive(Deserialize)]
        struct Granted {
            token: String,
        }
        let Some((name, password)) = &self.login else { return Ok(()) };
        self.token = None;
        let body = json!({ "name": name, "password": password });
        let answer = self.post(at, "/v3/auth/authenticate", &body, false, until)?;
        // It lets everybody in. etcdctl goes on without a token, too.
        if words_of(&answer).contains("authentication is not enabled") {
            return Ok(());
        }
        let answer = judged(answer, &self.endpoints[at], false)?;
        let granted: Granted = parsed(&answer).map_err(Trouble::Not)?;
        self.token = Some(granted.token);
        Ok(())
    }

    fn reading(range: Range, answer: &Answer) -> Result<StoreReading, StoreFault> {
        let record = range.kvs.into_iter().next().map(|found| {
            let not_text = || {
                let hint = "another program uses this key: set another prefix,  etcd://host/PREFIX";
                StoreFault::unusable("the record is not text", hint)
            };
            let bytes = BASE64_STANDARD.decode(found.value.unwrap_or_default()).map_err(|_| not_text())?;
            let body = String::from_utf8(bytes).map_err(|_| not_text())?;
            Ok(StoreRecord { version: found.mod_revision, body })
        });
        Ok(StoreReading { record: record.transpose()?, now_ms: answer.date_ms() })
    }
}

impl Engine for Etcd {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let key = self.key(name);
        let answer = self.ask("/v3/kv/range", &json!({ "key": key }), false, until).map_err(not_done)?;
        Etcd::reading(parsed(&answer)?, &answer)
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        #[derive(Deserialize)]
        struct Header {
            revision: String,
        }
        #[derive(Deserialize)]
        struct Done {
            header: Header,
            #[serde(default)]
            succeeded: bool,
            #[serde(default)]
            responses: Vec<Response>,
        }
        #[derive(Deserialize)]
        struct Response {
            response_range: Option<Range>,
        }
        let key = self.key(swap.name);
        let compare = match swap.expected {
            None => json!([{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }]),
            Some(StoreRecord { version, body }) => json!([
                { "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version },
                { "key": key, "target": "VALUE", "result": "EQUAL", "value": BASE64_STANDARD.encode(body) },
            ]),
        };
        let transaction = json!({
            "compare": compare,
            "success": [{ "request_put": { "key": key, "value": BASE64_STANDARD.encode(swap.next) } }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let answer = match self.ask("/v3/kv/txn", &transaction, true, until) {
            Ok(answer) => answer,
            Err(Trouble::May(why)) => return Ok(SwapAttempt::Unknown { why }),
            Err(Trouble::Not(fault)) => return Err(fault),
        };
        let Ok(Done { header, succeeded, responses }) = parsed(&answer) else {
            return Ok(SwapAttempt::Unknown { why: "etcd's answer cannot be read".to_owned() });
        };
        if succeeded {
            return Ok(SwapAttempt::Won { version: header.revision, now_ms: answer.date_ms() });
        }
        let range = responses.into_iter().find_map(|response| response.response_range).unwrap_or_default();
        Ok(SwapAttempt::Lost(Etcd::reading(range, &answer)?))
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        let key = self.key(name);
        self.ask("/v3/kv/deleterange", &json!({ "key": key }), false, until).map(drop).map_err(not_done)
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let body = json!({ "key": self.key("clock") });
        let endpoints = self.endpoints.clone();
        let clock = |(at, endpoint)| {
            let answer = self.ask_endpoint(at, "/v3/kv/range", &body, false, until);
            (endpoint, answer.map(|answer| answer.date_ms()).map_err(not_done))
        };
        endpoints.into_iter().enumerate().map(clock).collect()
    }
}

fn parsed<T: for<'a> Deserialize<'a>>(answer: &Answer) -> Result<T, StoreFault> {
    serde_json::from_str(&answer.body).map_err(|_| garbage("what answers there is not etcd's JSON gateway"))
}
