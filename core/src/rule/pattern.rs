//! Patterns of guarded refs, and whether any ref can match one.
//!
//! A pattern that no ref name can match looks like a fence and guards nothing. So we search for a name
//! that matches it and that git allows for a ref, walking the pattern's pieces and git's rule for names
//! (`git check-ref-format`) side by side, byte by byte. If there is none, the furthest place that the
//! search reached tells the reason.

use crate::RefName;
use gix_glob::wildmatch::Mode;
use std::collections::{HashMap, VecDeque};

/// Whether `pattern` matches `name`; `*` crosses slashes.
pub fn pattern_matches(pattern: &str, name: &RefName) -> bool {
    gix_glob::wildmatch(pattern.as_bytes().into(), name.as_bytes().into(), Mode::empty())
}

/// Why `pattern` matches no ref that a fence can guard; `None` if it matches one.
pub fn pattern_flaw(pattern: &str) -> Option<String> {
    if is_plain(pattern) { None } else { example_of(pattern).err() }
}

/// Whether the pattern plainly matches something, as nearly all do: with each star replaced by a letter, it is a name
/// that git allows. This is the fast path: each push reads all patterns, and there may be a thousand.
fn is_plain(pattern: &str) -> bool {
    let name = pattern.replace('*', "a");
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
    let is_component =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/")
        && !RefName::new(name.as_str()).is_lease()
        && pattern.matches('*').count() < 3
        && name.bytes().all(is_plain)
        && !name.contains("..")
        && name.split('/').all(is_component)
}

/// The shortest name that `pattern` matches, or why there is none.
fn example_of(pattern: &str) -> Result<RefName, String> {
    if !pattern.starts_with("refs/") {
        return Err("it does not start with refs/, as in refs/heads/*".to_owned());
    }
    let pieces = pieces_of(pattern.as_bytes())?;
    let name = RefName::new(walk(&pieces)?);
    // The matcher that counts is gix's, and it gives up on patterns with too many stars.
    if !pattern_matches(pattern, &name) {
        return Err("it has too many wildcards".to_owned());
    }
    Ok(name)
}

/// A piece of a pattern.
enum Piece {
    /// Any number of bytes.
    Star,
    /// One of these bytes.
    One(Vec<u8>),
}

/// Every byte that git's rule treats specially, and one for all others.
const TELLING: &[u8] = b"a/.@{lockfen";

fn pieces_of(pattern: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        let length = match first {
            b'[' => length_of_set(rest).ok_or("its '[' has no ']'")?,
            b'\\' if after.is_empty() => return Err("it ends with a backslash".to_owned()),
            b'\\' => 2,
            // Ref names may contain commas, but a comma here is most likely meant to separate two patterns.
            b',' => {
                return Err(
                    "commas do not separate patterns: set it once for each pattern (to match a comma, write ?)"
                        .to_owned(),
                );
            }
            _ => 1,
        };
        let (piece, after) = rest.split_at(length);
        pieces.push(match first {
            b'*' => Piece::Star,
            b'?' => Piece::One(TELLING.to_vec()),
            b'[' => Piece::One((1..=u8::MAX).filter(|byte| is_in_set(piece, *byte)).collect()),
            _ => Piece::One(piece[length - 1..].to_vec()),
        });
        rest = after;
    }
    Ok(pieces)
}

/// The length of the set at the start of `rest`, from its `[` to its `]`.
fn length_of_set(rest: &[u8]) -> Option<usize> {
    let mut at = if matches!(rest.get(1), Some(b'!' | b'^')) { 2 } else { 1 };
    let first = at;
    loop {
        match rest.get(at)? {
            b']' if at > first => return Some(at + 1),
            b'\\' => at += 2,
            b'[' if rest.get(at + 1) == Some(&b':') => at += rest[at..].iter().position(|b| *b == b']')? + 1,
            _ => at += 1,
        }
    }
}

fn is_in_set(set: &[u8], byte: u8) -> bool {
    gix_glob::wildmatch(set.into(), [byte].as_slice().into(), Mode::empty())
}

/// The shortest name that the pieces match, or why there is none.
fn walk(pieces: &[Piece]) -> Result<Vec<u8>, String> {
    type Position = (usize, Form);
    let start: Position = (0, Form::default());
    let mut came_from: HashMap<Position, (Position, Option<u8>)> = HashMap::new();
    let mut open = VecDeque::from([start]);
    let mut furthest = start;
    while let Some(place @ (at, form)) = open.pop_front() {
        if at > furthest.0 {
            furthest = place;
        }
        let steps: Vec<(Position, Option<u8>)> = match pieces.get(at) {
            None if form.is_name() => return Ok(retrace(place, &came_from)),
            None => Vec::new(),
            Some(Piece::Star) => {
                let stays = TELLING.iter().filter_map(|b| Some(((at, form.with(*b)?), Some(*b))));
                std::iter::once(((at + 1, form), None)).chain(stays).collect()
            }
            Some(Piece::One(bytes)) => {
                bytes.iter().filter_map(|b| Some(((at + 1, form.with(*b)?), Some(*b)))).collect()
            }
        };
        for (next, byte) in steps {
            if next != start && !came_from.contains_key(&next) {
                came_from.insert(next, (place, byte));
                open.push_back(next);
            }
        }
    }
    let (at, form) = furthest;
    Err(match pieces.get(at) {
        Some(Piece::One(bytes)) if bytes.len() == 1 => form.objection(bytes[0]),
        Some(_) => "no character in its brackets is allowed there".to_owned(),
        None => form.objection_to_end(),
    })
}

fn retrace<P: Copy + Eq + std::hash::Hash>(end: P, came_from: &HashMap<P, (P, Option<u8>)>) -> Vec<u8> {
    let back = std::iter::successors(came_from.get(&end), |(before, _)| came_from.get(before));
    let mut name: Vec<u8> = back.filter_map(|(_, byte)| *byte).collect();
    name.reverse();
    name
}

/// What git's rule needs to know about the start of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Form {
    /// How much of `refs/` has been read.
    prefix: usize,
    /// The previous byte.
    last: u8,
    /// How much of `.lock` the name ends with.
    lock: usize,
    /// How much of `fence` the first part after `refs/` is; `None` if it is something else.
    fence: Option<usize>,
}

const PREFIX: &[u8] = b"refs/";
const LOCK: &[u8] = b".lock";
const FENCE: &[u8] = b"fence";

impl Form {
    /// The form after one more byte, if a name may continue with it.
    fn with(self, byte: u8) -> Option<Form> {
        if self.prefix < PREFIX.len() {
            let prefix = self.prefix + 1;
            let fence = (prefix == PREFIX.len()).then_some(0);
            return (PREFIX[self.prefix] == byte).then_some(Form { prefix, last: byte, lock: 0, fence });
        }
        let is_refused = match byte {
            0..=b' ' | 0x7f | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\' => true,
            b'/' => self.ends_badly() && self.last != b'.',
            b'.' => matches!(self.last, b'/' | b'.'),
            b'{' => self.last == b'@',
            _ => false,
        };
        let lock = match LOCK.get(self.lock) {
            Some(next) if *next == byte => self.lock + 1,
            _ => usize::from(byte == LOCK[0]),
        };
        let fence = self.fence.filter(|n| FENCE.get(*n) == Some(&byte)).map(|n| n + 1);
        (!is_refused).then_some(Form { last: byte, lock, fence, ..self })
    }

    /// Whether it is a complete name of a ref that a fence can guard.
    fn is_name(self) -> bool {
        self.prefix == PREFIX.len() && !self.ends_badly()
    }

    fn ends_badly(self) -> bool {
        matches!(self.last, b'/' | b'.') || self.lock == LOCK.len() || self.fence == Some(FENCE.len())
    }

    /// Why no name continues here with `byte`.
    fn objection(self, byte: u8) -> String {
        match byte {
            b' ' => "it contains a space".to_owned(),
            b'/' if self.last == b'/' => "it has an empty part between slashes".to_owned(),
            b'/' => self.objection_to_end(),
            b'.' if self.last == b'/' => "one of its parts starts with a dot".to_owned(),
            b'.' => "it contains '..'".to_owned(),
            b'{' => "it contains '@{'".to_owned(),
            _ if byte.is_ascii_control() => "it contains a control character".to_owned(),
            _ => format!("it contains '{}'", char::from(byte)),
        }
    }

    /// Why no name, and no part of one, ends here.
    fn objection_to_end(self) -> String {
        match self.last {
            _ if self.fence == Some(FENCE.len()) => "refs/fence holds the leases and cannot be guarded",
            b'/' => "it ends with a slash: add a * to match what is below",
            b'.' => "it ends with a dot",
            _ if self.lock == LOCK.len() => "one of its parts ends with '.lock'",
            _ => "it is incomplete",
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The fast path accepts only what the search accepts.
        #[test]
        fn every_plain_pattern_has_an_example(pattern in "refs/[ab*./lock_-]{0,12}|refs/fence/?[a*]{0,3}|[refs/*]{0,9}") {
            prop_assert!(!is_plain(&pattern) || example_of(&pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn pattern_that_some_ref_can_match_has_no_flaw() {
        for (pattern, shortest) in [
            ("refs/heads/*", "refs/heads/a"),
            ("refs/*", "refs/a"),
            ("refs/heads/**/x", "refs/heads/a/x"),
            ("refs/heads/main", "refs/heads/main"),
            ("refs/heads/release-[0-9]*", "refs/heads/release-0"),
            ("refs/heads/[!.]x", "refs/heads/!x"),
            ("refs/heads/[]-]x", "refs/heads/-x"),
            ("refs/heads/[[:alpha:].]?", "refs/heads/Aa"),
            ("refs/?eads/x", "refs/aeads/x"),
            ("refs/heads/a./b", "refs/heads/a./b"),
            ("refs/heads/a.lockx", "refs/heads/a.lockx"),
            ("refs/heads/a,b".replace(',', "?").as_str(), "refs/heads/aab"),
            ("refs/heads/a\\,b", "refs/heads/a,b"),
            ("refs/heads/\\m", "refs/heads/m"),
            ("refs/fences/*", "refs/fences/a"),
            ("refs/fen*", "refs/fen"),
            ("refs/f?nce/*", "refs/fance/a"),
            ("refs/heads/größe", "refs/heads/größe"),
            ("refs/stash", "refs/stash"),
        ] {
            assert_eq!(example_of(pattern), Ok(RefName::new(shortest)), "{pattern}");
        }
    }

    #[test]
    fn pattern_that_no_ref_can_match_has_a_flaw_that_says_why() {
        for (pattern, flaw) in [
            ("", "it does not start with refs/"),
            ("heads/*", "it does not start with refs/"),
            ("refs/", "it ends with a slash"),
            ("refs/heads/", "it ends with a slash"),
            ("refs/*/", "it ends with a slash"),
            ("refs/heads/main ", "a space"),
            (" refs/heads/main", "it does not start with refs/"),
            ("refs/heads/main,", "commas"),
            ("refs/heads/[main", "has no ']'"),
            ("refs/heads/[]", "has no ']'"),
            ("refs/heads/main\\", "backslash"),
            ("refs/heads/[[:nonsense:]]", "brackets"),
            ("refs/heads/[ ~]", "brackets"),
            ("refs//heads/*", "empty"),
            ("refs/heads//*", "empty"),
            ("refs/heads/.x", "starts with a dot"),
            ("refs/heads/*/.x", "starts with a dot"),
            ("refs/heads/a..b", "'..'"),
            ("refs/heads/x.", "ends with a dot"),
            ("refs/heads/x.lock", "'.lock'"),
            ("refs/heads/*.lock/*", "'.lock'"),
            ("refs/heads/x@{1}", "'@{'"),
            ("refs/heads/x^", "'^'"),
            ("refs/heads/a:b", "':'"),
            ("refs/heads/\\*", "'*'"),
            ("refs/heads/x\ty", "control"),
            ("refs/fence", "leases"),
            ("refs/fence/*", "leases"),
            ("refs/fence/repo/lease", "leases"),
        ] {
            let found = example_of(pattern);
            assert!(found.as_ref().is_err_and(|why| why.contains(flaw)), "{pattern}: {found:?}");
        }
        let stars = format!("refs/heads/{}", "*a".repeat(80));
        assert!(pattern_flaw(&stars).is_some_and(|why| why.contains("wildcards")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Compared with an independent implementation of git's rule for names.
        #[test]
        fn rule_for_names_is_that_of_check_ref_format(name in "refs/([a-c./@{]|\\.lock|fence|[ -~]){0,9}") {
            let form = name.bytes().try_fold(Form::default(), Form::with);
            prop_assert_eq!(form.is_some_and(Form::is_name), crate::hostile::grammar::is_guardable(&name), "{}", name);
        }

        /// If a name matches, the search finds an example that matches, too.
        #[test]
        fn pattern_that_matches_some_name_has_an_example(
            name in "refs/[a-c./@{]{1,8}",
            pattern in "refs/([a-c./@{]|[*?]|\\[[!^]?[]a-c./-]{1,4}\\]|\\\\[a-c*])(([a-c./@{]|[*?]|\\[[!^]?[]a-c./-]{1,4}\\]|\\\\[a-c*]){0,6})",
        ) {
            match example_of(&pattern) {
                Ok(example) => {
                    prop_assert!(pattern_matches(&pattern, &example), "{} {}", pattern, example);
                    let example = String::from_utf8_lossy(example.as_bytes()).into_owned();
                    prop_assert!(crate::hostile::grammar::is_guardable(&example) || !example.is_ascii(), "{} {}", pattern, example);
                }
                Err(why) => prop_assert!(
                    !(crate::hostile::grammar::is_guardable(&name) && pattern_matches(&pattern, &RefName::new(name.as_bytes()))),
                    "{} matches {}: {}", pattern, name, why
                ),
            }
        }
    }
}
