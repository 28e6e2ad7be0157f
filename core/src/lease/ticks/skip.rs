//! A scheduled run that starts nothing, as it tells the gate.
//!
//! It is the message of the commit with which the client asks the gate, so that every skip is on the server's record, too.
//! It proves nothing and changes nothing. Gates that do not know it take it for a question.

use super::job::{JobName, Tick};
use crate::FenceName;
use serde::{Deserialize, Serialize};

/// Why a scheduled run starts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipCause {
    /// Another holds the lease.
    Held,
    /// The latest tick was started already.
    AlreadyDone,
    /// No tick is due that may still be started.
    NotDue,
    /// The fence is halted.
    Halted,
}

impl SkipCause {
    const ALL: [SkipCause; 4] = [SkipCause::Held, SkipCause::AlreadyDone, SkipCause::NotDue, SkipCause::Halted];

    /// The word in the message and in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            SkipCause::Held => "held",
            SkipCause::AlreadyDone => "already-done",
            SkipCause::NotDue => "not-due",
            SkipCause::Halted => "halted",
        }
    }
}

/// A run that starts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickSkip {
    /// The job.
    pub job: JobName,
    /// Why.
    pub found: SkipCause,
    /// The tick on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Tick>,
}

const JOB: &str = "Fence-Job: ";
const FOUND: &str = "Fence-Found: ";
const TICK: &str = "Fence-Tick: ";

impl TickSkip {
    /// The message of the commit that says it.
    pub fn message(&self, fence: &FenceName, nonce: &str) -> String {
        let TickSkip { job, found, tick } = self;
        let tick = tick.map_or(String::new(), |tick| format!("{TICK}{tick}\n"));
        let found = found.as_str();
        format!(
            "fence '{fence}': job '{job}' starts nothing\n\n{JOB}{job}\n{FOUND}{found}\n{tick}Fence-Nonce: {nonce}\n"
        )
    }

    /// Reads a message; `None` if it says nothing of the kind.
    pub fn read(message: &[u8]) -> Option<TickSkip> {
        let message = std::str::from_utf8(message).ok()?;
        let (_, last) = message.trim_end_matches('\n').rsplit_once("\n\n")?;
        let one = |key: &str| last.lines().find_map(|line| line.strip_prefix(key));
        let found = one(FOUND)?;
        Some(TickSkip {
            job: JobName::parse(one(JOB)?)?,
            found: SkipCause::ALL.into_iter().find(|cause| cause.as_str() == found)?,
            tick: one(TICK).and_then(Tick::parse),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_is_read_back_and_other_messages_say_nothing() {
        for found in SkipCause::ALL {
            for tick in [None, Tick::at(600)] {
                let skip = TickSkip { job: JobName::parse("nightly").unwrap(), found, tick };
                let message = skip.message(&FenceName::repo(), &"0".repeat(32));
                assert_eq!(TickSkip::read(message.as_bytes()), Some(skip));
                for (from, to) in
                    [("Job: nightly", "Job: Nightly"), ("Fence-Found: ", "Fence-Found: un"), ("\n\n", "\n")]
                {
                    assert_eq!(TickSkip::read(message.replace(from, to).as_bytes()), None);
                }
            }
        }
        for other in ["", "x", "fence 'repo': whose turn is it?\n\nFence-Nonce: 0\n"] {
            assert_eq!(TickSkip::read(other.as_bytes()), None);
        }
        assert_eq!(TickSkip::read(b"\xff"), None);
    }
}
