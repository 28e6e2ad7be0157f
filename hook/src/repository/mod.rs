//! The repository that is pushed to: its location, its refs and objects, and its configuration.
//!
//! Pushes and commands read it. Only [`git`] changes anything: the configuration, for `install` and `uninstall`, and
//! lease refs, for `revoke` and `tokens`.

pub(crate) mod config;
pub(crate) mod config_trust;
pub(crate) mod git;
pub(crate) mod objects;
pub(crate) mod refs;
pub(crate) mod settings;

use crate::{
    host::surroundings::Environment,
    repository::{
        config::Configuration,
        config_trust::ConfigReader,
        settings::configured::{ConfigLevel, ConfiguredSetting},
    },
};
use git_fence_system::user;
use gix::config::{File as Config, file::Metadata, path::interpolate};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// An opened repository: only its directories and its configuration are read.
pub(crate) struct Repository {
    /// The git directory; for a linked worktree, that of the worktree.
    pub(crate) git_dir: PathBuf,
    /// The directory with refs, objects and the fence, shared by all worktrees.
    pub(crate) common_dir: PathBuf,
    /// Git's configuration at all levels, as it applies to pushes.
    pub(crate) config: Config,
    /// Fence settings that have no effect, because of who set them.
    pub(crate) ignored: Vec<ConfiguredSetting>,
    /// Files of the repository's owner that cannot be read.
    pub(crate) unread: Vec<PathBuf>,
    /// The hash function of object ids.
    pub(crate) object_hash: gix::hash::Kind,
    /// How refs are stored.
    pub(crate) ref_storage: RefStorage,
}

/// How a repository stores its refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefStorage {
    /// Loose files and `packed-refs`.
    Files,
    /// Tables that only git reads.
    Reftable,
}

/// Why a repository cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("'{}' is not a git repository", .0.display())]
    NotARepository(PathBuf),
    #[error("cannot read '{}'", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read git's configuration: {0}")]
    Config(config::ConfigError),
    #[error("the repository's {key} is '{value}', which this git-fence-hook does not support")]
    Unsupported { key: &'static str, value: String },
}

impl Repository {
    /// Opens the repository whose git directory is `git_dir`, as the program `git` sees it (if known), for this caller.
    pub(crate) fn open(
        git_dir: &Path,
        git: Option<&Path>,
        environment: &Environment,
        reader: ConfigReader,
    ) -> Result<Repository, OpenError> {
        let common_dir = common_dir(git_dir)?;
        let read = config::read(git_dir, &common_dir, git, environment, reader).map_err(OpenError::Config)?;
        let Configuration { config, ignored, unread } = read;
        let object_hash = match extension(&config, "objectFormat").as_deref() {
            None | Some("sha1") => gix::hash::Kind::Sha1,
            Some("sha256") => gix::hash::Kind::Sha256,
            Some(other) => return Err(unsupported("extensions.objectFormat", other)),
        };
        let ref_storage = match extension(&config, "refStorage").as_deref() {
            None | Some("files") => RefStorage::Files,
            Some("reftable") => RefStorage::Reftable,
            Some(other) => return Err(unsupported("extensions.refStorage", other)),
        };
        Ok(Repository { git_dir: git_dir.to_owned(), common_dir, config, ignored, unread, object_hash, ref_storage })
    }

    /// Finds the repository at or above `dir`, and opens it for a command.
    pub(crate) fn find(dir: &Path, environment: &Environment) -> Result<Repository, OpenError> {
        let not_one = || OpenError::NotARepository(dir.to_owned());
        let dir = fs::canonicalize(dir).map_err(|_| not_one())?;
        let (found, _) = gix::discover::upwards(&dir).map_err(|_| not_one())?;
        let (git_dir, _) = found.into_repository_and_work_tree_directories();
        let git_dir = fs::canonicalize(&git_dir).map_err(|source| OpenError::Read { path: git_dir, source })?;
        Repository::open(&git_dir, None, environment, ConfigReader::Command)
    }

    /// The directory of the fence.
    pub(crate) fn fence_dir(&self) -> PathBuf {
        self.common_dir.join("fence")
    }

    /// The level at which a setting is set.
    pub(crate) fn level_of(&self, key: &str) -> Option<ConfigLevel> {
        self.place_of(key).map(|place| ConfigLevel::of(place.source))
    }

    /// Where the value of `section.name` or `section.part.name` is set that counts.
    pub(crate) fn place_of(&self, key: &str) -> Option<Metadata> {
        let (section, rest) = key.split_once('.')?;
        let (part, name) = rest.rsplit_once('.').map_or((None, rest), |(part, name)| (Some(part), name));
        let sections = self.config.sections_by_name(section)?;
        let has_it = |section: &gix::config::file::SectionRef<'_>| {
            let is_part =
                section.header().subsection_name().map(|it| it.to_vec()) == part.map(|it| it.as_bytes().to_vec());
            is_part && section.contains_value_name(name)
        };
        sections.filter(has_it).last().map(|section| section.meta().clone())
    }

    /// The directory in which git looks for the hooks of a push, if `core.hooksPath` is set: by the configuration of those who
    /// serve pushes, whoever runs this. A relative path is relative to where hooks run.
    pub(crate) fn hooks_path(&self) -> Option<PathBuf> {
        let owner = fs::metadata(&self.common_dir).ok().and_then(|found| user::home_of(found.uid()));
        let context = interpolate::Context {
            home_dir: owner.as_deref(),
            home_for_user: Some(interpolate::home_for_user),
            ..Default::default()
        };
        let path = self.config.path("core.hooksPath")?.interpolate(context).ok()?;
        Some(self.git_dir.join(path))
    }

    /// The single value of one of git's own settings.
    pub(crate) fn setting(&self, key: &str) -> Option<String> {
        self.config.string(key).map(|value| value.to_string())
    }
}

fn unsupported(key: &'static str, value: &str) -> OpenError {
    OpenError::Unsupported { key, value: git_fence_core::text::one_line(value.as_bytes(), 60) }
}

fn extension(config: &Config, name: &str) -> Option<String> {
    let value = config.string(format!("extensions.{name}").as_str())?;
    Some(value.to_string().to_ascii_lowercase())
}

/// A linked worktree's git directory has a file that names the shared one.
fn common_dir(git_dir: &Path) -> Result<PathBuf, OpenError> {
    let path = git_dir.join("commondir");
    match gix::discover::path::from_plain_file(&path) {
        None => Ok(git_dir.to_owned()),
        Some(Ok(common)) => Ok(git_dir.join(common)),
        Some(Err(source)) => Err(OpenError::Read { path, source }),
    }
}
