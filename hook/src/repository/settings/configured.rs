//! Every configured setting, where it is set, and which of them are overridden by another.
//!
//! `fence.mode` is the documented name. `fence.repo.mode` is the same setting for the fence `repo` only, and counts before
//! it, at whatever level it is set. Of one name, the narrowest level counts. Whoever changes a setting that is overridden
//! changes nothing, so everything that shows settings says so.

use crate::repository::settings::table::{SETTINGS, Setting};
use git_fence_core::{FenceName, shown_url, text};
use gix::{
    bstr::BString,
    config::{
        File as Config, Source,
        file::{Metadata, SectionRef},
    },
};
use serde::Serialize;

/// A configured setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ConfiguredSetting {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The file, or else the level.
    pub(crate) origin: String,
    pub(crate) level: ConfigLevel,
    /// The setting that counts instead, if its value differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overridden_by: Option<Overriding>,
}

/// A setting that counts before another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Overriding {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) origin: String,
    pub(crate) level: ConfigLevel,
}

/// Git's levels of configuration, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConfigLevel {
    System,
    Global,
    Local,
    Worktree,
    Command,
}

impl ConfigLevel {
    pub(crate) fn of(source: Source) -> ConfigLevel {
        match source {
            Source::GitInstallation | Source::System => ConfigLevel::System,
            Source::Git | Source::User => ConfigLevel::Global,
            Source::Local => ConfigLevel::Local,
            Source::Worktree => ConfigLevel::Worktree,
            Source::Env | Source::Cli | Source::Api | Source::EnvOverride => ConfigLevel::Command,
        }
    }

    /// Git's word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ConfigLevel::System => "system",
            ConfigLevel::Global => "global",
            ConfigLevel::Local => "local",
            ConfigLevel::Worktree => "worktree",
            ConfigLevel::Command => "command",
        }
    }
}

impl ConfiguredSetting {
    /// The fence for which it is set (`None`: for all), and its entry in the table, if it has an effect.
    pub(crate) fn subject(&self) -> Option<(Option<&str>, &'static Setting)> {
        let rest = self.key.strip_prefix("fence.")?;
        let (fence, name) = rest.rsplit_once('.').map_or((None, rest), |(fence, name)| (Some(fence), name));
        let setting = SETTINGS.iter().find(|setting| setting.is_called(name))?;
        (fence.is_none() || !setting.is_for_all()).then_some((fence, setting))
    }

    fn is(&self, fence: Option<&str>, setting: &Setting) -> bool {
        self.subject().is_some_and(|(of, called)| of == fence && called.key == setting.key)
    }

    fn as_overriding(&self) -> Overriding {
        let ConfiguredSetting { key, value, origin, level, .. } = self.clone();
        Overriding { key, value, origin, level }
    }
}

/// Every configured fence setting, in the order in which git reads them: of those with a single value, the last counts.
pub(crate) fn configured(config: &Config) -> Vec<ConfiguredSetting> {
    let mut all = configured_where(config, |_| true);
    let overriding: Vec<Option<Overriding>> = all.iter().map(|one| overriding(one, &all)).collect();
    for (one, overridden_by) in all.iter_mut().zip(overriding) {
        one.overridden_by = overridden_by;
    }
    all
}

/// The same, only from sections for which `matters` is true, and without what overrides what.
pub(crate) fn configured_where(config: &Config, matters: impl Fn(&Metadata) -> bool) -> Vec<ConfiguredSetting> {
    let sections = config.sections_by_name("fence").into_iter().flatten();
    sections.filter(|section| matters(section.meta())).flat_map(|section| in_section(&section)).collect()
}

/// A value as it is shown: a URL may have a password in it, whatever the setting is called.
pub(crate) fn without_password(name: &str, value: &[u8]) -> String {
    let whole = String::from_utf8_lossy(value);
    let is_store = name.eq_ignore_ascii_case("store") && whole != "none";
    // Before it is cut: what is cut off may be where the password ends.
    if is_store || whole.contains("://") {
        return text::one_line(shown_url(&whole).as_bytes(), 200);
    }
    text::one_line(value, 200)
}

fn in_section(section: &SectionRef<'_>) -> Vec<ConfiguredSetting> {
    let fence = section.header().subsection_name().map(|name| format!("{}.", text::one_line(name, 64)));
    let meta = section.meta();
    let origin = meta.path.as_ref().map_or_else(|| format!("{:?}", meta.source), |path| path.display().to_string());
    let mut names: Vec<String> = Vec::new();
    for name in section.value_names() {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            names.push(name);
        }
    }
    let values = |name: &String| {
        let shown = name.clone();
        let key = format!("fence.{}{name}", fence.as_deref().unwrap_or_default());
        let origin = origin.clone();
        section.values(name).into_iter().map(move |value: BString| ConfiguredSetting {
            key: key.clone(),
            value: without_password(&shown, &value),
            origin: origin.clone(),
            level: ConfigLevel::of(meta.source),
            overridden_by: None,
        })
    };
    names.iter().flat_map(values).collect()
}

/// What counts instead of `one`, if that differs. Values of a list add up, so only another name overrides them.
fn overriding(one: &ConfiguredSetting, all: &[ConfiguredSetting]) -> Option<Overriding> {
    let (fence, setting) = one.subject()?;
    let last = |fence: Option<&str>| all.iter().rfind(|other| other.is(fence, setting));
    let same_name = || last(fence).filter(|_| !setting.is_list());
    let counts = match fence {
        None => last(Some(FenceName::repo().as_str())).or_else(same_name),
        Some(_) => same_name(),
    };
    counts.filter(|counts| counts.value != one.value).map(ConfiguredSetting::as_overriding)
}

/// The setting that decides `key` for a fence; `None` if the default does.
pub(crate) fn in_force<'a>(
    all: &'a [ConfiguredSetting],
    fence: &FenceName,
    setting: &Setting,
) -> Option<&'a ConfiguredSetting> {
    let last = |fence: Option<&str>| all.iter().rfind(|one| one.is(fence, setting));
    last(Some(fence.as_str())).or_else(|| last(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let config = Config::try_from(text).unwrap();
        let line = |one: ConfiguredSetting| {
            let by = one.overridden_by.map_or(String::new(), |by| format!(" < {} = {}", by.key, by.value));
            format!("{} = {}{by}", one.key, one.value)
        };
        configured(&config).into_iter().map(line).collect()
    }

    #[test]
    fn setting_that_does_not_count_names_the_one_that_does() {
        for (text, expected) in [
            ("[fence]\n mode = off\n", &["fence.mode = off"][..]),
            (
                "[fence]\n mode = enforce\n[fence \"repo\"]\n mode = observe\n",
                &["fence.mode = enforce < fence.repo.mode = observe", "fence.repo.mode = observe"],
            ),
            (
                "[fence \"repo\"]\n Mode = observe\n[fence]\n mode = enforce\n",
                &["fence.repo.Mode = observe", "fence.mode = enforce < fence.repo.Mode = observe"],
            ),
            ("[fence]\n mode = off\n[fence]\n mode = off\n", &["fence.mode = off", "fence.mode = off"]),
            ("[fence]\n wait = 1\n[fence]\n wait = 2\n", &["fence.wait = 1 < fence.wait = 2", "fence.wait = 2"]),
            ("[fence]\n exempt = a\n[fence]\n exempt = b\n", &["fence.exempt = a", "fence.exempt = b"]),
            (
                "[fence]\n exempt = a\n[fence \"repo\"]\n exempt = b\n",
                &["fence.exempt = a < fence.repo.exempt = b", "fence.repo.exempt = b"],
            ),
            // A named fence is meant to differ.
            (
                "[fence]\n mode = enforce\n[fence \"deploy\"]\n mode = observe\n",
                &["fence.mode = enforce", "fence.deploy.mode = observe"],
            ),
            // Without effect for another reason.
            (
                "[fence]\n init = auto\n[fence \"repo\"]\n init = install\n",
                &["fence.init = auto", "fence.repo.init = install"],
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn every_setting_of_a_fence_can_be_overridden_for_repo() {
        for setting in SETTINGS.iter().filter(|setting| !setting.is_for_all()) {
            let key = setting.key;
            let shown = shown(&format!("[fence]\n {key} = x://a\n[fence \"repo\"]\n {key} = x://b\n"));
            assert_eq!(shown[0], format!("fence.{key} = x://a < fence.repo.{key} = x://b"));
        }
    }
}
