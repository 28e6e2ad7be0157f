//! What proves that somebody holds a lease, and what everybody may know of it.

use super::trailers::{PROOF, RecordTrailers};
use crate::{
    Format, LeasePart,
    log::chain::{self, is_hex},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// What only the holder of a lease has: 64 hexadecimal digits. Never logged, and shown to nobody but the gate: one of
/// one use stands in the record of the move that uses it up.
///
/// Of an ownership only the master is kept. What its moves must show is made of it, so nothing is lost with an answer:
///
/// ```
/// use git_fence_core::{LeasePart, Secret, nonce_of};
///
/// let (master, nonce) = (Secret::of([7; 32]), nonce_of([1; 16]));
/// let next = master.of_record(LeasePart::Lease, &nonce); // SHA-256 of master, role and the record's nonce
/// let holder = next.holder(); // stands in the record
/// assert_eq!(master.of_record(LeasePart::Lease, &nonce).holder(), holder);
/// assert_ne!(master.of_record(LeasePart::Beat, &nonce).holder(), holder);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret(String);

impl Secret {
    /// The secret made of `random` bytes.
    pub fn of(random: [u8; 32]) -> Secret {
        Secret(chain::hex(&random))
    }

    /// What the move after the record with this `nonce` must show, in an ownership whose master this is.
    pub fn of_record(&self, part: LeasePart, nonce: &str) -> Secret {
        let role = match part {
            LeasePart::Lease => "lease",
            LeasePart::Beat => "beat",
            LeasePart::Ask => "ask",
        };
        Secret(chain::hex(&Sha256::digest(format!("{}\n{role}\n{nonce}", self.0))))
    }

    /// The proof that a record shows, if it shows one.
    pub fn shown_in(message: &[u8]) -> Option<Secret> {
        let trailers = RecordTrailers::read(message).ok().filter(|trailers| trailers.format == Format::OneUse)?;
        Secret::parse(trailers.find(PROOF)?.as_bytes())
    }

    /// Reads a secret as a push option carries it.
    pub fn parse(text: &[u8]) -> Option<Secret> {
        let text = std::str::from_utf8(text).ok()?;
        is_hex(text, 64).then(|| Secret(text.to_owned()))
    }

    /// The secret, to be handed to the gate and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What everybody may know of it.
    pub fn holder(&self) -> Holder {
        Holder(chain::hex(&Sha256::digest(self.0.as_bytes())))
    }
}

impl TryFrom<String> for Secret {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Secret, &'static str> {
        // The text is not repeated: it may be most of a secret.
        Secret::parse(text.as_bytes()).ok_or("not a holder's secret: 64 hexadecimal digits")
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> String {
        secret.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 of a holder's [`Secret`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Holder(String);

impl Holder {
    /// Reads what a record says of the secret.
    pub(super) fn parse(text: &str) -> Option<Holder> {
        is_hex(text, 64).then(|| Holder(text.to_owned()))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Holder {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Holder, &'static str> {
        Holder::parse(&text).ok_or("not the hash of a secret: 64 hexadecimal digits")
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> String {
        holder.0
    }
}
