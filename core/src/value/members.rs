//! Names of the members of families, and how they are written in refs.
//!
//! A family makes one fence for each ref that its pattern matches: the member `branch/feature/x` of the family `branch` is
//! the fence of the ref `refs/heads/feature/x`. Below `refs/fence/` such a name is one path component, so that no member is
//! a directory of another, and no file system folds two of them into one.

use crate::{FenceName, RefName, text, value::names::FenceNameError};
use sha2::{Digest, Sha256};

/// No component of a ref is longer: file systems allow 255 bytes, and git adds `.lock`.
const LONGEST_COMPONENT: usize = 200;
/// How much of a longer name is kept before its hash.
const KEPT: usize = 120;
/// Between what is kept of a long name and its hash. Neither can be part of what is encoded.
const CUT_IN_REF: &str = "%=";
/// The same in text. Git allows no `~` in the name of a ref, so no member's own name contains it.
const CUT_IN_TEXT: char = '~';
/// Between family and member, in a ref.
const SLASH: &str = "%2f";

impl FenceName {
    /// The name of a fence of its own or of a member, as people and programs write it.
    ///
    /// `<name>` or `<family>/<member>`. The member is given with its bytes, or as this type prints it: with `\xNN` for bytes
    /// that cannot be shown, and a long one cut, with `~` and its hash.
    pub fn read(name: &[u8]) -> Result<FenceName, FenceNameError> {
        let Some(slash) = name.iter().position(|b| *b == b'/') else { return FenceName::parse(name) };
        let (family, member) = (FenceName::parse(&name[..slash])?, &name[slash + 1..]);
        let as_text = std::str::from_utf8(member).ok();
        if let Some((kept, hash)) = as_text.and_then(|member| member.split_once(CUT_IN_TEXT)) {
            let kept = text::unescape(kept).map(|kept| encoded(&kept));
            let component = kept.map(|kept| format!("{family}{SLASH}{kept}{CUT_IN_REF}{hash}"));
            let read = component.and_then(|component| FenceName::in_component(component.as_bytes()));
            return read.ok_or_else(|| FenceNameError::member(name, "this is not what is shown of a long name"));
        }
        match as_text.filter(|member| member.contains('\\')) {
            Some(escaped) => match text::unescape(escaped) {
                Some(member) => family.member(&member),
                None => Err(FenceNameError::member(name, "a backslash must be part of an \\xNN that is needed")),
            },
            None => family.member(member),
        }
    }

    /// The member of this family for what the star of its pattern matched.
    pub fn member(&self, matched: &[u8]) -> Result<FenceName, FenceNameError> {
        let whole = [self.as_str().as_bytes(), b"/", matched].concat();
        let refused = |why| Err(FenceNameError::member(&whole, why));
        if self.is_member() || matched.is_empty() {
            return refused("a member is <family>/<what the star in the family's pattern matches>");
        }
        if RefName::new(matched).is_too_long() {
            return refused("it is longer than the name of any ref");
        }
        if matched.iter().any(|b| b.is_ascii_control() || b" ~^:?*[\\".contains(b)) {
            return refused("git allows no such name for a ref");
        }
        let component = format!("{self}{SLASH}{}", encoded(matched));
        if component.len() <= LONGEST_COMPONENT {
            return Ok(FenceName::made(format!("{self}/{}", text::escape(matched))));
        }
        let kept = whole_escapes(&component[..KEPT]);
        let hash = crate::log::chain::hex(&Sha256::digest(&whole));
        let kept = kept.strip_prefix(&format!("{self}{SLASH}")).and_then(decoded).unwrap_or_default();
        Ok(FenceName::made(format!("{self}/{}{CUT_IN_TEXT}{hash}", text::escape(&kept))))
    }

    /// As one word of a shell's command line: a branch may have any name, and people and agents copy the commands in messages.
    pub fn in_shell(&self) -> String {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._/-~+@,%=".contains(&b);
        match self.as_str().bytes().all(is_plain) {
            true => self.as_str().to_owned(),
            false => format!("'{}'", self.as_str().replace('\'', "'\\''")),
        }
    }

    /// Whether it is a member of a family.
    pub fn is_member(&self) -> bool {
        self.as_str().contains('/')
    }

    /// The fence as the settings have it: of a member, its family.
    #[must_use]
    pub fn configured(&self) -> FenceName {
        match self.as_str().split_once('/') {
            Some((family, _)) => FenceName::made(family.to_owned()),
            None => self.clone(),
        }
    }

    /// Whether it is this fence, or a member of this family.
    pub fn is_of(&self, fence: &FenceName) -> bool {
        self == fence
            || self
                .as_str()
                .strip_prefix(fence.as_str())
                .is_some_and(|rest| !fence.is_member() && rest.starts_with('/'))
    }

    /// What the star of the family's pattern matched; `None` if it is no member, or only the hash of it is known.
    pub fn matched(&self) -> Option<Vec<u8>> {
        let (_, member) = self.as_str().split_once('/')?;
        if member.contains(CUT_IN_TEXT) { None } else { text::unescape(member) }
    }

    /// How it is written in `refs/fence/<this>/lease`.
    ///
    /// Of a member only `[a-z0-9_-]` stand for themselves, all other bytes are `%xx`. What would be longer than 200 bytes is its
    /// first 120 (no `%xx` is cut), `%=` and the SHA-256 of `<family>/<member>`.
    pub fn component(&self) -> String {
        let Some((family, member)) = self.as_str().split_once('/') else { return self.as_str().to_owned() };
        let (kept, hash) = match member.split_once(CUT_IN_TEXT) {
            Some((kept, hash)) => (kept, format!("{CUT_IN_REF}{hash}")),
            None => (member, String::new()),
        };
        format!("{family}{SLASH}{}{hash}", encoded(&text::unescape(kept).unwrap_or_default()))
    }

    /// The fence whose [`FenceName::component`] this is. Each has one spelling.
    pub fn in_component(component: &[u8]) -> Option<FenceName> {
        let component = std::str::from_utf8(component).ok()?;
        let Some((family, member)) = component.split_once('%') else {
            return FenceName::parse(component.as_bytes()).ok();
        };
        let family = FenceName::parse(family.as_bytes()).ok()?;
        let member = member.strip_prefix(&SLASH[1..])?;
        let read = match member.split_once(CUT_IN_REF) {
            None => family.member(&decoded(member)?).ok()?,
            Some((kept, hash)) => {
                let is_hash = hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                // Shorter by what is left of an escape that did not fit.
                let is_long_enough = (KEPT - 2..=KEPT).contains(&(component.len() - CUT_IN_REF.len() - hash.len()));
                let kept = decoded(kept).filter(|_| is_hash && is_long_enough)?;
                family.member(&kept).ok()?;
                FenceName::made(format!("{family}/{}{CUT_IN_TEXT}{hash}", text::escape(&kept)))
            }
        };
        (read.component() == component).then_some(read)
    }
}

fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

/// `text` without an escape that was cut at its end.
fn whole_escapes(text: &str) -> &str {
    match text.rfind('%') {
        Some(at) if at + 3 > text.len() => &text[..at],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn branch(member: &[u8]) -> FenceName {
        FenceName::parse(b"branch").unwrap().member(member).unwrap()
    }

    #[test]
    fn member_is_one_path_component_of_a_ref() {
        for (member, component) in [
            (&b"main"[..], "branch%2fmain"),
            (b"feature/x", "branch%2ffeature%2fx"),
            (b"Main", "branch%2f%4dain"),
            (b"v1.lock", "branch%2fv1%2elock"),
            (b"a%2fb", "branch%2fa%252fb"),
            ("größe".as_bytes(), "branch%2fgr%c3%b6%c3%9fe"),
            (b"\xff", "branch%2f%ff"),
        ] {
            let name = branch(member);
            assert_eq!(name.component(), component);
            assert_eq!(FenceName::in_component(component.as_bytes()), Some(name.clone()));
            assert_eq!(FenceName::read(name.as_str().as_bytes()), Ok(name.clone()), "{name}");
            assert_eq!(name.matched().as_deref(), Some(member));
            assert_eq!(name.configured().as_str(), "branch");
            assert!(name.is_of(&name) && name.is_of(&name.configured()) && !name.configured().is_of(&name));
        }
        assert_eq!(branch(b"a\xff").as_str(), "branch/a\\xff");
        assert!(!branch(b"a/b").is_of(&branch(b"a")), "'branch/a' is no family");
        assert!(!branch(b"a").is_of(&FenceName::parse(b"bra").unwrap()));
    }

    #[test]
    fn other_spellings_of_a_member_are_refused() {
        let long = branch(&[b'x'; 300]).component();
        for component in [
            "branch%2f",
            "branch%2F",
            "branch%2fMain",
            "branch%2fa.b",
            "branch%2f%61",
            "branch%2f%4D",
            "branch%2fa%2",
            "branch%2fa%+f",
            "branch%2fa%7eb",
            "branch%2e",
            "%2fmain",
            "Branch%2fmain",
            "branch%2fa%=00",
            &long[..long.len() - 1],
            &long.to_uppercase(),
            &long.replacen('x', "", 3),
            &format!("branch%2f{}", "x".repeat(250)),
        ] {
            assert_eq!(FenceName::in_component(component.as_bytes()), None, "{component}");
        }
        assert_eq!(FenceName::in_component(b"branch%2f\xff"), None);
    }

    #[test]
    fn long_names_are_cut_and_keep_their_hash() {
        let (a, b) = (branch(&[b'x'; 300]), branch(&[b'x'; 301]));
        assert_ne!(a, b);
        assert!(a.component().starts_with("branch%2fxxx") && a.component().len() == 120 + 2 + 64);
        for name in [&a, &branch("ä".repeat(40).as_bytes()), &branch(&[b'A'; 64]), &branch(&[0xff; 4000])] {
            assert_eq!(name.matched(), None);
            assert!(name.component().len() <= LONGEST_COMPONENT && name.as_str().len() < 300, "{name}");
            assert_eq!(FenceName::in_component(name.component().as_bytes()).as_ref(), Some(name));
            assert_eq!(FenceName::read(name.as_str().as_bytes()).as_ref(), Ok(name));
        }
        // Just fits.
        assert_eq!(branch(&[b'x'; 191]).matched().map(|it| it.len()), Some(191));
    }

    #[test]
    fn commands_in_messages_can_be_copied_whatever_a_branch_is_called() {
        for (member, word) in [
            (&b"feature/x"[..], "branch/feature/x"),
            (b"$(rm -rf)", ""),
            (b"$(reboot)", "'branch/$(reboot)'"),
            (b"a;b", "'branch/a;b'"),
            (b"it's", "'branch/it'\\''s'"),
            (b"\xff", "'branch/\\xff'"),
        ] {
            let name = FenceName::parse(b"branch").unwrap().member(member);
            assert_eq!(name.map_or_else(|_| String::new(), |name| name.in_shell()), word);
        }
    }

    #[test]
    fn names_that_no_ref_can_have_are_refused() {
        for name in
            ["branch/", "branch/a b", "branch/a:b", "branch/a~b", "branch/a\n", "/x", "A/x", "branch/\\x61", "b/\\"]
        {
            let error = FenceName::read(name.as_bytes()).unwrap_err().to_string();
            assert!(error.len() < 300 && !error.contains('\n'), "{error}");
        }
        assert!(FenceName::read(&[b"branch/".as_slice(), &[b'x'; 5000]].concat()).is_err());
        assert!(branch(b"x").member(b"y").is_err());
    }

    proptest! {
        #[test]
        fn every_member_has_one_component_and_one_text(
            member in prop::collection::vec(any::<u8>(), 1..400), other in prop::collection::vec(any::<u8>(), 1..400)
        ) {
            let family = FenceName::parse(b"pr").unwrap();
            if let Ok(name) = family.member(&member) {
                let component = name.component();
                prop_assert!(component.len() <= LONGEST_COMPONENT);
                prop_assert!(component.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'%' | b'=')));
                prop_assert_eq!(FenceName::in_component(component.as_bytes()), Some(name.clone()));
                prop_assert_eq!(FenceName::read(name.as_str().as_bytes()), Ok(name.clone()));
                prop_assert_eq!(FenceName::try_from(String::from(name.clone())), Ok(name));
                if let Ok(second) = family.member(&other) {
                    prop_assert_eq!(second.component() == component, member == other);
                }
            }
        }

        #[test]
        fn component_that_is_read_is_written_the_same(component in "[a-z]{1,3}%2f[a-zA-F0-9%=_.-]{0,12}") {
            if let Some(name) = FenceName::in_component(component.as_bytes()) {
                prop_assert_eq!(name.component(), component);
            }
        }
    }
}
