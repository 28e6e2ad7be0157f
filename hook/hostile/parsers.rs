//! No parser accepts more than its grammar, panics, or accepts damaged data as intact.

use super::near::{cases, hostile, near};
use crate::{
    log::{
        checkpoint::{Checkpoint, CheckpointFile, Head},
        mutex::Witness,
    },
    push::trailers::token_trailers,
};
use git_fence_core::{Event, FenceName, LOG_VERSION, Line, LineHash, Mark, PushId, State, Token, Who, hash_line};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::path::PathBuf;

/// A log of chained lines, starting with line 1 or after a rotation.
fn log() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let event = prop_oneof![
        (1..99u64, "[a-z]{0,9}").prop_map(|(n, reason)| Event::MarkRaised {
            fence: FenceName::repo(),
            mark: Mark::from(Token::try_from(n).unwrap()),
            reason,
            pusher: "anna".to_owned(),
        }),
        "[ -~]{0,9}".prop_map(|reason| Event::LogRecovered { reason }),
        (1..9u64).prop_map(|push| Event::PushEvicted {
            push: PushId(push),
            reason: String::new(),
            who: Who::default()
        }),
    ];
    let first = prop_oneof![3 => Just(1), 1 => 2..9u64, 1 => u64::MAX - 2..=u64::MAX];
    (first, vec(event, 0..5)).prop_map(|(first, events)| {
        let pusher = "anna".to_owned();
        let begun = match first {
            1 => Event::LogBegun { version: LOG_VERSION, pusher },
            _ => Event::LogRotated { version: LOG_VERSION, file: "x".to_owned(), state: Box::default(), pusher },
        };
        let mut prev = LineHash::none();
        let mut seq = first;
        let mut lines = Vec::new();
        for event in std::iter::once(begun).chain(events) {
            let line = Line { seq, time: "2026-01-01T00:00:00.000Z".to_owned(), event, prev };
            let written = serde_json::to_vec(&line).unwrap();
            (prev, seq) = (hash_line(&written), seq.wrapping_add(1));
            lines.push(written);
        }
        lines
    })
}

fn bytes_of(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect()
}

fn head_of(lines: &[Vec<u8>]) -> Head {
    let last: Line = serde_json::from_slice(lines.last().unwrap()).unwrap();
    let end = bytes_of(lines).len() as u64;
    let length = lines.last().unwrap().len() as u64 + 1;
    Head { seq: last.seq, start: end - length, end, hash: hash_line(lines.last().unwrap()) }
}

fn state_of(lines: &[Vec<u8>]) -> State {
    let mut state = State::default();
    for line in lines {
        let line: Line = serde_json::from_slice(line).unwrap();
        state.apply(line.seq, &line.time, &line.event).unwrap();
    }
    state
}

fn config() -> impl Strategy<Value = Vec<u8>> {
    let section = prop_oneof![3 => "\\[fence\\]", 2 => "\\[fence \"(repo|deploy|x.lock|A|)\"\\]", 1 => "\\[core\\]"];
    let pair = prop_oneof![
        "mode ?= ?(enforce|observe|off|of|)",
        "(accept|Accept) = (above|at-or-above|any)",
        "tokenless = (allow|refuse|yes)",
        "(wait|evictAfter|leaseMaxTtl) = (off|[0-9]{1,6}(s|m|h|d|ms|)|1h30m|-3s|PT3S|1500ms|8d)",
        "maxJump = (none|[0-9]{1,20})",
        "refs = (refs/heads/\\*|heads/\\*|\"\"|\"refs/a\\\\nb\")",
        "refs = refs/heads/[a-z]{1,3}",
        "(exempt|allowRevoke) ?=? ?[a-z]{0,3}",
        "receivePack = (ancestor|none|x)",
        "init = (install|auto|x)",
        "syslog = (true|false|/run/x|x)",
        "[a-zA-Z]{1,5}( = [ -~]{0,5})?",
    ];
    vec((section, vec(pair, 0..4)), 0..4).prop_map(|sections| {
        let lines = |(section, pairs): (String, Vec<String>)| format!("{section}\n {}\n", pairs.join("\n "));
        sections.into_iter().map(lines).collect::<String>().into_bytes()
    })
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let line = "(Fencing-Token|fencing-token|Signed-off-by|see)(: ?| :|)(deploy:)?[0-9]{0,3}( x)?|";
    ("[a-z]{0,5}|Fencing-Token: 5", vec(vec(line, 0..4), 0..3)).prop_map(|(subject, paragraphs)| {
        let paragraphs: Vec<String> = paragraphs.into_iter().map(|lines| lines.join("\n")).collect();
        format!("{subject}\n\n{}\n", paragraphs.join("\n\n")).into_bytes()
    })
}

fn variables() -> impl Strategy<Value = Vec<u8>> {
    let variable = prop_oneof![
        3 => "GIT_PUSH_OPTION_COUNT=(0|1|2|3|\\+1|01| 1|18446744073709551615|18446744073709551616|)",
        3 => "GIT_PUSH_OPTION_[0-3]=[ -~]{0,9}",
        1 => "(GL_USERNAME|REMOTE_USER|SSH_CONNECTION|REMOTE_ADDR)=.{0,9}",
        1 => "[0-9]{1,4}(-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z?)?|[hmd]|)",
        1 => "(/[a-z]{0,3}|\"/[a-z:\\\\]{0,4}\"|:){0,4}",
    ];
    vec(variable, 0..5).prop_map(|variables| variables.join("\0").into_bytes())
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn settings_follow_the_grammar(bytes in hostile(config())) {
        super::settings::file(&bytes);
    }

    #[test]
    fn syslog_path_follows_the_grammar(bytes in near(Just(b"[fence]\n syslog = /run/x\n".to_vec()))) {
        super::settings::file(&bytes);
    }

    #[test]
    fn trailers_follow_the_grammar(bytes in hostile(message())) {
        super::trailers(&bytes);
    }

    #[test]
    fn all_trailers_of_the_last_paragraph_are_read(tokens in vec("[0-9]{1,5}|deploy:[0-9]{1,5}", 1..4), body in "([a-z]{1,5}\n\n)?") {
        let lines: String = tokens.iter().map(|token| format!("Fencing-Token: {token}\n")).collect();
        let found = token_trailers(format!("subject\n\n{body}{lines}").as_bytes());
        prop_assert_eq!(found, tokens.into_iter().map(String::into_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn environment_follows_the_grammar(bytes in hostile(variables())) {
        super::environment(&bytes);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn log_is_read_unless_its_numbers_are_exhausted(lines in log()) {
        let bytes = bytes_of(&lines);
        super::log(&bytes);
        // After the highest number, no line can follow: such a log is refused, and no other.
        let ends = serde_json::from_slice::<Line>(lines.last().unwrap()).unwrap().seq;
        let fits = ends >= lines.len() as u64 && ends < u64::MAX;
        prop_assert_eq!(super::read_log(&bytes, None).is_some(), fits);
    }

    #[test]
    fn changed_log_is_valid_or_damaged(bytes in near(log().prop_map(|lines| bytes_of(&lines)))) {
        super::log(&bytes);
    }

    #[test]
    fn line_followed_by_others_cannot_be_changed(lines in log(), place in any::<Index>(), bit in 0..8u8) {
        let mut bytes = bytes_of(&lines);
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Some((read, _)) = super::read_log(&bytes, None) {
            let whole = read.len() - 1;
            prop_assert_eq!(&read[..whole], &lines[..whole]);
        }
        // With a witness for the last line, that line cannot be changed either. The exception is a first line with a number
        // above that of the witness, as after an interrupted rotation.
        let Head { seq, end, hash, .. } = head_of(&lines);
        let witness = Witness { boot: "b".to_owned(), seq, end, hash, synced: end, synced_seq: seq, ..Witness::empty() };
        if let Some((read, _)) = super::read_log(&bytes, Some(&witness)) {
            let is_later = serde_json::from_slice::<Line>(&read[0]).is_ok_and(|line| line.seq > seq);
            prop_assert!(is_later || read == lines);
        }
    }

    #[test]
    fn checkpoint_is_intact_or_damaged(lines in log(), more in 0..3usize, edited in any::<bool>(), place in any::<Index>(), bit in 0..8u8) {
        let known = lines[..lines.len().saturating_sub(more).max(1)].to_vec();
        let checkpoint = Checkpoint::of(head_of(&known), state_of(&known));
        let written = serde_json::to_vec(&checkpoint).unwrap();
        let mut both = [&written[..], b"\n\0", &bytes_of(&lines)].concat();
        if edited {
            let at = place.index(both.len());
            both[at] ^= 1 << bit;
        }
        super::checkpoint(&both);
        if let Ok(CheckpointFile::Good(read)) = CheckpointFile::of(&both[..written.len()], PathBuf::new()) {
            prop_assert!(super::is_same(&read, &checkpoint), "an undetected edit");
        } else {
            prop_assert!(edited || checkpoint.head.seq == u64::MAX);
        }
    }

    #[test]
    fn checkpoint_with_a_wrong_head_is_not_used(lines in log(), start in 0..999u64, end in 0..999u64, seq in any::<u64>(), which in 0..3u8) {
        let head = head_of(&lines);
        let head = match which {
            0 => Head { start, end, seq, ..head },
            1 => Head { end, ..head },
            _ => Head { end: head.end + end % 3 - 1, ..head },
        };
        let checkpoint = serde_json::to_vec(&Checkpoint::of(head, state_of(&lines))).unwrap();
        super::checkpoint(&[&checkpoint[..], b"\n\0", &bytes_of(&lines)].concat());
    }

    #[test]
    fn witness_round_trips_or_is_refused(bytes in hostile(log().prop_map(|lines| {
        let Head { seq, end, hash, .. } = head_of(&lines);
        serde_json::to_vec(&Witness { boot: "b".to_owned(), seq, end, hash, synced: end, synced_seq: seq, ..Witness::empty() }).unwrap()
    }))) {
        super::witness(&bytes);
    }
}
