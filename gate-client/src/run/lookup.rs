//! Whether a command can be started, found out before the remote is asked for a lease.
//!
//! It looks where the system would: a run that could never have started its command must say so even while another
//! run holds the lease. What only the start can tell (a file in no format that the system knows) is left to it.

use crate::{commands::context::shown, failure::Failure, surroundings::Environment};
use git_fence_system::{env, program::is_executable};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{ErrorKind, Read as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

/// The exit code for a command that is there and cannot be executed, and for one that is not there.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// The part of a script that the system reads to find its interpreter.
const FIRST_LINE: u64 = 256;

/// What keeps a file from being executed.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    Absent,
    Unusable(&'static str),
}

/// Fails if `program` cannot be started with this environment.
pub(crate) fn check(program: &OsStr, environment: &Environment) -> Result<(), Failure> {
    let path = environment.get(env::PATH);
    match obstacle(program, path) {
        None => Ok(()),
        Some(Obstacle::Unusable(why)) => Err(Failure::CannotStart {
            what: format!("cannot run '{}': {why}", shown(program)),
            hint: "nothing ran, and no lease was taken. The command must be an executable file".to_owned(),
            code: NOT_EXECUTABLE,
        }),
        Some(Obstacle::Absent) => Err(Failure::CannotStart {
            what: format!("command '{}' was not found: No such file or directory", shown(program)),
            hint: format!("nothing ran, and no lease was taken. {}", where_it_was_looked_for(program, path)),
            code: NOT_FOUND,
        }),
    }
}

fn where_it_was_looked_for(program: &OsStr, path: Option<&OsStr>) -> String {
    match path {
        Some(path) if !has_slash(program) => format!("Check the spelling; PATH is '{}'", shown(path)),
        _ => "Check the spelling".to_owned(),
    }
}

fn has_slash(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

/// Looks for the program as `execvp` does: a name without a slash in each directory of PATH.
fn obstacle(program: &OsStr, path: Option<&OsStr>) -> Option<Obstacle> {
    if program.is_empty() {
        return Some(Obstacle::Absent);
    }
    if has_slash(program) {
        return obstacle_at(Path::new(program));
    }
    let mut worst = Obstacle::Absent;
    for dir in std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
        match obstacle_at(&dir.join(program)) {
            None => return None,
            // A directory of PATH that cannot be searched holds no command for us.
            Some(Obstacle::Unusable(why)) if dir.join(program).exists() => worst = Obstacle::Unusable(why),
            Some(_) => {}
        }
    }
    Some(worst)
}

fn obstacle_at(file: &Path) -> Option<Obstacle> {
    let denied = Some(Obstacle::Unusable("Permission denied"));
    match file.metadata() {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => denied,
        Err(_) => Some(Obstacle::Absent),
        Ok(found) if !found.is_file() || !is_executable(file) => denied,
        Ok(_) => match interpreter(file) {
            Some(interpreter) if !interpreter.exists() => Some(Obstacle::Unusable("its interpreter was not found")),
            _ => None,
        },
    }
}

/// The interpreter of a script. None for a program, and for a file that may be executed but not read.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    (!name.is_empty()).then(|| OsString::from_vec(name.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn command_is_looked_for_as_the_system_does() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.into_os_string()
        };
        let good = file("b/good", "#! /bin/sh -e\n", 0o755);
        let plain = file("a/plain", "#!/bin/sh\n", 0o644);
        file("b/plain", "", 0o755);
        file("a/shut", "", 0o644);
        let lost = file("a/lost", "#!/no/such\n", 0o755);
        let path = OsString::from(format!("{0}/none:{0}/a:{0}/b", dir.path().display()));
        let look = |program: &OsStr| obstacle(program, Some(&path));
        let denied = Some(Obstacle::Unusable("Permission denied"));
        assert_eq!(look(&good), None);
        assert_eq!(look(OsStr::new("good")), None);
        assert_eq!(look(&plain), denied);
        assert_eq!(look(OsStr::new("plain")), None, "the next directory has one that can be executed");
        assert_eq!(look(OsStr::new("shut")), denied);
        assert_eq!(look(dir.path().as_os_str()), denied);
        assert_eq!(look(&lost), Some(Obstacle::Unusable("its interpreter was not found")));
        for absent in ["", "absent", "/absent", "./absent", "a/plain/x"] {
            assert_eq!(look(OsStr::new(absent)), Some(Obstacle::Absent), "{absent}");
        }
        assert_eq!(obstacle(OsStr::new("sh"), None), None);
    }
}
