//! The repository that is pushed from, and the remotes that it knows.

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
    /// Git, run in it.
    pub(crate) git: Git,
    /// What all its worktrees share.
    pub(crate) common_dir: PathBuf,
    pub(crate) hash: gix::hash::Kind,
}

/// A remote: how the user names it, where pushes to it go, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) route: Route,
}

/// What is configured for a remote by its name, and git would not apply to its URL, which is what we hand to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The programs on the other side, as arguments.
    pub(crate) receive_pack: Option<OsString>,
    pub(crate) upload_pack: Option<OsString>,
    /// The way to http(s), as settings of the URL.
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

    /// `git`, which finds the way to the URL as it would to the name.
    pub(crate) fn shown_to(&self, git: &mut Git) {
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
        let told = git.ask(args).map_err(|why| {
            Failure::usage(
                format!("this is not a repository that git can use: {why}"),
                "run it in a clone of the repository",
            )
        })?;
        let mut lines = told.lines();
        let common_dir = PathBuf::from(lines.next().unwrap_or_default());
        let hash = if lines.next() == Some("sha256") { gix::hash::Kind::Sha256 } else { gix::hash::Kind::Sha1 };
        // Relative URLs are relative to the top of the worktree.
        let top = lines.next().filter(|up| !up.is_empty()).map_or_else(|| cwd.to_owned(), |up| cwd.join(up));
        Ok(Local { git: Git { dir: top, ..git }, common_dir, hash })
    }

    /// The remote called `name`, or the one that there is.
    pub(crate) fn remote(&self, name: Option<&str>) -> Result<Remote, Failure> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.usual_remote()?,
        };
        if name.starts_with('-') || name.is_empty() {
            return Err(Failure::usage(
                format!("{} is not a remote", text::quoted(name.as_bytes())),
                "name one of  git remote",
            ));
        }
        match self.git.ask(["remote", "get-url", "--push", "--all", &name]) {
            Ok(urls) => match urls.lines().collect::<Vec<_>>()[..] {
                [url] => Ok(self.remote_at(&name, url)),
                _ => Err(Failure::usage(
                    format!("the remote '{name}' has several push URLs, and a lease lives in one repository"),
                    format!("name the URL:  --remote URL,  as in  git remote get-url --push --all {name}"),
                )),
            },
            Err(_) if name.contains(['/', ':']) => {
                // Git does not show the password that a URL may have, and neither do we.
                let shown = without_password(OsStr::new(&name)).to_string_lossy().into_owned();
                Ok(self.remote_at(&shown, &name))
            }
            Err(_) => Err(Failure::usage(
                format!("there is no remote of the name {}", text::quoted(name.as_bytes())),
                "git remote -v  lists those there are; a URL or a path will do as well",
            )),
        }
    }

    /// The remote called `name`, whose URL is known.
    pub(crate) fn remote_at(&self, name: &str, url: &str) -> Remote {
        let route = Route::of(&self.git, OsStr::new(name), OsStr::new(url));
        Remote { name: name.to_owned(), url: url.to_owned(), route }
    }

    fn usual_remote(&self) -> Result<String, Failure> {
        let listed = self.git.ask(["remote"]).unwrap_or_default();
        let remotes: Vec<&str> = listed.lines().collect();
        match remotes[..] {
            [only] => Ok(only.to_owned()),
            _ if remotes.contains(&"origin") => Ok("origin".to_owned()),
            [] => Err(Failure::usage("this repository has no remote", "name one:  --remote URL")),
            _ => Err(Failure::usage(
                format!("which remote? There are {}", remotes.join(", ")),
                "name one:  --remote NAME",
            )),
        }
    }
}
