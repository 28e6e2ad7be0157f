//! Families: a pattern that makes one fence for each ref that it matches.
//!
//! A member has the settings of its family, and a mark, a slot and a lease of its own. It costs nothing until it is used.

use crate::{FenceName, RefName, Rules, Settings, TokenKind};
use std::borrow::Cow;

impl Rules {
    /// Whether this fence is a family: each ref that it matches has a fence of its own.
    pub fn is_family(&self) -> bool {
        self.each && !self.fence.is_member()
    }

    /// Why these rules cannot be those of a family; `None` if they can, or are not meant to.
    pub fn family_flaw(&self) -> Option<&'static str> {
        if !self.each {
            return None;
        }
        if self.fence == FenceName::repo() {
            return Some(
                "the fence 'repo' takes the refs that no other fence guards: give the family a name of its own, as in fence.branch.each",
            );
        }
        let [pattern] = &self.refs[..] else {
            return Some("a family needs exactly one pattern in its refs: what its star matches names the members");
        };
        let stars = pattern.matches('*').count();
        (stars != 1 || pattern.contains(['?', '[', '\\']))
            .then_some("the pattern of a family has one '*', which names the members, and no other wildcard")
    }

    /// The text before and after the star, if this fence is a family or a member of one.
    fn around_the_star(&self) -> Option<(&str, &str)> {
        self.refs.first().filter(|_| self.each)?.split_once('*')
    }

    /// What the star of the family's pattern matches in `name`. Never nothing.
    pub(super) fn star_in<'n>(&self, name: &'n RefName) -> Option<&'n [u8]> {
        let (before, after) = self.around_the_star()?;
        let rest = name.as_bytes().strip_prefix(before.as_bytes())?.strip_suffix(after.as_bytes())?;
        (!rest.is_empty()).then_some(rest)
    }

    /// The ref that `member` of this family guards; `None` if only the hash of its name is known.
    pub fn ref_of(&self, member: &FenceName) -> Option<RefName> {
        let (before, after) = self.around_the_star()?;
        Some(RefName::new([before.as_bytes(), &member.matched()?, after.as_bytes()].concat()))
    }

    /// The rules of a member of this family.
    pub fn of_member(&self, member: FenceName) -> Rules {
        Rules { fence: member, ..self.clone() }
    }

    /// Whether members of this family, which takes tokens of this `kind`, may be forgotten: tokens of the pushers' own may
    /// come at any time, from anywhere.
    pub(crate) fn forgets(&self, kind: Option<TokenKind>) -> bool {
        self.is_family() && kind == Some(TokenKind::Lease) && self.forget_after.is_some()
    }
}

/// Why no fence has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoFence {
    /// No setting makes it.
    #[error("this repository has no fence '{0}'")]
    Unknown(FenceName),
    /// It is a family, and each of its members is a fence.
    #[error("'{0}' is a family: name one of its members, as in {0}/<{what}>", what = "what the star matches")]
    Family(FenceName),
    /// It is named as a member of a fence that is no family.
    #[error("'{0}' is not a member of a family: fence '{fence}' has no setting 'each'", fence = .0.configured())]
    NoFamily(FenceName),
    /// No ref can have this name.
    #[error("'{0}' guards nothing: git allows no ref '{1}'")]
    NoRef(FenceName, RefName),
    /// Another fence guards the ref.
    #[error("'{0}' guards nothing: the ref '{1}' belongs to fence '{2}'")]
    Other(FenceName, RefName, FenceName),
}

impl Settings {
    /// The name of the fence that guards `name`, if any: in a family, of the member.
    pub fn fence_name_of(&self, name: &RefName) -> Option<FenceName> {
        self.named_fence_of(name).map(|(_, fence)| fence)
    }

    /// The same, with the rules of the fence or family.
    pub fn named_fence_of(&self, name: &RefName) -> Option<(&Rules, FenceName)> {
        let rules = self.fence_of(name)?;
        // A name that no member can have has no token either, so a push to it is refused.
        let member = rules.star_in(name).and_then(|matched| rules.fence.member(matched).ok());
        Some((rules, member.unwrap_or_else(|| rules.fence.clone())))
    }

    /// The rules of fence `name`; of a member, those of its family.
    pub fn rules(&self, name: &FenceName) -> Option<Cow<'_, Rules>> {
        let configured = name.configured();
        let rules = self.fences.iter().find(|rules| rules.fence == configured)?;
        match name.is_member() {
            false => Some(Cow::Borrowed(rules)),
            true => rules.each.then(|| Cow::Owned(rules.of_member(name.clone()))),
        }
    }

    /// The rules of the fence `name`, which has a mark and may have a lease: a family itself has none.
    pub fn fence_called(&self, name: &FenceName) -> Result<Cow<'_, Rules>, NoFence> {
        let Some(rules) = self.rules(name) else {
            let has_plain = name.is_member() && self.rules(&name.configured()).is_some();
            return Err(if has_plain { NoFence::NoFamily(name.clone()) } else { NoFence::Unknown(name.clone()) });
        };
        if rules.is_family() {
            return Err(NoFence::Family(name.clone()));
        }
        // Of a long name only the hash is known, so its ref cannot be looked at.
        let Some(guarded) = rules.ref_of(name) else { return Ok(rules) };
        match self.fence_name_of(&guarded) {
            _ if !guarded.is_valid() => Err(NoFence::NoRef(name.clone(), guarded)),
            Some(fence) if fence == *name => Ok(rules),
            Some(fence) => Err(NoFence::Other(name.clone(), guarded, fence)),
            None => Err(NoFence::NoRef(name.clone(), guarded)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn family(name: &str, pattern: &str) -> Rules {
        let (fence, refs) = (FenceName::parse(name.as_bytes()).unwrap(), vec![pattern.to_owned()]);
        Rules { fence, refs, each: true, ..Rules::for_repo() }
    }

    fn settings() -> Settings {
        let trunk = Rules {
            fence: FenceName::parse(b"trunk").unwrap(),
            refs: vec!["refs/heads/main".to_owned()],
            ..Rules::for_repo()
        };
        let fences = vec![
            trunk,
            family("pr", "refs/pull/*/head"),
            family("release", "refs/heads/release*"),
            family("branch", "refs/heads/*"),
            Rules::for_repo(),
        ];
        Settings { fences, ..Settings::default() }
    }

    #[test]
    fn each_ref_of_a_family_has_a_fence_of_its_own() {
        for (name, fence) in [
            ("refs/heads/feature/x", Some("branch/feature/x")),
            ("refs/heads/main", Some("trunk")),
            ("refs/heads/main/x", Some("branch/main/x")),
            ("refs/pull/7/head", Some("pr/7")),
            ("refs/pull/7/merge", None),
            ("refs/pull/head", None),
            ("refs/pull//head", None),
            ("refs/tags/v1", Some("repo")),
            // A star never matches nothing.
            ("refs/heads/release", Some("branch/release")),
            ("refs/heads/release-1", Some("release/-1")),
            ("refs/fence/branch%2fx/lease", None),
        ] {
            let found = settings().fence_name_of(&RefName::new(name));
            assert_eq!(found.as_ref().map(FenceName::as_str), fence, "{name}");
        }
    }

    #[test]
    fn member_is_a_fence_if_its_ref_can_exist_and_belongs_to_it() {
        let settings = settings();
        let long = format!("branch/{}", "x".repeat(300));
        for (name, flaw) in [
            ("branch/feature/x", None),
            ("branch/\\xff", None),
            (&long, None),
            ("pr/7", None),
            ("trunk", None),
            ("repo", None),
            ("branch", Some("'branch' is a family: name one of its members, as in branch/<what the star matches>")),
            ("other", Some("this repository has no fence 'other'")),
            ("other/x", Some("this repository has no fence 'other/x'")),
            ("trunk/x", Some("'trunk/x' is not a member of a family: fence 'trunk' has no setting 'each'")),
            ("branch/a..b", Some("'branch/a..b' guards nothing: git allows no ref 'refs/heads/a..b'")),
            ("branch/x.lock", Some("'branch/x.lock' guards nothing: git allows no ref 'refs/heads/x.lock'")),
            ("branch/a//b", Some("'branch/a//b' guards nothing: git allows no ref 'refs/heads/a//b'")),
            ("branch/main", Some("'branch/main' guards nothing: the ref 'refs/heads/main' belongs to fence 'trunk'")),
        ] {
            let name = FenceName::read(name.as_bytes()).unwrap();
            let found = settings.fence_called(&name).map(|rules| rules.fence.clone());
            assert_eq!(found.map_err(|e| e.to_string()), flaw.map_or(Ok(name), |flaw| Err(flaw.to_owned())));
        }
    }

    #[test]
    fn family_has_one_pattern_with_one_star() {
        for (refs, is_good) in [
            (&["refs/heads/*"][..], true),
            (&["refs/pull/*/head"], true),
            (&["refs/heads/*", "refs/tags/*"], false),
            (&["refs/heads/main"], false),
            (&["refs/heads/*/x*"], false),
            (&["refs/heads/v?-*"], false),
        ] {
            let refs = refs.iter().map(|it| (*it).to_owned()).collect();
            let rules = Rules { refs, ..family("branch", "") };
            assert_eq!(rules.family_flaw().is_none(), is_good, "{rules:?}");
        }
        assert!(Rules { fence: FenceName::repo(), ..family("x", "refs/heads/*") }.family_flaw().is_some());
        assert_eq!(Rules::for_repo().family_flaw(), None);
    }
}
