//! The repository that is pushed from, and the remotes that it knows.

use crate::{failure::Failure, git::Git, surroundings::Environment};
use git_fence_core::text;
use std::path::{Path, PathBuf};

/// The user's repository.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// Git, run in it.
    pub(crate) git: Git,
    /// What all its worktrees share.
    pub(crate) common_dir: PathBuf,
    pub(crate) hash: gix::hash::Kind,
}

/// A remote: how the user names it, and where pushes to it go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) url: String,
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
                [url] => Ok(Remote { name, url: url.to_owned() }),
                _ => Err(Failure::usage(
                    format!("the remote '{name}' has several push URLs, and a lease lives in one repository"),
                    format!("name the URL:  --remote URL,  as in  git remote get-url --push --all {name}"),
                )),
            },
            Err(_) if name.contains(['/', ':']) => Ok(Remote { url: name.clone(), name }),
            Err(_) => Err(Failure::usage(
                format!("there is no remote of the name {}", text::quoted(name.as_bytes())),
                "git remote -v  lists those there are; a URL or a path will do as well",
            )),
        }
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
