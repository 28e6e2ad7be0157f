//! The directory that a key is bound to.

use crate::failure::CommandError;
use git_fence_core::text;
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The repository that a client names, if it is below `root`, with all links resolved. What is outside is reported like
/// what does not exist, so that a client cannot find out what is there.
pub(crate) fn below(root: &Path, named: &OsStr) -> Result<PathBuf, CommandError> {
    let root = fs::canonicalize(root).map_err(CommandError::io("read", root))?;
    let found = spellings(named).find_map(|name| fs::canonicalize(root.join(name)).ok());
    found.filter(|found| *found != root && found.starts_with(&root)).ok_or_else(|| CommandError::Other {
        what: format!("there is no repository {} for this key", text::quoted(named.as_bytes())),
        hint: "name a repository by its path from the directory that the server's operator has set for this key"
            .to_owned(),
    })
}

/// Git finds `app.git` by the name `app`, too.
fn spellings(named: &OsStr) -> impl Iterator<Item = OsString> {
    let mut with_suffix = named.to_owned();
    with_suffix.push(".git");
    [named.to_owned(), with_suffix].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn only_what_is_below_the_directory_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(temp.path()).unwrap();
        for repository in ["git/app.git", "git/team/web.git", "git-other/app.git", "secret.git"] {
            fs::create_dir_all(dir.join(repository)).unwrap();
        }
        symlink(dir.join("secret.git"), dir.join("git/out.git")).unwrap();
        let (root, inside) = (dir.join("git"), |path: &str| Some(dir.join("git").join(path)));
        let absolute = |path: &str| dir.join(path).into_os_string();
        for (named, found) in [
            ("app.git".into(), inside("app.git")),
            ("app".into(), inside("app.git")),
            ("team/../team/web.git/".into(), inside("team/web.git")),
            (absolute("git/app.git"), inside("app.git")),
            (absolute("git/app"), inside("app.git")),
            ("..".into(), None),
            (".".into(), None),
            ("../git/app.git".into(), inside("app.git")),
            ("../secret.git".into(), None),
            ("../secret".into(), None),
            ("out.git".into(), None),
            ("../git-other/app.git".into(), None),
            (absolute("secret.git"), None),
            ("~/app.git".into(), None),
            ("gone.git".into(), None),
        ] {
            assert_eq!(below(&root, &named).ok(), found, "{}", named.display());
        }
    }
}
