//! The hook files: what git runs, and which of them belong to the gate.

use crate::{failure::CommandError, log::files};
/// Whether git would run it.
pub(crate) use git_fence_system::program::is_executable;
use std::{
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The gate's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Decides, before any ref moves.
    Gate,
    /// Records what moved, as soon as git reports it.
    Companion,
}

impl Part {
    /// Both, in the order of installation: a gate without its companion refuses every push, a companion without its gate
    /// does nothing.
    pub(crate) const BOTH: [Part; 2] = [Part::Companion, Part::Gate];

    /// Git's name for this hook.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Gate => "pre-receive",
            Part::Companion => "post-receive",
        }
    }

    /// Its file if a dispatcher runs a whole directory. The gate comes last, as close to the ref update as possible; the
    /// companion comes first, before another hook can undo the push.
    pub(crate) fn in_dispatcher(self) -> &'static str {
        match self {
            Part::Gate => "pre-receive.d/zz-git-fence",
            Part::Companion => "post-receive.d/00-git-fence",
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            Part::Gate => "Every push to guarded refs passes through it.",
            Part::Companion => "It records what each push has moved; without it the gate refuses every push.",
        }
    }
}

/// The line that identifies the gate's hooks.
const OURS: &str = "# git-fence: the gate of this repository";
/// Linux cuts the first line of a script at 255 bytes.
const LONGEST_SHEBANG: usize = 250;

/// What is at the path of a hook.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HookFile {
    Nothing,
    /// Written by some version of this program; its content.
    Ours(Vec<u8>),
    /// A file, or a link to anywhere.
    Others,
    /// Something that cannot be run or kept: a directory, a device.
    NoHook,
}

impl HookFile {
    /// Inspects `path`.
    pub(crate) fn at(path: &Path) -> Result<HookFile, CommandError> {
        let kind = match fs::symlink_metadata(path) {
            Err(e) if is_absent(&e) => return Ok(HookFile::Nothing),
            found => found.map_err(CommandError::io("read", path))?.file_type(),
        };
        if !kind.is_file() && !kind.is_symlink() {
            return Ok(HookFile::NoHook);
        }
        match fs::metadata(path) {
            // Git ignores a dangling link, but it is not ours to remove.
            Err(e) if is_absent(&e) => return Ok(HookFile::Others),
            Err(e) => return Err(CommandError::io("read", path)(e)),
            Ok(behind) if !behind.is_file() => return Ok(HookFile::NoHook),
            Ok(_) => {}
        }
        let content = files::read_hook(path).map_err(CommandError::io("read", path))?;
        let is_ours = content.split(|b| *b == b'\n').any(|line| line == OURS.as_bytes());
        Ok(if is_ours { HookFile::Ours(content) } else { HookFile::Others })
    }
}

/// Whether the hook at `path`, which is not the gate's, calls it.
pub(crate) fn calls(part: Part, path: &Path) -> bool {
    let call = format!("git-fence-hook {}", part.name());
    files::read_hook(path).is_ok_and(|content| content.windows(call.len()).any(|window| window == call.as_bytes()))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The hook is a script whose interpreter is this program: no shell is involved, and if the program is missing, git
/// cannot start the hook and refuses the push. A symbolic link would be dangling then, and git would treat it as no hook
/// and admit everything.
pub(crate) fn content(part: Part) -> Result<Vec<u8>, CommandError> {
    let program = std::env::current_exe().map_err(CommandError::io("find", "this program"))?;
    let path = program.as_os_str().as_bytes();
    let explanation = format!(
        "{OURS}\n# Written by 'git-fence-hook install'. {}\n\
         # Do not edit; settings are in git's configuration, under fence.*\n",
        part.purpose()
    );
    let name = part.name().as_bytes();
    let fits = path.len() + 1 + name.len() < LONGEST_SHEBANG && !path.iter().any(u8::is_ascii_whitespace);
    let first = if fits {
        [b"#!", path, b" ", name, b"\n"].concat()
    } else {
        // The path of the hook, which the kernel adds in the other form.
        [b"#!/bin/sh\nexec ", &quoted(path)[..], b" ", name, b" \"$0\"\n"].concat()
    };
    Ok([&first[..], explanation.as_bytes()].concat())
}

/// The program that one of the gate's hooks starts.
pub(crate) fn program_in(content: &[u8]) -> Option<PathBuf> {
    let mut lines = content.split(|b| *b == b'\n');
    let first = lines.next()?.strip_prefix(b"#!")?;
    let by_kernel = Part::BOTH.iter().find_map(|part| first.strip_suffix(format!(" {}", part.name()).as_bytes()));
    let path = match by_kernel {
        Some(path) => path.to_vec(),
        None => {
            let line = lines.next()?.strip_prefix(b"exec '")?;
            let end = line.windows(2).rposition(|two| two == b"' ")?;
            String::from_utf8_lossy(&line[..end]).replace("'\\''", "'").into_bytes()
        }
    };
    Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// Not `gix::quote::single`, which quotes `!` differently: all versions must be able to parse installed hooks.
fn quoted(path: &[u8]) -> Vec<u8> {
    let inner: Vec<u8> = path.iter().flat_map(|b| if *b == b'\'' { b"'\\''".to_vec() } else { vec![*b] }).collect();
    [b"'", &inner[..], b"'"].concat()
}

/// A new hook file next to its final path, executable from the start.
#[must_use = "it is removed when this is dropped"]
pub(crate) struct Staged {
    new: PathBuf,
    hook: PathBuf,
    /// The directory, if it was created for this.
    made: Option<PathBuf>,
}

impl Staged {
    /// Writes `content` next to `hook`.
    pub(crate) fn beside(hook: &Path, content: &[u8]) -> Result<Staged, CommandError> {
        let dir = hook.parent().unwrap_or(Path::new("."));
        let made = files::make_hooks_dir(dir).map_err(CommandError::io("make", dir))?;
        let new = beside(hook);
        let staged = Staged { new: new.clone(), hook: hook.to_owned(), made: made.then(|| dir.to_owned()) };
        files::write_program(&new, content).map_err(CommandError::io("write", &new))?;
        Ok(staged)
    }

    /// Renames it to its final path, replacing an existing file.
    pub(crate) fn put_in_place(mut self) -> Result<(), CommandError> {
        files::rename(&self.new, &self.hook).map_err(CommandError::io("write", &self.hook))?;
        self.made = None;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = files::remove(&self.new);
        if let Some(made) = &self.made {
            files::remove_dir(made);
        }
    }
}

/// The temporary file that is renamed to `hook`. Dispatchers run every file in their directory, so it must not be in
/// there.
pub(crate) fn beside(hook: &Path) -> PathBuf {
    let dir = hook.parent().unwrap_or(Path::new("."));
    let place = if dir.extension().is_some_and(|end| end == "d") { dir } else { hook };
    place.with_extension("git-fence-new")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_parsed_from_both_forms_of_a_hook() {
        let plain = b"#!/usr/local/bin/git-fence-hook pre-receive\n# more";
        assert_eq!(program_in(plain), Some("/usr/local/bin/git-fence-hook".into()));
        let companion = b"#!/usr/local/bin/git-fence-hook post-receive\n# more";
        assert_eq!(program_in(companion), Some("/usr/local/bin/git-fence-hook".into()));
        let by_shell = b"#!/bin/sh\nexec '/opt/it'\\''s mine/git-fence-hook' pre-receive \"$0\"\n";
        assert_eq!(program_in(by_shell), Some("/opt/it's mine/git-fence-hook".into()));
        assert_eq!(program_in(b"#!/bin/sh\nexit 0\n"), None);
        assert_eq!(program_in(b""), None);
    }
}
