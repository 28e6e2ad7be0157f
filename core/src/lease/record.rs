//! The lease and its heartbeat, as they stand in the messages of their commits.
//!
//! The subject is for people, the trailers are the record. Both are written and read here and
//! nowhere else, so that what one machine writes is exactly what another reads.

use crate::{
    FenceName, LeasePart, Token,
    log::chain::{self, is_hex},
    text,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt, time::Duration};

/// The version of the record that this code writes.
pub const LEASE_FORMAT: u32 = 2;

/// The versions of the record that this code reads: how a holder proves that a lease is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Format {
    /// By one secret for the whole ownership, in a push option, which others may get to see. Nobody takes a lease in it
    /// any more.
    #[default]
    OneSecret,
    /// By a proof of one use for each move: a record has the hash of what the next move must show, and that move
    /// shows it in its own record.
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
        known.ok_or("not a format that this git-fence knows")
    }
}

/// How much of an owner's name, a reason or a progress report is kept.
const LONGEST_OWNER: usize = 100;
const LONGEST_WORDS: usize = 200;

/// How a deadline is spelled, and the only way.
const DEADLINE: &str = "%Y-%m-%dT%H:%M:%SZ";

/// What a move shows.
const PROOF: &str = "Fence-Proof";

/// Longer than any record of ours.
const LONGEST_MESSAGE: usize = 16 * 1024;

/// Why a message is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a version that this one does not know.
    #[error("it is of format {0}, and this git-fence knows formats 1 to {LEASE_FORMAT}")]
    Format(String),
    /// A trailer is not there.
    #[error("its trailer {0} is missing")]
    Missing(&'static str),
    /// A trailer is there more than once.
    #[error("its trailer {0} is there twice")]
    Twice(String),
    /// A trailer's value is not what it must be.
    #[error("its trailer {0} is {1}")]
    Value(&'static str, String),
    /// Not a message with our trailers at all.
    #[error("it is not a record of git-fence")]
    NoRecord,
}

/// One ownership, from the grant to its end: 32 random hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseId(String);

impl LeaseId {
    /// The id made of `random` bytes.
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
        LeaseId::parse(&text).ok_or_else(|| format!("{} is not a lease's id", text::quoted(text.as_bytes())))
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
    fn parse(text: &str) -> Option<Holder> {
        is_hex(text, 64).then(|| Holder(text.to_owned()))
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

/// How long a lease lasts without a heartbeat: whole seconds, from one second to a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ttl(u32);

impl Ttl {
    /// The longest there is.
    pub const MAX: Ttl = Ttl(7 * 24 * 3600);
    /// The longest that a gate allows unless it is told otherwise.
    pub const ONE_DAY: Ttl = Ttl(24 * 3600);

    /// The TTL of so many seconds.
    pub fn of_seconds(seconds: u64) -> Option<Ttl> {
        u32::try_from(seconds).ok().map(Ttl).filter(|ttl| (Ttl(1)..=Ttl::MAX).contains(ttl))
    }

    /// As a length of time.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl TryFrom<u64> for Ttl {
    type Error = &'static str;

    fn try_from(seconds: u64) -> Result<Ttl, &'static str> {
        Ttl::of_seconds(seconds).ok_or("not a TTL: from one second to a week")
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

/// Whether a lease is still its owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseState {
    /// It is, while the heartbeat goes on.
    Held,
    /// Its owner has given it back.
    Released,
}

/// Why a lease changed hands: how the ownership before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// There was none before.
    First,
    /// It was given back.
    Released,
    /// Its heartbeat stopped.
    Expired,
    /// Somebody who may do so has taken it away.
    Revoked,
}

impl Reason {
    /// The word that stands in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::First => "first",
            Reason::Released => "released",
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
        }
    }

    fn parse(word: &str) -> Option<Reason> {
        [Reason::First, Reason::Released, Reason::Expired, Reason::Revoked].into_iter().find(|r| r.as_str() == word)
    }
}

/// Who owns a fence, and since which token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How its owner proves that it is the owner.
    #[serde(default)]
    pub format: Format,
    /// The ownership.
    pub id: LeaseId,
    /// The token that the owner may write with next; after a release, the last one it had.
    pub token: Token,
    /// What the owner calls itself. Not an identity.
    pub owner: String,
    /// Held or released.
    pub state: LeaseState,
    /// How long it lasts without a heartbeat.
    pub ttl: Ttl,
    /// Why it came to this owner.
    pub reason: Reason,
    /// The same in somebody's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The hash of what the holder's next move must show.
    pub holder: Holder,
    /// Fresh in every commit: two runs must never make the same object, or both would succeed in
    /// creating it.
    pub nonce: String,
}

impl Lease {
    /// The message of the commit that holds this record for `fence`, and shows `proof`.
    pub fn message(&self, fence: &FenceName, proof: Option<&Secret>) -> String {
        let Lease { format, id, token, owner, state, ttl, reason, words, holder, nonce } = self;
        let format = u32::from(*format);
        let what = match (state, reason) {
            (LeaseState::Held, _) => format!("held by {owner}, token {token}"),
            (LeaseState::Released, Reason::Revoked) if self.is_revocation() => format!("taken away by {owner}"),
            (LeaseState::Released, _) => format!("released by {owner} after token {token}"),
        };
        let why = match words {
            Some(words) => format!("{}: {words}", reason.as_str()),
            None => reason.as_str().to_owned(),
        };
        let state = if *state == LeaseState::Held { "held" } else { "released" };
        format!(
            "{fence}: {what} ({why})\n\n\
             Fence-Format: {format}\nFence-Lease: {id}\nFence-Token: {token}\nFence-Owner: {owner}\n\
             Fence-State: {state}\nFence-TTL: {ttl}\nFence-Reason: {why}\nFence-Holder: {}\nFence-Nonce: {nonce}\n{}",
            holder.0,
            proof_line(proof)
        )
    }

    /// Reads the message of a commit.
    pub fn read(message: &[u8]) -> Result<Lease, RecordError> {
        let trailers = RecordTrailers::read(message)?;
        trailers.proof()?;
        let (word, words) = match trailers.get("Fence-Reason")?.split_once(": ") {
            Some((word, words)) => (word, Some(one_line(words, LONGEST_WORDS))),
            None => (trailers.get("Fence-Reason")?, None),
        };
        Ok(Lease {
            format: trailers.format,
            id: trailers.lease()?,
            token: trailers.parse("Fence-Token", |value| Token::parse(value.as_bytes()).ok())?,
            owner: trailers.parse("Fence-Owner", owner_name)?,
            state: trailers.parse("Fence-State", |value| match value {
                "held" => Some(LeaseState::Held),
                "released" => Some(LeaseState::Released),
                _ => None,
            })?,
            ttl: trailers.parse("Fence-TTL", |value| Ttl::of_seconds(digits(value.strip_suffix('s')?)?))?,
            reason: trailers.parse("Fence-Reason", |_| Reason::parse(word))?,
            words: words.filter(|words| !words.is_empty()),
            holder: trailers.holder()?,
            nonce: trailers.nonce()?,
        })
    }

    /// Whether this is the record of somebody who has taken the lease away: an ownership that ended
    /// when it began.
    pub fn is_revocation(&self) -> bool {
        self.state == LeaseState::Released && self.reason == Reason::Revoked
    }
}

/// A sign of life of a lease's holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Whose.
    pub lease: LeaseId,
    /// When the lease expires by the holder's clock, unless it is renewed: RFC 3339, UTC, seconds.
    /// Where a gate judges, its own clock counts.
    pub deadline: String,
    /// What the holder says of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Whether the holder has heard a gate on this remote.
    pub gate: bool,
    /// The hash of what the next one must show; none in [`Format::OneSecret`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Fresh in every commit.
    pub nonce: String,
}

impl Beat {
    /// The message of the commit that holds this beat for `fence`, and shows `proof`.
    pub fn message(&self, fence: &FenceName, proof: Option<&Secret>) -> String {
        let Beat { lease, deadline, progress, gate, holder, nonce } = self;
        let format = u32::from(if holder.is_some() { Format::OneUse } else { Format::OneSecret });
        let holder = holder.as_ref().map_or(String::new(), |holder| format!("Fence-Holder: {}\n", holder.0));
        let progress = progress.as_ref().map_or(String::new(), |text| format!("Fence-Progress: {text}\n"));
        let gate = if *gate { "Fence-Judge: gate\n" } else { "" };
        format!(
            "{fence}: alive until {deadline}\n\n\
             Fence-Format: {format}\nFence-Lease: {lease}\nFence-Deadline: {deadline}\n{progress}{gate}{holder}\
             Fence-Nonce: {nonce}\n{}",
            proof_line(proof)
        )
    }

    /// Reads the message of a commit.
    pub fn read(message: &[u8]) -> Result<Beat, RecordError> {
        let trailers = RecordTrailers::read(message)?;
        trailers.proof()?;
        Ok(Beat {
            lease: trailers.lease()?,
            deadline: trailers.parse("Fence-Deadline", |value| {
                let written = value.parse::<Timestamp>().ok().map(|time| time.strftime(DEADLINE).to_string());
                written.filter(|written| written == value)
            })?,
            progress: trailers.find("Fence-Progress").map(|text| one_line(text, LONGEST_WORDS)),
            gate: trailers.find("Fence-Judge") == Some("gate"),
            holder: if trailers.format == Format::OneUse { Some(trailers.holder()?) } else { None },
            nonce: trailers.nonce()?,
        })
    }

    /// The deadline in milliseconds since 1970.
    pub fn deadline_ms(&self) -> u64 {
        let time = self.deadline.parse::<Timestamp>().map(Timestamp::as_millisecond);
        time.ok().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0)
    }

    /// How a deadline is written.
    pub fn deadline_at(unix_ms: u64) -> String {
        let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.unwrap_or(Timestamp::MAX).strftime(DEADLINE).to_string()
    }
}

/// An owner's name as records hold it; nothing where nothing of it can be shown.
pub fn owner_name(text: &str) -> Option<String> {
    let name = one_line(text, LONGEST_OWNER);
    (!name.is_empty()).then_some(name)
}

/// A reason or a report of progress as records hold it.
pub fn few_words(text: &str) -> Option<String> {
    let words = one_line(text, LONGEST_WORDS);
    (!words.is_empty()).then_some(words)
}

/// A nonce made of `random` bytes.
pub fn nonce_of(random: [u8; 16]) -> String {
    chain::hex(&random)
}

fn one_line(text: &str, most: usize) -> String {
    text::one_line(text.as_bytes(), most).trim().to_owned()
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

fn proof_line(proof: Option<&Secret>) -> String {
    proof.map_or(String::new(), |proof| format!("{PROOF}: {}\n", proof.reveal()))
}

/// The last paragraph of a message, where every line of it is `Fence-…: value`.
struct RecordTrailers<'a> {
    format: Format,
    all: BTreeMap<&'a str, &'a str>,
}

impl<'a> RecordTrailers<'a> {
    fn read(message: &'a [u8]) -> Result<RecordTrailers<'a>, RecordError> {
        let message = std::str::from_utf8(message).map_err(|_| RecordError::NoRecord)?;
        let (_, last) = message.trim_end_matches('\n').rsplit_once("\n\n").ok_or(RecordError::NoRecord)?;
        if message.len() > LONGEST_MESSAGE {
            return Err(RecordError::NoRecord);
        }
        let mut trailers = BTreeMap::new();
        for line in last.split('\n') {
            let (key, value) = line.split_once(": ").ok_or(RecordError::NoRecord)?;
            if !key.starts_with("Fence-") {
                return Err(RecordError::NoRecord);
            }
            if trailers.insert(key, value).is_some() {
                return Err(RecordError::Twice(text::one_line(key.as_bytes(), 40)));
            }
        }
        // Asked first: a later format may have changed everything else.
        let format = *trailers.get("Fence-Format").ok_or(RecordError::Missing("Fence-Format"))?;
        let known = digits(format).and_then(|version| Format::try_from(u32::try_from(version).ok()?).ok());
        match known {
            Some(format) => Ok(RecordTrailers { format, all: trailers }),
            None => Err(RecordError::Format(text::one_line(format.as_bytes(), 20))),
        }
    }

    fn find(&self, key: &str) -> Option<&'a str> {
        self.all.get(key).copied()
    }

    fn get(&self, key: &'static str) -> Result<&'a str, RecordError> {
        self.find(key).ok_or(RecordError::Missing(key))
    }

    fn parse<T>(&self, key: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, RecordError> {
        let value = self.get(key)?;
        read(value).ok_or_else(|| RecordError::Value(key, text::quoted(value.as_bytes())))
    }

    fn lease(&self) -> Result<LeaseId, RecordError> {
        self.parse("Fence-Lease", LeaseId::parse)
    }

    fn holder(&self) -> Result<Holder, RecordError> {
        self.parse("Fence-Holder", Holder::parse)
    }

    /// What is shown as a proof must be one; it is not repeated where it is none.
    fn proof(&self) -> Result<(), RecordError> {
        match self.find(PROOF) {
            Some(shown) if self.format == Format::OneUse && Secret::parse(shown.as_bytes()).is_none() => {
                Err(RecordError::Value(PROOF, "not 64 hexadecimal digits".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn nonce(&self) -> Result<String, RecordError> {
        self.parse("Fence-Nonce", |value| is_hex(value, 32).then(|| value.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn lease(id: u8, token: u64, state: LeaseState) -> Lease {
        let nonce = nonce_of([token as u8 ^ if state == LeaseState::Held { 0 } else { 0x80 }; 16]);
        Lease {
            format: Format::OneUse,
            id: LeaseId::of([id; 16]),
            token: Token::try_from(token).unwrap(),
            owner: format!("agent-{id}"),
            state,
            ttl: Ttl::of_seconds(90).unwrap(),
            reason: Reason::First,
            words: None,
            holder: secret(id).of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        }
    }

    pub(crate) fn secret(id: u8) -> Secret {
        Secret::of([id; 32])
    }

    /// What agent `id` shows when it moves its lease on from `token`.
    pub(crate) fn proof(id: u8, token: u64) -> Secret {
        secret(id).of_record(LeasePart::Lease, &lease(id, token, LeaseState::Held).nonce)
    }

    pub(crate) fn beat(id: u8) -> Beat {
        Beat {
            lease: LeaseId::of([id; 16]),
            deadline: "2026-01-01T00:00:00Z".to_owned(),
            progress: None,
            gate: false,
            holder: Some(secret(id).of_record(LeasePart::Beat, &nonce_of([id; 16])).holder()),
            nonce: nonce_of([id; 16]),
        }
    }

    /// The same lease, as a version before has taken it: with one secret for the whole ownership.
    pub(crate) fn of_before(lease: Lease) -> Lease {
        let id = u8::from_str_radix(&lease.id.as_str()[..2], 16).unwrap();
        Lease { format: Format::OneSecret, holder: secret(id).holder(), ..lease }
    }

    #[test]
    fn a_record_reads_back_as_itself() {
        let fence = FenceName::repo();
        for state in [LeaseState::Held, LeaseState::Released] {
            for words in [None, Some("cron: nightly, host-3".to_owned())] {
                let lease = Lease { words, reason: Reason::Expired, ..lease(7, 42, state) };
                for (lease, proof) in
                    [(of_before(lease.clone()), None), (lease.clone(), None), (lease, Some(secret(9)))]
                {
                    let message = lease.message(&fence, proof.as_ref());
                    assert_eq!(Lease::read(message.as_bytes()), Ok(lease));
                    assert_eq!(Secret::shown_in(message.as_bytes()), proof);
                }
            }
        }
        for progress in [None, Some("page 3 of 9".to_owned())] {
            let beat = Beat { progress, gate: true, ..beat(7) };
            for (beat, proof) in [(Beat { holder: None, ..beat.clone() }, None), (beat, Some(secret(9)))] {
                let message = beat.message(&fence, proof.as_ref());
                assert_eq!(Beat::read(message.as_bytes()), Ok(beat));
                assert_eq!(Secret::shown_in(message.as_bytes()), proof);
            }
        }
    }

    #[test]
    fn people_read_the_subject() {
        let subject = |lease: Lease| lease.message(&FenceName::repo(), None).lines().next().unwrap().to_owned();
        assert_eq!(subject(lease(1, 5, LeaseState::Held)), "repo: held by agent-1, token 5 (first)");
        assert_eq!(subject(lease(1, 5, LeaseState::Released)), "repo: released by agent-1 after token 5 (first)");
    }

    #[test]
    fn what_is_not_a_record_to_the_letter_is_none() {
        let good = lease(7, 42, LeaseState::Held).message(&FenceName::repo(), Some(&secret(9)));
        for (from, to) in [
            ("Fence-Format: 2", "Fence-Format: 3"),
            ("Fence-Format: 2", "Fence-Format: 02"),
            ("Fence-Format: 2\n", ""),
            ("Fence-Proof: ", "Fence-Proof: x"),
            ("Fence-Token: 42", "Fence-Token: 042"),
            ("Fence-Token: 42", "Fence-Token: 42\nFence-Token: 43"),
            ("Fence-State: held", "Fence-State: mine"),
            ("Fence-TTL: 90s", "Fence-TTL: 90"),
            ("Fence-TTL: 90s", "Fence-TTL: 0s"),
            ("Fence-TTL: 90s", "Fence-TTL: 315360000s"),
            ("Fence-Reason: first", "Fence-Reason: because"),
            ("Fence-Owner: agent-7", "Fence-Owner: \u{1b}"),
            ("Fence-Lease: 07", "Fence-Lease: 0"),
            ("Fence-State: held", "Signed-off-by: me"),
            ("\n\n", "\n"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(Lease::read(bad.as_bytes()).is_err(), "{bad}");
        }
        let future = good.replacen("Fence-Format: 2", "Fence-Format: 3", 1);
        assert_eq!(Lease::read(future.as_bytes()), Err(RecordError::Format("3".to_owned())));
        let half = good.replacen("Fence-Proof: 0", "Fence-Proof: ", 1);
        assert!(!Lease::read(half.as_bytes()).unwrap_err().to_string().contains("909"), "most of a proof is repeated");
        assert!(Lease::read(b"\xff\n\nFence-Format: 2").is_err());
        assert!(Lease::read(b"").is_err());
    }

    #[test]
    fn what_a_message_may_not_say_json_may_not_say_either() {
        let json = serde_json::to_value(lease(7, 42, LeaseState::Held)).unwrap();
        assert!(serde_json::from_value::<Lease>(json.clone()).is_ok());
        for (key, value) in
            [("ttl", 0.into()), ("ttl", 604_801.into()), ("holder", "x".into()), ("token", 0.into()), ("id", "".into())]
        {
            let mut bad: serde_json::Value = json.clone();
            bad[key] = value;
            assert!(serde_json::from_value::<Lease>(bad).is_err(), "{key}");
        }
        assert!(serde_json::from_str::<Secret>("\"short\"").is_err());
    }

    #[test]
    fn a_deadline_has_one_spelling() {
        let read = |deadline: &str| {
            Beat::read(Beat { deadline: deadline.to_owned(), ..beat(7) }.message(&FenceName::repo(), None).as_bytes())
        };
        assert!(read("2026-01-01T00:00:00Z").is_ok());
        for deadline in [
            "2026-01-01T00:00:00.5Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01t00:00:00z",
            "2026-01-01T01:00:00+01:00",
            "2026-01-01T00:00:00Z[UTC]",
            "-000001-01-01T00:00:00Z",
        ] {
            assert!(read(deadline).is_err(), "{deadline}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(format!("{:?}", secret(1)), "Secret(…)");
        assert_ne!(secret(1).holder(), secret(2).holder());
        assert_eq!(Secret::parse(secret(1).reveal().as_bytes()), Some(secret(1)));
        assert_eq!(Secret::parse(b"short"), None);
    }
}
