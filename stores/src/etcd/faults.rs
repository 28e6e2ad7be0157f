//! What etcd's answers mean that are errors.

use crate::web::Answer;
use git_fence_core::{StoreFault, text};
use serde_json::Value;

/// Why etcd could not do it.
pub(super) enum Trouble {
    /// It may have been done.
    May(String),
    /// It was not.
    Not(StoreFault),
}

/// What an answer with an error means.
pub(super) fn judged(answer: Answer, endpoint: &str, is_write: bool) -> Result<Answer, Trouble> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let said = words_of(&answer);
    let why = format!("etcd at {endpoint} says: {said}");
    if let Some(fault) = refusal(&answer, &said, &why) {
        return Err(Trouble::Not(fault));
    }
    // Whatever else fails may have been done, or may be done later.
    match is_write {
        true => Err(Trouble::May(why)),
        false => Err(Trouble::Not(StoreFault::unreachable(why))),
    }
}

/// The fault, where etcd has refused something before it tried.
fn refusal(answer: &Answer, said: &str, why: &str) -> Option<StoreFault> {
    let is_about = |words: &[&str]| words.iter().any(|words| said.contains(words));
    let is_denied = ["permission denied", "authentication failed", "user name is empty", "auth token"];
    if is_about(&is_denied) || matches!(answer.status.as_u16(), 401 | 403) {
        let hint =
            "set the user and the password in the URL or in ETCDCTL_USER, and let the user read and write the keys";
        return Some(StoreFault::denied(why, hint));
    }
    if is_about(&["too large", "larger than max"]) {
        let hint = "raise its  --max-request-bytes,  or shorten reason and holder";
        return Some(StoreFault::unusable(why, hint));
    }
    if is_about(&["database space exceeded"]) {
        let hint = "make room: compact and defragment etcd, and disarm its alarm".to_owned();
        return Some(StoreFault { hint, ..StoreFault::unreachable(why) });
    }
    if is_about(&["no leader", "not capable", "too many requests"]) {
        return Some(StoreFault::unreachable(why));
    }
    // The gateway speaks JSON. This is another server, or one that expects TLS.
    let is_json = serde_json::from_str::<Value>(&answer.body).is_ok();
    (answer.status.is_client_error() && !is_json).then(|| garbage(why))
}

/// A token lasts minutes, not over a restart, and some not over a change of the users.
pub(super) fn is_old_token(answer: &Answer) -> bool {
    let said = words_of(answer);
    !answer.status.is_success()
        && ["invalid auth token", "revision of auth store is old"].iter().any(|w| said.contains(w))
}

/// etcd's own words.
pub(super) fn words_of(answer: &Answer) -> String {
    let said: Option<Value> = serde_json::from_str(&answer.body).ok();
    let message = said.as_ref().and_then(|said| said["message"].as_str().or_else(|| said["error"].as_str()));
    message.map_or_else(|| answer.in_words(), |message| text::one_line(message.as_bytes(), 200))
}

pub(super) fn garbage(why: &str) -> StoreFault {
    StoreFault::unusable(
        why,
        "check the URL: the gateway is on etcd's client port, 2379, and with TLS it is  etcd+https://",
    )
}

pub(super) fn not_done(trouble: Trouble) -> StoreFault {
    match trouble {
        Trouble::Not(fault) => fault,
        Trouble::May(why) => StoreFault::unreachable(why),
    }
}
