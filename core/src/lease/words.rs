//! A lease in words and in JSON, the same for the client and the gate.

use crate::{Reason, Token, text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who held a lease last, and how that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastHolder {
    /// The name its owner gave.
    pub owner: String,
    /// Its last token.
    pub token: Token,
    /// When it ended: RFC 3339, UTC.
    pub time: String,
    /// Released, expired or revoked.
    pub reason: Reason,
    /// Who revoked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason in free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl fmt::Display for LastHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LastHolder { owner, token, time, reason, by, words } = self;
        write!(f, "{}, token {token}, {}", text::in_quotes(owner), reason.as_str())?;
        if let Some(by) = by {
            write!(f, " by {}", text::in_quotes(by))?;
        }
        write!(f, " {time}")?;
        words.as_deref().map_or(Ok(()), |words| write!(f, ": {}", text::in_quotes(words)))
    }
}

/// Who halted a fence, as shown to those who want its lease or push to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The name that they gave.
    pub by: String,
    /// The token of the halt: those below it no longer write.
    pub token: Token,
    /// Since when, if it is known: RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "halted by {}", text::in_quotes(&self.by))?;
        self.since.as_deref().map_or(Ok(()), |since| write!(f, " since {since}"))?;
        self.reason.as_deref().map_or(Ok(()), |reason| write!(f, ": {}", text::in_quotes(reason)))
    }
}

/// A lease that is held. `owner` is in quotes already: more may be said of it.
pub fn held_in_words(owner: &str, token: Token, since: Option<&str>, left_ms: u64) -> String {
    let since = since.map_or(String::new(), |since| format!(", since {since}"));
    // Rounded up: a lease with 100 ms left is still held.
    format!("held by {owner}, token {token}{since}, for another {} s", left_ms.div_ceil(1000))
}

/// A lease that is not held.
pub fn free_in_words(last: Option<&LastHolder>) -> String {
    last.map_or("free (never held)".to_owned(), |last| format!("free (last: {last})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_revoked_a_lease_is_not_its_holder() {
        let token = Token::parse(b"5").unwrap();
        let released = LastHolder {
            owner: "a".to_owned(),
            token,
            time: "2026-01-01T00:00:00Z".to_owned(),
            reason: Reason::Released,
            by: None,
            words: None,
        };
        assert_eq!(free_in_words(Some(&released)), "free (last: 'a', token 5, released 2026-01-01T00:00:00Z)");
        let (by, words) = (Some("boss".to_owned()), Some("it hangs".to_owned()));
        let revoked = LastHolder { reason: Reason::Revoked, by, words, ..released };
        assert_eq!(
            free_in_words(Some(&revoked)),
            "free (last: 'a', token 5, revoked by 'boss' 2026-01-01T00:00:00Z: 'it hangs')"
        );
        assert_eq!(held_in_words("'a'", token, None, 1), "held by 'a', token 5, for another 1 s");
    }
}
