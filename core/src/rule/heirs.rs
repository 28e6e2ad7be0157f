//! Refs that change fences: when new settings move a ref to another fence, that fence inherits the giver's mark.
//!
//! Otherwise a token that is stale for the old fence could be new for the other, and write to the same ref.

use crate::{FenceName, Rules, Settings};
use gix_glob::wildmatch::Mode as Glob;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A fence that takes over refs of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heir {
    /// The fence that guards the refs now.
    pub fence: FenceName,
    /// The fence that guarded them before.
    pub giver: FenceName,
}

/// The refs that a fence guards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Guard {
    fence: FenceName,
    refs: Vec<String>,
    /// Whether it is a family.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    each: bool,
}

/// The settings as far as a log's state keeps them: their digest, and what each fence guards. The rest is in the log
/// line that recorded them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnownSettings {
    /// The digest of the settings; `None` if an older version without digests recorded them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default)]
    fences: Vec<Guard>,
    /// Whether the gate that recorded them limits a fence to one kind of tokens.
    #[serde(default)]
    pub one_kind: bool,
}

impl KnownSettings {
    /// What the state keeps of settings that were recorded as `recorded`.
    pub fn of(recorded: &serde_json::Value, digest: Option<String>) -> KnownSettings {
        let known = KnownSettings::deserialize(recorded).unwrap_or_default();
        let fences = recorded["fences"].as_array();
        let one_kind = fences.is_some_and(|fences| fences.iter().any(|fence| fence.get("tokens").is_some()));
        KnownSettings { digest, one_kind, ..known }
    }
}

impl Settings {
    /// A hash that identifies these settings.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("settings can be written as JSON");
        crate::log::chain::hex(&Sha256::digest(bytes))
    }

    /// Which fences take over refs of others when the settings change to `now`.
    pub(super) fn heirs_in(&self, now: &Settings) -> Vec<Heir> {
        heirs(&KnownSettings { fences: self.guards(), ..KnownSettings::default() }, now)
    }

    fn guards(&self) -> Vec<Guard> {
        let guard = |rules: &Rules| Guard { fence: rules.fence.clone(), refs: rules.refs.clone(), each: rules.each };
        self.fences.iter().map(guard).collect()
    }
}

/// Which fences take over refs of others when the settings change from `before`, read from the log, to `now`.
///
/// It errs on the side of inheriting: whether two patterns can match the same name is judged only by their text
/// before the first wildcard and after the last.
pub fn heirs(before: &KnownSettings, now: &Settings) -> Vec<Heir> {
    let (before, now) = (&before.fences, now.guards());
    let mut found = Vec::new();
    for to in &now {
        for from in before.iter().filter(|from| gives(from, before, to, &now)) {
            found.push(Heir { fence: to.fence.clone(), giver: from.fence.clone() });
        }
    }
    found
}

/// Whether some ref moved from fence `from` to fence `to`, or between members of one family. A ref belongs to the first fence
/// that guards it.
fn gives(from: &Guard, before: &[Guard], to: &Guard, now: &[Guard]) -> bool {
    if from.fence == to.fence {
        return renames_members(from, to);
    }
    // Refs that the giver, or another fence before the heir, still guards do not move to the heir.
    let given = from.refs.iter().filter(|pattern| !is_guarded_before(&to.fence, pattern, now));
    // Refs that the heir, or another fence before the giver, guarded already were not the giver's.
    let is_new = |own: &&String| !is_guarded_before(&from.fence, own, before);
    given.into_iter().any(|theirs| to.refs.iter().filter(is_new).any(|own| may_overlap(theirs, own)))
}

/// Whether a ref that was one member's is now another's: the fence has become a family or is none any more, or its star
/// matches another part of the name.
fn renames_members(from: &Guard, to: &Guard) -> bool {
    from.each != to.each || (from.each && from.refs != to.refs)
}

/// Whether fences before `fence` in this order guard everything that the pattern matches.
fn is_guarded_before(fence: &FenceName, pattern: &str, order: &[Guard]) -> bool {
    let before = order.iter().take_while(|guard| guard.fence != *fence);
    before
        .flat_map(|guard| guard.refs.iter().filter(|wider| guard.holds_all_of(wider)))
        .any(|wider| covers(wider, pattern))
}

impl Guard {
    /// Whether it guards all that its pattern matches. The star of a family never matches nothing, so `release*` leaves out
    /// `release`; after a slash no ref ends anyway.
    fn holds_all_of(&self, pattern: &str) -> bool {
        !self.each || pattern.ends_with("/*")
    }
}

/// Whether `wider` certainly matches everything that `pattern` matches.
fn covers(wider: &str, pattern: &str) -> bool {
    let all_below = wider.strip_suffix('*').filter(|prefix| !prefix.contains(WILD));
    wider == pattern || all_below.is_some_and(|prefix| pattern.starts_with(prefix))
}

const WILD: [char; 4] = ['*', '?', '[', '\\'];

/// Whether the patterns can match the same name.
fn may_overlap(a: &str, b: &str) -> bool {
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

    fn settings(fences: &[(&str, &[&str])]) -> Settings {
        let rules = |(name, refs): &(&str, &[&str])| Rules {
            fence: FenceName::parse(name.as_bytes()).unwrap(),
            refs: refs.iter().map(|pattern| (*pattern).to_owned()).collect(),
            ..Rules::for_repo()
        };
        Settings { fences: fences.iter().map(rules).collect(), ..Settings::default() }
    }

    #[test]
    fn only_a_fence_that_takes_over_refs_inherits() {
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
            // Fences that the change does not concern do not inherit.
            (&[TRUNK, REPO], &[TRUNK, DOCS, REPO], &[("repo", "docs")]),
            (&[TRUNK, DOCS, REPO], &[DOCS, TRUNK, REPO], &[]),
            (&[DOCS, REPO], &[WIDE, REPO], &[("repo", "docs")]),
            (&[WIDE, REPO], &[DOCS, REPO], &[("docs", "repo")]),
            // From one named fence to another, whose old name is gone.
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
        assert!(heirs(&KnownSettings::default(), &settings(&[REPO])).is_empty(), "no ref was guarded before");
    }

    #[test]
    fn members_of_a_family_inherit_when_their_names_change() {
        let family = |refs: &str, each| {
            let mut settings = settings(&[("branch", &[refs]), ("repo", &["refs/heads/*", "refs/tags/*"])]);
            settings.fences[0].each = each;
            settings
        };
        let found = |before: Settings, now: Settings| {
            let before = KnownSettings::of(&serde_json::to_value(before).unwrap(), None);
            let found = heirs(&before, &now);
            found.iter().map(|heir| format!("{}>{}", heir.giver, heir.fence)).collect::<Vec<_>>().join(" ")
        };
        let all = || family("refs/heads/*", true);
        assert_eq!(found(all(), all()), "");
        assert_eq!(found(family("refs/heads/*", false), all()), "branch>branch");
        assert_eq!(found(all(), family("refs/heads/*", false)), "branch>branch");
        // refs/heads/f/x was branch/f/x, and is branch/x.
        assert_eq!(found(all(), family("refs/heads/f/*", true)), "branch>branch branch>repo");
        assert_eq!(found(settings(&[("repo", &["refs/heads/*"])]), all()), "repo>branch");
        // The family does not guard refs/heads/release, although its pattern matches it.
        let release = settings(&[("release", &["refs/heads/release"]), ("repo", &["refs/heads/*"])]);
        let mut both = settings(&[
            ("family", &["refs/heads/release*"]),
            ("release", &["refs/heads/release"]),
            ("repo", &["refs/heads/*"]),
        ]);
        both.fences[0].each = true;
        let mut without = both.clone();
        without.fences.remove(1);
        assert!(found(both.clone(), without).contains("release>repo"));
        assert!(found(release, both).contains("repo>family"));
    }

    #[test]
    fn patterns_overlap_if_one_name_can_match_both() {
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
            assert_eq!((may_overlap(a, b), may_overlap(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
