//! The grammars, written a second time in another way, to compare the parsers with.
//!
//! Nothing here calls a parser. Text is scanned from left to right, and numbers are compared as text.

use crate::{RefName, text};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The rest of the input.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn eat(&mut self, word: &[u8]) -> bool {
        let found = self.0.starts_with(word);
        self.0 = &self.0[if found { word.len() } else { 0 }..];
        found
    }

    fn run(&mut self, class: impl Fn(u8) -> bool) -> usize {
        let length = self.0.iter().take_while(|b| class(**b)).count();
        self.0 = &self.0[length..];
        length
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

fn hex(b: u8) -> bool {
    b"0123456789abcdef".contains(&b)
}

/// `length` lower-case hexadecimal digits.
pub fn is_hex(bytes: &[u8], length: usize) -> bool {
    bytes.len() == length && Scan(bytes).run(hex) == length
}

/// `[1-9][0-9]*`, at most `most`.
fn is_number_up_to(bytes: &[u8], most: &str) -> bool {
    let mut scan = Scan(bytes);
    scan.run(|b| b.is_ascii_digit());
    let fits = bytes.len() < most.len() || bytes.len() == most.len() && bytes <= most.as_bytes();
    scan.is_over() && fits && bytes.first().is_some_and(|b| *b != b'0')
}

/// A token: 1 to 2^63-1.
pub fn is_token(bytes: &[u8]) -> bool {
    is_number_up_to(bytes, "9223372036854775807")
}

/// The name of a ref that a fence can guard: allowed by `git check-ref-format`, below `refs/`, and not a lease.
pub fn is_guardable(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("refs/") else { return false };
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_forbidden = |c: char| c <= ' ' || "\u{7f}~^:?*[\\".contains(c);
    rest.split('/').all(is_part)
        && !["..", "@{"].iter().any(|pair| name.contains(pair))
        && !name.ends_with('.')
        && !name.contains(is_forbidden)
        && rest.split('/').next() != Some("fence")
}

/// A fence name, or `<family>/<member>` as text: nothing that git refuses in every ref, other bytes as `\xNN`, and after a `~`
/// only a hash.
pub fn is_fence_or_member(bytes: &[u8]) -> bool {
    let Some(slash) = bytes.iter().position(|b| *b == b'/') else { return is_fence(bytes) };
    let mut parts = bytes[slash + 1..].splitn(2, |b| *b == b'~');
    let member = parts.next().unwrap_or_default();
    let has_good_escapes = member.split(|b| *b == b'\\').skip(1).all(|rest| {
        let mut scan = Scan(rest);
        scan.eat(b"x") && rest.get(1..3).is_some_and(|hex| is_hex(hex, 2))
    });
    is_fence(&bytes[..slash])
        && !member.is_empty()
        && has_good_escapes
        && !member.iter().any(|b| b.is_ascii_control() || b" ^:?*[".contains(b))
        && parts.next().is_none_or(|hash| is_hex(hash, 64))
}

/// A fence name, character by character.
pub fn is_fence(bytes: &[u8]) -> bool {
    let mut before = b'.';
    for (at, b) in bytes.iter().enumerate() {
        match b {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => {}
            b'-' if at > 0 => {}
            b'.' if before != b'.' => {}
            _ => return false,
        }
        before = *b;
    }
    let ends_with_lock = bytes.rsplit(|b| *b == b'.').next() == Some(b"lock") && bytes.contains(&b'.');
    before != b'.' && bytes.len() <= 64 && !ends_with_lock
}

/// `<id> SP <id> SP <name> LF`, once or more: ids of one length, names of any bytes except line feeds.
pub fn is_push(bytes: &[u8]) -> bool {
    let mut scan = Scan(bytes);
    while !scan.is_over() {
        let old = scan.run(hex);
        let whole = [40, 64].contains(&old)
            && scan.eat(b" ")
            && scan.run(hex) == old
            && scan.eat(b" ")
            && scan.run(|b| b != b'\n') > 0
            && scan.eat(b"\n");
        if !whole {
            return false;
        }
    }
    !bytes.is_empty()
}

/// The contents of push options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParsedOptions {
    /// Tokens by fence, in digits.
    pub tokens: BTreeMap<String, String>,
    /// Secrets by fence.
    pub secrets: BTreeMap<String, String>,
}

/// `fence-token=[<fence>:]<n>`, `fence-holder=[<fence>:]<secret>`, `fence-owner=<text>`, and options of others.
pub fn options(options: &[Vec<u8>], fences: &[&str]) -> Option<ParsedOptions> {
    let mut parsed = ParsedOptions::default();
    for option in options {
        let mut scan = Scan(option);
        if !scan.eat(b"fence-") {
            continue;
        }
        let (into, is_value): (_, fn(&[u8]) -> bool) = if scan.eat(b"token=") {
            (&mut parsed.tokens, is_token)
        } else if scan.eat(b"holder=") {
            (&mut parsed.secrets, |value| is_hex(value, 64))
        } else if scan.eat(b"owner=") && option.len() <= 4096 {
            continue;
        } else {
            return None;
        };
        let (fence, value) = of_fence(scan.0, fences, is_value)?;
        if into.insert(fence, value.clone()).is_some_and(|other| other != value) {
            return None;
        }
    }
    (options.len() <= 1000).then_some(parsed)
}

/// `[<fence>:]<n>`.
pub fn fence_and_token(bytes: &[u8], fences: &[&str]) -> Option<(String, String)> {
    of_fence(bytes, fences, is_token)
}

fn of_fence(bytes: &[u8], fences: &[&str], is_value: fn(&[u8]) -> bool) -> Option<(String, String)> {
    let named = |fence: &&&str| bytes.strip_prefix(fence.as_bytes()).is_some_and(|rest| rest.starts_with(b":"));
    let fence = fences.iter().find(named);
    let value = &bytes[fence.map_or(0, |fence| fence.len() + 1)..];
    let text = std::str::from_utf8(value).ok().filter(|_| is_value(value))?;
    Some((fence.unwrap_or(&"repo").to_string(), text.to_owned()))
}

/// `<n>` seconds, or `<n>d<n>h<n>m<n>s<n>ms`, each part optional but at least one given.
pub fn length(text: &str) -> Option<Duration> {
    let mut scan = Scan(text.as_bytes());
    let mut milliseconds: u128 = 0;
    let is_bare = !text.is_empty() && scan.run(|b| b.is_ascii_digit()) == text.len();
    scan = Scan(text.as_bytes());
    for (unit, worth) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        let (before, digits) = (scan.0, scan.run(|b| b.is_ascii_digit()));
        let is_this = digits > 0 && if is_bare { unit == "s" } else { scan.eat(unit.as_bytes()) };
        // `5ms` is not a minute followed by an `s`.
        if !is_this || (unit == "m" && scan.0.starts_with(b"s")) {
            scan = Scan(before);
            continue;
        }
        let number = before[..digits]
            .iter()
            .fold(0u128, |n, digit| n.saturating_mul(10).saturating_add(u128::from(digit - b'0')));
        milliseconds = milliseconds.saturating_add(number.saturating_mul(worth));
    }
    let fits = u64::try_from(milliseconds).ok().filter(|_| scan.is_over() && !text.is_empty())?;
    Some(Duration::from_millis(fits))
}

/// A ref name as written in records: with necessary escapes only.
pub fn is_ref_as_text(text: &str) -> bool {
    let mut bytes = Vec::new();
    let mut scan = Scan(text.as_bytes());
    while let [first, ..] = scan.0 {
        if scan.eat(b"\\x") {
            let Some(digits) = scan.0.get(..2).filter(|digits| is_hex(digits, 2)) else { return false };
            let worth = |digit: u8| b"0123456789abcdef".iter().position(|b| *b == digit).unwrap_or_default() as u8;
            bytes.push(worth(digits[0]) * 16 + worth(digits[1]));
            scan.eat(&[digits[0], digits[1]]);
        } else if scan.eat(b"\\") {
            return false;
        } else {
            bytes.push(*first);
            scan.eat(&[*first]);
        }
    }
    String::from(RefName::new(bytes)) == text
}

/// The last paragraph of a message: `Fence-<key>: <value>` in every line, each key once, format 1, 2 or 3.
fn trailers(bytes: &[u8]) -> Option<BTreeMap<&str, &str>> {
    let message = std::str::from_utf8(bytes).ok().filter(|message| message.len() <= 61_440)?;
    let mut lines: Vec<&str> = message.split('\n').collect();
    while lines.last() == Some(&"") {
        lines.pop();
    }
    let blank = lines.iter().rposition(|line| line.is_empty()).filter(|at| *at > 0)?;
    let mut found = BTreeMap::new();
    for line in &lines[blank + 1..] {
        let colon = line.find(": ").filter(|colon| line[..*colon].starts_with("Fence-"))?;
        if found.insert(&line[..colon], &line[colon + 2..]).is_some() {
            return None;
        }
    }
    // In format 2 a record may carry a proof.
    let proof = found.get("Fence-Proof").is_none_or(|proof| is_hex(proof.as_bytes(), 64));
    let known = match found.get("Fence-Format") {
        Some(&"1") => true,
        Some(&"2" | &"3") => proof,
        _ => false,
    };
    known.then_some(found)
}

/// Whether the record carries a proof.
pub fn shows_proof(bytes: &[u8]) -> bool {
    trailers(bytes).is_some_and(|found| found["Fence-Format"] != "1" && found.contains_key("Fence-Proof"))
}

/// A trailer and the rule for its value.
type Rule = (&'static str, fn(&str) -> bool);

fn all_are(found: &BTreeMap<&str, &str>, rules: &[Rule]) -> bool {
    rules.iter().all(|(key, rule)| found.get(key).is_some_and(|value| rule(value)))
}

/// The message of a lease's commit.
pub fn is_lease(bytes: &[u8]) -> bool {
    let reasons = |value: &str| {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(": ");
        ["first", "released", "expired", "revoked"].iter().any(|word| value.strip_prefix(word).is_some_and(ends))
    };
    let ttl = |value: &str| value.strip_suffix('s').is_some_and(|digits| is_number_up_to(digits.as_bytes(), "604800"));
    trailers(bytes).is_some_and(|found| {
        let jobs: Vec<_> =
            found.iter().filter_map(|(key, line)| Some((key.strip_prefix("Fence-Job-")?, *line))).collect();
        let has_its_jobs = jobs.is_empty() != (found["Fence-Format"] == "3") && jobs.len() <= 64;
        has_its_jobs
            && jobs.iter().all(|(name, line)| is_job(name, line))
            && all_are(
                &found,
                &[
                    ("Fence-Lease", |value| is_hex(value.as_bytes(), 32)),
                    ("Fence-Token", |value| is_token(value.as_bytes())),
                    ("Fence-Owner", shows_something),
                    ("Fence-State", |value| ["held", "released", "halted", "moved"].contains(&value)),
                    ("Fence-TTL", ttl),
                    ("Fence-Reason", reasons),
                    ("Fence-Holder", |value| is_hex(value.as_bytes(), 64)),
                    ("Fence-Nonce", |value| is_hex(value.as_bytes(), 32)),
                ],
            )
    })
}

/// `<state> <tick>, token <n>[, <n> dropped][, late][, lost <tick> token <n>]; <schedule>; <owner>`, with an owner as records keep it.
fn is_job(name: &str, line: &str) -> bool {
    let is_name = (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c));
    let mut parts = line.splitn(3, "; ");
    let (Some(what), Some(schedule), Some(owner)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let mut words: Vec<&str> = what.split(", ").collect();
    let lost = |word: &str| {
        let parts = word.strip_prefix("lost ").and_then(|of| of.split_once(" token "));
        parts.is_some_and(|(tick, token)| is_deadline(tick) && tick >= "1970" && is_token(token.as_bytes()))
    };
    words.pop_if(|word| lost(word));
    words.pop_if(|word| *word == "late");
    let dropped = |word: &&mut &str| {
        word.strip_suffix(" dropped").is_some_and(|n| is_number_up_to(n.as_bytes(), "18446744073709551615"))
    };
    if words.len() == 3 && words.last_mut().as_ref().is_some_and(dropped) {
        words.pop();
    }
    let [started, token] = words[..] else { return false };
    let states = ["running ", "done ", "failed ", "lost ", "forgotten "];
    let is_started =
        states.iter().filter_map(|state| started.strip_prefix(state)).any(|at| is_deadline(at) && at >= "1970");
    let is_schedule = (schedule.starts_with("every ") || schedule.starts_with("cron "))
        && schedule.len() <= 160
        && !schedule.split(' ').any(str::is_empty)
        && schedule.chars().all(|c| c.is_ascii_alphanumeric() || " */,-#?+_:.".contains(c));
    let is_owner = shows_something(owner) && crate::owner_name(owner).as_deref() == Some(owner);
    let token = token.strip_prefix("token ").is_some_and(|n| is_token(n.as_bytes()));
    is_name && is_started && token && is_schedule && is_owner
}

/// The message of a beat's commit.
pub fn is_beat(bytes: &[u8]) -> bool {
    trailers(bytes).filter(|found| found["Fence-Format"] != "3").is_some_and(|found| {
        let holder: Rule = ("Fence-Holder", |value| is_hex(value.as_bytes(), 64));
        let in_chain = found["Fence-Format"] == "1" || all_are(&found, &[holder]);
        in_chain
            && all_are(
                &found,
                &[
                    ("Fence-Lease", |value| is_hex(value.as_bytes(), 32)),
                    ("Fence-Deadline", is_deadline),
                    ("Fence-Nonce", |value| is_hex(value.as_bytes(), 32)),
                ],
            )
    })
}

/// Whether more than a hundred characters can be shown, or one that is not whitespace.
fn shows_something(value: &str) -> bool {
    let shown: Vec<char> = value.chars().filter(|c| !text::one_line(c.to_string().as_bytes(), 1).is_empty()).collect();
    shown.len() > 100 || shown.iter().any(|c| !c.is_whitespace())
}

/// `YYYY-MM-DDThh:mm:ssZ`, on an existing day, within the supported range.
fn is_deadline(value: &str) -> bool {
    let shape = value.len() == 20
        && value.bytes().zip("0000-00-00T00:00:00Z".bytes()).all(|(b, like)| match like {
            b'0' => b.is_ascii_digit(),
            like => b == like,
        });
    if !shape || value > "9999-12-30T22:00:00Z" {
        return false;
    }
    let number = |at: usize, length: usize| value[at..at + length].parse::<u32>().unwrap_or(u32::MAX);
    let year = number(0, 4);
    let leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match number(5, 2) {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leaps),
        _ => 0,
    };
    (1..=days).contains(&number(8, 2)) && number(11, 2) < 24 && number(14, 2) < 60 && number(17, 2) < 60
}

/// The first value in a log line that does not fit its key.
pub fn flaw_in(value: &Value) -> Option<String> {
    match value {
        Value::Array(values) => values.iter().find_map(flaw_in),
        Value::Object(pairs) => pairs.iter().find_map(|(key, value)| match key.as_str() {
            "settings" => None,
            "marks" if value.is_object() => value.as_object()?.iter().find_map(|(fence, mark)| {
                let valid = is_fence_or_member(fence.as_bytes()) && is_mark(mark);
                (!valid).then(|| format!("{fence}: {mark}"))
            }),
            "kinds" => value.as_object()?.iter().find_map(|(fence, kind)| {
                let valid = is_fence_or_member(fence.as_bytes()) && is_kind(kind);
                (!valid).then(|| format!("{fence}: {kind}"))
            }),
            "leases" if value.is_object() => value.as_object()?.iter().find_map(|(fence, standing)| {
                (!is_fence_or_member(fence.as_bytes())).then(|| fence.clone()).or_else(|| flaw_in(standing))
            }),
            "written" => value.as_object()?.iter().find_map(|(fence, standing)| {
                (!is_fence_or_member(fence.as_bytes())).then(|| fence.clone()).or_else(|| flaw_in(standing))
            }),
            // Before the first write its token is 0.
            "record" => {
                let mut others = value.as_object()?.clone();
                let has_mark = others.remove("token").is_some_and(|token| is_mark(&token));
                (!has_mark).then(|| format!("{key}: {value}")).or_else(|| flaw_in(&Value::Object(others)))
            }
            "jobs" => value.as_object()?.iter().find_map(|(name, job)| {
                let is_whole = is_job(name, "done 1970-01-01T00:00:00Z, token 1; every 1s; a") && job.is_object();
                (!is_whole).then(|| name.clone()).or_else(|| flaw_in(job))
            }),
            "stakes" if value.as_array().is_some_and(Vec::is_empty) => Some("no stakes".to_owned()),
            key => (!is_valid(key, value)).then(|| format!("{key}: {value}")).or_else(|| flaw_in(value)),
        }),
        _ => None,
    }
}

fn is_kind(value: &Value) -> bool {
    ["own", "lease"].iter().any(|word| value == word)
}

fn is_mark(value: &Value) -> bool {
    value.as_u64().is_some_and(|n| n < 1 << 63)
}

fn is_valid(key: &str, value: &Value) -> bool {
    let text = |rule: &dyn Fn(&[u8]) -> bool| value.as_str().is_some_and(|text| rule(text.as_bytes()));
    let is_id = |bytes: &[u8]| (is_hex(bytes, 40) || is_hex(bytes, 64)) && bytes.iter().any(|b| *b != b'0');
    match key {
        "first" => value.as_u64().is_some_and(|n| is_token(n.to_string().as_bytes())),
        "token" => value.is_null() || value.as_u64().is_some_and(|n| is_token(n.to_string().as_bytes())),
        "mark" | "from" | "raises_to" => value.is_null() || is_mark(value),
        "ttl" => value.as_u64().is_some_and(|n| (1..=604_800).contains(&n)),
        "fence" => value.is_null() || text(&is_fence_or_member),
        "old" | "new" | "commit" | "parent" => value.is_null() || text(&is_id),
        "id" | "lease" => text(&|bytes| is_hex(bytes, 32)),
        "format" => [1, 2].iter().any(|known| value == known),
        "holder" | "beat" | "prev" => text(&|bytes| is_hex(bytes, 64)),
        "seq" | "push" | "elapsed_us" | "count" | "moved" | "uptime_ms" | "unix_ms" | "pid_ns" | "start" => {
            value.is_null() || value.is_u64()
        }
        "state" if value.is_string() => {
            let of_ticks = [&b"running"[..], b"done", b"failed", b"lost", b"forgotten"];
            text(&|bytes| {
                [&b"held"[..], b"released", b"halted", b"moved", b"current"].contains(&bytes)
                    || of_ticks.contains(&bytes)
            })
        }
        "tokens" | "before" => is_kind(value),
        "event" => text(&|bytes| Scan(bytes).run(|b| b.is_ascii_lowercase() || b == b'.') == bytes.len()),
        _ => true,
    }
}

/// Whether it contains a number that is not an integer.
pub fn has_fractions(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fractions),
        Value::Object(pairs) => pairs.values().any(has_fractions),
        _ => false,
    }
}
