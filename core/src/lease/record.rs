//! The lease and its heartbeat as commit messages.
//!
//! The subject is for people, the trailers are the record. Both are written only here, and read only here with
//! [`trailers`](super::trailers), so that one machine reads exactly what another wrote.

use super::{
    trailers::{PROOF, RecordError, RecordTrailers, digits},
    value::{JOBS_FORMAT, LONGEST_WORDS, one_line},
};
use crate::{
    FenceName, Format, Halt, Holder, Job, JobName, Jobs, LeaseId, LeaseState, Reason, Secret, TickState, Token, Ttl,
    few_words, owner_name,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The only spelling of a deadline.
const DEADLINE: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Who holds the lease of a fence, and with which token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How its owner proves that it is the owner.
    #[serde(default)]
    pub format: Format,
    /// The id of this ownership.
    pub id: LeaseId,
    /// The token that the owner writes with next; after a release, its last token.
    pub token: Token,
    /// The name the owner gave. Not an authenticated identity.
    pub owner: String,
    /// Held, released or halted.
    pub state: LeaseState,
    /// How long the lease lasts without a heartbeat.
    pub ttl: Ttl,
    /// Why the previous ownership ended.
    pub reason: Reason,
    /// The reason in free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// When this ownership began, by its owner's clock: RFC 3339, UTC, seconds. Advancing replaces the commit and keeps
    /// this. Older versions do not write it. In JSON it is `began`: the log has a `since` of the gate's own beside it.
    #[serde(default, rename = "began", skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The scheduled jobs of the fence, which every record carries on.
    #[serde(default, skip_serializing_if = "Jobs::is_empty")]
    pub jobs: Jobs,
    /// The hash of the proof that the holder's next record must carry.
    pub holder: Holder,
    /// Fresh in every commit: if two runs made the same object, both would succeed in creating it.
    pub nonce: String,
}

impl Lease {
    /// The commit message with this record for `fence`, carrying `proof`.
    pub fn message(&self, fence: &FenceName, proof: Option<&Secret>) -> String {
        let Lease { format, id, token, owner, state, ttl, reason, words, since, jobs, holder, nonce } = self;
        let format = if jobs.is_empty() { u32::from(*format) } else { JOBS_FORMAT };
        let jobs = jobs.lines();
        let what = match (state, reason) {
            (LeaseState::Held, _) => format!("held by {owner}, token {token}"),
            (LeaseState::Released, Reason::Revoked) if self.is_revocation() => format!("taken away by {owner}"),
            (LeaseState::Released, _) => format!("released by {owner} after token {token}"),
            (LeaseState::Halted, _) => format!("halted by {owner}"),
            (LeaseState::Moved, _) => format!("leases are kept elsewhere since token {token}"),
        };
        let why = match words {
            Some(words) => format!("{}: {words}", reason.as_str()),
            None => reason.as_str().to_owned(),
        };
        let state = state.as_str();
        let since = since.as_ref().map_or(String::new(), |since| format!("Fence-Since: {since}\n"));
        format!(
            "{fence}: {what} ({why})\n\n\
             Fence-Format: {format}\nFence-Lease: {id}\nFence-Token: {token}\nFence-Owner: {owner}\n\
             Fence-State: {state}\nFence-TTL: {ttl}\nFence-Reason: {why}\n{since}{jobs}Fence-Holder: {}\nFence-Nonce: {nonce}\n{}",
            holder,
            proof_line(proof)
        )
    }

    /// Reads the message of a commit.
    pub fn read(message: &[u8]) -> Result<Lease, RecordError> {
        let trailers = RecordTrailers::read(message)?;
        trailers.proof()?;
        let (word, words) = match trailers.get("Fence-Reason")?.split_once(": ") {
            Some((word, words)) => (word, few_words(words)),
            None => (trailers.get("Fence-Reason")?, None),
        };
        Ok(Lease {
            format: trailers.format,
            id: trailers.lease()?,
            token: trailers.parse("Fence-Token", |value| Token::parse(value.as_bytes()).ok())?,
            owner: trailers.parse("Fence-Owner", owner_name)?,
            state: trailers.parse("Fence-State", LeaseState::parse)?,
            ttl: trailers.parse("Fence-TTL", |value| Ttl::of_seconds(digits(value.strip_suffix('s')?)?))?,
            reason: trailers.parse("Fence-Reason", |_| Reason::parse(word))?,
            words,
            since: trailers.find("Fence-Since").filter(|time| is_moment(time)).map(str::to_owned),
            jobs: trailers.jobs()?,
            holder: trailers.holder()?,
            nonce: trailers.nonce()?,
        })
    }

    /// The scheduled job for which it was taken, with this record.
    pub fn starts(&self) -> Option<&JobName> {
        let starts = |job: &Job| job.state == TickState::Running && job.token == self.token;
        self.jobs.iter().find(|(_, job)| starts(job)).map(|(name, _)| name)
    }

    /// Whether this record ends an ownership, or a halt, and begins none: it ends as it begins.
    pub fn is_revocation(&self) -> bool {
        self.state == LeaseState::Released && self.reason == Reason::Revoked
    }

    /// The halt that this record is, if it is one.
    pub fn halt(&self) -> Option<Halt> {
        let Lease { owner, token, words, since, .. } = self.clone();
        (self.state == LeaseState::Halted).then_some(Halt { by: owner, token, since, reason: words })
    }
}

/// The heartbeat of a lease's holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The ownership it belongs to.
    pub lease: LeaseId,
    /// When the lease expires by the holder's clock unless it is renewed: RFC 3339, UTC, seconds. A gate
    /// uses its own clock instead.
    pub deadline: String,
    /// The holder's progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Whether the holder has seen a gate on this remote.
    pub gate: bool,
    /// The hash of the proof that the next beat must carry; none in [`Format::OneSecret`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Fresh in every commit.
    pub nonce: String,
}

impl Beat {
    /// The commit message with this beat for `fence`, carrying `proof`.
    pub fn message(&self, fence: &FenceName, proof: Option<&Secret>) -> String {
        let Beat { lease, deadline, progress, gate, holder, nonce } = self;
        let format = u32::from(if holder.is_some() { Format::OneUse } else { Format::OneSecret });
        let holder = holder.as_ref().map_or(String::new(), |holder| format!("Fence-Holder: {holder}\n"));
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
        let trailers = RecordTrailers::read_without_jobs(message)?;
        trailers.proof()?;
        Ok(Beat {
            lease: trailers.lease()?,
            deadline: trailers.parse("Fence-Deadline", |value| is_moment(value).then(|| value.to_owned()))?,
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

    /// The spelling of a deadline at this time.
    pub fn deadline_at(unix_ms: u64) -> String {
        let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.unwrap_or(Timestamp::MAX).strftime(DEADLINE).to_string()
    }
}

/// Whether this is a moment in its only spelling.
fn is_moment(value: &str) -> bool {
    value.parse::<Timestamp>().is_ok_and(|time| time.strftime(DEADLINE).to_string() == value)
}

/// Whether this is a time as records and gates write it: RFC 3339, UTC, and nothing else.
pub fn is_time(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b"-T:.Z".contains(&b)) && text.ends_with('Z');
    plain && text.parse::<Timestamp>().is_ok()
}

fn proof_line(proof: Option<&Secret>) -> String {
    proof.map_or(String::new(), |proof| format!("{PROOF}: {}\n", proof.reveal()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        LeasePart, MOST_JOBS, ScheduleText,
        lease::ticks::{job::tests::job, jobs::tests::jobs},
        nonce_of,
    };
    use std::collections::BTreeMap;

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
            since: None,
            jobs: Jobs::default(),
            holder: secret(id).of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        }
    }

    pub(crate) fn secret(id: u8) -> Secret {
        Secret::of([id; 32])
    }

    /// The proof that agent `id` needs to change its lease at `token`.
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

    /// The same lease in the old format: with one secret for the whole ownership.
    pub(crate) fn of_before(lease: Lease) -> Lease {
        let id = u8::from_str_radix(&lease.id.as_str()[..2], 16).unwrap();
        Lease { format: Format::OneSecret, holder: secret(id).holder(), ..lease }
    }

    #[test]
    fn record_round_trips() {
        let fence = FenceName::repo();
        for state in [LeaseState::Held, LeaseState::Released, LeaseState::Halted, LeaseState::Moved] {
            for words in [None, Some("cron: nightly, host-3".to_owned())] {
                let since = words.as_ref().map(|_| "2026-01-01T00:00:00Z".to_owned());
                let lease = Lease { words, since, reason: Reason::Expired, ..lease(7, 42, state) };
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
    fn record_with_jobs_has_a_format_of_its_own() {
        let fence = FenceName::repo();
        let jobs = jobs([("a", job(60, TickState::Running, 42)), ("b.c", job(120, TickState::Failed, 3))]);
        let lease = Lease { jobs, ..lease(7, 42, LeaseState::Held) };
        let good = lease.message(&fence, Some(&secret(9)));
        assert_eq!((Lease::read(good.as_bytes()), Secret::shown_in(good.as_bytes())), (Ok(lease), Some(secret(9))));
        assert!(good.contains("Fence-Format: 3\n"), "an older version drops what it does not know");
        for (from, to) in [
            ("Fence-Format: 3", "Fence-Format: 2"),
            ("Fence-Job-a", "Fence-Job-A"),
            ("Fence-Job-a", "Fence-Job-b.c"),
            ("running", "perhaps"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(Lease::read(bad.as_bytes()).is_err(), "{bad}");
        }
        let beat = beat(7).message(&fence, None).replacen("Fence-Format: 2", "Fence-Format: 3", 1);
        assert!(Beat::read(beat.as_bytes()).is_err());
    }

    #[test]
    fn longest_record_can_be_read() {
        let owner = owner_name(&"\u{1f600}".repeat(200)).unwrap();
        let every = format!("cron {}", "x".repeat(155));
        let schedule = ScheduleText::parse(&every).unwrap();
        let job = |n: usize| {
            let job = job(253_402_207_200, TickState::Forgotten, Token::MAX.get());
            (
                format!("{n:0>64}"),
                Job { dropped: u64::MAX, late: true, owner: owner.clone(), schedule: schedule.clone(), ..job },
            )
        };
        let all: BTreeMap<JobName, Job> =
            (0..MOST_JOBS).map(job).map(|(name, job)| (JobName::parse(&name).unwrap(), job)).collect();
        let lease = Lease { jobs: Jobs::try_from(all).unwrap(), owner, ..lease(7, 42, LeaseState::Held) };
        let message = lease.message(&FenceName::repo(), Some(&secret(9)));
        assert_eq!(Lease::read(message.as_bytes()), Ok(lease), "{}", message.len());
    }

    #[test]
    fn subject_says_who_holds_or_released_the_lease() {
        let subject = |lease: Lease| lease.message(&FenceName::repo(), None).lines().next().unwrap().to_owned();
        assert_eq!(subject(lease(1, 5, LeaseState::Held)), "repo: held by agent-1, token 5 (first)");
        assert_eq!(subject(lease(1, 5, LeaseState::Released)), "repo: released by agent-1 after token 5 (first)");
        assert_eq!(subject(lease(1, 5, LeaseState::Halted)), "repo: halted by agent-1 (first)");
    }

    #[test]
    fn messages_that_deviate_from_the_format_are_refused() {
        let good = lease(7, 42, LeaseState::Held).message(&FenceName::repo(), Some(&secret(9)));
        for (from, to) in [
            ("Fence-Format: 2", "Fence-Format: 3"),
            ("Fence-Format: 2", "Fence-Format: 4"),
            ("Fence-Format: 2", "Fence-Format: 02"),
            ("Fence-Nonce: ", "Fence-Job-a: done 2026-01-01T00:00:00Z, token 1; every 60s; b\nFence-Nonce: "),
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
        let future = good.replacen("Fence-Format: 2", "Fence-Format: 4", 1);
        assert_eq!(Lease::read(future.as_bytes()), Err(RecordError::Format("4".to_owned())));
        let half = good.replacen("Fence-Proof: 0", "Fence-Proof: ", 1);
        assert!(
            !Lease::read(half.as_bytes()).unwrap_err().to_string().contains("909"),
            "the error quotes most of a proof"
        );
        assert!(Lease::read(b"\xff\n\nFence-Format: 2").is_err());
        assert!(Lease::read(b"").is_err());
    }

    #[test]
    fn values_that_are_invalid_in_a_message_are_invalid_in_json() {
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
    fn deadline_has_one_spelling() {
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
    fn secret_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", secret(1)), "Secret(…)");
        assert_ne!(secret(1).holder(), secret(2).holder());
        assert_eq!(Secret::parse(secret(1).reveal().as_bytes()), Some(secret(1)));
        assert_eq!(Secret::parse(b"short"), None);
    }
}
