//! Names of fences and of refs.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a fence: one path component of `[a-z0-9._-]`, at most 64 bytes; or of a member of a family,
/// `<family>/<member>`, where the member is any part of a ref's name.
///
/// It is also a component of `refs/fence/<name>/lease`, so it must be valid in a ref name: see [`FenceName::component`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FenceName(String);

/// Why a text is not the name of a fence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FenceNameError {
    /// It is not the name of a fence in the settings.
    #[error(
        "{0} is not a valid fence name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', not starting with '.' or '-', without '..', not ending in '.' or '.lock'"
    )]
    Name(String),
    /// It is not the name of a member.
    #[error("{name} is not the name of a fence: {why}")]
    Member {
        /// The name, made safe to show.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl FenceNameError {
    pub(super) fn member(name: &[u8], why: &'static str) -> FenceNameError {
        FenceNameError::Member { name: text::quoted(name), why }
    }
}

impl FenceName {
    /// For names that are known to be valid.
    pub(super) fn made(name: String) -> FenceName {
        FenceName(name)
    }

    /// The fence that every repository has.
    pub const REPO: &'static str = "repo";

    /// The fence that every repository has.
    pub fn repo() -> FenceName {
        FenceName(Self::REPO.to_owned())
    }

    /// Reads the name of a fence in the settings. A member is read by [`FenceName::read`].
    pub fn parse(name: &[u8]) -> Result<FenceName, FenceNameError> {
        let refused = || FenceNameError::Name(text::quoted(name));
        let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(b);
        let text = std::str::from_utf8(name).map_err(|_| refused())?;
        let safe = (1..=64).contains(&name.len())
            && name.iter().all(allowed)
            && !text.starts_with(['.', '-'])
            && !text.contains("..")
            && !text.ends_with('.')
            && !text.ends_with(".lock");
        safe.then(|| FenceName(text.to_owned())).ok_or_else(refused)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FenceName {
    type Error = FenceNameError;

    fn try_from(name: String) -> Result<FenceName, FenceNameError> {
        FenceName::read(name.as_bytes())
    }
}

impl From<FenceName> for String {
    fn from(name: FenceName) -> String {
        name.0
    }
}

impl fmt::Display for FenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The full name of a ref, byte for byte as in git.
///
/// Names need not be UTF-8. In text, bytes that cannot be shown are escaped as `\xNN`, which can be read
/// back: a record of a ref always identifies exactly that ref.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefName(Vec<u8>);

impl RefName {
    /// A name from git. Whether git would accept it is for the caller to check.
    pub fn new(name: impl Into<Vec<u8>>) -> RefName {
        RefName(name.into())
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is longer than any file's path, so that no such ref can exist.
    pub fn is_too_long(&self) -> bool {
        self.0.len() > 4096
    }

    /// Whether git allows it for a ref below `refs/` (`git check-ref-format`).
    pub fn is_valid(&self) -> bool {
        let name = &self.0[..];
        let holds = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
        let is_component = |part: &[u8]| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock");
        name.starts_with(b"refs/")
            && !self.is_too_long()
            && !name.ends_with(b".")
            && !holds(b"..")
            && !holds(b"@{")
            && !name.iter().any(|b| b.is_ascii_control() || b" ~^:?*[\\".contains(b))
            && name.split(|b| *b == b'/').all(is_component)
    }

    /// Whether the ref is in the namespace of leases, `refs/fence/…`, which no fence guards. That includes
    /// `refs/fence` itself: a ref of that name would leave no room for leases.
    pub fn is_lease(&self) -> bool {
        self.0.strip_prefix(b"refs/fence").is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Whether each worktree has its own ref of this name.
    pub fn is_per_worktree(&self) -> bool {
        [&b"refs/bisect/"[..], b"refs/worktree/", b"refs/rewritten/"].iter().any(|prefix| self.0.starts_with(prefix))
    }
}

impl TryFrom<String> for RefName {
    type Error = String;

    fn try_from(name: String) -> Result<RefName, String> {
        text::unescape(&name)
            .map(RefName)
            .ok_or_else(|| format!("'{name}' has a backslash that is not part of an \\xNN"))
    }
}

impl From<RefName> for String {
    fn from(name: RefName) -> String {
        text::escape(&name.0)
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::escape(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_name_is_one_safe_path_component() {
        for good in ["repo", "a", "deploy-1", "x.y_z", &"a".repeat(64)] {
            assert!(FenceName::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "A", "a b", "a..b", "x.lock", "a.", ".a", "-a", "ä", "a\n", &"a".repeat(65)]
        {
            assert!(FenceName::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(FenceName::parse(b"\xff").is_err());
    }

    #[test]
    fn names_are_valid_as_git_says() {
        for good in ["refs/heads/x", "refs/heads/a.b", "refs/heads/@", "refs/x", "refs/heads/-a", "refs/heads/\u{e4}"] {
            assert!(RefName::new(good).is_valid(), "{good}");
        }
        for bad in [
            "heads/x",
            "refs/",
            "refs/heads/",
            "refs//x",
            "refs/heads/.x",
            "refs/heads/x.lock",
            "refs/x.lock/y",
            "refs/heads/a..b",
            "refs/heads/x.",
            "refs/heads/a@{b",
            "refs/heads/a b",
            "refs/heads/a\x7f",
        ] {
            assert!(!RefName::new(bad).is_valid(), "{bad}");
        }
        assert!(RefName::new(*b"refs/heads/\xff").is_valid());
    }

    #[test]
    fn ref_name_survives_json_byte_for_byte() {
        let name = RefName::new(*b"refs/heads/\xff\xfe");
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(json, r#""refs/heads/\\xff\\xfe""#);
        assert_eq!(serde_json::from_str::<RefName>(&json).unwrap(), name);
    }
}
