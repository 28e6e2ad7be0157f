//! Which settings to change so that a fence has another mode. Nothing is read or changed here.

use crate::repository::settings::{
    configured::{ConfigLevel, ConfiguredSetting, in_force},
    table::{self, Setting},
};
use git_fence_core::FenceName;

/// The modes that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedMode {
    Enforce,
    Observe,
}

impl WantedMode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            WantedMode::Enforce => "enforce",
            WantedMode::Observe => "observe",
        }
    }
}

/// Which fences change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Extent {
    /// `repo`, and the fences that have no mode of their own.
    Shared,
    /// One fence.
    One(FenceName),
    /// Every fence.
    All,
}

/// A change of the repository's own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    Set { key: String, value: &'static str },
    Unset { key: String },
}

/// The mode of a fence, as it is written, and where that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModeInForce {
    pub(crate) mode: String,
    pub(crate) from: Option<ConfiguredSetting>,
}

impl ModeInForce {
    pub(crate) fn of(fence: &FenceName, all: &[ConfiguredSetting]) -> ModeInForce {
        let from = in_force(all, fence, setting()).cloned();
        let mode = from.as_ref().map_or("enforce", |from| &from.value).to_owned();
        ModeInForce { mode, from }
    }

    /// Where it is set, in a few words.
    pub(crate) fn source(&self) -> String {
        match &self.from {
            None => "default".to_owned(),
            Some(ConfiguredSetting { key, level: ConfigLevel::Local, .. }) => format!("local {key}"),
            Some(ConfiguredSetting { key, level, origin, .. }) => format!("{} {key} in {origin}", level.word()),
        }
    }
}

fn setting() -> &'static Setting {
    table::mode()
}

/// The fences that have a mode of their own.
pub(crate) fn with_own_mode(all: &[ConfiguredSetting]) -> Vec<FenceName> {
    let mut found = Vec::new();
    for one in all {
        let Some((Some(fence), called)) = one.subject() else { continue };
        let Ok(name) = FenceName::parse(fence.as_bytes()) else { continue };
        if called.key == setting().key && name != FenceName::repo() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The changes that give the fences of `extent` the wanted mode.
pub(crate) fn edits(all: &[ConfiguredSetting], extent: &Extent, wanted: WantedMode, named: &[FenceName]) -> Vec<Edit> {
    let own = with_own_mode(all);
    let inherits = |fence: &FenceName| *fence != FenceName::repo() && !own.contains(fence);
    match extent {
        Extent::Shared => shared(all, wanted),
        Extent::All => {
            let each = own.iter().flat_map(|fence| one(all, fence, wanted));
            shared(all, wanted).into_iter().chain(each).collect()
        }
        // Others would change with it.
        Extent::One(fence) if *fence == FenceName::repo() && !named.iter().any(inherits) => shared(all, wanted),
        Extent::One(fence) => one(all, fence, wanted),
    }
}

/// For `repo` and all who inherit: `fence.mode`, the documented name. `fence.repo.mode` stays only where a wider level
/// sets it, which can be overridden by nothing else.
fn shared(all: &[ConfiguredSetting], wanted: WantedMode) -> Vec<Edit> {
    let (key, of_repo) = (key(None), key(Some(&FenceName::repo())));
    let mut edits = Vec::new();
    let wide = wider(all, &key);
    let has_own = is_local(all, &key);
    let now = last(all, &key).map_or("enforce", |one| &one.value);
    if now != wanted.word() {
        let is_said_wider = wide.is_some_and(|wide| wide.value == wanted.word());
        edits.push(if is_said_wider && has_own {
            Edit::Unset { key }
        } else {
            Edit::Set { key, value: wanted.word() }
        });
    }
    match wider(all, &of_repo) {
        Some(wide) if wide.value != wanted.word() => {
            let is_set = last(all, &of_repo).is_some_and(|one| one.value == wanted.word());
            edits.extend((!is_set).then(|| Edit::Set { key: of_repo, value: wanted.word() }));
        }
        _ if is_local(all, &of_repo) => edits.push(Edit::Unset { key: of_repo }),
        _ => {}
    }
    edits
}

/// For one fence only.
fn one(all: &[ConfiguredSetting], fence: &FenceName, wanted: WantedMode) -> Vec<Edit> {
    if ModeInForce::of(fence, all).mode == wanted.word() {
        return Vec::new();
    }
    vec![Edit::Set { key: key(Some(fence)), value: wanted.word() }]
}

fn key(fence: Option<&FenceName>) -> String {
    let name = setting().key;
    fence.map_or_else(|| format!("fence.{name}"), |fence| format!("fence.{fence}.{name}"))
}

fn called<'a>(all: &'a [ConfiguredSetting], key: &str) -> impl DoubleEndedIterator<Item = &'a ConfiguredSetting> {
    all.iter().filter(move |one| one.key.eq_ignore_ascii_case(key))
}

fn last<'a>(all: &'a [ConfiguredSetting], key: &str) -> Option<&'a ConfiguredSetting> {
    called(all, key).next_back()
}

/// What is set for more than this repository.
fn wider<'a>(all: &'a [ConfiguredSetting], key: &str) -> Option<&'a ConfiguredSetting> {
    called(all, key).rfind(|one| one.level < ConfigLevel::Local)
}

fn is_local(all: &[ConfiguredSetting], key: &str) -> bool {
    called(all, key).any(|one| one.level == ConfigLevel::Local)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPO: &str = "fence.repo.mode";
    const ALL: &str = "fence.mode";
    use ConfigLevel::{Global, Local};

    fn configured(given: &[(ConfigLevel, &str, &str)]) -> Vec<ConfiguredSetting> {
        let one = |(level, key, value): &(ConfigLevel, &str, &str)| ConfiguredSetting {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            origin: level.word().to_owned(),
            level: *level,
            overridden_by: None,
        };
        given.iter().map(one).collect()
    }

    /// `all` after `edits`, as git would have it.
    fn after(mut all: Vec<ConfiguredSetting>, edits: &[Edit]) -> Vec<ConfiguredSetting> {
        for edit in edits {
            let (Edit::Set { key, .. } | Edit::Unset { key }) = edit;
            all.retain(|one| one.key != *key || one.level != Local);
            if let Edit::Set { key, value } = edit {
                all.extend(configured(&[(Local, key, value)]));
            }
        }
        all
    }

    #[test]
    fn whatever_is_set_the_wanted_mode_counts_afterwards() {
        let values = [None, Some("enforce"), Some("observe"), Some("off"), Some("of")];
        let repo = FenceName::repo();
        for wanted in [WantedMode::Enforce, WantedMode::Observe] {
            for n in 0..values.len().pow(4) {
                let places = [(Global, ALL), (Global, REPO), (Local, ALL), (Local, REPO)];
                let digit = |place: usize| values[n / values.len().pow(u32::try_from(place).unwrap()) % values.len()];
                let given: Vec<_> = places
                    .iter()
                    .enumerate()
                    .filter_map(|(at, (level, key))| Some((*level, *key, digit(at)?)))
                    .collect();
                let all = configured(&given);
                let edits = edits(&all, &Extent::Shared, wanted, &[]);
                let then = after(all.clone(), &edits);
                assert_eq!(ModeInForce::of(&repo, &then).mode, wanted.word(), "{given:?} {edits:?}");
                let again = super::edits(&then, &Extent::Shared, wanted, &[]);
                assert_eq!(again, [], "{given:?} {edits:?}: nothing is left to do");
            }
        }
    }

    #[test]
    fn documented_name_is_set_and_the_other_removed() {
        let set = |key: &str, value| Edit::Set { key: key.to_owned(), value };
        let unset = |key: &str| Edit::Unset { key: key.to_owned() };
        for (given, expected) in [
            (&[][..], vec![]),
            (&[(Local, ALL, "observe")], vec![set(ALL, "enforce")]),
            (&[(Local, ALL, "enforce"), (Local, REPO, "observe")], vec![unset(REPO)]),
            (&[(Local, ALL, "observe"), (Local, REPO, "observe")], vec![set(ALL, "enforce"), unset(REPO)]),
            // What all repositories have counts again, so that a later change of it does, too.
            (&[(Global, ALL, "enforce"), (Local, ALL, "observe")], vec![unset(ALL)]),
            (&[(Global, ALL, "observe")], vec![set(ALL, "enforce")]),
            (&[(Global, REPO, "observe")], vec![set(REPO, "enforce")]),
        ] {
            let all = configured(given);
            assert_eq!(edits(&all, &Extent::Shared, WantedMode::Enforce, &[]), expected, "{given:?}");
        }
    }

    #[test]
    fn fence_with_its_own_mode_changes_only_when_asked() {
        let deploy = FenceName::parse(b"deploy").unwrap();
        let docs = FenceName::parse(b"docs").unwrap();
        let all = configured(&[(Local, "fence.deploy.mode", "observe"), (Local, ALL, "observe")]);
        let named = [deploy.clone(), docs.clone(), FenceName::repo()];
        let plan = |extent| edits(&all, &extent, WantedMode::Enforce, &named);
        let set = |key: &str| Edit::Set { key: key.to_owned(), value: "enforce" };
        assert_eq!(plan(Extent::Shared), [set(ALL)]);
        assert_eq!(plan(Extent::All), [set(ALL), set("fence.deploy.mode")]);
        assert_eq!(plan(Extent::One(deploy)), [set("fence.deploy.mode")]);
        assert_eq!(plan(Extent::One(docs)), [set("fence.docs.mode")]);
        assert_eq!(plan(Extent::One(FenceName::repo())), [set(REPO)], "docs must not change with it");
    }
}
