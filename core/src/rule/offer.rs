//! The tokens that a push carries, and where they were found.

use crate::{FenceName, Reject, Secret, Settings, Token, text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The trailer that carries a token for clients that cannot send push options.
pub const TRAILER: &str = "Fencing-Token";

/// More than any client sends on purpose.
const MOST_OPTIONS: usize = 1000;
/// No valid option of ours is longer.
const LONGEST_OPTION: usize = 4096;

/// Where a push's tokens were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// In push options. Trailers are then not read.
    Option,
    /// In trailers of the objects that the refs move to.
    Trailer,
    /// Nowhere.
    None,
}

/// The tokens of one push: at most one for each fence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    tokens: BTreeMap<FenceName, Token>,
    /// The secrets with which a holder of a [`crate::Format::OneSecret`] lease proves that it holds the lease.
    secrets: BTreeMap<FenceName, Secret>,
    /// The owner that the pusher names, for the log only.
    pub owner: Option<String>,
}

impl Offer {
    /// The token for `fence`.
    pub fn token(&self, fence: &FenceName) -> Option<Token> {
        self.tokens.get(fence).copied()
    }

    /// The holder's secret for the lease of `fence`.
    pub fn secret(&self, fence: &FenceName) -> Option<&Secret> {
        self.secrets.get(fence)
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Removes the tokens for these fences.
    pub fn withdraw(&mut self, from: impl Fn(&FenceName) -> bool) {
        self.tokens.retain(|fence, _| !from(fence));
    }

    /// Adds a token; a second one for the same fence must be the same.
    pub fn add(&mut self, fence: FenceName, token: Token) -> Result<(), Reject> {
        match self.tokens.insert(fence.clone(), token) {
            Some(other) if other != token => Err(Reject::Ambiguous { fence, tokens: (other, token) }),
            _ => Ok(()),
        }
    }
}

/// Why the push options cannot be read from the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// `GIT_PUSH_OPTION_COUNT` is not a number.
    #[error("GIT_PUSH_OPTION_COUNT is not a number: {0}")]
    Count(String),
    /// The variable of an option below the count is not set.
    #[error("GIT_PUSH_OPTION_{0} is missing")]
    Absent(usize),
}

/// Reads our options: `fence-token`, `fence-holder`, `fence-owner`. Options without the prefix `fence-` are ignored.
pub fn read_options(options: &[Vec<u8>], settings: &Settings) -> Result<Offer, Reject> {
    if options.len() > MOST_OPTIONS {
        return Err(Reject::malformed(format!(
            "too many push options: {}, at most {MOST_OPTIONS} are allowed",
            options.len()
        )));
    }
    let mut offer = Offer::default();
    for option in options.iter().filter(|option| option.starts_with(b"fence-")) {
        if option.len() > LONGEST_OPTION {
            return Err(Reject::malformed(format!(
                "push option {} is too long: {} bytes, at most {LONGEST_OPTION} are allowed",
                text::quoted(option),
                option.len()
            )));
        }
        let (key, value) = match option.iter().position(|b| *b == b'=') {
            Some(at) => option.split_at(at + 1),
            None => (&option[..], &b""[..]),
        };
        match key {
            b"fence-token=" => {
                let (fence, token) = read_token(value, settings).map_err(|why| {
                    Reject::malformed_token(format!("invalid token in push option {}: {why}", text::quoted(option)))
                })?;
                offer.add(fence, token)?;
            }
            b"fence-holder=" => {
                // Never quoted: messages are shown, stored and forwarded.
                let invalid =
                    |why: String| Reject::malformed(format!("invalid secret in push option 'fence-holder': {why}"));
                let (fence, secret) = split_fence(value, settings).map_err(invalid)?;
                let secret =
                    Secret::parse(secret).ok_or_else(|| invalid("expected 64 hexadecimal digits".to_owned()))?;
                if offer.secrets.insert(fence, secret.clone()).is_some_and(|other| other != secret) {
                    return Err(invalid("it is given twice".to_owned()));
                }
            }
            b"fence-owner=" => offer.owner = Some(text::one_line(value, 200)),
            // A misspelt option must not count as no option where pushes without a token are admitted.
            _ => {
                return Err(Reject::malformed(format!(
                    "unknown push option {}: expected fence-token, fence-holder or fence-owner",
                    text::quoted(option)
                )));
            }
        }
    }
    Ok(offer)
}

/// Reads the value of a [`TRAILER`] that was found in `object`.
pub fn read_trailer(value: &[u8], object: &str, settings: &Settings) -> Result<(FenceName, Token), Reject> {
    read_token(value, settings).map_err(|why| {
        Reject::malformed_token(format!(
            "invalid token in trailer {TRAILER}: {} of {object}: {why}",
            text::quoted(value)
        ))
    })
}

fn read_token(value: &[u8], settings: &Settings) -> Result<(FenceName, Token), String> {
    let (fence, digits) = split_fence(value, settings)?;
    let token = Token::parse(digits).map_err(|e| e.to_string())?;
    Ok((fence, token))
}

/// `<n>` is for the fence `repo`, `<fence>:<n>` for the fence or member it names, which must exist.
fn split_fence<'v>(value: &'v [u8], settings: &Settings) -> Result<(FenceName, &'v [u8]), String> {
    let (fence, rest) = match value.iter().position(|b| *b == b':') {
        Some(at) => (FenceName::read(&value[..at]).map_err(|e| e.to_string())?, &value[at + 1..]),
        None => (FenceName::repo(), value),
    };
    settings.fence_called(&fence).map_err(|e| e.to_string())?;
    Ok((fence, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Rules};

    fn settings() -> Settings {
        let deploy = Rules { fence: FenceName::parse(b"deploy").unwrap(), ..Rules::for_repo() };
        Settings { fences: vec![deploy, Rules::for_repo()], ..Settings::default() }
    }

    fn read(options: &[&str]) -> Result<Offer, Reject> {
        read_options(&options.iter().map(|o| o.as_bytes().to_vec()).collect::<Vec<_>>(), &settings())
    }

    #[test]
    fn tokens_are_read_for_the_fence_they_name() {
        let offer = read(&["ci.skip", "fence-token=5", "fence-token=deploy:7", "fence-owner=a\u{1b}b"]).unwrap();
        assert_eq!(offer.token(&FenceName::repo()).unwrap().get(), 5);
        assert_eq!(offer.token(&FenceName::parse(b"deploy").unwrap()).unwrap().get(), 7);
        assert_eq!(offer.owner.as_deref(), Some("ab"));
        assert!(read(&["ci.skip", "merge_request.create"]).unwrap().is_empty());
    }

    #[test]
    fn repeated_token_is_accepted_and_two_different_tokens_are_ambiguous() {
        assert!(read(&["fence-token=5", "fence-token=repo:5"]).is_ok());
        let two = read(&["fence-token=5", "fence-token=repo:6"]).unwrap_err();
        assert_eq!(two.code(), Code::Ambiguous);
    }

    #[test]
    fn misspelt_or_invalid_fence_options_are_malformed() {
        let long = format!("fence-token={}", "9".repeat(60_000));
        let owner = format!("fence-owner={}", "x".repeat(60_000));
        for option in [
            "fence-token",
            "fence-token=",
            "fence-token=0",
            "fence-token=05",
            "fence-token= 5",
            "fence-token=5\n",
            "fence-token=5\u{1b}[2J",
            "fence-token=nowhere:5",
            "fence-token=../x:5",
            "fence-token=:5",
            "fence-token=repo:",
            "fence-token=repo:deploy:5",
            "fence-tokn=5",
            "fence-owner",
            "fence-holder",
            "fence-",
            &long,
            &owner,
        ] {
            let reject = read(&[option]).unwrap_err();
            assert_eq!(reject.code(), Code::Malformed, "{option}");
            assert!(!reject.to_string().contains(['\n', '\u{1b}']), "{reject}");
            assert!(reject.to_string().len() < 400, "{reject}");
        }
        assert_eq!(read(&["x"; 1001]).unwrap_err().code(), Code::Malformed);
        assert!(read(&["x"; 1000]).is_ok());
    }
}
