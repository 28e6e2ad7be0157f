//! The values that a lease is made of.

use crate::{
    log::chain::{self, is_hex},
    text,
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// The version of the record that this code writes.
pub const LEASE_FORMAT: u32 = 2;
/// The version of a record that carries jobs: whoever does not know them would drop them, and refuses this version instead.
pub const JOBS_FORMAT: u32 = 3;

/// The versions of the record that this code reads. They differ in how a holder proves that it holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Format {
    /// One secret for the whole ownership, in a push option, which others may be able to read. No longer granted.
    #[default]
    OneSecret,
    /// A proof for each change, used once: a record has the hash of the proof that the next record must carry.
    OneUse,
}

impl From<Format> for u32 {
    fn from(format: Format) -> u32 {
        match format {
            Format::OneSecret => 1,
            Format::OneUse => LEASE_FORMAT,
        }
    }
}

impl TryFrom<u32> for Format {
    type Error = &'static str;

    fn try_from(version: u32) -> Result<Format, &'static str> {
        let known = [Format::OneSecret, Format::OneUse].into_iter().find(|format| u32::from(*format) == version);
        known.ok_or("not a format that this git-fence supports")
    }
}

/// How much of an owner's name, a reason or a progress report is kept.
const LONGEST_OWNER: usize = 100;
pub(super) const LONGEST_WORDS: usize = 200;

/// One ownership, from the grant to its end: 32 random hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseId(String);

impl LeaseId {
    /// The id made from `random` bytes.
    pub fn of(random: [u8; 16]) -> LeaseId {
        LeaseId(chain::hex(&random))
    }

    /// Reads an id.
    pub fn parse(text: &str) -> Option<LeaseId> {
        is_hex(text, 32).then(|| LeaseId(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LeaseId {
    type Error = String;

    fn try_from(text: String) -> Result<LeaseId, String> {
        LeaseId::parse(&text).ok_or_else(|| format!("{} is not a lease id", text::quoted(text.as_bytes())))
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> String {
        id.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long a lease lasts without a heartbeat: whole seconds, from one second to a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest TTL.
    pub const SHORTEST: Ttl = Ttl(1);
    /// The longest TTL.
    pub const MAX: Ttl = Ttl(7 * 24 * 3600);
    /// The longest TTL that a gate allows by default.
    pub const ONE_DAY: Ttl = Ttl(24 * 3600);

    /// The TTL with this many seconds.
    pub fn of_seconds(seconds: u64) -> Option<Ttl> {
        u32::try_from(seconds).ok().map(Ttl).filter(|ttl| (Ttl::SHORTEST..=Ttl::MAX).contains(ttl))
    }

    /// The TTL as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl TryFrom<u64> for Ttl {
    type Error = &'static str;

    fn try_from(seconds: u64) -> Result<Ttl, &'static str> {
        Ttl::of_seconds(seconds).ok_or("not a TTL: expected one second to one week")
    }
}

impl From<Ttl> for u64 {
    fn from(ttl: Ttl) -> u64 {
        ttl.0.into()
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

/// Whether the owner still has the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseState {
    /// It does, as long as the heartbeat continues.
    Held,
    /// The owner has released it.
    Released,
    /// Nobody has it, and nobody gets it until it is resumed.
    Halted,
    /// The leases of the fence are kept elsewhere: the fence's mark says where.
    Moved,
}

impl LeaseState {
    const ALL: [LeaseState; 4] = [LeaseState::Held, LeaseState::Released, LeaseState::Halted, LeaseState::Moved];

    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseState::Held => "held",
            LeaseState::Released => "released",
            LeaseState::Halted => "halted",
            LeaseState::Moved => "moved",
        }
    }

    pub(super) fn parse(word: &str) -> Option<LeaseState> {
        LeaseState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Why a lease changed hands: how the previous ownership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// There was none.
    First,
    /// It was released.
    Released,
    /// Its heartbeat stopped.
    Expired,
    /// It was revoked, halted or resumed by somebody who may.
    Revoked,
}

impl Reason {
    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::First => "first",
            Reason::Released => "released",
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Reason> {
        [Reason::First, Reason::Released, Reason::Expired, Reason::Revoked].into_iter().find(|r| r.as_str() == word)
    }
}

/// An owner's name as records store it; `None` if nothing of it can be shown.
pub fn owner_name(text: &str) -> Option<String> {
    let name = one_line(text, LONGEST_OWNER);
    (!name.is_empty()).then_some(name)
}

/// A reason or a progress report as records store it.
pub fn few_words(text: &str) -> Option<String> {
    let words = one_line(text, LONGEST_WORDS);
    (!words.is_empty()).then_some(words)
}

/// A nonce made from `random` bytes.
pub fn nonce_of(random: [u8; 16]) -> String {
    chain::hex(&random)
}

/// One line of free text, cut to the length that is kept.
pub(super) fn one_line(text: &str, most: usize) -> String {
    text::one_line(text.as_bytes(), most).trim().to_owned()
}
