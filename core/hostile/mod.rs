//! Hostile input: for every parser of this crate, a check that takes any bytes.
//!
//! Each check panics if its parser breaks one of these rules: a parser never panics, accepts exactly what
//! its [`grammar`] accepts, and reads back what we write. The property tests feed the checks near misses,
//! the fuzz targets in `fuzz/` whatever covers more code.
//!
//! Compiled only for tests and with the feature `fuzzing`.

pub mod grammar;
#[cfg(test)]
mod near;
#[cfg(test)]
mod parsers;
#[cfg(test)]
mod rule;
#[cfg(test)]
mod values;

use crate::{
    Beat, FenceName, Lease, LeaseId, Line, ObjectId, Plan, PlannedRef, Push, RefName, Rules, Secret, Settings, State,
    Token, length_of_time, read_options, read_trailer,
};
use std::str;

/// The settings for reading options and trailers: the fences `deploy` and `repo`.
pub fn settings() -> Settings {
    let named = FenceName::parse(b"deploy").map(|fence| Rules { fence, ..Rules::for_repo() });
    let fences = named.into_iter().chain([Rules::for_repo()]).collect();
    Settings { fences, ..Settings::default() }
}

/// The small values: tokens, names, ids, secrets, durations, ref names as text.
pub fn small_values(bytes: &[u8]) {
    let token = Token::parse(bytes);
    assert_eq!(token.is_ok(), grammar::is_token(bytes), "token {bytes:?}");
    assert!(token.is_err() || token.is_ok_and(|token| token.to_string().as_bytes() == bytes));

    let fence = FenceName::parse(bytes);
    assert_eq!(fence.is_ok(), grammar::is_fence(bytes), "fence {bytes:?}");
    assert!(fence.is_err() || fence.is_ok_and(|fence| fence.as_str().as_bytes() == bytes));

    let id = ObjectId::parse(bytes);
    let is_hex = grammar::is_hex(bytes, 40) || grammar::is_hex(bytes, 64);
    assert_eq!(id.is_ok(), is_hex, "object id {bytes:?}");
    if let Ok(Some(id)) = id {
        assert_eq!(id.as_str().as_bytes(), bytes);
    }

    let secret = Secret::parse(bytes);
    assert_eq!(secret.is_some(), grammar::is_hex(bytes, 64), "secret {bytes:?}");
    assert!(secret.is_none_or(|secret| secret.reveal().as_bytes() == bytes));

    // Any bytes are a ref name, and round-trip.
    let name = RefName::new(bytes);
    assert_eq!(RefName::try_from(String::from(name.clone())), Ok(name));

    let Ok(text) = str::from_utf8(bytes) else { return };
    assert_eq!(LeaseId::parse(text).is_some(), grammar::is_hex(bytes, 32), "lease id {text:?}");
    assert_eq!(length_of_time(text), grammar::length(text), "length {text:?}");
    let name = RefName::try_from(text.to_owned());
    assert_eq!(name.is_ok(), grammar::is_ref_as_text(text), "name of a ref {text:?}");
    assert!(name.is_err() || name.is_ok_and(|name| String::from(name) == text));
}

/// The standard input of the hook.
pub fn push(bytes: &[u8]) {
    let read = Push::parse(bytes);
    assert_eq!(read.is_ok(), grammar::is_push(bytes), "{read:?}");
    let Ok(push) = read else { return };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    assert_eq!(push.commands.len(), lines.len());
    for (command, line) in push.commands.iter().zip(lines) {
        let length = line.iter().position(|b| *b == b' ').unwrap_or_default();
        let id = |id: &Option<ObjectId>| id.as_ref().map_or_else(|| "0".repeat(length), ToString::to_string);
        let ids = format!("{} {} ", id(&command.claimed), id(&command.new));
        assert_eq!([ids.as_bytes(), command.name.as_bytes(), b"\n"].concat(), line);
    }
}

/// Push options, each ended by a NUL, which no option can contain.
pub fn options(bytes: &[u8]) {
    let options: Vec<Vec<u8>> = bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
    let settings = settings();
    let (read, expected) = (read_options(&options, &settings), grammar::options(&options, &["deploy", "repo"]));
    match (read, expected) {
        (Ok(offer), Some(expected)) => {
            for fence in settings.fences.iter().map(|rules| &rules.fence) {
                let token = offer.token(fence).map(|token| token.to_string());
                assert_eq!(token, expected.tokens.get(fence.as_str()).cloned());
                let secret = offer.secret(fence).map(|secret| secret.reveal().to_owned());
                assert_eq!(secret, expected.secrets.get(fence.as_str()).cloned());
            }
            assert!(offer.owner.is_none_or(|owner| is_fit(&owner, 201)));
        }
        (Err(reject), None) => {
            let message = reject.to_string();
            assert!(is_fit(&message, 500), "{message:?}");
            // The refusal must not reveal a secret to its readers.
            assert!(!options.iter().any(|option| {
                option.starts_with(b"fence-holder=")
                    && option.len() > 40
                    && message.contains(&*String::from_utf8_lossy(option))
            }));
        }
        (read, expected) => panic!("read as {read:?}, expected {expected:?}"),
    }
    for option in &options {
        let read = read_trailer(option, "it", &settings);
        assert_eq!(read.is_ok(), grammar::fence_and_token(option, &["deploy", "repo"]).is_some(), "trailer {option:?}");
        assert!(read.is_ok() || read.is_err_and(|reject| is_fit(&reject.to_string(), 500)));
    }
}

/// The commit messages of a lease and of its beat.
pub fn record(bytes: &[u8]) {
    let fence = FenceName::repo();
    let lease = Lease::read(bytes);
    assert_eq!(lease.is_ok(), grammar::is_lease(bytes), "{lease:?}");
    match lease {
        Ok(lease) => {
            assert!(is_fit(&lease.owner, 101) && lease.words.as_ref().is_none_or(|words| is_fit(words, 201)));
            let shown = Secret::shown_in(bytes);
            assert_eq!(shown.is_some(), grammar::shows_proof(bytes));
            let again = lease.message(&fence, shown.as_ref());
            assert_eq!(Lease::read(again.as_bytes()), Ok(lease));
            assert_eq!(Secret::shown_in(again.as_bytes()), shown);
        }
        Err(error) => assert!(is_fit(&error.to_string(), 400), "{error:?}"),
    }
    let beat = Beat::read(bytes);
    assert_eq!(beat.is_ok(), grammar::is_beat(bytes), "{beat:?}");
    if let Ok(beat) = beat {
        assert!(beat.progress.as_ref().is_none_or(|progress| is_fit(progress, 201)));
        assert!(beat.deadline_ms() == 0 || Beat::deadline_at(beat.deadline_ms()) == beat.deadline);
        assert_eq!(Beat::read(beat.message(&fence, Secret::shown_in(bytes).as_ref()).as_bytes()), Ok(beat));
    }
}

/// A line of the log, a state, and the plan that is kept beside the log.
pub fn line(bytes: &[u8]) {
    if let Ok(line) = serde_json::from_slice::<Line>(bytes) {
        same_again(&line);
        // Any line can be folded or is refused; it never panics.
        let mut state = State::default();
        let _ = state.apply(line.seq, &line.time, &line.event);
        same_again(&state);
    }
    if let Ok(state) = serde_json::from_slice::<State>(bytes) {
        same_again(&state);
    }
    let planned: Result<Vec<PlannedRef>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    if let Ok(refs) = planned {
        let written = Plan::write_out(&refs);
        let plan = Plan::of(refs.clone());
        assert_eq!(plan.is_whole(), refs.len() <= Plan::IN_LINE);
        let read = plan.read_back(&written);
        assert_eq!(read, Some(refs));
        // Another spelling of the same refs is refused.
        assert_eq!(plan.read_back(bytes).is_some(), bytes == written);
    }
}

/// What was read is written with valid values only, and round-trips.
fn same_again<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(read: &T) {
    let written = serde_json::to_value(read);
    let Ok(written) = written else { panic!("cannot be written: {read:?}") };
    assert_eq!(grammar::flaw_in(&written), None, "{written}");
    // Settings are read unchecked. Those that we write have no fractions, which do not round-trip exactly.
    if !grammar::has_fractions(&written) {
        assert_eq!(serde_json::from_str::<T>(&written.to_string()).ok().as_ref(), Some(read));
    }
}

/// Whether a text is safe to show: short, on one line, without control characters.
pub fn is_fit(text: &str, most: usize) -> bool {
    text.chars().count() <= most && crate::text::one_line(text.as_bytes(), most) == text
}
