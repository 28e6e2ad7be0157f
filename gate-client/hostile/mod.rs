//! Hostile input: for every parser of this crate, a check that takes any bytes.
//!
//! As in `git_fence_core::hostile`, a check panics if its parser breaks a rule. Compiled only for tests and
//! with the feature `fuzzing`.

#[path = "../../core/hostile/near.rs"]
#[cfg(test)]
mod near;
#[cfg(test)]
mod parsers;

use crate::{
    git::{
        Ran,
        address::{address, local_path, without_password},
    },
    helper::protocol::{HelperLine, OptionAnswer, Options, Update, error, listing, ok, reason_in},
    store::answer::{NotSent, PushAnswer},
    surroundings::{Environment, GitSettings as _},
};
use git_fence_core::hostile::{grammar, is_fit};
use std::{
    ffi::{OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    path::Path,
    process::ExitStatus,
};

/// Lines from git to the remote helper.
pub fn helper(bytes: &[u8]) {
    let mut options = Options::default();
    let mut updates = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        let read = HelperLine::parse(line);
        assert_eq!(read.is_some(), is_command(line), "{read:?} from '{}'", line.escape_ascii());
        match read {
            Some(HelperLine::Push(update)) => {
                assert_eq!([b"push ", update.refspec().as_bytes()].concat(), line);
                let answered = [ok(&update.to), error(&update.to, "\"no\nway\"")].concat();
                assert_eq!(answered.iter().filter(|b| **b == b'\n').count(), 2);
                updates.push(update);
            }
            Some(HelperLine::Set { name, value }) => {
                if let OptionAnswer::Unsupported = options.set(&name, &value) {
                    assert!(!["atomic", "push-option", "dry-run"].contains(&name.as_str()));
                }
            }
            Some(HelperLine::Fetch { id }) => assert!(line.starts_with(format!("fetch {id} ").as_bytes())),
            _ => {}
        }
    }
    // No input becomes an argument of its own.
    let arguments = [options.push_arguments(&updates), options.fetch_arguments()].concat();
    assert!(arguments.iter().all(|argument| argument.as_bytes().starts_with(b"--")), "{arguments:?}");
    let is_compared = |argument: &&OsString| argument.as_bytes().starts_with(b"--force-with-lease=");
    assert!(!updates.iter().all(|update: &Update| update.force) || !arguments.iter().any(|a| is_compared(&a)));
    options.forget_push();
    assert!(options.push_options().is_empty());
}

/// The commands of gitremote-helpers(7) that we support.
fn is_command(line: &[u8]) -> bool {
    let word = line.split(|b| *b == b' ').next().unwrap_or_default();
    let rest = &line[(word.len() + 1).min(line.len())..];
    let has_more = line.len() > word.len();
    match word {
        b"" | b"capabilities" => !has_more,
        b"list" => !has_more || rest == b"for-push",
        b"option" => {
            let name = rest.split(|b| *b == b' ').next().unwrap_or_default();
            let value = rest.get(name.len() + 1..).unwrap_or_default();
            !name.is_empty() && std::str::from_utf8(name).is_ok() && is_plain_or_quoted(value)
        }
        // At least one colon, and text after the last.
        b"push" => has_more && rest.contains(&b':') && !rest.ends_with(b":"),
        b"fetch" => {
            let id = rest.split(|b| *b == b' ').next().unwrap_or_default();
            let is_id = grammar::is_hex(id, 40) || grammar::is_hex(id, 64);
            is_id && id.iter().any(|b| *b != b'0') && rest.len() > id.len() + 1
        }
        _ => false,
    }
}

/// Anything that does not start with a double quote, or a C string as git writes it.
fn is_plain_or_quoted(value: &[u8]) -> bool {
    let [b'"', inner @ .., b'"'] = value else { return value.first() != Some(&b'"') };
    let mut rest = inner;
    loop {
        rest = match rest {
            [] => return true,
            [b'"', ..] => return false,
            [b'\\', b'0'..=b'3', b'0'..=b'7', b'0'..=b'7', rest @ ..] => rest,
            [b'\\', b'a' | b'b' | b't' | b'n' | b'v' | b'f' | b'r' | b'"' | b'\\', rest @ ..] => rest,
            [b'\\', ..] => return false,
            [_, rest @ ..] => rest,
        };
    }
}

/// The result of a `git push`: its exit code, its standard output up to a NUL, its standard error.
pub fn answer(bytes: &[u8]) {
    let (code, output) = bytes.split_first().unwrap_or((&0, b""));
    let cut = output.iter().position(|b| *b == 0).unwrap_or(output.len());
    let (stdout, stderr) = (output[..cut].to_vec(), output.get(cut + 1..).unwrap_or_default().to_vec());
    let ran = Ran { status: ExitStatus::from_raw(i32::from(*code) << 8), stdout, stderr, gave_up_after: None };
    let read = PushAnswer::of(&ran);
    let says = |words: &str| String::from_utf8_lossy(&ran.stderr).contains(words);
    match &read {
        PushAnswer::Landed { .. } => assert_eq!(*code, 0),
        _ => assert_ne!(*code, 0),
    }
    match read {
        PushAnswer::Refused { refs, verdict, said } => {
            // Only a complete report shows that nothing moved.
            assert!(ran.stdout.ends_with(b"Done\n"));
            assert!(refs.iter().any(|answer| answer.refused.is_some()));
            refs.iter().filter_map(|answer| answer.refused.as_ref()).for_each(|why| {
                assert!(is_fit(why, 201) && is_fit(&reason_in(why), 201), "{why:?}");
            });
            assert!(said.iter().all(|line| is_fit(line, 301)), "{said:?}");
            assert_safe(verdict);
        }
        PushAnswer::Landed { verdict, .. } => assert_safe(verdict),
        PushAnswer::NotSent(NotSent::FromHere(why)) => assert!(says("refspec ") || says("error: "), "{why:?}"),
        // A server that has been heard has been reached, unless it is a web server that let nothing through to git.
        PushAnswer::NotSent(NotSent::NoConnection { said, .. } | NotSent::Denied { said, .. }) => {
            assert!(said.iter().all(|line| is_fit(line, 301)), "{said:?}");
            let is_heard = String::from_utf8_lossy(&ran.stderr).lines().any(|line| line.starts_with("remote: "));
            let over_http = ["unable to ", "could not read ", "Authentication failed for ", "RPC failed; HTTP 40"];
            assert!(!is_heard || over_http.iter().any(|words| says(words)), "{said:?}");
        }
        PushAnswer::NoOptions => assert!(says("does not support push options")),
        PushAnswer::NoAtomic => assert!(says("does not support --atomic push")),
        PushAnswer::Lost { why } => assert!(is_fit(&why, 201), "{why:?}"),
    }
    for (for_push, hides) in [(true, true), (true, false), (false, false)] {
        let listed = listing(&ran.stdout, for_push, hides, true);
        let shows_a_lease = |line: &[u8]| {
            let (id, name) = line.split_at(line.iter().position(|b| *b == b' ').unwrap_or_default());
            grammar::is_hex(id, 40) && name.starts_with(b" refs/fence/")
        };
        assert!(listed.ends_with(b"\n") && !(hides && listed.split(|b| *b == b'\n').any(shows_a_lease)));
    }
}

fn assert_safe(verdict: Option<git_fence_core::GateAnswer>) {
    let by = verdict.and_then(|verdict| verdict.holder);
    assert!(by.as_ref().is_none_or(|by| is_fit(&by.owner, 101)), "{by:?}");
}

/// A URL, and settings in the environment: `name=value`, each ended by a NUL.
pub fn surroundings(bytes: &[u8]) {
    let url = OsStr::from_bytes(bytes);
    let bare = without_password(url);
    assert!(bare.len() <= url.len());
    // No name or password is left before the host.
    let is_web = bytes.starts_with(b"http://") || bytes.starts_with(b"https://");
    let host = bare.as_bytes().splitn(4, |b| *b == b'/').nth(2).unwrap_or_default();
    assert!(!is_web || !host.contains(&b'@'));
    if local_path(url).is_none() {
        let at = address(url, Path::new("/nowhere"));
        assert!(at.len() <= url.len());
    }
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let environment = Environment::of(bytes.split(|b| *b == 0).filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        Some((owned(&pair[..at]), owned(&pair[at + 1..])))
    }));
    let settings = environment.settings();
    let mut again = Environment::default();
    again.set_settings(&settings);
    assert_eq!(again.settings(), settings);
    let plain = environment.without_helper().settings();
    assert!(plain.iter().all(|(key, _)| !key.as_bytes().starts_with(b"url.fence::")));
}
