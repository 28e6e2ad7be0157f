//! The local repository and its remotes.

use crate::{
    failure::Failure,
    git::{Git, address::without_password},
    surroundings::{Environment, GitSettings as _},
};
use git_fence_core::text;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The user's repository.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// Git, running in it.
    pub(crate) git: Git,
    /// The git directory that all its worktrees share.
    pub(crate) common_dir: PathBuf,
    pub(crate) hash: gix::hash::Kind,
}

/// A remote: its name for the user, its push URL, and how to get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) route: Route,
}

/// What is configured for a remote by name. We give git the URL, to which it would not apply these settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The programs on the other side, as arguments.
    pub(crate) receive_pack: Option<OsString>,
    pub(crate) upload_pack: Option<OsString>,
    /// The http proxy, as settings of the URL.
    proxy: Vec<(OsString, OsString)>,
}

impl Route {
    pub(crate) fn of(git: &Git, name: &OsStr, url: &OsStr) -> Route {
        let mut route = Route::default();
        if name == url {
            return route;
        }
        let keys = r"^remote\..*\.(proxy|proxyauthmethod|receivepack|uploadpack)$";
        let prefix = [b"remote.", name.as_bytes(), b"."].concat();
        for (key, value) in git.settings(&[], keys) {
            let Some(key) = key.as_bytes().strip_prefix(&*prefix) else { continue };
            let argument = |option: &str| Some([OsStr::new(option), &value].into_iter().collect());
            match key {
                b"receivepack" => route.receive_pack = argument("--receive-pack="),
                b"uploadpack" => route.upload_pack = argument("--upload-pack="),
                b"proxy" | b"proxyauthmethod" if url.as_bytes().starts_with(b"http") => {
                    let key = [OsStr::new("remote."), url, OsStr::new("."), OsStr::from_bytes(key)];
                    route.proxy.push((key.into_iter().collect(), value));
                }
                _ => {}
            }
        }
        route
    }

    /// Makes `git` reach the URL as it would reach the name.
    pub(crate) fn apply_to(&self, git: &mut Git) {
        if !self.proxy.is_empty() {
            let settings = [git.environment.settings(), self.proxy.clone()].concat();
            git.environment.set_settings(&settings);
        }
    }
}

impl Local {
    /// The repository that this process was started in.
    pub(crate) fn find(cwd: &Path, environment: &Environment) -> Result<Local, Failure> {
        let git = Git { dir: cwd.to_owned(), environment: environment.without_helper() };
        let args = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-object-format", "--show-cdup"];
        let output = git.ask(args).map_err(|why| {
            let why = why.to_string();
            if why.contains("dubious ownership") {
                let dir = cwd.display();
                return Failure::usage(
                    format!("git does not trust the repository at '{dir}': it belongs to another user"),
                    format!(
                        "run this as its owner, or trust it with  git config --global --add safe.directory '{dir}'"
                    ),
                );
            }
            Failure::usage(format!("not in a usable git repository: {why}"), "run this in a clone of the repository")
        })?;
        let mut lines = output.lines();
        let common_dir = PathBuf::from(lines.next().unwrap_or_default());
        let hash = if lines.next() == Some("sha256") { gix::hash::Kind::Sha256 } else { gix::hash::Kind::Sha1 };
        // Relative URLs are relative to the top of the worktree.
        let top = lines.next().filter(|up| !up.is_empty()).map_or_else(|| cwd.to_owned(), |up| cwd.join(up));
        Ok(Local { git: Git { dir: top, ..git }, common_dir, hash })
    }

    /// The remote `name`, or the default remote.
    pub(crate) fn remote(&self, name: Option<&str>) -> Result<Remote, Failure> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.default_remote()?,
        };
        if name.starts_with('-') || name.is_empty() {
            return Err(Failure::usage(
                format!("{} is not a remote", text::quoted(name.as_bytes())),
                "run  git remote -v  to list the remotes",
            ));
        }
        match self.git.ask(["remote", "get-url", "--push", "--all", &name]) {
            Ok(urls) => match urls.lines().collect::<Vec<_>>()[..] {
                [url] => Ok(self.remote_at(&name, url)),
                _ => Err(Failure::usage(
                    format!("remote '{name}' has several push URLs, but a lease is kept in one repository"),
                    format!("name one with  --remote URL;  git remote get-url --push --all {name}  lists them"),
                )),
            },
            Err(_) if name.contains(['/', ':']) => {
                // Like git, do not show a password in the URL.
                let shown = without_password(OsStr::new(&name)).to_string_lossy().into_owned();
                Ok(self.remote_at(&shown, &name))
            }
            Err(_) => Err(Failure::usage(
                format!("no such remote {}", text::quoted(name.as_bytes())),
                "run  git remote -v  to list the remotes; a URL or a path works as well",
            )),
        }
    }

    /// The remote `name` with a known URL.
    pub(crate) fn remote_at(&self, name: &str, url: &str) -> Remote {
        let route = Route::of(&self.git, OsStr::new(name), OsStr::new(url));
        Remote { name: name.to_owned(), url: url.to_owned(), route }
    }

    fn default_remote(&self) -> Result<String, Failure> {
        let listed = self.git.ask(["remote"]).unwrap_or_default();
        let remotes: Vec<&str> = listed.lines().collect();
        match remotes[..] {
            [only] => Ok(only.to_owned()),
            _ if remotes.contains(&"origin") => Ok("origin".to_owned()),
            [] => Err(Failure::usage("this repository has no remote", "name one with  --remote URL")),
            _ => Err(Failure::usage(
                format!("no default remote: there are {}", remotes.join(", ")),
                "name one with  --remote NAME",
            )),
        }
    }
}
