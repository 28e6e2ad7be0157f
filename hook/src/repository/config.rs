//! Git's configuration at every level, without starting git if possible.

use crate::{
    host::surroundings::Environment,
    repository::{
        config_trust::{ConfigReader, ConfigTrust},
        settings::configured::{self, ConfiguredSetting},
    },
};
use git_fence_system::env::{self, Variable};
use gix::{
    bstr::{BString, ByteSlice},
    config::{
        File, Source,
        file::{Metadata, includes, init::Options},
        path::interpolate,
    },
    refs::file::loose::Reference,
};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::Command,
};

/// Why the configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{0}")]
    Read(String),
    #[error("'git config --list' failed: {0}")]
    Git(String),
}

/// The configuration, and which parts of it have no effect.
pub(crate) struct Configuration {
    pub(crate) config: File,
    /// Fence settings made by a user who does not own the repository.
    pub(crate) ignored: Vec<ConfiguredSetting>,
    /// Files of the repository's owner that the current user may not read.
    pub(crate) unread: Vec<PathBuf>,
}

/// Reads the system, global, repository and worktree configuration and the environment. Of the fence's settings, only
/// those that apply for the caller are kept.
pub(crate) fn read(
    git_dir: &Path,
    common_dir: &Path,
    git: Option<&Path>,
    environment: &Environment,
    reader: ConfigReader,
) -> Result<Configuration, ConfigError> {
    let trust = ConfigTrust::of(common_dir, reader);
    let trust = trust.map_err(|e| ConfigError::Read(format!("cannot read '{}': {e}", common_dir.display())))?;
    let own = &trust.environment(environment);
    let mut config = read_all(git_dir, common_dir, git, own)?;
    let mut ignored = configured::configured_where(&config, |meta| !trust.applies(meta));
    let sections = config.sections_and_ids_by_name("fence").into_iter().flatten();
    let ids: Vec<_> = sections.filter(|(section, _)| !trust.applies(section.meta())).map(|(_, id)| id).collect();
    for id in ids {
        config.remove_section_by_id(id);
    }
    let mut unread = Vec::new();
    if reader == ConfigReader::Command {
        let files = global_files(own);
        // The current user's own files, which might be mistaken for settings of this repository.
        let others = global_files(environment).into_iter().filter(|file| !files.contains(file));
        let others = others.filter_map(|(source, path)| File::from_path_no_includes(path, source).ok());
        ignored.extend(others.flat_map(|file| configured::configured(&file)));
        let is_closed = |path: &PathBuf| fs::metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        unread.extend(files.into_iter().map(|(_, path)| path).filter(is_closed));
    }
    Ok(Configuration { config, ignored, unread })
}

/// The global configuration files of a user.
fn global_files(environment: &Environment) -> Vec<(Source, PathBuf)> {
    let mut variable = |name: &str| environment.named(name).map(OsString::from);
    let mut files = Vec::new();
    for source in [Source::Git, Source::User] {
        files.extend(source.storage_location(&mut variable).map(|path| (source, path)));
    }
    // GIT_CONFIG_GLOBAL replaces both, and must be read once.
    files.dedup_by(|later, earlier| later.1 == earlier.1);
    files
}

/// All of it, whoever set it.
///
/// `git -c` passes its settings in a variable whose format is internal to git. In that case, which is rare on servers,
/// git itself reads the configuration.
fn read_all(
    git_dir: &Path,
    common_dir: &Path,
    git: Option<&Path>,
    environment: &Environment,
) -> Result<File, ConfigError> {
    if environment.get(env::GIT_CONFIG_PARAMETERS).is_some() {
        return ask_git(git_dir, environment);
    }
    let home = environment.path(env::HOME);
    let branch = fs::read(git_dir.join("HEAD")).ok().and_then(|head| checked_out_branch(&head));
    let options = Options {
        includes: includes::Options::follow(
            interpolate::Context {
                home_dir: home.as_deref(),
                home_for_user: Some(interpolate::home_for_user),
                ..Default::default()
            },
            includes::conditional::Context {
                git_dir: Some(git_dir),
                branch_name: branch.as_ref().map(|name| name.as_ref()),
            },
        ),
        ..Default::default()
    };

    let mut files = vec![(Source::System, system_config(git, environment))];
    files.extend(global_files(environment).into_iter().map(|(source, path)| (source, Some(path))));
    files.push((Source::Local, Some(common_dir.join("config"))));
    files.push((Source::Worktree, worktree_config(git_dir, common_dir)));

    let present = files.into_iter().filter_map(|(source, path)| Some((source, path.filter(|path| path.is_file())?)));
    let present: Vec<(Source, PathBuf)> = present.collect();
    // The function that reads them all does not report which of them is invalid.
    let culprit = || {
        let is_invalid =
            |(source, path): &&(Source, PathBuf)| File::from_path_no_includes(path.clone(), *source).is_err();
        present.iter().find(is_invalid).map(|(_, path)| format!("'{}' is not valid", path.display()))
    };
    // Git has already refused repositories whose owner it does not trust.
    let metadata = present.iter().cloned().map(|(source, path)| Metadata {
        path: Some(path),
        source,
        level: 0,
        trust: gix::sec::Trust::Full,
    });
    let failed = |e: gix::Error| ConfigError::Read(culprit().unwrap_or_else(|| e.to_string()));
    let mut config = File::from_paths_metadata(metadata, options).map_err(failed)?.unwrap_or_default();
    if let Some(overrides) = File::from_env(options).map_err(failed)? {
        config.append(overrides).map_err(failed)?;
    }
    // Conditions on other settings are evaluated by git.
    let asks_git = |section: gix::config::file::SectionRef<'_>| {
        section.header().subsection_name().is_some_and(|condition| condition.starts_with(b"hasconfig:"))
    };
    if config.sections_by_name("includeIf").into_iter().flatten().any(asks_git) {
        return ask_git(git_dir, environment);
    }
    Ok(config)
}

/// The branch that `includeIf.onbranch` compares with.
fn checked_out_branch(head: &[u8]) -> Option<gix::refs::FullName> {
    let name: gix::refs::FullName = "HEAD".try_into().ok()?;
    match Reference::try_from_path(name, head, gix::hash::Kind::Sha1).ok()?.target {
        gix::refs::Target::Symbolic(branch) => Some(branch),
        gix::refs::Target::Object(_) => None,
    }
}

fn worktree_config(git_dir: &Path, common_dir: &Path) -> Option<PathBuf> {
    let path = git_dir.join("config.worktree");
    if !path.is_file() {
        return None;
    }
    let local = File::from_path_no_includes(common_dir.join("config"), Source::Local).ok()?;
    let enabled = local.boolean("extensions.worktreeConfig").ok().flatten().unwrap_or(false);
    enabled.then_some(path)
}

/// The system configuration of the git that runs this hook. A git under `/usr` or `/usr/local` has it at the default
/// location; any other git is asked.
fn system_config(git: Option<&Path>, environment: &Environment) -> Option<PathBuf> {
    let off = environment.get(env::GIT_CONFIG_NOSYSTEM).and_then(|value| value.to_str());
    if off.is_some_and(|value| !matches!(value, "0" | "false" | "no" | "off")) {
        return None;
    }
    if let Some(path) = environment.path(env::GIT_CONFIG_SYSTEM) {
        return Some(path);
    }
    match git.and_then(prefix_of_git) {
        Some(prefix) if prefix == Path::new("/usr") => Some(PathBuf::from("/etc/gitconfig")),
        Some(prefix) if prefix == Path::new("/usr/local") => Some(prefix.join("etc/gitconfig")),
        _ => ask_git_for_system_config(environment),
    }
}

/// The prefix for which the git at `exe` was built, if it is git.
fn prefix_of_git(exe: &Path) -> Option<&Path> {
    let is_git = exe.file_name()?.to_str().is_some_and(|name| name == "git" || name.starts_with("git-"));
    let dir = exe.parent()?;
    let ends = ["bin", "libexec/git-core", "lib/git-core"];
    let depth = ends.iter().find(|end| dir.ends_with(end))?.split('/').count();
    is_git.then(|| dir.ancestors().nth(depth)).flatten()
}

fn ask_git_for_system_config(environment: &Environment) -> Option<PathBuf> {
    let asked = git(environment).args(["config", "--system", "--list", "--show-origin", "-z"]).output().ok()?;
    let origin = asked.stdout.split(|b| *b == 0).next()?.strip_prefix(b"file:")?;
    Some(PathBuf::from(OsString::from_vec(origin.to_vec())))
}

/// A git command with the variables that locate its files as in `environment`.
fn git(environment: &Environment) -> Command {
    let mut git = Command::new("git");
    for variable in FILE_VARIABLES {
        match environment.get(variable) {
            Some(value) => git.env(variable.name, value),
            None => git.env_remove(variable.name),
        };
    }
    git
}

const FILE_VARIABLES: [Variable; 6] = [
    env::HOME,
    env::XDG_CONFIG_HOME,
    env::GIT_CONFIG_GLOBAL,
    env::GIT_CONFIG_SYSTEM,
    env::GIT_CONFIG_NOSYSTEM,
    env::GIT_CONFIG_PARAMETERS,
];

/// The level and the file that git reports.
fn metadata_of(scope: &[u8], origin: &[u8]) -> Metadata {
    let source = match scope {
        b"system" => Source::System,
        b"global" => Source::User,
        b"local" => Source::Local,
        b"worktree" => Source::Worktree,
        _ => Source::Cli,
    };
    let path = origin.strip_prefix(b"file:").map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
    Metadata { path, source, level: 0, trust: gix::sec::Trust::Full }
}

fn ask_git(git_dir: &Path, environment: &Environment) -> Result<File, ConfigError> {
    let failed = |why: String| ConfigError::Git(why);
    let asked = git(environment)
        .arg("--git-dir")
        .arg(git_dir)
        .args(["config", "--list", "-z", "--show-scope", "--show-origin"])
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if !asked.status.success() {
        return Err(failed(git_fence_core::text::one_line(&asked.stderr, 200)));
    }
    let mut config = File::new(Metadata::api());
    let fields: Vec<&[u8]> = asked.stdout.split(|b| *b == 0).collect();
    for [scope, origin, entry] in fields.as_chunks().0 {
        let (key, value) = entry.split_once_str("\n").unwrap_or((*entry, b""));
        let Some((section, rest)) = key.split_once_str(".") else { continue };
        let (subsection, name) = match rest.rsplit_once_str(".") {
            Some((subsection, name)) => (Some(BString::from(subsection)), name),
            None => (None, rest),
        };
        let (Ok(section), Ok(name)) = (section.to_str(), name.to_str()) else { continue };
        let mut one = File::new(metadata_of(scope, origin));
        let made = one.new_section(section, subsection).and_then(|mut section| {
            section.push(name, Some(value.as_bstr()))?;
            Ok(())
        });
        made.and_then(|()| config.append(one).map(|_| ())).map_err(|e| failed(e.to_string()))?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_git_follows_from_its_path() {
        for (exe, prefix) in [
            ("/usr/bin/git", Some("/usr")),
            ("/usr/lib/git-core/git-receive-pack", Some("/usr")),
            ("/usr/local/libexec/git-core/git", Some("/usr/local")),
            ("/opt/git/bin/git", Some("/opt/git")),
            ("/usr/bin/dash", None),
            ("/srv/git", None),
        ] {
            assert_eq!(prefix_of_git(Path::new(exe)), prefix.map(Path::new), "{exe}");
        }
    }
}
