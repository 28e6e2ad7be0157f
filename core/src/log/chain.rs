//! The hash chain: each line of the log has the hash of the line before.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};

/// The SHA-256 of a line, without its line feed, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LineHash(String);

impl LineHash {
    /// The previous hash in the first line of a log.
    pub fn none() -> LineHash {
        LineHash("0".repeat(64))
    }
}

impl TryFrom<String> for LineHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<LineHash, &'static str> {
        if is_hex(&text, 64) {
            Ok(LineHash(text))
        } else {
            Err("not the hash of a line: expected 64 hexadecimal digits")
        }
    }
}

impl From<LineHash> for String {
    fn from(hash: LineHash) -> String {
        hash.0
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hash of `line`, for the next line.
pub fn hash_line(line: &[u8]) -> LineHash {
    LineHash(hex(&Sha256::digest(line)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether `text` is exactly `length` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_line_is_its_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash_line(b"").to_string(), empty);
        assert_ne!(hash_line(b"a"), hash_line(b"b"));
    }

    #[test]
    fn invalid_hashes_are_refused() {
        let hash = hash_line(b"a");
        assert_eq!(serde_json::from_str::<LineHash>(&format!("\"{hash}\"")).unwrap(), hash);
        for bad in ["", "0", &"A".repeat(64), &"0".repeat(65), &"ä".repeat(32)] {
            assert!(serde_json::from_str::<LineHash>(&format!("\"{bad}\"")).is_err(), "{bad}");
        }
    }
}
