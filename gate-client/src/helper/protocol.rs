//! The protocol between git and a remote helper, see gitremote-helpers(7).

use git_fence_core::{ObjectId, text};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// The answer to `capabilities`.
pub(crate) const CAPABILITIES: &[u8] = b"fetch\noption\npush\nobject-format\n\n";

/// The prefix of lease refs.
const LEASES: &[u8] = b"refs/fence/";

/// A line from git.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelperLine {
    Capabilities,
    List {
        for_push: bool,
    },
    Set {
        name: String,
        value: Vec<u8>,
    },
    Push(Update),
    Fetch {
        id: String,
    },
    /// The end of a batch, or of everything.
    End,
}

/// The new value of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Update {
    /// Whether the update may be a non-fast-forward.
    pub(crate) force: bool,
    /// The new value, as an expression in the local repository; empty to delete the ref.
    pub(crate) from: OsString,
    pub(crate) to: OsString,
}

impl HelperLine {
    /// Reads a line without its line feed.
    pub(crate) fn parse(line: &[u8]) -> Option<HelperLine> {
        let (word, rest) = split(line, b' ');
        Some(match word {
            b"" if rest.is_none() => HelperLine::End,
            b"capabilities" if rest.is_none() => HelperLine::Capabilities,
            b"list" if rest.is_none() => HelperLine::List { for_push: false },
            b"list" if rest == Some(b"for-push") => HelperLine::List { for_push: true },
            b"option" => {
                let (name, value) = split(rest?, b' ');
                let name = String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())?;
                HelperLine::Set { name, value: unquoted(value.unwrap_or(b""))? }
            }
            b"push" => HelperLine::Push(Update::parse(rest?)?),
            b"fetch" => {
                let (id, name) = split(rest?, b' ');
                name.filter(|name| !name.is_empty())?;
                HelperLine::Fetch { id: ObjectId::parse(id).ok()??.to_string() }
            }
            _ => return None,
        })
    }
}

impl Update {
    /// `[+]<from>:<to>`. `from` may be any expression, but `to` cannot contain a colon.
    fn parse(refspec: &[u8]) -> Option<Update> {
        let (force, refspec) = refspec.strip_prefix(b"+").map_or((false, refspec), |rest| (true, rest));
        let colon = refspec.iter().rposition(|byte| *byte == b':')?;
        let (from, to) = (&refspec[..colon], &refspec[colon + 1..]);
        (!to.is_empty()).then(|| Update { force, from: owned(from), to: owned(to) })
    }

    /// As an argument of `git push`.
    pub(crate) fn refspec(&self) -> OsString {
        let force: &[u8] = if self.force { b"+" } else { b"" };
        owned(&[force, self.from.as_bytes(), b":", self.to.as_bytes()].concat())
    }

    /// Whether it is a lease ref, which only git-fence moves.
    pub(crate) fn is_of_a_lease(&self) -> bool {
        self.to.as_bytes().starts_with(LEASES)
    }
}

/// The options that git has set with `option`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) dry_run: bool,
    pub(crate) atomic: bool,
    pub(crate) object_format: bool,
    /// The expected values of refs; empty for a ref that must not exist.
    cas: Vec<(OsString, String)>,
    pub(crate) push_options: Vec<OsString>,
    signed: Option<String>,
    /// Arguments for every git that moves objects.
    common: Vec<OsString>,
    /// Arguments for `git fetch`.
    fetch: Vec<OsString>,
}

/// The answer to an `option`.
pub(crate) enum OptionAnswer {
    Ok,
    Unsupported,
}

impl Options {
    pub(crate) fn set(&mut self, name: &str, value: &[u8]) -> OptionAnswer {
        let text = String::from_utf8_lossy(value).into_owned();
        let is_true = value == b"true";
        match name {
            "verbosity" => match text.parse::<i32>() {
                Ok(..=0) => self.common.push("--quiet".into()),
                Ok(2..) => self.common.push("--verbose".into()),
                _ => {}
            },
            "progress" if is_true => self.common.push("--progress".into()),
            "family" if matches!(value, b"ipv4" | b"ipv6") => self.common.push(format!("--{text}").into()),
            "dry-run" => self.dry_run = is_true,
            "atomic" => self.atomic = is_true,
            "object-format" => self.object_format = true,
            "push-option" => self.push_options.push(owned(value)),
            "pushcert" => self.signed = Some(if is_true { "yes".to_owned() } else { text }),
            "cas" => match value.iter().rposition(|byte| *byte == b':') {
                Some(colon) => {
                    let expected = String::from_utf8_lossy(&value[colon + 1..]);
                    let is_null = expected.bytes().all(|byte| byte == b'0');
                    let expected = if is_null { String::new() } else { expected.into_owned() };
                    self.cas.push((owned(&value[..colon]), expected));
                }
                None => return OptionAnswer::Unsupported,
            },
            // Git has checked that already, and the expected value is in 'cas'.
            "force-if-includes" => {}
            // It replaces the last depth, and 0 means none: git does that before it fetches tags.
            "depth" => {
                let is_depth = |argument: &OsString| argument.as_bytes().starts_with(b"--de");
                self.fetch.retain(|argument| !is_depth(argument));
                self.fetch.extend((text != "0").then(|| format!("--depth={text}").into()));
            }
            "deepen-since" => self.fetch.push(format!("--shallow-since={text}").into()),
            "deepen-not" => self.fetch.push(format!("--shallow-exclude={text}").into()),
            // Comes with 'depth', which then counts from the end of the local history.
            "deepen-relative" if is_true => {
                for argument in &mut self.fetch {
                    if let Some(depth) = argument.to_str().and_then(|text| text.strip_prefix("--depth=")) {
                        *argument = format!("--deepen={depth}").into();
                    }
                }
            }
            "update-shallow" if is_true => self.fetch.push("--update-shallow".into()),
            "refetch" if is_true => self.fetch.push("--refetch".into()),
            "filter" => self.fetch.push(format!("--filter={text}").into()),
            // The git that we run finds these out by itself.
            "progress" | "cloning" | "from-promisor" | "no-dependents" | "deepen-relative" | "update-shallow"
            | "refetch" => {}
            _ => return OptionAnswer::Unsupported,
        }
        OptionAnswer::Ok
    }

    /// Arguments for `git push`, except `--atomic`. As in git, a forced ref is not compared with an expected value.
    pub(crate) fn push_arguments(&self, updates: &[Update]) -> Vec<OsString> {
        let mut arguments = self.common.clone();
        for (name, expected) in &self.cas {
            if updates.iter().any(|update| update.to == *name && !update.force) {
                let lease: [&[u8]; 4] = [b"--force-with-lease=", name.as_bytes(), b":", expected.as_bytes()];
                arguments.push(owned(&lease.concat()));
            }
        }
        arguments.extend(self.signed.as_ref().map(|signed| format!("--signed={signed}").into()));
        arguments
    }

    pub(crate) fn push_options(&self) -> &[OsString] {
        &self.push_options
    }

    pub(crate) fn fetch_arguments(&self) -> Vec<OsString> {
        [&*self.common, &*self.fetch].concat()
    }

    /// Resets the options that are for one push.
    pub(crate) fn forget_push(&mut self) {
        self.cas.clear();
        self.push_options.clear();
    }
}

/// Converts the output of `git ls-remote --symref` to the answer to `list`. For a push it leaves out entries that
/// are not refs, which a mirror push would delete, and lease refs if there is a lease of ours.
pub(crate) fn listing(output: &[u8], for_push: bool, hides_leases: bool, object_format: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut symbolic: Vec<&[u8]> = Vec::new();
    let mut names_the_format = object_format;
    for line in output.split(|byte| *byte == b'\n') {
        let (value, Some(name)) = split(line, b'\t') else { continue };
        if let Some(target) = value.strip_prefix(b"ref: ") {
            if !for_push {
                out.extend([b"@", target, b" ", name, b"\n"].concat());
                symbolic.push(name);
            }
            continue;
        }
        if std::mem::take(&mut names_the_format) {
            out.extend(if value.len() == 64 { &b":object-format sha256\n"[..] } else { b":object-format sha1\n" });
        }
        let is_a_ref = name.starts_with(b"refs/") && !name.ends_with(b"^{}");
        let is_hidden = for_push && !is_a_ref || hides_leases && name.starts_with(LEASES);
        if !is_hidden && !symbolic.contains(&name) {
            out.extend([value, b" ", name, b"\n"].concat());
        }
    }
    out.push(b'\n');
    out
}

/// The answer for a ref that landed.
pub(crate) fn ok(name: &OsStr) -> Vec<u8> {
    [b"ok ", name.as_bytes(), b"\n"].concat()
}

/// The answer for a ref that was left alone: git prints nothing about it, and it is not a failure.
pub(crate) fn nothing(name: &OsStr) -> Vec<u8> {
    error(name, "no match")
}

/// The answer for a ref that did not land. Git recognizes some reasons and prints its own message and advice.
pub(crate) fn error(name: &OsStr, why: &str) -> Vec<u8> {
    let why = text::one_line(why.as_bytes(), 400);
    // Git would read a reason in double quotes as a C string.
    let why = why.trim_start_matches('"');
    [b"error ", name.as_bytes(), b" ", why.as_bytes(), b"\n"].concat()
}

/// The reason in git's summary of a ref, `[rejected] (non-fast-forward)`, as helpers spell it.
pub(crate) fn reason_in(summary: &str) -> String {
    if summary == "[rejected] (non-fast-forward)" {
        return "non-fast forward".to_owned();
    }
    summary.split_once(" (").and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(summary).to_owned()
}

fn split(bytes: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match bytes.iter().position(|byte| *byte == at) {
        Some(found) => (&bytes[..found], Some(&bytes[found + 1..])),
        None => (bytes, None),
    }
}

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// A value that git may have quoted as a C string.
fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = value.strip_prefix(b"\"") else { return Some(value.to_vec()) };
    let inner = inner.strip_suffix(b"\"")?;
    let (mut out, mut bytes) = (Vec::new(), inner.iter().copied());
    while let Some(byte) = bytes.next() {
        match byte {
            // A quote inside would end the string too early.
            b'"' => return None,
            b'\\' => {}
            byte => {
                out.push(byte);
                continue;
            }
        }
        out.push(match bytes.next()? {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            first @ b'0'..=b'3' => {
                let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| byte - b'0');
                (first - b'0') << 6 | digit(bytes.next()?)? << 3 | digit(bytes.next()?)?
            }
            same @ (b'"' | b'\\') => same,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(force: bool, from: &[u8], to: &[u8]) -> HelperLine {
        HelperLine::Push(Update { force, from: owned(from), to: owned(to) })
    }

    #[test]
    fn lines_from_git_are_parsed() {
        let set = |name: &str, value: &[u8]| HelperLine::Set { name: name.to_owned(), value: value.to_vec() };
        let id = "12".repeat(20);
        for (line, read) in [
            (&b"capabilities"[..], HelperLine::Capabilities),
            (b"list", HelperLine::List { for_push: false }),
            (b"list for-push", HelperLine::List { for_push: true }),
            (b"push refs/heads/a:refs/heads/b", update(false, b"refs/heads/a", b"refs/heads/b")),
            (b"push +HEAD:refs/heads/b", update(true, b"HEAD", b"refs/heads/b")),
            (b"push :refs/heads/b", update(false, b"", b"refs/heads/b")),
            (b"push :/words:refs/heads/b", update(false, b":/words", b"refs/heads/b")),
            (b"push refs/heads/\xff:refs/heads/\xff", update(false, b"refs/heads/\xff", b"refs/heads/\xff")),
            (format!("fetch {id} refs/heads/a").as_bytes(), HelperLine::Fetch { id }),
            (b"option verbosity 1", set("verbosity", b"1")),
            (b"option object-format", set("object-format", b"")),
            (b"option push-option \"a \\\"b\\\\\\303\\244\\n\"", set("push-option", b"a \"b\\\xc3\xa4\n")),
            (b"", HelperLine::End),
        ] {
            assert_eq!(HelperLine::parse(line), Some(read), "{}", line.escape_ascii());
        }
        for nonsense in [
            &b"push"[..],
            b"push x",
            b"push x:",
            b"import x",
            b"option x \"open",
            b"option x \"\\9\\4\"",
            b"option x \"a\"b\"",
            b"option x \"\\q\"",
            b"option ",
            b"capabilities please",
            b"list for-ever",
            b"fetch 1234 refs/heads/a",
            b"fetch --upload-pack=x refs/heads/a",
        ] {
            assert_eq!(HelperLine::parse(nonsense), None, "{}", nonsense.escape_ascii());
        }
    }

    #[test]
    fn forced_ref_is_not_compared_with_an_expected_value() {
        let mut options = Options::default();
        let zeros = "0".repeat(40);
        for cas in
            [format!("refs/heads/a:{}", "1".repeat(40)), format!("refs/heads/b:{zeros}"), "refs/heads/c:2".into()]
        {
            assert!(matches!(options.set("cas", cas.as_bytes()), OptionAnswer::Ok));
        }
        options.set("push-option", b"ci.skip");
        options.set("pushcert", b"if-asked");
        options.set("verbosity", b"0");
        let to = |force, name: &str| Update { force, from: "HEAD".into(), to: format!("refs/heads/{name}").into() };
        let arguments = options.push_arguments(&[to(false, "a"), to(false, "b"), to(true, "c")]);
        let expect_a = format!("--force-with-lease=refs/heads/a:{}", "1".repeat(40));
        let expect_b = "--force-with-lease=refs/heads/b:";
        assert_eq!(arguments, ["--quiet", &expect_a, expect_b, "--signed=if-asked"]);
        assert_eq!(options.push_options(), ["ci.skip"]);
        assert!(matches!(options.set("bundle-uri", b"x"), OptionAnswer::Unsupported));
    }

    #[test]
    fn relative_deepening_counts_from_the_end_of_the_history() {
        let mut options = Options::default();
        options.set("depth", b"3");
        options.set("deepen-relative", b"true");
        assert_eq!(options.fetch_arguments(), ["--deepen=3"]);
        options.set("depth", b"0");
        options.set("deepen-relative", b"false");
        assert!(options.fetch_arguments().is_empty());
    }

    #[test]
    fn leases_are_hidden_from_a_push() {
        let output = b"ref: refs/heads/main\tHEAD\n11\tHEAD\n11\trefs/fence/repo/lease\n11\trefs/heads/main\n\
                     22\trefs/tags/v1\n11\trefs/tags/v1^{}\n";
        let push = listing(output, true, true, false);
        assert_eq!(String::from_utf8_lossy(&push), "11 refs/heads/main\n22 refs/tags/v1\n\n");
        let fetch = listing(output, false, false, false);
        let shown = "@refs/heads/main HEAD\n11 refs/fence/repo/lease\n11 refs/heads/main\n22 refs/tags/v1\n\
                     11 refs/tags/v1^{}\n\n";
        assert_eq!(String::from_utf8_lossy(&fetch), shown);
        let sha256 = format!("{}\trefs/fence/repo/lease\n", "a".repeat(64));
        assert_eq!(listing(sha256.as_bytes(), true, true, true), b":object-format sha256\n\n");
        assert_eq!(listing(b"", true, true, true), b"\n");
    }

    #[test]
    fn reasons_are_spelled_as_git_expects() {
        assert_eq!(reason_in("[rejected] (non-fast-forward)"), "non-fast forward");
        assert_eq!(reason_in("[remote rejected] (non-fast-forward)"), "non-fast-forward");
        assert_eq!(reason_in("[rejected] (stale info)"), "stale info");
        assert_eq!(reason_in("[remote rejected] (pre-receive hook declined)"), "pre-receive hook declined");
        assert_eq!(reason_in("gone"), "gone");
        assert_eq!(error(OsStr::new("refs/heads/a"), "\"x\"\ny"), b"error refs/heads/a x\"y\n");
    }
}
