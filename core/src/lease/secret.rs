//! The secret that proves who holds a lease, and its public hash.

use super::trailers::{PROOF, RecordTrailers};
use crate::{
    Format, LeasePart,
    log::chain::{self, is_hex},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// Known only to the holder of a lease: 64 hexadecimal digits. Never logged, and shown only to the gate. A proof that
/// can be used once is published only in the record that uses it up.
///
/// The holder stores one master secret per ownership. All proofs are derived from it, so a lost reply loses no proof:
///
/// ```
/// use git_fence_core::{LeasePart, Secret, nonce_of};
///
/// let (master, nonce) = (Secret::of([7; 32]), nonce_of([1; 16]));
/// let next = master.of_record(LeasePart::Lease, &nonce); // SHA-256 of master, role and the record's nonce
/// let holder = next.holder(); // goes into the record
/// assert_eq!(master.of_record(LeasePart::Lease, &nonce).holder(), holder);
/// assert_ne!(master.of_record(LeasePart::Beat, &nonce).holder(), holder);
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret(String);

impl Secret {
    /// The secret made from `random` bytes.
    pub fn of(random: [u8; 32]) -> Secret {
        Secret(chain::hex(&random))
    }

    /// The proof that the successor of the record with this `nonce` must carry, derived from this master secret.
    pub fn of_record(&self, part: LeasePart, nonce: &str) -> Secret {
        let role = match part {
            LeasePart::Lease => "lease",
            LeasePart::Beat => "beat",
            LeasePart::Ask => "ask",
            LeasePart::Mark => "mark",
        };
        Secret(chain::hex(&Sha256::digest(format!("{}\n{role}\n{nonce}", self.0))))
    }

    /// The proof that a record carries, if any.
    pub fn shown_in(message: &[u8]) -> Option<Secret> {
        let trailers = RecordTrailers::read(message).ok().filter(|trailers| trailers.format == Format::OneUse)?;
        Secret::parse(trailers.find(PROOF)?.as_bytes())
    }

    /// Reads a secret from a push option.
    pub fn parse(text: &[u8]) -> Option<Secret> {
        let text = std::str::from_utf8(text).ok()?;
        is_hex(text, 64).then(|| Secret(text.to_owned()))
    }

    /// The secret itself, for the gate and nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its public hash.
    pub fn holder(&self) -> Holder {
        Holder(chain::hex(&Sha256::digest(self.0.as_bytes())))
    }
}

impl TryFrom<String> for Secret {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Secret, &'static str> {
        // The text is not quoted: it may be most of a secret.
        Secret::parse(text.as_bytes()).ok_or("not a holder's secret: expected 64 hexadecimal digits")
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
    /// Reads the hash in a record.
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
        Holder::parse(&text).ok_or("not the hash of a secret: expected 64 hexadecimal digits")
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> String {
        holder.0
    }
}
