//! The token, which grows with every grant, and the mark it is compared with.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A fencing token: an integer from 1 to 2^63-1. Larger is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

/// Why a text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// Anything but the ten ASCII digits: signs, spaces, letters, points, digits of other scripts.
    #[error("only the digits 0 to 9 are allowed")]
    NotDigits,
    /// `07` and `7` must not both be spellings of one token.
    #[error("it starts with a zero")]
    LeadingZero,
    /// Zero is the mark before the first push, and a token must be above the mark.
    #[error("tokens start at 1")]
    Zero,
    /// Above 2^63-1, the largest integer of many languages.
    #[error("it is above 9223372036854775807")]
    TooLarge,
}

impl Token {
    /// The largest token: 2^63-1.
    pub const MAX: Token = Token(i64::MAX as u64);
    /// The smallest one.
    pub const FIRST: Token = Token(1);

    /// Reads a token in its only spelling: digits, no leading zero.
    pub fn parse(text: &[u8]) -> Result<Token, TokenError> {
        match text {
            [] => return Err(TokenError::Empty),
            _ if !text.iter().all(u8::is_ascii_digit) => return Err(TokenError::NotDigits),
            [b'0'] => return Err(TokenError::Zero),
            [b'0', ..] => return Err(TokenError::LeadingZero),
            _ => {}
        }
        text.iter()
            .try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
            .ok_or(TokenError::TooLarge)?
            .try_into()
    }

    /// The token as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Whether a counter that continues from here will soon run out of tokens. No counter gets here by counting;
    /// somebody wrote this number.
    pub fn is_at_the_end(self) -> bool {
        Token::MAX.0 - self.0 < 1 << 32
    }
}

impl TryFrom<u64> for Token {
    type Error = TokenError;

    fn try_from(n: u64) -> Result<Token, TokenError> {
        match n {
            0 => Err(TokenError::Zero),
            n if n > Token::MAX.0 => Err(TokenError::TooLarge),
            n => Ok(Token(n)),
        }
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The largest token that has moved a ref of a fence; 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Mark(u64);

impl Mark {
    /// The mark after `token` moved a ref. It never goes down.
    #[must_use]
    pub fn after(self, token: Token) -> Mark {
        Mark(self.0.max(token.0))
    }

    /// The mark with this number; `None` above the largest token.
    pub fn at(n: u64) -> Option<Mark> {
        (n <= Token::MAX.0).then_some(Mark(n))
    }

    /// The mark as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Mark {
    type Error = TokenError;

    fn try_from(n: u64) -> Result<Mark, TokenError> {
        Mark::at(n).ok_or(TokenError::TooLarge)
    }
}

impl From<Mark> for u64 {
    fn from(mark: Mark) -> u64 {
        mark.0
    }
}

impl From<Token> for Mark {
    fn from(token: Token) -> Mark {
        Mark(token.0)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_exactly_one_spelling() {
        assert_eq!(Token::parse(b"1").unwrap().get(), 1);
        assert_eq!(Token::parse(b"9223372036854775807").unwrap(), Token::MAX);
        for (text, why) in [
            ("", TokenError::Empty),
            ("0", TokenError::Zero),
            ("00", TokenError::LeadingZero),
            ("007", TokenError::LeadingZero),
            ("+7", TokenError::NotDigits),
            ("-7", TokenError::NotDigits),
            (" 7", TokenError::NotDigits),
            ("7 ", TokenError::NotDigits),
            ("4 2", TokenError::NotDigits),
            ("7\n", TokenError::NotDigits),
            ("0x7", TokenError::NotDigits),
            ("7.0", TokenError::NotDigits),
            ("1e3", TokenError::NotDigits),
            ("seven", TokenError::NotDigits),
            ("٧", TokenError::NotDigits),
            ("７", TokenError::NotDigits),
            ("7\u{1b}[0m", TokenError::NotDigits),
            ("9223372036854775808", TokenError::TooLarge),
            ("18446744073709551616", TokenError::TooLarge),
            ("999999999999999999999999999999", TokenError::TooLarge),
        ] {
            assert_eq!(Token::parse(text.as_bytes()), Err(why), "{text:?}");
        }
    }

    #[test]
    fn only_the_last_tokens_are_at_the_end() {
        assert!(Token::MAX.is_at_the_end() && Token(Token::MAX.0 - 1).is_at_the_end());
        // Nanoseconds since 1970, which some use as tokens, are far below.
        assert!(!Token(4_102_444_800_000_000_000).is_at_the_end());
    }

    #[test]
    fn mark_above_every_token_is_refused() {
        for (json, is_mark) in [("0", true), ("9223372036854775807", true), ("9223372036854775808", false)] {
            assert_eq!(serde_json::from_str::<Mark>(json).is_ok(), is_mark, "{json}");
        }
    }

    #[test]
    fn mark_never_goes_down() {
        let mark = Mark::default().after(Token(7));
        assert_eq!(mark.after(Token(3)), mark);
        assert_eq!(mark.after(Token(8)).get(), 8);
    }
}
