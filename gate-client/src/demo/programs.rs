//! The programs of the play: this one, the gate and the remote helper.

use crate::{demo::voice::Voice, failure::Failure, surroundings::Environment};
use git_fence_system::{env, program};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where the programs are.
pub(super) struct Programs {
    pub(super) fence: PathBuf,
    pub(super) hook: PathBuf,
    pub(super) helper: PathBuf,
}

/// What is not there.
struct Missing(&'static str);

impl Programs {
    /// Finds them beside this program, or else in the PATH. Under `cargo run`, which builds only this one, the others
    /// are built.
    pub(super) fn find(environment: &Environment, voice: &Voice) -> Result<Programs, Failure> {
        let own = program::own();
        let own =
            own.canonicalize().map_err(|e| Failure::broken("cannot find this program", "try again").because(e))?;
        Programs::around(&own, environment).or_else(|Missing(name)| {
            if !is_built(&own, environment, voice) {
                return Err(missing(name));
            }
            Programs::around(&own, environment).map_err(|Missing(name)| missing(name))
        })
    }

    fn around(own: &Path, environment: &Environment) -> Result<Programs, Missing> {
        let path = environment.get(env::PATH).unwrap_or_default();
        let find = |name: &'static str| {
            let dirs = own.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
            let is_there = |file: &PathBuf| file.is_file() && program::is_executable(file);
            dirs.map(|dir| dir.join(name)).find(is_there).ok_or(Missing(name))
        };
        Ok(Programs { fence: own.to_owned(), hook: find("git-fence-hook")?, helper: find("git-remote-fence")? })
    }
}

/// Builds the other programs where cargo has started this one.
fn is_built(own: &Path, environment: &Environment, voice: &Voice) -> bool {
    let (Some(cargo), Some(sources)) = (environment.get(env::CARGO), environment.path(env::CARGO_MANIFEST_DIR)) else {
        return false;
    };
    voice.aside("building git-fence-hook and git-remote-fence, which cargo run leaves out");
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "--bins", "--profile", profile_of(own)]);
    build.arg("--manifest-path").arg(sources.join("Cargo.toml")).stdin(Stdio::null());
    environment.give_to(&mut build);
    build.status().is_ok_and(|status| status.success())
}

/// The profile that the program was built with, by the directory that it is in.
fn profile_of(own: &Path) -> &str {
    match own.parent().and_then(Path::file_name).and_then(OsStr::to_str) {
        None | Some("debug") => "dev",
        Some(profile) => profile,
    }
}

fn missing(name: &str) -> Failure {
    Failure::broken(
        format!("'{name}' is neither beside this program nor in the PATH"),
        "install all three programs:  cargo install --locked --path .",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_named_by_the_directory() {
        assert_eq!(profile_of(Path::new("/app/target/debug/git-fence")), "dev");
        assert_eq!(profile_of(Path::new("/app/target/x86_64-unknown-linux-musl/release/git-fence")), "release");
        assert_eq!(profile_of(Path::new("git-fence")), "dev");
    }
}
