//! The commands that messages recommend, ready to paste.

use crate::repository::{
    Repository,
    git::shell_quoted,
    settings::configured::{ConfigLevel, ConfiguredSetting, Overriding},
};
use git_fence_system::user;
use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// `path` as a single shell word.
pub(crate) fn quoted(path: &Path) -> String {
    shell_quoted(&path.display().to_string())
}

/// The command that installs the gate.
pub(crate) fn install(repository: &Repository) -> String {
    gate(repository, "install")
}

/// A command of this program for the repository.
pub(crate) fn gate(repository: &Repository, command: &str) -> String {
    format!("git-fence-hook {command} {}", quoted(&repository.common_dir))
}

/// The command that changes a setting of this repository.
pub(crate) fn config(repository: &Repository, args: &str) -> String {
    git(repository, &format!("config {args}"))
}

/// A git command in the repository. Git does not let root work in a repository of another user, and would leave files
/// that its owner cannot change, so root is told to run it as the owner.
pub(crate) fn git(repository: &Repository, args: &str) -> String {
    as_owner(repository, &format!("git -C {} {args}", quoted(&repository.common_dir)))
}

/// `command`, for root run as the owner of the repository.
pub(crate) fn as_owner(repository: &Repository, command: &str) -> String {
    let owner = fs::metadata(&repository.common_dir).map_or(0, |found| found.uid());
    if !user::is_root() || owner == 0 {
        return command.to_owned();
    }
    match user::name_of(owner) {
        Some(name) => format!("runuser -u {} -- {command}", shell_quoted(&name)),
        None => format!("setpriv --reuid {owner} --clear-groups {command}"),
    }
}

/// The command that removes a setting, so that the one that it overrides counts again: `None` if it is not in a file.
pub(crate) fn remove(repository: &Repository, overriding: &Overriding, overridden_in: &str) -> Option<String> {
    let Overriding { key, value, origin, level } = overriding;
    let key = shell_quoted(key);
    if origin == overridden_in && !is_other_name(overriding) {
        // Twice in one file: keeps the one that counts.
        return Some(config(repository, &format!("--replace-all {key} {}", shell_quoted(value))));
    }
    let is_own = Path::new(origin) == repository.common_dir.join("config");
    match level {
        ConfigLevel::Command => None,
        _ if is_own => Some(config(repository, &format!("--unset-all {key}"))),
        _ => Some(format!("git config --file {} --unset-all {key}", shell_quoted(origin))),
    }
}

/// Whether it overrides a setting of another name.
fn is_other_name(overriding: &Overriding) -> bool {
    overriding.key.to_ascii_lowercase().starts_with("fence.repo.")
}

/// The settings that others override, for people: `fence.mode = enforce  from FILE: overridden by …`.
pub(crate) fn overridden(repository: &Repository, configured: &[ConfiguredSetting]) -> Vec<String> {
    let line = |one: &ConfiguredSetting| {
        let by = one.overridden_by.as_ref()?;
        let how = remove(repository, by, &one.origin);
        let how = how.map_or(String::new(), |command| format!("; remove that with  {command}"));
        let ConfiguredSetting { key, value, origin, .. } = one;
        let Overriding { key: other, value: counts, origin: place, .. } = by;
        Some(format!("{key} = {value}  from {origin}: overridden by {other} = {counts} from {place}{how}"))
    };
    configured.iter().filter_map(line).collect()
}
