//! The trailers of a record, parsed strictly.

use super::{ticks::jobs::JOB, value::JOBS_FORMAT};
use crate::{Format, Holder, Jobs, LeaseId, Secret, log::chain::is_hex, text};
use std::collections::BTreeMap;

/// The proof that a record carries.
pub(super) const PROOF: &str = "Fence-Proof";

/// No record of ours is longer.
const LONGEST_MESSAGE: usize = 60 * 1024;

/// Why a message is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer version.
    #[error("it has format {0}, and this git-fence supports formats 1 to {JOBS_FORMAT}")]
    Format(String),
    /// A trailer is missing.
    #[error("its trailer {0} is missing")]
    Missing(&'static str),
    /// A trailer occurs more than once.
    #[error("its trailer {0} occurs twice")]
    Twice(String),
    /// A trailer's value is invalid.
    #[error("its trailer {0} is invalid: {1}")]
    Value(&'static str, String),
    /// Not a message with our trailers.
    #[error("it is not a record of git-fence")]
    NoRecord,
}

/// The last paragraph of a message, if all its lines are `Fence-…: value`.
pub(super) struct RecordTrailers<'a> {
    pub(super) format: Format,
    /// Whether it is of the version with jobs.
    has_jobs: bool,
    all: BTreeMap<&'a str, &'a str>,
}

impl<'a> RecordTrailers<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<RecordTrailers<'a>, RecordError> {
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
        // Checked first: a later format may change everything else.
        let format = *trailers.get("Fence-Format").ok_or(RecordError::Missing("Fence-Format"))?;
        let version = digits(format).and_then(|version| u32::try_from(version).ok());
        let has_jobs = version == Some(JOBS_FORMAT);
        let known = if has_jobs { Some(Format::OneUse) } else { version.and_then(|n| Format::try_from(n).ok()) };
        match known {
            Some(format) => Ok(RecordTrailers { format, has_jobs, all: trailers }),
            None => Err(RecordError::Format(text::one_line(format.as_bytes(), 20))),
        }
    }

    /// The same for a record that never has jobs.
    pub(super) fn read_without_jobs(message: &'a [u8]) -> Result<RecordTrailers<'a>, RecordError> {
        let trailers = RecordTrailers::read(message)?;
        if trailers.has_jobs { Err(RecordError::Format(JOBS_FORMAT.to_string())) } else { Ok(trailers) }
    }

    /// The jobs: there are some if and only if the record is of the version with jobs.
    pub(super) fn jobs(&self) -> Result<Jobs, RecordError> {
        let lines = self.all.iter().filter_map(|(key, line)| Some((key.strip_prefix(JOB)?, *line)));
        let bad = |what: &str| RecordError::Value("Fence-Job", text::quoted(what.as_bytes()));
        let jobs = Jobs::read(lines).map_err(bad)?;
        if jobs.is_empty() == self.has_jobs { Err(bad(self.get("Fence-Format")?)) } else { Ok(jobs) }
    }

    pub(super) fn find(&self, key: &str) -> Option<&'a str> {
        self.all.get(key).copied()
    }

    pub(super) fn get(&self, key: &'static str) -> Result<&'a str, RecordError> {
        self.find(key).ok_or(RecordError::Missing(key))
    }

    pub(super) fn parse<T>(&self, key: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, RecordError> {
        let value = self.get(key)?;
        read(value).ok_or_else(|| RecordError::Value(key, text::quoted(value.as_bytes())))
    }

    pub(super) fn lease(&self) -> Result<LeaseId, RecordError> {
        self.parse("Fence-Lease", LeaseId::parse)
    }

    pub(super) fn holder(&self) -> Result<Holder, RecordError> {
        self.parse("Fence-Holder", Holder::parse)
    }

    /// A proof must be well-formed. An invalid one is not quoted: it may be most of a secret.
    pub(super) fn proof(&self) -> Result<(), RecordError> {
        match self.find(PROOF) {
            Some(shown) if self.format == Format::OneUse && Secret::parse(shown.as_bytes()).is_none() => {
                Err(RecordError::Value(PROOF, "not 64 hexadecimal digits".to_owned()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn nonce(&self) -> Result<String, RecordError> {
        self.parse("Fence-Nonce", |value| is_hex(value, 32).then(|| value.to_owned()))
    }
}

/// A number without sign, spaces or leading zero.
pub(super) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}
