//! One scheduled job of a fence: its last tick, and how that ended.

use crate::{
    Token, owner_name,
    text::{self, in_quotes},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The only spelling of a tick.
const SPELLING: &str = "%Y-%m-%dT%H:%M:%SZ";
/// The longest text of a schedule.
const LONGEST_SCHEDULE: usize = 160;

/// A due time of a schedule: whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tick(u64);

impl Tick {
    /// The tick at this second since 1970; `None` after the year 9999.
    pub fn at(seconds: u64) -> Option<Tick> {
        Timestamp::from_second(i64::try_from(seconds).ok()?).ok().map(|_| Tick(seconds))
    }

    /// Reads the only spelling of a tick: RFC 3339, UTC, seconds.
    pub fn parse(text: &str) -> Option<Tick> {
        let time: Timestamp = text.parse().ok()?;
        let tick = Tick(u64::try_from(time.as_second()).ok()?);
        (tick.to_string() == text).then_some(tick)
    }

    /// The second since 1970.
    pub fn seconds(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0).ok().and_then(|at| Timestamp::from_second(at).ok());
        write!(f, "{}", time.unwrap_or(Timestamp::MAX).strftime(SPELLING))
    }
}

impl TryFrom<String> for Tick {
    type Error = String;

    fn try_from(text: String) -> Result<Tick, String> {
        Tick::parse(&text).ok_or_else(|| format!("{} is not a tick", text::quoted(text.as_bytes())))
    }
}

impl From<Tick> for String {
    fn from(tick: Tick) -> String {
        tick.to_string()
    }
}

/// The name of a job: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

impl JobName {
    /// Reads a name.
    pub fn parse(name: &str) -> Option<JobName> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let safe = (1..=64).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with(['.', '_', '-']);
        safe.then(|| JobName(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for JobName {
    type Error = String;

    fn try_from(name: String) -> Result<JobName, String> {
        JobName::parse(&name).ok_or_else(|| {
            format!(
                "{} is not a valid job name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit",
                text::quoted(name.as_bytes())
            )
        })
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> String {
        name.0
    }
}

/// A schedule as records and people write it: `every 2700s`, or `cron Europe/Berlin 30 3 * * *`. Two machines have the
/// same schedule if they have the same text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScheduleText(String);

impl ScheduleText {
    /// Reads a text. Whether its schedule can be used is known only to whoever uses it.
    pub fn parse(text: &str) -> Option<ScheduleText> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b" */,-#?+_:.".contains(&b);
        let known = text.starts_with("every ") || text.starts_with("cron ");
        let one_space = !text.contains("  ") && !text.ends_with(' ');
        (known && one_space && text.len() <= LONGEST_SCHEDULE && text.bytes().all(plain))
            .then(|| ScheduleText(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ScheduleText {
    type Error = String;

    fn try_from(text: String) -> Result<ScheduleText, String> {
        ScheduleText::parse(&text).ok_or_else(|| format!("{} is not a schedule", text::quoted(text.as_bytes())))
    }
}

impl From<ScheduleText> for String {
    fn from(text: ScheduleText) -> String {
        text.0
    }
}

/// What became of a job's last tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickState {
    /// It was started under the lease of this record, and has not ended.
    Running,
    /// Its command ended with exit code 0.
    Done,
    /// Its command ended with another exit code, or was stopped.
    Failed,
    /// Its holder lost the lease or died before it could say how it ended.
    Lost,
    /// Somebody has removed the job: the next record does not have it.
    Forgotten,
}

impl TickState {
    const ALL: [TickState; 5] =
        [TickState::Running, TickState::Done, TickState::Failed, TickState::Lost, TickState::Forgotten];

    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            TickState::Running => "running",
            TickState::Done => "done",
            TickState::Failed => "failed",
            TickState::Lost => "lost",
            TickState::Forgotten => "forgotten",
        }
    }
}

/// A tick whose holder was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LostTick {
    /// The tick.
    pub tick: Tick,
    /// The token of the lease that was lost: the lease's history says whose it was.
    pub token: Token,
}

/// What is on record about a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    /// The last tick that was started.
    pub tick: Tick,
    /// What became of it.
    pub state: TickState,
    /// The token of the lease under which it was started: which start this is.
    pub token: Token,
    /// How many ticks were dropped when it was started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Whether a later tick was due already when it was started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The start before, if its holder was lost: it may have been the same tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostTick>,
    /// The schedule.
    pub schedule: ScheduleText,
    /// The name that whoever started it gave.
    pub owner: String,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Job {
    /// What the next start has to say of this one.
    pub(crate) fn as_lost(&self) -> Option<LostTick> {
        (self.state == TickState::Lost).then_some(LostTick { tick: self.tick, token: self.token })
    }

    /// The job in one line of a record.
    pub(crate) fn line(&self) -> String {
        let Job { tick, state, token, dropped, late, lost, schedule, owner } = self;
        let lost = lost.map_or(String::new(), |LostTick { tick, token }| format!(", lost {tick} token {token}"));
        let dropped = if *dropped == 0 { String::new() } else { format!(", {dropped} dropped") };
        let late = if *late { ", late" } else { "" };
        format!("{} {tick}, token {token}{dropped}{late}{lost}; {schedule}; {owner}", state.as_str())
    }

    /// Reads what [`Job::line`] writes, and nothing else.
    pub(crate) fn read(line: &str) -> Option<Job> {
        let mut parts = line.splitn(3, "; ");
        let (what, schedule, owner) = (parts.next()?, parts.next()?, parts.next()?);
        let mut words = what.split(", ");
        let (state, tick) = words.next()?.split_once(' ')?;
        let token = words.next()?.strip_prefix("token ")?;
        let (mut dropped, mut late, mut lost) = (0, false, None);
        for word in words {
            match (word.strip_suffix(" dropped"), word.strip_prefix("lost ")) {
                (Some(count), _) => dropped = count.parse().ok()?,
                (None, Some(of)) => {
                    let (tick, token) = of.split_once(" token ")?;
                    lost = Some(LostTick { tick: Tick::parse(tick)?, token: Token::parse(token.as_bytes()).ok()? });
                }
                (None, None) => late = true,
            }
        }
        let job = Job {
            tick: Tick::parse(tick)?,
            state: TickState::ALL.into_iter().find(|known| known.as_str() == state)?,
            token: Token::parse(token.as_bytes()).ok()?,
            dropped,
            late,
            lost,
            schedule: ScheduleText::parse(schedule)?,
            owner: owner_name(owner)?,
        };
        (job.line() == line).then_some(job)
    }

    /// The job, for people.
    pub fn in_words(&self) -> String {
        let by = in_quotes(&self.owner);
        match self.state {
            TickState::Running => format!("tick {} was started by {by} and has not ended", self.tick),
            TickState::Done => format!("tick {} was done by {by}", self.tick),
            TickState::Failed => format!("tick {} was started by {by} and failed", self.tick),
            TickState::Lost => format!("tick {} was started by {by}, who lost the lease before it ended", self.tick),
            TickState::Forgotten => format!("tick {} was started by {by}; the job is forgotten", self.tick),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn job(tick: u64, state: TickState, token: u64) -> Job {
        Job {
            tick: Tick::at(tick).unwrap(),
            state,
            token: Token::try_from(token).unwrap(),
            dropped: 0,
            late: false,
            lost: None,
            schedule: ScheduleText::parse("every 60s").unwrap(),
            owner: "agent-1".to_owned(),
        }
    }

    #[test]
    fn line_of_a_job_is_read_back_and_has_one_spelling() {
        for job in [
            job(60, TickState::Running, 1),
            Job { dropped: 29, late: true, owner: "a; b, late".to_owned(), ..job(1_800_000_000, TickState::Lost, 42) },
            Job { dropped: u64::MAX, ..job(0, TickState::Done, 7) },
            Job { lost: job(60, TickState::Lost, 6).as_lost(), ..job(120, TickState::Running, 7) },
        ] {
            assert_eq!(Job::read(&job.line()), Some(job));
        }
        let good = Job { dropped: 29, late: true, ..job(60, TickState::Failed, 5) }.line();
        assert_eq!(good, "failed 1970-01-01T00:01:00Z, token 5, 29 dropped, late; every 60s; agent-1");
        for (from, to) in [
            ("failed", "perhaps"),
            ("00:01:00Z", "00:01:00.5Z"),
            ("1970", "1969"),
            ("token 5", "token 05"),
            ("29 dropped", "029 dropped"),
            ("29 dropped, late", "late, 29 dropped"),
            ("late", "early"),
            ("late", "late, late"),
            ("late", "lost 1970-01-01T00:00:00Z"),
            ("late", "lost 1970-01-01T00:00:00Z token 4, late"),
            ("every 60s", "every  60s"),
            ("every 60s", "sometimes"),
            ("; agent-1", ""),
            ("agent-1", "\u{1b}"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert_eq!(Job::read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn name_of_a_job_is_one_safe_word() {
        for good in ["nightly", "a", "0", "x.y_z-1", &"a".repeat(64)] {
            assert!(JobName::parse(good).is_some(), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "A", "a b", "a/b", "ä", "a\n", &"a".repeat(65)] {
            assert!(JobName::parse(bad).is_none(), "{bad}");
            assert!(JobName::try_from(bad.to_owned()).is_err());
        }
    }
}
