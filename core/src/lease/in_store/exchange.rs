//! The lines between a program and `git-fence-store`, which has the network code: a request, and its reply, as JSON.
//!
//! The first request opens the store; the others follow on the same connection. The URL, which may have a password, is
//! only in that line: never in arguments or in the environment of the helper.

use serde::{Deserialize, Serialize};

/// A record in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRecord {
    /// The engine's own version of it. After a restored backup an engine may use a version again, so it is never compared
    /// without the body, whose nonce is never used again.
    pub version: String,
    /// The record itself.
    pub body: String,
}

/// What a store shows under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReading {
    /// The record, if there is one.
    pub record: Option<StoreRecord>,
    /// The store's clock, in milliseconds since 1970, where it has one.
    pub now_ms: Option<u64>,
}

/// A request to `git-fence-store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum StoreRequest {
    /// Open the store at this URL. Nothing is connected yet.
    Open {
        /// The URL.
        url: String,
    },
    /// Read a record.
    Read {
        /// Its name.
        name: String,
        /// How long it may take.
        within_ms: u64,
    },
    /// Replace a record, if it is still as expected.
    Swap {
        /// Its name.
        name: String,
        /// The expected record; none if there must not be one.
        expected: Option<StoreRecord>,
        /// The new body.
        next: String,
        /// Whether the engine keeps the new body in its history, if it has one.
        keep: bool,
        /// How long it may take.
        within_ms: u64,
    },
    /// Make what the store needs, such as tables.
    Init {
        /// How long it may take.
        within_ms: u64,
    },
    /// Try compare-and-swap and clock.
    Check {
        /// How long it may take.
        within_ms: u64,
    },
}

/// A reply of `git-fence-store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum StoreReply {
    /// The store is open.
    Opened {
        /// The engine, and where it is, without user and password.
        place: String,
    },
    /// What was read.
    Found(StoreReading),
    /// The record was replaced.
    Won {
        /// Its new version.
        version: String,
        /// The store's clock.
        now_ms: Option<u64>,
    },
    /// The record was not as expected, and is not replaced.
    Lost(StoreReading),
    /// No reply: it may have been replaced, or may still be.
    Unknown {
        /// What is known about the cause.
        why: String,
    },
    /// What was made; nothing if all was there.
    Made {
        /// Each thing, for people.
        what: Vec<String>,
    },
    /// What was tried.
    Checked(StoreCheck),
    /// It could not be done. Nothing was replaced.
    Failed(StoreFault),
}

/// Why a store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct StoreFault {
    /// Which kind.
    pub kind: StoreFaultKind,
    /// The sentence for people, without passwords.
    pub why: String,
    /// What to do about it.
    pub hint: String,
}

/// Which kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreFaultKind {
    /// It does not answer, or cannot at this moment.
    Unreachable,
    /// We have no right to read or to write there.
    Denied,
    /// What is there is no store of leases, or the URL is wrong.
    Unusable,
}

/// What came of trying a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCheck {
    /// What was tried, in order.
    pub steps: Vec<StoreCheckStep>,
    /// The clock of each endpoint.
    pub clocks: Vec<StoreClock>,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCheckStep {
    /// What must hold.
    pub claim: String,
    /// What was seen instead; none if it holds.
    pub but: Option<String>,
}

/// The clock of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreClock {
    /// The endpoint.
    pub endpoint: String,
    /// How far it is ahead of this machine's clock, in milliseconds; none if it has no clock or gave no answer.
    pub ahead_ms: Option<i64>,
}

impl StoreCheck {
    /// Whether leases can be kept there.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.but.is_none())
    }
}

impl StoreFault {
    /// The store does not answer, or cannot at this moment.
    pub fn unreachable(why: impl Into<String>) -> StoreFault {
        let hint = "check the URL and the network, or try again later";
        StoreFault { kind: StoreFaultKind::Unreachable, why: why.into(), hint: hint.to_owned() }
    }

    /// There is no right to read or to write.
    pub fn denied(why: impl Into<String>, hint: impl Into<String>) -> StoreFault {
        StoreFault { kind: StoreFaultKind::Denied, why: why.into(), hint: hint.into() }
    }

    /// It is no store of leases.
    pub fn unusable(why: impl Into<String>, hint: impl Into<String>) -> StoreFault {
        StoreFault { kind: StoreFaultKind::Unusable, why: why.into(), hint: hint.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_are_lines_of_json() {
        let record = StoreRecord { version: "7".to_owned(), body: "{\n}".to_owned() };
        let swap = StoreRequest::Swap {
            name: "host/app/repo".to_owned(),
            expected: Some(record.clone()),
            next: "x".to_owned(),
            keep: true,
            within_ms: 5000,
        };
        let line = serde_json::to_string(&swap).unwrap();
        assert!(!line.contains('\n') && line.starts_with(r#"{"do":"swap","#), "{line}");
        assert_eq!(serde_json::from_str::<StoreRequest>(&line).unwrap(), swap);
        for reply in [
            StoreReply::Lost(StoreReading { record: Some(record), now_ms: Some(1) }),
            StoreReply::Failed(StoreFault::unreachable("no answer")),
            StoreReply::Unknown { why: "cut".to_owned() },
        ] {
            let line = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<StoreReply>(&line).unwrap(), reply, "{line}");
        }
    }
}
