//! Whether other settings admit what the settings so far refuse.

use crate::{Accept, Mode, Rules, Settings};

impl Settings {
    /// Whether some push could land under these settings that `before` refuses. Patterns are compared as they are written:
    /// one that is gone counts as weaker, even if another one covers it.
    pub fn is_weaker_than(&self, before: &Settings) -> bool {
        let enforced = before.fences.iter().filter(|rules| rules.mode == Mode::Enforce);
        let is_kept = |pattern: &String| self.fences.iter().any(|rules| rules.refs.contains(pattern));
        enforced.flat_map(|rules| &rules.refs).any(|pattern| !is_kept(pattern))
            || self.fences.iter().any(|rules| before.rules(&rules.fence).is_some_and(|was| rules.is_laxer_than(&was)))
            || before.heirs_in(self).iter().any(|heir| match (self.rules(&heir.fence), before.rules(&heir.giver)) {
                (Some(rules), Some(was)) => rules.is_laxer_than(&was),
                _ => false,
            })
    }
}

impl Rules {
    fn is_laxer_than(&self, was: &Rules) -> bool {
        let enforced = was.mode == Mode::Enforce;
        let newly = |now: bool, before: bool| now && !before;
        enforced
            && (self.mode != Mode::Enforce
                || newly(self.tokenless, was.tokenless)
                || newly(self.accept == Accept::AtOrAbove, was.accept == Accept::AtOrAbove)
                || (!was.tokenless && self.exempt.iter().any(|name| !was.exempt.contains(name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FenceName;

    fn settings(change: impl FnOnce(&mut Rules)) -> Settings {
        let mut rules = Rules::for_repo();
        change(&mut rules);
        Settings { fences: vec![rules], ..Settings::default() }
    }

    #[test]
    fn what_admits_more_is_weaker() {
        let plain = settings(|_| {});
        let observe = settings(|rules| rules.mode = Mode::Observe);
        let off = settings(|rules| rules.mode = Mode::Off);
        let tokenless = settings(|rules| rules.tokenless = true);
        let anna = settings(|rules| rules.exempt = vec!["anna".to_owned()]);
        let heads = settings(|rules| rules.refs = vec!["refs/heads/*".to_owned()]);
        let more = settings(|rules| rules.refs.push("refs/notes/*".to_owned()));
        let equal = settings(|rules| rules.accept = Accept::AtOrAbove);
        for (after, before, expected) in [
            (&plain, &plain, false),
            (&observe, &plain, true),
            (&off, &plain, true),
            (&tokenless, &plain, true),
            (&anna, &plain, true),
            (&heads, &plain, true),
            (&equal, &plain, true),
            (&more, &plain, false),
            (&plain, &observe, false),
            (&plain, &heads, false),
            (&plain, &anna, false),
            (&anna, &tokenless, false),
            // What does not refuse anything cannot refuse less.
            (&off, &observe, false),
            (&anna, &observe, false),
        ] {
            assert_eq!(after.is_weaker_than(before), expected, "{after:?}\n{before:?}");
        }
    }

    #[test]
    fn new_fence_is_compared_with_the_one_that_guarded_its_refs() {
        let before = settings(|_| {});
        let with = |mode| {
            let name = FenceName::parse(b"deploy").unwrap();
            let deploy = Rules { fence: name, refs: vec!["refs/heads/deploy/*".to_owned()], mode, ..Rules::for_repo() };
            Settings { fences: vec![deploy, Rules::for_repo()], ..Settings::default() }
        };
        assert!(!with(Mode::Enforce).is_weaker_than(&before));
        assert!(with(Mode::Observe).is_weaker_than(&before));
        assert!(!with(Mode::Observe).is_weaker_than(&with(Mode::Observe)));
        assert!(before.is_weaker_than(&with(Mode::Enforce)), "its pattern is gone");
    }

    #[test]
    fn fence_that_takes_refs_from_a_stricter_one_is_weaker() {
        let with = |mode, refs: &[&str]| {
            let refs = refs.iter().map(|&pattern| pattern.to_owned()).collect();
            let preview = Rules { fence: FenceName::parse(b"preview").unwrap(), refs, mode, ..Rules::for_repo() };
            Settings { fences: vec![preview, Rules::for_repo()], ..Settings::default() }
        };
        let (few, more) = (["refs/heads/preview/*"], ["refs/heads/preview/*", "refs/heads/*"]);
        assert!(with(Mode::Observe, &more).is_weaker_than(&with(Mode::Observe, &few)));
        assert!(!with(Mode::Enforce, &more).is_weaker_than(&with(Mode::Enforce, &few)));
        // These were not guarded.
        let notes = ["refs/heads/preview/*", "refs/notes/*"];
        assert!(!with(Mode::Observe, &notes).is_weaker_than(&with(Mode::Observe, &few)));
    }
}
