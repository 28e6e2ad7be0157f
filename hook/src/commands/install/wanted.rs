//! The settings that `install` is asked for, and which of them it leaves: a gate that enforces is never weakened.

use crate::{
    commands::{
        advice::{self, config},
        install::InstallArgs,
    },
    failure::CommandError,
    host::layout::Layout,
    repository::{
        Repository,
        git::{WantedSetting, shell_quoted},
        settings::{self, configured::configured},
    },
};
use git_fence_core::Settings;
use gix::bstr::BString;

impl InstallArgs {
    /// The settings that these options ask for in `repository`.
    pub(super) fn wanted(&self, repository: &Repository, layout: Layout) -> Vec<WantedSetting> {
        let mut wanted = vec![WantedSetting::one("receive.advertisePushOptions", "true")];
        // Gitaly starts hooks outside of receive-pack: the gate would refuse every push.
        wanted.extend((layout == Layout::Gitlab).then(|| WantedSetting::one("fence.receivePack", "none")));
        wanted.extend(self.observe.then(|| WantedSetting::one(&key(repository, "mode"), "observe")));
        wanted.extend(self.allow_tokenless.then(|| WantedSetting::one(&key(repository, "tokenless"), "allow")));
        wanted.extend(self.refs.iter().map(|pattern| WantedSetting::many(key(repository, "refs"), pattern)));
        wanted.extend(self.exempt.iter().map(|name| WantedSetting::many(key(repository, "exempt"), name)));
        wanted.extend(
            self.fence.iter().map(|(name, pattern)| WantedSetting::many(format!("fence.{name}.refs"), pattern)),
        );
        if self.per_branch {
            wanted.push(WantedSetting::many("fence.branch.refs", "refs/heads/*"));
            wanted.push(WantedSetting::one("fence.branch.each", "true"));
        }
        wanted.dedup();
        wanted
    }
}

/// `fence.<name>`, or `fence.repo.<name>` where that is set, because it overrides the other.
fn key(repository: &Repository, name: &str) -> String {
    let own = format!("fence.repo.{name}");
    let is_set = configured(&repository.config).iter().any(|one| one.key.eq_ignore_ascii_case(&own));
    if is_set { own } else { format!("fence.{name}") }
}

/// Takes the settings out that would weaken what is there: all values of a key together, because only together they may
/// be as strong, and all settings of a named fence, which cannot be read without its refs.
pub(super) fn take_weakening(
    wanted: &mut Vec<WantedSetting>,
    before: &Settings,
    repository: &Repository,
) -> Result<Vec<WantedSetting>, CommandError> {
    let group = |setting: &WantedSetting| match setting.key.rsplit_once('.') {
        Some((fence, _)) if fence.starts_with("fence.") && fence != "fence.repo" => fence.to_owned(),
        _ => setting.key.clone(),
    };
    let mut groups: Vec<String> = wanted.iter().map(group).collect();
    groups.dedup();
    let mut left = Vec::new();
    for one in groups {
        let alone: Vec<WantedSetting> = wanted.iter().filter(|setting| group(setting) == one).cloned().collect();
        if settings::read(&with(&alone, repository)?)?.is_weaker_than(before) {
            wanted.retain(|setting| group(setting) != one);
            left.extend(alone);
        }
    }
    Ok(left)
}

/// The configuration after the changes.
pub(super) fn with(wanted: &[WantedSetting], repository: &Repository) -> Result<gix::config::File, CommandError> {
    let mut config = repository.config.clone();
    for setting in wanted.iter().filter(|setting| !setting.is_fulfilled(repository)) {
        let (section, rest) = setting.key.split_once('.').unwrap_or((&setting.key, ""));
        let (subsection, name) = rest.rsplit_once('.').map_or((None, rest), |(sub, name)| (Some(sub), name));
        let added = config.new_section(section, subsection.map(BString::from)).and_then(|mut section| {
            section.push(name, Some(setting.value.as_str().into()))?;
            Ok(())
        });
        added.map_err(|e| CommandError::Other {
            what: format!("'{}' is not a valid setting: {e}", setting.key),
            hint: "the name of a fence consists of a-z, 0-9, '.', '_' and '-'".to_owned(),
        })?;
    }
    Ok(config)
}

/// The command that makes a change that `install` leaves.
pub(super) fn command_for(left: &WantedSetting, repository: &Repository) -> String {
    let WantedSetting { key, value, many } = left;
    if key.ends_with(".mode") {
        return advice::gate(repository, value);
    }
    let add = if *many { "--add " } else { "" };
    config(repository, &format!("{add}{} {}", shell_quoted(key), shell_quoted(value)))
}
