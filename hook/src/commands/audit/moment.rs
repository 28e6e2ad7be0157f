//! Points in time as people write them: a time, a day, or how long ago.

use git_fence_core::text;
use jiff::{Span, Timestamp, ToSpan as _, civil, tz::TimeZone};

/// A point in time; `Ago` is relative to a clock that has not been read yet.
#[derive(Debug, Clone)]
pub(crate) enum Moment {
    At(Timestamp),
    /// A whole day in UTC, like the times in the log.
    Day(civil::Date),
    Ago(Span),
}

/// The text is not a point in time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a time: expected one such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or how long ago: 2h")]
pub(crate) struct MomentError(String);

impl Moment {
    /// Reads `2026-01-31T12:00:00+01:00`, `2026-01-31 12:00` (UTC), `2026-01-31`, `2h`, `1h30m`, `7d`.
    pub(crate) fn parse(given: &str) -> Result<Moment, MomentError> {
        if let Ok(time) = given.parse() {
            return Ok(Moment::At(time));
        }
        // A date also parses with a time of day, so the longer form is tried first.
        if given.contains(':') {
            let time = given.parse().ok().and_then(|time: civil::DateTime| time.to_zoned(TimeZone::UTC).ok());
            return time.map(|time| Moment::At(time.timestamp())).ok_or_else(|| MomentError::of(given));
        }
        if let Ok(day) = given.parse() {
            return Ok(Moment::Day(day));
        }
        let span: Span = given.parse().map_err(|_| MomentError::of(given))?;
        // No line is from the future.
        if span.is_negative() { Err(MomentError::of(given)) } else { Ok(Moment::Ago(span)) }
    }

    /// Its start, in the format of the log.
    pub(crate) fn beginning(&self, now: Timestamp) -> String {
        match self {
            Moment::At(time) => spell(*time),
            Moment::Day(day) => midnight(*day),
            // Longer ago than times can represent: the earliest time.
            Moment::Ago(span) => {
                let then = now.to_zoned(TimeZone::UTC).checked_sub(*span);
                spell(then.map_or(Timestamp::MIN, |then| then.timestamp()))
            }
        }
    }

    /// The first instant after it: a day ends where the next one starts.
    pub(crate) fn end(&self, now: Timestamp) -> String {
        match self {
            Moment::Day(day) => midnight(day.saturating_add(1.day())),
            Moment::At(_) | Moment::Ago(_) => self.beginning(now),
        }
    }
}

impl MomentError {
    fn of(given: &str) -> MomentError {
        MomentError(text::quoted(given.as_bytes()))
    }
}

// Years with a sign do not sort like the times in the log. No line is that old, so the year 0 replaces them.

fn midnight(day: civil::Date) -> String {
    format!("{}T00:00:00.000Z", day.max(civil::date(0, 1, 1)))
}

fn spell(time: Timestamp) -> String {
    if time.to_zoned(TimeZone::UTC).year() < 0 { midnight(civil::Date::MIN) } else { format!("{time:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_days_and_durations_are_distinguished() {
        let now: Timestamp = "2026-03-01T12:00:00.5Z".parse().unwrap();
        for (given, beginning, end) in [
            ("2026-02-03T04:05:06Z", "2026-02-03T04:05:06.000Z", "2026-02-03T04:05:06.000Z"),
            ("2026-02-03T04:05:06.789+01:00", "2026-02-03T03:05:06.789Z", "2026-02-03T03:05:06.789Z"),
            ("2026-02-03T04:05", "2026-02-03T04:05:00.000Z", "2026-02-03T04:05:00.000Z"),
            ("2026-02-03 04:05:06", "2026-02-03T04:05:06.000Z", "2026-02-03T04:05:06.000Z"),
            ("2026-02-28", "2026-02-28T00:00:00.000Z", "2026-03-01T00:00:00.000Z"),
            ("9999-12-31", "9999-12-31T00:00:00.000Z", "9999-12-31T00:00:00.000Z"),
            ("-000044-03-15", "0000-01-01T00:00:00.000Z", "0000-01-01T00:00:00.000Z"),
            ("2h", "2026-03-01T10:00:00.500Z", "2026-03-01T10:00:00.500Z"),
            ("30m", "2026-03-01T11:30:00.500Z", "2026-03-01T11:30:00.500Z"),
            ("1h30m", "2026-03-01T10:30:00.500Z", "2026-03-01T10:30:00.500Z"),
            ("7d", "2026-02-22T12:00:00.500Z", "2026-02-22T12:00:00.500Z"),
            ("2w", "2026-02-15T12:00:00.500Z", "2026-02-15T12:00:00.500Z"),
            ("0s", "2026-03-01T12:00:00.500Z", "2026-03-01T12:00:00.500Z"),
            ("19000y", "0000-01-01T00:00:00.000Z", "0000-01-01T00:00:00.000Z"),
        ] {
            let moment = Moment::parse(given).expect(given);
            assert_eq!((moment.beginning(now), moment.end(now)), (beginning.to_owned(), end.to_owned()), "{given}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for given in ["", "yesterday", "2", "-2h", "2h ago", "12:00", "2026-13-01", "2026-02-30", "2026-01-01T25:00"] {
            assert!(Moment::parse(given).is_err(), "{given}");
        }
    }
}
