//! Runs git: to read, and to change its configuration.

use crate::{
    failure::CommandError,
    repository::{
        Repository,
        settings::configured::{ConfigLevel, ConfiguredSetting},
    },
};
use git_fence_core::{ObjectId, RefName, text};
use git_fence_system::{env, user};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs,
    io::Write as _,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs git in the directory in which receive-pack runs hooks, so that a relative `core.hooksPath` means the same.
pub(crate) fn ask(git_dir: &Path, args: &[&str]) -> Result<Vec<u8>, CommandError> {
    let ran = start(git_dir, args)?;
    if ran.status.success() { Ok(ran.stdout) } else { Err(failed(args, text::one_line(&ran.stderr, 200))) }
}

/// The same for values of a setting: not set is an empty list, not a failure.
fn ask_for_values(git_dir: &Path, args: &[&str]) -> Result<Vec<String>, CommandError> {
    let ran = start(git_dir, args)?;
    match ran.status.code() {
        Some(0) => {
            let values = ran.stdout.split(|b| *b == 0).map(|value| String::from_utf8_lossy(value).into_owned());
            let mut values: Vec<String> = values.collect();
            values.pop();
            Ok(values)
        }
        Some(1) => Ok(Vec::new()),
        _ => Err(failed(args, text::one_line(&ran.stderr, 200))),
    }
}

fn start(git_dir: &Path, args: &[&str]) -> Result<Output, CommandError> {
    let ran = Command::new("git").arg("--git-dir=.").args(args).current_dir(git_dir).output();
    ran.map_err(|e| failed(args, e.to_string()))
}

/// Runs git as the owner of the repository, whoever runs this command: files that it writes must belong to the owner, or
/// the next push could not write next to them. `author` is the author of commits.
pub(crate) fn write(repository: &Repository, args: &[&str], input: &str, author: &str) -> Result<String, CommandError> {
    let dir = &repository.common_dir;
    let mut git = Command::new("git");
    git.arg("--git-dir=.").args(args).current_dir(dir);
    for (name, email) in
        [(env::GIT_AUTHOR_NAME, env::GIT_AUTHOR_EMAIL), (env::GIT_COMMITTER_NAME, env::GIT_COMMITTER_EMAIL)]
    {
        git.env(name.name, author).env(email.name, "git-fence-hook@localhost");
    }
    as_owner_of(dir, &mut git)?;
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().map_err(|e| failed(args, e.to_string()))?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let ran = child.wait_with_output().map_err(|e| failed(args, e.to_string()))?;
    if !ran.status.success() || !matches!(written, Some(Ok(()))) {
        return Err(failed(args, text::one_line(&ran.stderr, 200)));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// Root works for others, and git follows links: if root runs this, git runs as the owner of `dir`.
fn as_owner_of(dir: &Path, git: &mut Command) -> Result<(), CommandError> {
    let owner = fs::metadata(dir).map_err(CommandError::io("read", dir))?;
    if user::is_root() && owner.uid() != 0 {
        // The owner may not have access to root's home, and git would fail.
        git.uid(owner.uid()).gid(owner.gid()).env(env::HOME.name, dir).env_remove(env::XDG_CONFIG_HOME.name);
    }
    Ok(())
}

fn failed(args: &[&str], why: String) -> CommandError {
    CommandError::Git { doing: args.join(" "), why }
}

/// Checks that git check_trust the repository's owner. If it does not, it refuses all pushes of this user, and the
/// repository's configuration must not be trusted either.
pub(crate) fn check_trust(repository: &Repository) -> Result<(), CommandError> {
    // Root may use any repository, and new files are given to the owner.
    if user::is_root() {
        return Ok(());
    }
    let ran = Command::new("git").args(["rev-parse", "--git-dir"]).current_dir(&repository.git_dir).output();
    let ran = ran.map_err(|e| failed(&["rev-parse"], e.to_string()))?;
    if ran.status.success() || !String::from_utf8_lossy(&ran.stderr).contains("safe.directory") {
        return Ok(());
    }
    let dir = shell_quoted(&repository.common_dir.display().to_string());
    Err(CommandError::Other {
        what: format!("git does not trust the repository {dir}: it belongs to another user"),
        hint: format!("run this as its owner, or trust it with  git config --global --add safe.directory {dir}"),
    })
}

/// The values of all refs that can be guarded. Symbolic refs are left out: they move with others.
pub(crate) fn refs(repository: &Repository) -> Result<HashMap<RefName, ObjectId>, CommandError> {
    let format = "--format=%(objectname) %(refname) %(symref)";
    let listed = ask(&repository.common_dir, &["for-each-ref", format])?;
    let one = |line: &[u8]| {
        let mut parts = line.splitn(3, |b| *b == b' ');
        let (id, name, target) = (parts.next()?, parts.next()?, parts.next()?);
        let id = ObjectId::parse(id).ok().flatten().filter(|_| target.is_empty())?;
        Some((RefName::new(name), id))
    };
    let guardable = |(name, _): &(RefName, ObjectId)| !name.is_lease() && !name.is_per_worktree();
    Ok(listed.split(|b| *b == b'\n').filter_map(one).filter(guardable).collect())
}

/// A setting with its intended value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedSetting {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Whether it is one of many values, or the only one.
    pub(crate) many: bool,
}

/// A change of a setting, with its previous values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Change {
    #[serde(flatten)]
    pub(crate) setting: WantedSetting,
    before: Vec<String>,
}

impl WantedSetting {
    pub(crate) fn one(key: &str, value: &str) -> WantedSetting {
        WantedSetting { key: key.to_owned(), value: value.to_owned(), many: false }
    }

    pub(crate) fn many(key: impl Into<String>, value: &str) -> WantedSetting {
        WantedSetting { key: key.into(), value: value.to_owned(), many: true }
    }

    /// Whether it already has this value, at any level.
    pub(crate) fn is_fulfilled(&self, repository: &Repository) -> bool {
        match &repository.config {
            config if self.many => {
                let values = config.strings(self.key.as_str()).unwrap_or_default();
                values.iter().any(|value| value.as_slice() == self.value.as_bytes())
            }
            config if self.value == "true" => config.boolean(self.key.as_str()).ok().flatten() == Some(true),
            _ => repository.setting(&self.key).as_deref() == Some(self.value.as_str()),
        }
    }

    /// The setting as it will be configured.
    pub(crate) fn as_configured(&self, repository: &Repository) -> ConfiguredSetting {
        ConfiguredSetting {
            key: self.key.clone(),
            value: self.value.clone(),
            origin: repository.common_dir.join("config").display().to_string(),
            level: ConfigLevel::Local,
            overridden_by: None,
        }
    }

    /// The change that it needs in the repository's own configuration.
    pub(crate) fn plan(self, repository: &Repository) -> Result<Change, CommandError> {
        let before = local_values(repository, &self.key)?;
        Ok(Change { setting: self, before })
    }
}

impl Change {
    /// What undoing it means, in words.
    pub(crate) fn undone(&self) -> String {
        match &self.before[..] {
            [.., before] if !self.setting.many => format!("restored to {before}"),
            _ => "removed".to_owned(),
        }
    }

    /// Makes the change.
    pub(crate) fn make(&self, repository: &Repository) -> Result<(), CommandError> {
        let WantedSetting { key, value, many } = &self.setting;
        edit(repository, &[if *many { "--add" } else { "--replace-all" }, key, value])
    }

    /// Restores the previous values, unless the setting was changed since. Returns whether it did.
    pub(crate) fn undo(&self, repository: &Repository) -> Result<bool, CommandError> {
        let WantedSetting { key, value, many } = &self.setting;
        let now = local_values(repository, key)?;
        if *many {
            let is_there = now.contains(value) && !self.before.contains(value);
            if is_there {
                edit(repository, &["--fixed-value", "--unset-all", key, value])?;
            }
            return Ok(is_there);
        }
        if now != [value.as_str()] {
            return Ok(false);
        }
        match &self.before[..] {
            [one] => edit(repository, &["--replace-all", key, one])?,
            others => {
                edit(repository, &["--unset-all", key])?;
                for value in others {
                    edit(repository, &["--add", key, value])?;
                }
            }
        }
        Ok(true)
    }
}

fn local_values(repository: &Repository, key: &str) -> Result<Vec<String>, CommandError> {
    ask_for_values(&repository.common_dir, &["config", "--local", "-z", "--get-all", key])
}

/// Changes the repository's own configuration, as its owner.
pub(crate) fn edit(repository: &Repository, args: &[&str]) -> Result<(), CommandError> {
    let (dir, args) = (&repository.common_dir, &[&["config", "--local"], args].concat()[..]);
    let mut git = Command::new("git");
    git.arg("--git-dir=.").args(args).current_dir(dir);
    as_owner_of(dir, &mut git)?;
    let ran = git.output().map_err(|e| failed(args, e.to_string()))?;
    if ran.status.success() { Ok(()) } else { Err(failed(args, text::one_line(&ran.stderr, 200))) }
}

/// `text` as a single shell word, quoted only if necessary.
pub(crate) fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    gix::quote::single(text.into()).to_string()
}
