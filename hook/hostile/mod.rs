//! Hostile input: for every parser of this crate, a check that accepts arbitrary bytes.
//!
//! As in `git_fence_core::hostile`: a check panics if a rule is violated. Compiled only for tests and with the feature
//! `fuzzing`.

#[path = "../../core/hostile/near.rs"]
#[cfg(test)]
mod near;
#[cfg(test)]
mod parsers;
pub mod settings;

use crate::{
    commands::audit::moment::Moment,
    host::surroundings::{self, Environment},
    log::{
        checkpoint::{Checkpoint, CheckpointFile},
        journal::{Journal, Start},
        mutex::Witness,
    },
    push::trailers::token_trailers,
    repository::objects::split_directories,
};
use git_fence_core::{Evidence, Line, LineHash, OptionsError, State, hash_line, hostile::grammar, settle};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::File,
    io::Write as _,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A whole log: as it is, and again with its lines chained. Random input never has a correct hash, and most errors are
/// only reached with one.
pub fn log(bytes: &[u8]) {
    let _ = read_log(bytes, None);
    let Some((_, journal)) = read_log(&chained(bytes), None) else { return };
    // Every push in flight can be settled, whatever the values of the refs.
    for flight in &journal.state.in_flight {
        let seen = vec![None; flight.plan.refs.len()];
        let settlement = settle(flight, &flight.plan.refs, &seen);
        let mut state = journal.state.clone();
        for event in settlement.on_record(flight, &journal.state, flight.plan.count, Evidence::RefsMoved) {
            let _ = state.apply(journal.head.seq, "", &event);
        }
    }
}

/// The lines that are JSON objects, each with the correct number and hash.
fn chained(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut seq, mut prev) = (None, LineHash::none());
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(Value::Object(mut line)) = serde_json::from_slice(line) else { continue };
        let number = seq.unwrap_or_else(|| line.get("seq").and_then(Value::as_u64).unwrap_or(1));
        line.insert("seq".to_owned(), number.into());
        line.insert("prev".to_owned(), prev.to_string().into());
        let written = Value::Object(line).to_string();
        (seq, prev) = (Some(number.wrapping_add(1)), hash_line(written.as_bytes()));
        out.extend([written.as_bytes(), b"\n"].concat());
    }
    out
}

/// The lines of a log, and the journal that results from them.
pub(crate) fn read_log(bytes: &[u8], witness: Option<&Witness>) -> Option<(Vec<Vec<u8>>, Journal)> {
    let mut lines: Vec<(Vec<u8>, Line)> = Vec::new();
    let each = |read: crate::log::journal::ReadLine<'_>| lines.push((read.bytes.to_vec(), read.line.clone()));
    let witness = witness.map(|witness| (witness, "b"));
    let journal = Journal::read(&file_of(bytes), Path::new("log"), Start::Beginning, witness, each).ok()?;
    let mut state = State::default();
    let mut before: Option<(u64, LineHash)> = None;
    for (bytes, line) in &lines {
        if let Some((seq, hash)) = before {
            assert_eq!((line.seq, &line.prev), (seq + 1, &hash));
        }
        assert!(state.apply(line.seq, &line.time, &line.event).is_ok());
        before = Some((line.seq, hash_line(bytes)));
    }
    assert_eq!(state, journal.state);
    assert_eq!(before, Some((journal.head.seq, journal.head.hash.clone())));
    let mut whole: Vec<u8> = lines.iter().flat_map(|(line, _)| [line, &b"\n"[..]].concat()).collect();
    assert_eq!(journal.head.end, whole.len() as u64);
    whole.extend(&journal.torn);
    assert_eq!(whole, bytes);
    // Another line can follow: the numbers are not exhausted.
    assert!(journal.head.seq.checked_add(1).is_some());
    Some((lines.into_iter().map(|(bytes, _)| bytes).collect(), journal))
}

/// A checkpoint, followed by a line feed, a NUL and a log that is read from the checkpoint on.
pub fn checkpoint(bytes: &[u8]) {
    let cut = bytes.windows(2).position(|two| two == b"\n\0").unwrap_or(bytes.len());
    let log = bytes.get(cut + 2..).unwrap_or_default();
    let Ok(CheckpointFile::Good(checkpoint)) = CheckpointFile::of(&bytes[..cut], PathBuf::from("state")) else {
        return;
    };
    // Every value conforms to the grammar, and the checkpoint can be written and parsed again.
    let written = serde_json::to_value(&checkpoint).unwrap_or_default();
    assert_eq!(grammar::flaw_in(&written), None, "{written}");
    let again = CheckpointFile::of(written.to_string().as_bytes(), PathBuf::new());
    let is_same = matches!(&again, Ok(CheckpointFile::Good(again)) if is_same(again, &checkpoint));
    assert!(is_same || grammar::has_fractions(&written), "{written}");
    let end = checkpoint.head.end;
    let start = Start::Checkpoint(checkpoint);
    let mut length = 0;
    let read =
        Journal::read(&file_of(log), Path::new("log"), start, None, |read| length += read.bytes.len() as u64 + 1);
    if let Ok(journal) = read {
        assert_eq!(journal.head.end, end + length);
        assert_eq!(journal.head.end + journal.torn.len() as u64, log.len() as u64);
    }
}

pub(crate) fn is_same(one: &Checkpoint, other: &Checkpoint) -> bool {
    one.head == other.head && one.state == other.state
}

/// The content of the mutex.
pub fn witness(bytes: &[u8]) {
    if let Some(witness) = Witness::parse(bytes) {
        let written = serde_json::to_vec(&witness).unwrap_or_default();
        assert_eq!(Witness::parse(&written), Some(witness));
    }
}

/// A commit's message.
pub fn trailers(bytes: &[u8]) {
    let found = token_trailers(bytes);
    // Not from the subject, and only from lines with the key and a colon.
    let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').skip(1).collect();
    let says_so = |line: &&&[u8]| {
        let key = line.split(|b| *b == b':').next().unwrap_or_default();
        line.contains(&b':') && key.trim_ascii_end().eq_ignore_ascii_case(b"Fencing-Token")
    };
    assert!(found.len() <= lines.iter().filter(says_so).count(), "{found:?}");
    for value in &found {
        assert!(!value.contains(&b'\n'));
        let _ = git_fence_core::read_trailer(value, "it", &git_fence_core::hostile::settings());
    }
}

/// The environment: `name=value`, each terminated by a NUL, as the kernel provides it.
pub fn environment(bytes: &[u8]) {
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = bytes
        .split(|b| *b == 0)
        .filter_map(|pair| {
            let at = pair.iter().position(|b| *b == b'=')?;
            Some((pair[..at].to_vec(), pair[at + 1..].to_vec()))
        })
        .collect();
    let last = |name: &[u8]| pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let environment = Environment::of(pairs.iter().map(|(name, value)| (owned(name), owned(value))));
    let who = surroundings::who(&environment);
    assert!(git_fence_core::hostile::is_fit(&who.pusher, 201));
    assert!(who.address.is_none_or(|address| git_fence_core::hostile::is_fit(&address, 201)));

    let count = last(b"GIT_PUSH_OPTION_COUNT").filter(|count| !count.is_empty());
    let is_count = |count: &[u8]| count == b"0" || grammar::is_token(count);
    match surroundings::push_options(&environment) {
        Ok(options) => {
            let count = count.unwrap_or(b"0".to_vec());
            assert_eq!(options.len().to_string().as_bytes(), count, "only digits");
            for (n, option) in options.iter().enumerate() {
                assert_eq!(Some(option), last(format!("GIT_PUSH_OPTION_{n}").as_bytes()).as_ref());
            }
        }
        Err(OptionsError::Count(_)) => assert!(count.is_some_and(|count| !is_count(&count))),
        Err(OptionsError::Absent(n)) => assert_eq!(last(format!("GIT_PUSH_OPTION_{n}").as_bytes()), None),
    }
    for dir in split_directories(bytes) {
        assert!(!dir.as_os_str().is_empty());
    }
    if let Ok(moment) = std::str::from_utf8(bytes).map_or(Ok(None), |text| Moment::parse(text).map(Some)) {
        let now = jiff::Timestamp::UNIX_EPOCH;
        assert!(moment.is_none_or(|moment| moment.beginning(now) <= moment.end(now)));
    }
}

fn file_of(bytes: &[u8]) -> File {
    let made = memfd_create("log", MemfdFlags::CLOEXEC).map(File::from);
    let Ok(mut file) = made else { panic!("cannot create a file in memory: {made:?}") };
    assert!(file.write_all(bytes).is_ok());
    file
}
