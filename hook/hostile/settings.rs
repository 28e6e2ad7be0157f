//! The grammar of the settings, implemented a second time.

use crate::repository::settings;
use git_fence_core::{FenceName, hostile::grammar};
use gix::config::{
    File,
    file::{Metadata, init::Options},
};
use std::time::Duration;

/// A configuration file.
pub fn file(bytes: &[u8]) {
    let Ok(config) = File::from_bytes_no_includes(bytes, Metadata::api(), Options::default()) else { return };
    let read = settings::read(&config);
    assert_eq!(read.is_ok(), are_settings(&config), "{read:?}");
    if let Err(error) = &read {
        assert!(git_fence_core::hostile::is_fit(&error.to_string(), 400), "{error}");
    }
    for setting in settings::configured::configured(&config) {
        assert!(git_fence_core::hostile::is_fit(&setting.value, 201), "{setting:?}");
    }
    let Ok(settings) = read else { return };
    assert_eq!(settings.fences.last().map(|rules| rules.fence.clone()), Some(FenceName::repo()));
    assert!(settings.fences.iter().all(|rules| !rules.refs.is_empty()));
    let names: std::collections::BTreeSet<_> = settings.fences.iter().map(|rules| rules.fence.clone()).collect();
    assert_eq!(names.len(), settings.fences.len(), "each fence once");
}

/// One level: that of all fences, or that of a named one.
#[derive(Debug)]
struct Level {
    name: Option<Vec<u8>>,
    /// The keys in lower case, in order.
    pairs: Vec<(String, Vec<u8>)>,
}

fn levels(config: &File) -> Vec<Level> {
    let mut levels: Vec<Level> = vec![Level { name: None, pairs: Vec::new() }];
    for section in config.sections_by_name("fence").into_iter().flatten() {
        let name = section.header().subsection_name().map(|name| name.to_vec());
        let mut keys: Vec<String> = section.value_names().map(|key| key.to_ascii_lowercase()).collect();
        keys.sort_unstable();
        keys.dedup();
        let pairs =
            keys.iter().flat_map(|key| section.values(key).into_iter().map(|value| (key.clone(), value.to_vec())));
        match levels.iter_mut().find(|level| level.name == name) {
            Some(level) => level.pairs.extend(pairs),
            None => levels.push(Level { name, pairs: pairs.collect() }),
        }
    }
    levels
}

fn are_settings(config: &File) -> bool {
    let levels = levels(config);
    let names_are_fine = levels.iter().filter_map(|level| level.name.as_ref()).all(|name| grammar::is_fence(name));
    let values_are_fine = levels.iter().all(|level| level.is_fine());
    // What is guarded: `repo` inherits the refs of all levels unless it has its own; others need their own.
    let shared = levels[0].guards().unwrap_or(true);
    let repo = levels.iter().find(|level| level.name.as_deref() == Some(b"repo"));
    let repo_guards = repo.and_then(Level::guards).unwrap_or(shared);
    let named = levels[1..].iter().filter(|level| level.name.as_deref() != Some(b"repo"));
    names_are_fine && values_are_fine && repo_guards && named.into_iter().all(|level| level.guards() == Some(true))
}

impl Level {
    fn of(&self, key: &str) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.pairs.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_slice())
    }

    /// Whether its `refs` are non-empty, if it has any.
    fn guards(&self) -> Option<bool> {
        self.of("refs").next_back().map(|last| !last.is_empty())
    }

    /// Its effective patterns: those after the last empty one.
    fn patterns(&self) -> impl Iterator<Item = &str> {
        let back = self.of("refs").rev().take_while(|value| !value.is_empty());
        back.filter_map(|value| std::str::from_utf8(value).ok())
    }

    fn is_fine(&self) -> bool {
        let last = |key: &str, rule: &dyn Fn(&[u8]) -> bool| self.of(key).next_back().is_none_or(rule);
        let each = |key: &str, rule: &dyn Fn(&str) -> bool| {
            self.of(key).filter(|value| !value.is_empty()).all(|value| std::str::from_utf8(value).is_ok_and(rule))
        };
        let word = |words: &'static [&str]| move |value: &[u8]| words.iter().any(|word| word.as_bytes() == value);
        let length = |value: &[u8]| std::str::from_utf8(value).ok().and_then(grammar::length);
        let ttl = |value: &[u8]| {
            let most = Duration::from_secs(7 * 24 * 3600);
            length(value)
                .is_some_and(|length| length.subsec_nanos() == 0 && length >= Duration::from_secs(1) && length <= most)
        };
        let of_all = self.name.is_some()
            || last("receivepack", &word(&["ancestor", "none"]))
                && last("init", &word(&["install", "auto"]))
                && last("syslog", &|value| {
                    value == b"true"
                        || value == b"false"
                        || value.first() == Some(&b'/') && std::str::from_utf8(value).is_ok()
                });
        of_all
            && last("mode", &word(&["enforce", "observe", "off"]))
            && last("accept", &word(&["above", "at-or-above"]))
            && last("tokenless", &word(&["allow", "refuse"]))
            && last("wait", &|value| length(value).is_some())
            && last("evictafter", &|value| value == b"off" || length(value).is_some())
            && last("maxjump", &|value| value == b"none" || grammar::is_token(value))
            && last("leasemaxttl", &ttl)
            && each("refs", &|_| true)
            && self.patterns().all(|value| git_fence_core::pattern_flaw(value).is_none())
            && each("exempt", &|_| true)
            && each("allowrevoke", &|_| true)
    }
}
