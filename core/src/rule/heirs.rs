//! Refs that change fences: when the settings give a ref to another fence, that fence inherits the giver's mark.
//!
//! Without that, a token that is too old for the one fence would be new to the other, and could write to the same ref.

use crate::{FenceName, Settings};
use gix_glob::wildmatch::Mode as Glob;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A fence that was given refs of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heir {
    /// Whose refs they are now.
    pub fence: FenceName,
    /// Whose they were.
    pub giver: FenceName,
}

/// What a fence guards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Guard {
    fence: FenceName,
    refs: Vec<String>,
}

/// The settings as far as a log remembers them: which they are, and what each fence guards. The rest stands in the line
/// that has recorded them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnownSettings {
    /// What tells them from others; none where they were recorded by a version that had no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default)]
    fences: Vec<Guard>,
    /// Whether the gate that has recorded them holds a fence to one kind of tokens.
    #[serde(default)]
    pub one_kind: bool,
}

impl KnownSettings {
    /// What is remembered of settings that were recorded as `recorded`.
    pub fn of(recorded: &serde_json::Value, digest: Option<String>) -> KnownSettings {
        let known = KnownSettings::deserialize(recorded).unwrap_or_default();
        let fences = recorded["fences"].as_array();
        let one_kind = fences.is_some_and(|fences| fences.iter().any(|fence| fence.get("tokens").is_some()));
        KnownSettings { digest, one_kind, ..known }
    }
}

impl Settings {
    /// What tells these settings from others.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("settings have no value that JSON lacks");
        crate::log::chain::hex(&Sha256::digest(bytes))
    }
}

/// Which fences get refs of others when the settings change from `before`, as the log has them, to `now`.
///
/// In doubt one more inherits: whether two patterns can match the same name is judged by what stands before their
/// first wildcard and behind their last.
pub fn heirs(before: &KnownSettings, now: &Settings) -> Vec<Heir> {
    let before = &before.fences;
    let now: Vec<Guard> =
        now.fences.iter().map(|rules| Guard { fence: rules.fence.clone(), refs: rules.refs.clone() }).collect();
    let mut found = Vec::new();
    for to in &now {
        for from in before.iter().filter(|from| from.fence != to.fence && gives(from, before, to, &now)) {
            found.push(Heir { fence: to.fence.clone(), giver: from.fence.clone() });
        }
    }
    found
}

/// Whether some ref that belonged to `from` belongs to `to` now. A ref belongs to the first fence that guards it.
fn gives(from: &Guard, before: &[Guard], to: &Guard, now: &[Guard]) -> bool {
    // What is still with the giver, or with somebody else before the heir, never comes to the heir.
    let given = from.refs.iter().filter(|pattern| !is_taken_before(&to.fence, pattern, now));
    // And what was the heir's already, or somebody else's before the giver, never was the giver's.
    let is_new = |own: &&String| !is_taken_before(&from.fence, own, before);
    given.into_iter().any(|theirs| to.refs.iter().filter(is_new).any(|own| may_meet(theirs, own)))
}

/// Whether fences that come before `fence` in the order guard all that the pattern matches.
fn is_taken_before(fence: &FenceName, pattern: &str, order: &[Guard]) -> bool {
    let before = order.iter().take_while(|guard| guard.fence != *fence);
    before.flat_map(|guard| &guard.refs).any(|wider| covers(wider, pattern))
}

/// Whether `wider` certainly matches all that `pattern` does.
fn covers(wider: &str, pattern: &str) -> bool {
    let all_below = wider.strip_suffix('*').filter(|prefix| !prefix.contains(WILD));
    wider == pattern || all_below.is_some_and(|prefix| pattern.starts_with(prefix))
}

const WILD: [char; 4] = ['*', '?', '[', '\\'];

/// Whether both patterns can match the same name.
fn may_meet(a: &str, b: &str) -> bool {
    let is_literal = |pattern: &str| !pattern.contains(WILD);
    let matches = |pattern: &str, name: &str| {
        gix_glob::wildmatch(pattern.as_bytes().into(), name.as_bytes().into(), Glob::empty())
    };
    match (is_literal(a), is_literal(b)) {
        (true, _) => matches(b, a),
        (_, true) => matches(a, b),
        (false, false) => {
            let begins = |pattern: &str| pattern.split(WILD).next().unwrap_or_default().to_owned();
            let ends = |pattern: &str| pattern.rsplit(['*', '?', ']', '\\']).next().unwrap_or_default().to_owned();
            let (begin_a, begin_b, end_a, end_b) = (begins(a), begins(b), ends(a), ends(b));
            (begin_a.starts_with(&begin_b) || begin_b.starts_with(&begin_a))
                && (end_a.ends_with(&end_b) || end_b.ends_with(&end_a))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    fn settings(fences: &[(&str, &[&str])]) -> Settings {
        let rules = |(name, refs): &(&str, &[&str])| Rules {
            fence: FenceName::parse(name.as_bytes()).unwrap(),
            refs: refs.iter().map(|pattern| (*pattern).to_owned()).collect(),
            ..Rules::for_repo()
        };
        Settings { fences: fences.iter().map(rules).collect(), ..Settings::default() }
    }

    #[test]
    fn whoever_is_given_refs_inherits_and_nobody_else() {
        const REPO: (&str, &[&str]) = ("repo", &["refs/heads/*", "refs/tags/*"]);
        const TRUNK: (&str, &[&str]) = ("trunk", &["refs/heads/main"]);
        const DOCS: (&str, &[&str]) = ("docs", &["refs/heads/docs/*"]);
        const WIDE: (&str, &[&str]) = ("docs", &["refs/heads/d*"]);
        type Fences<'a> = &'a [(&'a str, &'a [&'a str])];
        type Case<'a> = (Fences<'a>, Fences<'a>, &'a [(&'a str, &'a str)]);
        let cases: [Case<'_>; 9] = [
            (&[REPO], &[REPO], &[]),
            (&[REPO], &[TRUNK, REPO], &[("repo", "trunk")]),
            (&[TRUNK, REPO], &[REPO], &[("trunk", "repo")]),
            // Another one's affairs.
            (&[TRUNK, REPO], &[TRUNK, DOCS, REPO], &[("repo", "docs")]),
            (&[TRUNK, DOCS, REPO], &[DOCS, TRUNK, REPO], &[]),
            (&[DOCS, REPO], &[WIDE, REPO], &[("repo", "docs")]),
            (&[WIDE, REPO], &[DOCS, REPO], &[("docs", "repo")]),
            // From one named fence to another, and a name that is given up.
            (&[TRUNK, REPO], &[("main", &["refs/heads/main"]), REPO], &[("trunk", "main")]),
            (&[REPO], &[("tags", &["refs/tags/v*"]), REPO], &[("repo", "tags")]),
        ];
        for (before, now, expected) in cases {
            let before = KnownSettings::of(&serde_json::to_value(settings(before)).unwrap(), None);
            let found = heirs(&before, &settings(now));
            let found: Vec<(String, String)> =
                found.iter().map(|heir| (heir.giver.to_string(), heir.fence.to_string())).collect();
            let mut found: Vec<(&str, &str)> = found.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
            let mut expected = expected.to_vec();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{before:?} -> {now:?}");
        }
        assert!(heirs(&KnownSettings::default(), &settings(&[REPO])).is_empty(), "nothing was guarded before");
    }

    #[test]
    fn patterns_meet_where_one_name_can_match_both() {
        for (a, b, expected) in [
            ("refs/heads/main", "refs/heads/*", true),
            ("refs/heads/main", "refs/heads/mai?", true),
            ("refs/heads/main", "refs/tags/*", false),
            ("refs/heads/*", "refs/heads/deploy/*", true),
            ("refs/heads/a*", "refs/heads/b*", false),
            ("refs/heads/*-rc", "refs/heads/*-final", false),
            ("refs/heads/*-rc", "refs/heads/v*", true),
            ("refs/heads/[ab]", "refs/heads/*", true),
        ] {
            assert_eq!((may_meet(a, b), may_meet(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
