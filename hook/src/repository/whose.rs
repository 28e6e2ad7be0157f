//! Whose configuration counts for `fence.*`.
//!
//! Where people push to a local path or with a login of their own, the hook runs as the pusher: its global
//! files, what they include, and its environment are the pusher's, and would switch the fence off. So they
//! count only where that user owns the repository (and could as well change its configuration). Behind ssh
//! with one account, or a web server, that is the case.
//!
//! What git itself does with the pusher's files cannot be helped from here: `core.hooksPath` in them makes git
//! run other hooks. That is one more way in which a local writer passes by the gate.

use crate::host::surroundings::Environment;
use git_fence_system::{env, user};
use gix::config::{Source, file::Metadata};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Who wants to know the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A push, which is judged by them.
    Push,
    /// A command: it is told what pushes are judged by, those of the repository's owner.
    Command,
}

/// Who asks, and whose repository it is.
#[derive(Debug)]
pub(crate) struct Whose {
    asker: Asker,
    /// The user that this process runs as.
    user: u32,
    /// The owner of the repository.
    owner: u32,
    common_dir: PathBuf,
}

impl Whose {
    pub(crate) fn of(common_dir: &Path, asker: Asker) -> io::Result<Whose> {
        let (user, owner) = (user::own(), fs::metadata(common_dir)?.uid());
        Ok(Whose { asker, user, owner, common_dir: common_dir.to_owned() })
    }

    /// The environment by which git's files are to be found. For a push of somebody else, without what would
    /// lead to other files than the machine's; for a command, that of the repository's owner.
    pub(crate) fn environment(&self, environment: &Environment) -> Environment {
        match self.asker {
            Asker::Push if self.user == self.owner => environment.clone(),
            Asker::Push => {
                environment.without(&[env::GIT_CONFIG_SYSTEM, env::GIT_CONFIG_NOSYSTEM, env::GIT_CONFIG_PARAMETERS])
            }
            Asker::Command if self.is_at_home(environment) => environment.clone(),
            Asker::Command => {
                let home = user::home_of(self.owner);
                let theirs = environment.without(&[env::HOME, env::XDG_CONFIG_HOME, env::GIT_CONFIG_GLOBAL]);
                match home {
                    Some(home) => theirs.with(env::HOME, home),
                    None => theirs,
                }
            }
        }
    }

    /// Whether the owner asks, and from its own home: `sudo` may leave that of another.
    fn is_at_home(&self, environment: &Environment) -> bool {
        let home = environment.path(env::HOME).and_then(|home| uid_of(&home));
        self.user == self.owner && (home == Some(self.owner) || environment.get(env::GIT_CONFIG_GLOBAL).is_some())
    }

    /// Whether settings of the fence count that stand where `meta` says.
    pub(crate) fn counts(&self, meta: &Metadata) -> bool {
        let file = meta.path.as_deref();
        match meta.source {
            // The pusher's, or those of a file that somebody else has made for the owner.
            Source::Git | Source::User => {
                let is_read_for_owner = self.asker == Asker::Command || self.user == self.owner;
                is_read_for_owner && file.and_then(uid_of).is_some_and(|uid| uid == self.owner || uid == 0)
            }
            Source::System | Source::Local | Source::Worktree | Source::GitInstallation => {
                !file.is_some_and(|file| self.is_pushers_own(file))
            }
            Source::Env | Source::Cli | Source::Api | Source::EnvOverride => {
                self.asker == Asker::Push && self.user == self.owner
            }
        }
    }

    /// Whether a file that the configuration of the repository or the machine includes is the pusher's, outside
    /// of the repository: `~/` leads into the home of whoever pushes.
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
    fn files_and_environment_of_somebody_else_do_not_count() {
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
        let whose = |asker, owner| Whose { asker, user: me, owner, common_dir: elsewhere.path().to_owned() };
        for (asker, owner, source, counts) in [
            (Asker::Push, me, Source::User, true),
            (Asker::Push, me, Source::Git, true),
            (Asker::Push, me, Source::Env, true),
            (Asker::Push, me, Source::Local, true),
            (Asker::Push, me + 1, Source::User, false),
            (Asker::Push, me + 1, Source::Git, false),
            (Asker::Push, me + 1, Source::Env, false),
            (Asker::Push, me + 1, Source::Cli, false),
            // Included, from outside of the repository. Root's are everybody's.
            (Asker::Push, me + 1, Source::Local, me == 0),
            (Asker::Push, me + 1, Source::System, me == 0),
            (Asker::Command, me, Source::User, true),
            (Asker::Command, me, Source::Env, false),
            (Asker::Command, me, Source::Cli, false),
            (Asker::Command, me + 1, Source::User, me == 0),
        ] {
            assert_eq!(whose(asker, owner).counts(&at(source, &file)), counts, "{asker:?} {source:?} {owner} of {me}");
        }
        let inside = Whose { common_dir: temp.path().to_owned(), ..whose(Asker::Push, me + 1) };
        assert!(inside.counts(&at(Source::Local, &file)));
        assert!(!whose(Asker::Push, me).counts(&at(Source::User, &temp.path().join("gone"))));
    }
}
