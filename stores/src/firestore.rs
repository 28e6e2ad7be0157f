//! Firestore, over its REST interface: one document for each record, in the collection `git-fence`.
//!
//! A write goes by `:commit` with `currentDocument.updateTime`. Every body has a nonce: a write that changes nothing would
//! keep its time.

use crate::{
    address::{Address, one_segment},
    bearer::{Bearer, denied, is_denied},
    deadline::Deadline,
    engine::{Engine, RecordSwap, SwapAttempt},
    surroundings::Surroundings,
    tls::TlsFiles,
    web::{Answer, Web},
};
use git_fence_core::{StoreFault, StoreReading, StoreRecord};
use git_fence_system::env;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

const GOOGLE: &str = "https://firestore.googleapis.com";
/// The emulator accepts this as an administrator.
const EMULATED: &str = "owner";

/// A database of Firestore.
#[derive(Debug)]
pub(crate) struct Firestore {
    web: Web,
    bearer: Bearer,
    server: String,
    /// `projects/…/databases/…/documents`.
    documents: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Got {
    found: Option<Document>,
    read_time: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    fields: Option<Value>,
    update_time: String,
}

impl Firestore {
    pub(crate) fn open(address: &Address, around: &Surroundings) -> Result<Firestore, StoreFault> {
        address.nothing_left("nothing")?;
        let emulator = around.text(env::FIRESTORE_EMULATOR_HOST);
        let server = emulator.as_ref().map_or_else(|| GOOGLE.to_owned(), |host| format!("http://{host}"));
        let project = address.hosts.first().cloned().unwrap_or_default();
        let database = if address.path.is_empty() { "(default)" } else { &address.path };
        if address.hosts.len() > 1 || database.contains('/') {
            let hint = "use  firestore://PROJECT  or  firestore://PROJECT/DATABASE";
            return Err(StoreFault::unusable("the URL of the store is not one of Firestore", hint));
        }
        let bearer = Bearer::new(around, emulator.is_some().then_some(EMULATED))?;
        let documents = format!("projects/{project}/databases/{database}/documents");
        Ok(Firestore { web: Web::new(&TlsFiles::default())?, bearer, server, documents })
    }

    fn document(&self, name: &str) -> String {
        format!("{}/git-fence/{}", self.documents, one_segment(name))
    }

    fn ask(&mut self, verb: &str, body: &Value, until: &Deadline) -> Result<Answer, crate::web::NoAnswer> {
        let url = format!("{}/v1/{}:{verb}", self.server, self.documents);
        self.bearer.send(&self.web.request(Method::POST, &url).json(body), until)
    }

    fn fault(&self, answer: &Answer) -> StoreFault {
        if is_denied(answer) {
            return denied(&self.server, answer);
        }
        let why = format!("{} says {}", self.server, answer.in_words());
        if answer.status.is_server_error() || answer.status.as_u16() == 429 {
            return StoreFault::unreachable(why);
        }
        StoreFault::unusable(why, "check project and database:  firestore://PROJECT/DATABASE")
    }
}

impl Engine for Firestore {
    fn read(&mut self, name: &str, until: &Deadline) -> Result<StoreReading, StoreFault> {
        let body = json!({ "documents": [self.document(name)] });
        let answer = self.ask("batchGet", &body, until).map_err(|no| no.fault(&self.server))?;
        if !answer.status.is_success() {
            return Err(self.fault(&answer));
        }
        let strange = || StoreFault::unusable("what answers there is not Firestore", "check the URL");
        let got: Vec<Got> = serde_json::from_str(&answer.body).map_err(|_| strange())?;
        let got = got.into_iter().next().ok_or_else(strange)?;
        let record = match got.found {
            None => None,
            Some(Document { fields, update_time }) => {
                let body = fields.as_ref().and_then(|fields| fields["body"]["stringValue"].as_str());
                let strange = || StoreFault::unusable("the document of this fence has no field 'body'", "look at it");
                Some(StoreRecord { version: update_time, body: body.ok_or_else(strange)?.to_owned() })
            }
        };
        Ok(StoreReading { record, now_ms: got.read_time.as_deref().and_then(milliseconds) })
    }

    fn swap(&mut self, swap: &RecordSwap<'_>, until: &Deadline) -> Result<SwapAttempt, StoreFault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Committed {
            write_results: Vec<WriteResult>,
            commit_time: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WriteResult {
            update_time: Option<String>,
        }
        let condition = match swap.expected {
            Some(StoreRecord { version, .. }) => json!({ "updateTime": version }),
            None => json!({ "exists": false }),
        };
        let fields = json!({ "body": { "stringValue": swap.next } });
        let update = json!({ "name": self.document(swap.name), "fields": fields });
        let body = json!({ "writes": [{ "update": update, "currentDocument": condition }] });
        let answer = match self.ask("commit", &body, until) {
            Ok(answer) => answer,
            Err(no) if no.may_have_arrived => return Ok(SwapAttempt::Unknown { why: no.why }),
            Err(no) => return Err(no.fault(&self.server)),
        };
        if answer.status.is_success() {
            let done: Option<Committed> = serde_json::from_str(&answer.body).ok();
            let time = done.as_ref().and_then(|done| {
                done.write_results.first().and_then(|result| result.update_time.clone()).or(done.commit_time.clone())
            });
            return Ok(match time {
                Some(version) => SwapAttempt::Won { now_ms: milliseconds(&version), version },
                None => SwapAttempt::Unknown { why: "Firestore's answer cannot be read".to_owned() },
            });
        }
        match status_of(&answer).as_str() {
            "FAILED_PRECONDITION" | "ALREADY_EXISTS" | "ABORTED" | "NOT_FOUND" => {
                Ok(SwapAttempt::Lost(self.read(swap.name, until)?))
            }
            _ if answer.status.is_server_error() => Ok(SwapAttempt::Unknown { why: answer.in_words() }),
            _ => Err(self.fault(&answer)),
        }
    }

    fn remove(&mut self, name: &str, until: &Deadline) -> Result<(), StoreFault> {
        let body = json!({ "writes": [{ "delete": self.document(name) }] });
        let answer = self.ask("commit", &body, until).map_err(|no| no.fault(&self.server))?;
        if answer.status.is_success() { Ok(()) } else { Err(self.fault(&answer)) }
    }

    fn clocks(&mut self, until: &Deadline) -> Vec<(String, Result<Option<u64>, StoreFault>)> {
        let read = self.read("clock", until);
        vec![(self.server.clone(), read.map(|reading| reading.now_ms))]
    }
}

/// The word for the status in an answer with an error.
fn status_of(answer: &Answer) -> String {
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    // Some versions of the emulator answer with a list of one.
    let error = if said.is_array() { &said[0]["error"] } else { &said["error"] };
    error["status"].as_str().unwrap_or_default().to_owned()
}

fn milliseconds(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok()
}
