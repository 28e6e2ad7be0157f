//! Parses the values of a setting.

use git_fence_core::{StorePlace, Syslog, length_of_time, pattern_flaw};
use gix::bstr::{BString, ByteSlice as _};
use std::time::Duration;

/// What is wrong with the values of a setting.
pub(super) enum ValueFlaw {
    /// One of them does not parse.
    Value { value: BString, expected: String },
    /// One of them is a pattern that no ref can match.
    Pattern { pattern: String, why: String },
}

/// The values of a setting at one level, in the order in which git reads them: one or more.
#[derive(Clone, Copy)]
pub(super) struct Given<'a>(&'a [BString]);

impl<'a> Given<'a> {
    /// `None` if the setting is not set.
    pub(super) fn of(values: &'a [BString]) -> Option<Given<'a>> {
        (!values.is_empty()).then_some(Given(values))
    }

    /// A setting with a single value: the last one counts.
    pub(super) fn read<T, E: ToString>(self, read: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, ValueFlaw> {
        let value = self.0.last().cloned().unwrap_or_default();
        read(&value).map_err(|expected| ValueFlaw::Value { value, expected: expected.to_string() })
    }

    /// One of a few words.
    pub(super) fn word<T: Copy, const N: usize>(self, words: [(&str, T); N]) -> Result<T, ValueFlaw> {
        let meant = |value: &[u8]| words.iter().find(|(word, _)| word.as_bytes() == value).map(|(_, meant)| *meant);
        self.read(|value| meant(value).ok_or_else(|| expected(&words.map(|(word, _)| word))))
    }

    /// Either the word for none, or a value.
    pub(super) fn read_unless<T, E: ToString>(
        self,
        nothing: &str,
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, ValueFlaw> {
        self.read(|value| if value == nothing.as_bytes() { Ok(None) } else { read(value).map(Some) })
    }

    /// A setting with many values: an empty one clears those before it, as in git's own lists.
    pub(super) fn list(self) -> Result<Vec<String>, ValueFlaw> {
        let mut list = Vec::new();
        for value in self.0 {
            if value.is_empty() {
                list.clear();
                continue;
            }
            let text = value.to_str();
            let text =
                text.map_err(|_| ValueFlaw::Value { value: value.clone(), expected: "expected UTF-8".to_owned() });
            list.push(text?.to_owned());
        }
        Ok(list)
    }

    /// The same for patterns: a fence whose pattern matches no ref would guard nothing.
    pub(super) fn patterns(self) -> Result<Vec<String>, ValueFlaw> {
        let patterns = self.list()?;
        let flawed = patterns.iter().find_map(|pattern| Some((pattern, pattern_flaw(pattern)?)));
        match flawed {
            None => Ok(patterns),
            Some((pattern, why)) => Err(ValueFlaw::Pattern { pattern: pattern.clone(), why }),
        }
    }
}

/// `expected a, b or c`.
fn expected(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("expected {} or {last}", others.join(", ")),
        words => format!("expected {}", words.concat()),
    }
}

pub(super) fn duration(value: &[u8]) -> Result<Duration, &'static str> {
    let read = value.to_str().ok().and_then(length_of_time);
    read.ok_or("expected a duration such as 30s, 2m or 500ms")
}

/// The name of a repository in a store, exactly as marks name it.
pub(super) fn resource(value: &[u8]) -> Result<String, &'static str> {
    let name = value.to_str().ok().filter(|name| !name.contains(char::is_whitespace));
    let is_shown_as_it_is = |name: &&str| StorePlace::new("store", name).is_some_and(|place| place.resource == *name);
    name.filter(is_shown_as_it_is).map(str::to_owned).ok_or("expected a name without blanks such as host/path")
}

/// Where decisions are also sent.
pub(super) fn listener(value: &[u8]) -> Result<Option<Syslog>, &'static str> {
    match value {
        b"false" => Ok(None),
        b"true" => Ok(Some(Syslog::Local)),
        path if path.starts_with(b"/") => match path.to_str() {
            Ok(path) => Ok(Some(Syslog::Socket(path.to_owned()))),
            Err(_) => Err("expected UTF-8"),
        },
        _ => Err("expected true, false or the path of a socket"),
    }
}
