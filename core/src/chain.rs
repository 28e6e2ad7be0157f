//! The chain that ties each line of the log to the one before.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};

/// The SHA-256 of a line, without its line feed, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LineHash(String);

impl LineHash {
    /// What the very first line of a log names as the line before it.
    pub fn none() -> LineHash {
        LineHash("0".repeat(64))
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hash by which the next line names this one.
pub fn hash_line(line: &[u8]) -> LineHash {
    LineHash(hex(&Sha256::digest(line)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_named_by_its_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash_line(b"").to_string(), empty);
        assert_ne!(hash_line(b"a"), hash_line(b"b"));
    }
}
