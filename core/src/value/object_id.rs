//! Object ids as git prints them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of an object: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
///
/// Never the null id: "no object" is `Option::None`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId(Box<str>);

/// Why a text is not an object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an object id of 40 or 64 lower-case hexadecimal digits")]
pub struct ObjectIdError;

impl ObjectId {
    /// Reads an id; the null id reads as `None`.
    pub fn parse(hex: &[u8]) -> Result<Option<ObjectId>, ObjectIdError> {
        let is_hex = hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match std::str::from_utf8(hex) {
            Ok(text) if is_hex && matches!(hex.len(), 40 | 64) => {
                Ok(hex.iter().any(|b| *b != b'0').then(|| ObjectId(text.into())))
            }
            _ => Err(ObjectIdError),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ObjectId {
    type Error = ObjectIdError;

    fn try_from(hex: String) -> Result<ObjectId, ObjectIdError> {
        ObjectId::parse(hex.as_bytes())?.ok_or(ObjectIdError)
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> String {
        id.0.into()
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_hashes_are_read_and_the_null_id_is_none() {
        for len in [40, 64] {
            assert_eq!(ObjectId::parse("a".repeat(len).as_bytes()).unwrap().unwrap().as_str().len(), len);
            assert_eq!(ObjectId::parse("0".repeat(len).as_bytes()), Ok(None));
        }
        for bad in ["", "abc", &"A".repeat(40), &"g".repeat(40), &"a".repeat(41), &"a".repeat(63)] {
            assert!(ObjectId::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ObjectId>(&format!("\"{}\"", "0".repeat(40))).is_err());
    }
}
