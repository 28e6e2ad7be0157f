//! The settings, from git's configuration: `fence.*` for all fences, `fence.<name>.*` for one.
//!
//! A value that does not parse is an error and never a default: a gate that guesses wrongly what its owner meant would be
//! open.

pub(crate) mod configured;
mod given;
pub(crate) mod table;

use crate::repository::settings::{
    configured::without_password,
    given::{Given, ValueFlaw, listener},
    table::{SETTINGS, Set},
};
use git_fence_core::{Accept, FenceName, Rules, Settings, Syslog, TokenKind, text};
use gix::{
    bstr::BString,
    config::{File as Config, file::SectionRef},
};
use std::collections::HashMap;

/// A setting that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("setting {key} is {value}: {expected}")]
    Value { key: String, value: String, expected: String },
    #[error("setting {key} is {}, which no ref can match: {why}", text::quoted(pattern.as_bytes()))]
    Pattern { key: String, pattern: String, why: String },
    #[error("setting 'fence.{name}': {source}")]
    Name { name: String, source: git_fence_core::FenceNameError },
    #[error("fence '{0}' guards nothing: set {refs}", refs = key_of("refs", .0))]
    GuardsNothing(FenceName),
    #[error("fence '{fence}' cannot be a family ({}): {why}", key_of("each", .fence))]
    Family { fence: FenceName, why: &'static str },
    #[error("fence '{fence}' keeps its leases in a store (fence.store): {why}")]
    Store { fence: FenceName, why: &'static str },
}

/// What does not go together with leases in a store.
fn store_flaw(rules: &Rules) -> Option<SettingsError> {
    rules.store.as_ref()?;
    let why = match rules {
        Rules { resource: None, .. } => {
            "set fence.resource, too, to the name that the clients use: 'git fence status' shows it"
        }
        Rules { accept: Accept::AtOrAbove, .. } => {
            "fence.accept cannot be at-or-above, because each push takes a token of its own"
        }
        Rules { tokens: Some(TokenKind::Own), .. } => "fence.tokens cannot be own",
        _ => return None,
    };
    Some(SettingsError::Store { fence: rules.fence.clone(), why })
}

/// What is wrong with the rules of a fence as a whole.
fn flaw_of(rules: &Rules) -> Option<SettingsError> {
    let of_family = rules.family_flaw().map(|why| SettingsError::Family { fence: rules.fence.clone(), why });
    of_family.or_else(|| store_flaw(rules))
}

/// The documented name of a setting.
fn key_of(key: &str, fence: &FenceName) -> String {
    if *fence == FenceName::repo() { format!("fence.{key}") } else { format!("fence.{fence}.{key}") }
}

/// Reads the settings of all fences.
pub(crate) fn read(config: &Config) -> Result<Settings, SettingsError> {
    let (shared, named) = levels(config)?;
    let defaults = shared.apply_to(Rules::for_repo())?;
    let mut fences = Vec::new();
    for level in named {
        let name = level.name.clone().unwrap_or_else(FenceName::repo);
        let is_repo = name == FenceName::repo();
        let inherited = Rules {
            refs: if is_repo { defaults.refs.clone() } else { Vec::new() },
            fence: name.clone(),
            ..defaults.clone()
        };
        let rules = level.apply_to(inherited)?;
        if rules.refs.is_empty() {
            return Err(SettingsError::GuardsNothing(name));
        }
        fences.push(rules);
    }
    // The fence 'repo' guards the rest, so it is last, wherever its own settings are.
    let repo = fences.iter().position(|rules| rules.fence == FenceName::repo()).map(|at| fences.remove(at));
    let repo = repo.unwrap_or(defaults);
    if repo.refs.is_empty() {
        return Err(SettingsError::GuardsNothing(repo.fence));
    }
    fences.push(repo);
    if let Some(flaw) = fences.iter().find_map(flaw_of) {
        return Err(flaw);
    }
    let mut settings = Settings { fences, ..Settings::default() };
    shared.apply_to_all(&mut settings)?;
    Ok(settings)
}

/// Where decisions are also sent, if only that is needed.
pub(crate) fn syslog(config: &Config) -> Option<Syslog> {
    let values = levels(config).ok()?.0.values("syslog");
    Given::of(&values)?.read(listener).ok()?
}

/// The settings for all fences, and those of each named fence, in the order of their first appearance.
///
/// Each section is read once: there may be a thousand fences.
fn levels(config: &Config) -> Result<(Level<'_>, Vec<Level<'_>>), SettingsError> {
    let mut shared = Level { sections: Vec::new(), name: None };
    let mut named: Vec<Level<'_>> = Vec::new();
    let mut known: HashMap<FenceName, usize> = HashMap::new();
    for section in config.sections_by_name("fence").into_iter().flatten() {
        let Some(written) = section.header().subsection_name() else {
            shared.sections.push(section);
            continue;
        };
        let name = FenceName::parse(written)
            .map_err(|source| SettingsError::Name { name: text::one_line(written, 60), source })?;
        let at = *known.entry(name.clone()).or_insert_with(|| {
            named.push(Level { sections: Vec::new(), name: Some(name) });
            named.len() - 1
        });
        named[at].sections.push(section);
    }
    Ok((shared, named))
}

/// `fence.*` or `fence.<name>.*`, in the order in which git reads them.
struct Level<'a> {
    sections: Vec<SectionRef<'a>>,
    name: Option<FenceName>,
}

impl Level<'_> {
    /// `rules` with the settings of this level applied.
    fn apply_to(&self, mut rules: Rules) -> Result<Rules, SettingsError> {
        for setting in SETTINGS {
            if let (Set::Fence(set) | Set::List(set), Some(given)) =
                (&setting.set, Given::of(&self.values(setting.key)))
            {
                set(&mut rules, given).map_err(|flaw| self.flawed(setting.key, flaw))?;
            }
        }
        Ok(rules)
    }

    /// The same for settings that are common to all fences.
    fn apply_to_all(&self, settings: &mut Settings) -> Result<(), SettingsError> {
        for setting in SETTINGS {
            if let (Set::All(set), Some(given)) = (&setting.set, Given::of(&self.values(setting.key))) {
                set(settings, given).map_err(|flaw| self.flawed(setting.key, flaw))?;
            }
        }
        Ok(())
    }

    fn values(&self, key: &str) -> Vec<BString> {
        self.sections.iter().flat_map(|section| section.values(key)).collect()
    }

    fn flawed(&self, key: &str, flaw: ValueFlaw) -> SettingsError {
        let key = self.name_of(key);
        match flaw {
            ValueFlaw::Value { value, expected } => {
                let name = key.rsplit('.').next().unwrap_or_default();
                let value = text::quoted(without_password(name, &value).as_bytes());
                SettingsError::Value { key, value, expected }
            }
            ValueFlaw::Pattern { pattern, why } => SettingsError::Pattern { key, pattern, why },
        }
    }

    fn name_of(&self, key: &str) -> String {
        self.name.as_ref().map_or_else(|| format!("fence.{key}"), |name| format!("fence.{name}.{key}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use git_fence_core::Mode;
    use std::time::Duration;

    pub(crate) fn settings(text: &str) -> Result<Settings, SettingsError> {
        read(&Config::try_from(text).unwrap())
    }

    #[test]
    fn unset_settings_have_their_defaults() {
        assert_eq!(settings("").unwrap().fences, [Rules::for_repo()]);
    }

    #[test]
    fn named_fences_inherit_and_come_first_and_repo_comes_last() {
        let read = settings(
            "[fence]\n wait = 5\n exempt = anna\n[fence \"repo\"]\n mode = observe\n\
             [fence \"deploy\"]\n refs = refs/heads/deploy/*\n wait = 2m\n exempt =\n exempt = bob\n\
             [fence \"docs\"]\n refs = refs/heads/docs\n maxJump = 100\n evictAfter = 1h30m\n",
        )
        .unwrap();
        let [deploy, docs, repo] = &read.fences[..] else { panic!("{read:?}") };
        assert_eq!((deploy.fence.as_str(), docs.fence.as_str(), repo.fence.as_str()), ("deploy", "docs", "repo"));
        assert_eq!((deploy.wait, docs.wait), (Duration::from_secs(120), Duration::from_secs(5)));
        assert_eq!((&deploy.exempt[..], &docs.exempt[..]), (&["bob".to_owned()][..], &["anna".to_owned()][..]));
        assert_eq!((docs.max_jump, docs.evict_after), (Some(100), Some(Duration::from_secs(5400))));
        assert_eq!((repo.mode, deploy.mode), (Mode::Observe, Mode::Enforce));
        assert_eq!(repo.refs, Rules::for_repo().refs);
    }

    #[test]
    fn last_value_counts_and_lists_accumulate() {
        let read =
            settings("[fence]\n mode = off\n refs = refs/a/*\n[fence]\n mode = observe\n refs = refs/b/*\n").unwrap();
        assert_eq!(read.fences[0].mode, Mode::Observe);
        assert_eq!(read.fences[0].refs, ["refs/a/*", "refs/b/*"]);
    }

    #[test]
    fn invalid_value_is_an_error_and_not_a_default() {
        for text in [
            "[fence]\n mode = of",
            "[fence]\n mode",
            "[fence]\n wait = soon",
            "[fence]\n wait = -3s",
            "[fence]\n wait =",
            "[fence]\n accept = any",
            "[fence]\n tokens = both",
            "[fence]\n tokenless = yes",
            "[fence]\n maxJump = 0",
            "[fence]\n maxJump = 1.5",
            "[fence]\n evictAfter = never",
            "[fence]\n refs = heads/*",
            "[fence]\n refs = refs/heads/",
            "[fence]\n refs = refs/heads/*\n refs = \"refs/heads/main \"",
            "[fence]\n receivePack = maybe",
            "[fence]\n init = yes",
            "[fence]\n companion = no",
            "[fence]\n syslog = maybe",
            "[fence]\n resource = a b",
            "[fence]\n store = etcd://host",
            "[fence]\n store = etcd://host\n resource = app\n accept = at-or-above",
            "[fence]\n store = etcd://host\n resource = app\n tokens = own",
            "[fence]\n resource = app\n[fence \"x\"]\n refs = refs/x/*\n store = etcd://host\n accept = at-or-above",
            "[fence \"a/b\"]\n refs = refs/heads/*",
            "[fence]\n each = true",
            "[fence \"repo\"]\n each = true",
            "[fence \"x\"]\n refs = refs/x/*\n each = yes",
            "[fence \"x\"]\n refs = refs/x/*\n refs = refs/y/*\n each = true",
            "[fence \"x\"]\n refs = refs/x/main\n each = true",
            "[fence \"x\"]\n refs = refs/x/*\n forgetAfter = soon",
            "[fence \"x\"]\n wait = 3s",
            "[fence \"x\"]\n refs = refs/heads/*\n mode = 1",
        ] {
            let error = settings(text).expect_err(text);
            assert!(!error.to_string().is_empty());
        }
        let path = Config::from_bytes_no_includes(
            b"[fence]\n syslog = /run/\xff",
            gix::config::file::Metadata::api(),
            gix::config::file::init::Options::default(),
        );
        assert!(read(&path.unwrap()).is_err(), "an unusable path does not count as unset");
        for (text, shown) in [
            ("[fence]\n store = s3cret", "'(not a URL)'"),
            ("[fence]\n store = \"redis://:s3cret@host x\"", "'redis://host x'"),
        ] {
            let error = settings(text).unwrap_err().to_string();
            assert!(error.contains(shown) && !error.contains("s3cret"), "{error}");
        }
        let named = settings("[fence \"x\"]\n refs = refs/heads/*\n mode = 1").unwrap_err();
        assert_eq!(named.to_string(), "setting fence.x.mode is '1': expected enforce, observe or off");
    }
}
