//! ConfigTrust `fence.*` settings apply.
//!
//! If people push to a local path or with their own login, the hook runs as the pusher: the global files, the files that
//! they include, and the environment are the pusher's, and could switch the fence off. So they apply only if that user
//! owns the repository (and could change its configuration anyway). With a single ssh account, or behind a web server,
//! this is the case.
//!
//! The gate cannot control what git itself reads from the pusher's files: `core.hooksPath` in them makes git run other
//! hooks. That is another way for a local writer to bypass the gate.

use crate::host::surroundings::Environment;
use git_fence_system::{env, user};
use gix::config::{Source, file::Metadata};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// For what the settings are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigReader {
    /// For a push, which is judged by them.
    Push,
    /// For a command, which shows the settings that apply to pushes: those of the repository's owner.
    Command,
}

/// The caller, its user and the repository's owner.
#[derive(Debug)]
pub(crate) struct ConfigTrust {
    reader: ConfigReader,
    /// The user of this process.
    user: u32,
    /// The owner of the repository.
    owner: u32,
    common_dir: PathBuf,
}

impl ConfigTrust {
    pub(crate) fn of(common_dir: &Path, reader: ConfigReader) -> io::Result<ConfigTrust> {
        let (user, owner) = (user::own(), fs::metadata(common_dir)?.uid());
        Ok(ConfigTrust { reader, user, owner, common_dir: common_dir.to_owned() })
    }

    /// The environment in which git's files are located. For another user's push, without the variables that would replace
    /// the system's files; for a command, that of the repository's owner.
    pub(crate) fn environment(&self, environment: &Environment) -> Environment {
        match self.reader {
            ConfigReader::Push if self.user == self.owner => environment.clone(),
            ConfigReader::Push => {
                environment.without(&[env::GIT_CONFIG_SYSTEM, env::GIT_CONFIG_NOSYSTEM, env::GIT_CONFIG_PARAMETERS])
            }
            ConfigReader::Command if self.runs_as_owner(environment) => environment.clone(),
            ConfigReader::Command => {
                let home = user::home_of(self.owner);
                let theirs = environment.without(&[env::HOME, env::XDG_CONFIG_HOME, env::GIT_CONFIG_GLOBAL]);
                match home {
                    Some(home) => theirs.with(env::HOME, home),
                    None => theirs,
                }
            }
        }
    }

    /// Whether the owner runs this, with its own home: `sudo` may keep the home of another user.
    fn runs_as_owner(&self, environment: &Environment) -> bool {
        let home = environment.path(env::HOME).and_then(|home| uid_of(&home));
        self.user == self.owner && (home == Some(self.owner) || environment.get(env::GIT_CONFIG_GLOBAL).is_some())
    }

    /// Whether fence settings from `meta` apply.
    pub(crate) fn applies(&self, meta: &Metadata) -> bool {
        let file = meta.path.as_deref();
        match meta.source {
            // The pusher's files, or files that another user has created for the owner.
            Source::Git | Source::User => {
                let is_read_for_owner = self.reader == ConfigReader::Command || self.user == self.owner;
                is_read_for_owner && file.and_then(uid_of).is_some_and(|uid| uid == self.owner || uid == 0)
            }
            Source::System | Source::Local | Source::Worktree | Source::GitInstallation => {
                !file.is_some_and(|file| self.is_pushers_own(file))
            }
            Source::Env | Source::Cli | Source::Api | Source::EnvOverride => {
                self.reader == ConfigReader::Push && self.user == self.owner
            }
        }
    }

    /// Whether a file that the configuration of the repository or the system includes belongs to the pusher and is outside
    /// the repository: `~/` is the home of the pusher.
    fn is_pushers_own(&self, file: &Path) -> bool {
        if self.user == self.owner || self.user == 0 || uid_of(file) != Some(self.user) {
            return false;
        }
        let is_inside = |dir: PathBuf| fs::canonicalize(file).is_ok_and(|file| file.starts_with(dir));
        !fs::canonicalize(&self.common_dir).is_ok_and(is_inside)
    }
}

fn uid_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_environment_of_another_user_do_not_apply() {
        let temp = tempfile::tempdir().unwrap();
        let config = tempfile::NamedTempFile::new_in(temp.path()).unwrap();
        let file = config.path().to_owned();
        let me = uid_of(&file).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let at = |source, path: &Path| Metadata {
            path: Some(path.to_owned()),
            source,
            level: 0,
            trust: gix::sec::Trust::Full,
        };
        let trust = |reader, owner| ConfigTrust { reader, user: me, owner, common_dir: elsewhere.path().to_owned() };
        for (reader, owner, source, applies) in [
            (ConfigReader::Push, me, Source::User, true),
            (ConfigReader::Push, me, Source::Git, true),
            (ConfigReader::Push, me, Source::Env, true),
            (ConfigReader::Push, me, Source::Local, true),
            (ConfigReader::Push, me + 1, Source::User, false),
            (ConfigReader::Push, me + 1, Source::Git, false),
            (ConfigReader::Push, me + 1, Source::Env, false),
            (ConfigReader::Push, me + 1, Source::Cli, false),
            // Included from outside the repository. Root's files apply to all.
            (ConfigReader::Push, me + 1, Source::Local, me == 0),
            (ConfigReader::Push, me + 1, Source::System, me == 0),
            (ConfigReader::Command, me, Source::User, true),
            (ConfigReader::Command, me, Source::Env, false),
            (ConfigReader::Command, me, Source::Cli, false),
            (ConfigReader::Command, me + 1, Source::User, me == 0),
        ] {
            assert_eq!(
                trust(reader, owner).applies(&at(source, &file)),
                applies,
                "{reader:?} {source:?} {owner} of {me}"
            );
        }
        let inside = ConfigTrust { common_dir: temp.path().to_owned(), ..trust(ConfigReader::Push, me + 1) };
        assert!(inside.applies(&at(Source::Local, &file)));
        assert!(!trust(ConfigReader::Push, me).applies(&at(Source::User, &temp.path().join("gone"))));
    }
}
