//! The fence's directory, the files in it, and the hook files. All of them are accessed through [`Directory`], which
//! follows no link.

use crate::log::directory::{Directory, For, kind};
use rustix::fs::FileType;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// `fence/` inside the git directory.
#[derive(Debug, Clone)]
pub(crate) struct FenceDir(PathBuf);

impl FenceDir {
    pub(crate) fn at(path: PathBuf) -> FenceDir {
        FenceDir(path)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// The only lock.
    pub(crate) fn mutex(&self) -> PathBuf {
        self.0.join("mutex")
    }

    /// The second lock: it excludes two holders of two mutexes, if the first mutex was deleted while it was held.
    pub(crate) fn writer(&self) -> PathBuf {
        self.0.join("writer")
    }

    /// Locked during install and uninstall, and removed afterwards.
    pub(crate) fn installing(&self) -> PathBuf {
        self.0.join("installing")
    }

    /// The archive for the lines up to `seq`. The names sort like the lines.
    pub(crate) fn archive(&self, seq: u64) -> PathBuf {
        self.0.join(format!("audit-{seq:012}.jsonl"))
    }

    /// The archives, oldest first.
    pub(crate) fn archives(&self) -> io::Result<Vec<PathBuf>> {
        let is_archive = |name: &&OsString| {
            let digits = name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
            digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        };
        let mut found: Vec<PathBuf> = self.names()?.iter().filter(is_archive).map(|name| self.0.join(name)).collect();
        found.sort();
        Ok(found)
    }

    /// The changes of `install` besides the hooks, for `uninstall`.
    pub(crate) fn changes(&self) -> PathBuf {
        self.0.join("installed.json")
    }

    /// The refs when the gate was installed.
    pub(crate) fn known_refs(&self) -> PathBuf {
        self.0.join("refs-at-install")
    }

    /// The complete ref list of a large push, until it is settled.
    pub(crate) fn plan_of(&self, push: git_fence_core::PushId) -> PathBuf {
        self.0.join(format!("plan-{push}.jsonl"))
    }

    /// A new file for a torn last line of the log, which began at byte `offset`.
    pub(crate) fn free_name_for_torn(&self, offset: u64) -> PathBuf {
        let first = std::iter::once(format!("torn-{offset}"));
        let names = first.chain((2_u64..).map(|n| format!("torn-{offset}-{n}")));
        let mut free = names.map(|name| self.0.join(name)).filter(|path| !self.has(path));
        free.next().unwrap_or_else(|| self.0.join("torn"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The names of all files in it.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        Directory::open(&self.0)?.names()
    }

    /// Whether it has a file of this name.
    pub(crate) fn has(&self, path: &Path) -> bool {
        Directory::open(&self.0).and_then(|dir| dir.stat_of(name_of(path))).is_ok()
    }

    /// Whether `path`, the directory itself or a file in it, exists but is a link or something else that is not opened.
    pub(crate) fn is_irregular(&self, path: &Path) -> bool {
        let (found, expected) = if path == self.0 {
            (rustix::fs::lstat(path).map_err(io::Error::from), FileType::Directory)
        } else {
            (Directory::open(&self.0).and_then(|dir| dir.stat_of(name_of(path))), FileType::RegularFile)
        };
        found.is_ok_and(|found| kind(&found) != expected)
    }

    /// Creates the directory, with the owner and permissions of the git directory. Returns whether it is new.
    pub(crate) fn make(&self) -> io::Result<bool> {
        Directory::open_as_named(self.0.parent().unwrap_or(Path::new("/")))?.make_inner(name_of(&self.0))
    }

    /// Removes it with all its content; of a link, only the link.
    pub(crate) fn remove_all(&self) {
        #[expect(clippy::disallowed_methods, reason = "follows no link, neither the argument nor below it")]
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Removes it if it is empty.
    pub(crate) fn remove_if_empty(&self) {
        #[expect(clippy::disallowed_methods, reason = "removes no link and no directory in use")]
        let _ = fs::remove_dir(&self.0);
    }

    pub(crate) fn open(&self, path: &Path, purpose: For) -> io::Result<File> {
        Directory::open(&self.0)?.file(name_of(path), purpose)
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path, For::Reading)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        Directory::open(&self.0)?.remove_if_there(name_of(path))
    }

    /// Gives the file at `path` a second name.
    pub(crate) fn link(&self, path: &Path, second: &Path) -> io::Result<()> {
        let dir = Directory::open(&self.0)?;
        dir.hard_link(name_of(path), &dir, name_of(second))
    }

    /// Opens a lock file, and creates it if it is missing. A process that can open it can lock it, so only users who may
    /// write the directory can open it. If an earlier version or a `chmod -R` gave others access, this removes it.
    pub(crate) fn lock_file(&self, path: &Path) -> io::Result<File> {
        let dir = Directory::open(&self.0)?;
        let mode = mode_of_locks(dir.stat()?.st_mode);
        let opened = match dir.file(name_of(path), For::Writing) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => match dir.create(name_of(path), mode) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => dir.file(name_of(path), For::Writing),
                made => return made,
            },
            opened => opened,
        };
        let file = opened?;
        let found = rustix::fs::fstat(&file)?;
        let euid = rustix::process::geteuid();
        if is_too_open(found.st_mode, mode) && (euid.is_root() || found.st_uid == euid.as_raw()) {
            rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))?;
        }
        Ok(file)
    }

    /// If readers can open the lock file at `path`: the permissions that it should have.
    pub(crate) fn lets_readers_lock(&self, path: &Path) -> Option<u32> {
        let dir = Directory::open(&self.0).ok()?;
        let mode = mode_of_locks(dir.stat().ok()?.st_mode);
        dir.stat_of(name_of(path)).is_ok_and(|found| is_too_open(found.st_mode, mode)).then_some(mode)
    }

    /// Whether `path` is the file that is open as `file`.
    pub(crate) fn leads_to(&self, path: &Path, file: &File) -> bool {
        let named = Directory::open(&self.0).and_then(|dir| dir.stat_of(name_of(path)));
        match (named, file.metadata()) {
            (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.dev(), open.ino()),
            _ => false,
        }
    }

    /// Makes the names of the files in it survive a machine crash.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Directory::open(&self.0)?.sync()
    }

    /// Replaces a file atomically: readers see the old content or the new one.
    pub(crate) fn replace(&self, path: &Path, content: &[u8], durably: bool) -> io::Result<()> {
        check_size_limit(content.len() as u64)?;
        let dir = Directory::open(&self.0)?;
        let new = path.with_extension("new");
        let written = dir.create_over(name_of(&new), dir.stat()?.st_mode & 0o666).and_then(|mut file| {
            file.write_all(content)?;
            if durably { file.sync_all() } else { Ok(()) }
        });
        let replaced = written.and_then(|()| dir.rename(name_of(&new), &dir, name_of(path)));
        if replaced.is_err() {
            let _ = dir.remove(name_of(&new));
        }
        replaced
    }
}

/// Read and write permission for those who may write a directory of mode `dir`, none for others.
fn mode_of_locks(dir: u32) -> u32 {
    let write = dir & 0o222;
    write | write << 1
}

/// Whether more users can open it than should.
fn is_too_open(found: u32, wanted: u32) -> bool {
    found & 0o044 & !wanted != 0
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// The hooks directory that contains `path`.
fn dir_of(path: &Path) -> io::Result<Directory> {
    hooks_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Opens a hooks directory. If it is inside another one, that one is not opened through a link either.
fn hooks_dir(dir: &Path) -> io::Result<Directory> {
    match dir.parent() {
        Some(hooks) if is_among_hooks(dir) => Directory::open(hooks)?.inner(name_of(dir)),
        _ => Directory::open(dir),
    }
}

fn is_among_hooks(dir: &Path) -> bool {
    dir.extension().is_some_and(|end| end == "d") || name_of(dir) == KEPT
}

/// The directory next to the gate's hook that keeps the previous hook.
pub(crate) const KEPT: &str = "kept-by-git-fence";

/// Creates the hooks directory `dir` and its missing parents. Returns whether it is new.
pub(crate) fn make_hooks_dir(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().unwrap_or(Path::new("/"));
    if !parent.is_dir() && is_among_hooks(dir) {
        make_hooks_dir(parent)?;
    } else if !parent.is_dir() {
        #[expect(clippy::disallowed_methods, reason = "above the hooks: where core.hooksPath was set to")]
        fs::create_dir_all(parent)?;
    }
    let parent = if is_among_hooks(dir) { Directory::open(parent) } else { Directory::open_as_named(parent) };
    parent?.make_inner(name_of(dir))
}

/// Writes a file that everybody may execute, replacing an existing one.
pub(crate) fn write_program(path: &Path, content: &[u8]) -> io::Result<()> {
    dir_of(path)?.create_over(name_of(path), 0o755)?.write_all(content)
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    dir_of(path)?.remove(name_of(path))
}

pub(crate) fn remove_dir(path: &Path) {
    #[expect(clippy::disallowed_methods, reason = "removes no link and no directory in use")]
    let _ = fs::remove_dir(path);
}

pub(crate) fn rename(path: &Path, to: &Path) -> io::Result<()> {
    dir_of(path)?.rename(name_of(path), &dir_of(to)?, name_of(to))
}

pub(crate) fn hard_link(path: &Path, second: &Path) -> io::Result<()> {
    dir_of(path)?.hard_link(name_of(path), &dir_of(second)?, name_of(second))
}

/// Copies a regular file, with its permissions, to a new name.
pub(crate) fn copy(path: &Path, to: &Path) -> io::Result<()> {
    let mut from = dir_of(path)?.file(name_of(path), For::Reading)?;
    let mut made = dir_of(to)?.create(name_of(to), from.metadata()?.mode() & 0o777)?;
    io::copy(&mut from, &mut made).map(|_| ())
}

pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    dir_of(path)?.symlink(target, name_of(path))
}

/// The target of the link at `path`.
pub(crate) fn read_link(path: &Path) -> io::Result<PathBuf> {
    Ok(dir_of(path)?.read_link(name_of(path))?.into())
}

/// The names of all files in the hooks directory `dir`.
pub(crate) fn names_in(dir: &Path) -> io::Result<Vec<OsString>> {
    hooks_dir(dir)?.names()
}

/// Reads the hook at `path`, which may be a link to any file: git would run it. This is the only file that is read
/// through a link, and it is never written.
pub(crate) fn read_hook(path: &Path) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    #[expect(clippy::disallowed_methods, reason = "see above")]
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if kind(&rustix::fs::fstat(&file)?) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(LONGEST_HOOK).read_to_end(&mut content)?;
    Ok(content)
}

/// A hook is read only up to this size.
const LONGEST_HOOK: u64 = 64 * 1024 * 1024;

/// Checks that a file may grow to `size`. This comes before writing, because beyond the limit the kernel sends a signal
/// that ends the process before it can report anything.
pub(crate) fn check_size_limit(size: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if size > limit => Err(io::ErrorKind::FileTooLarge.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_who_may_write_the_directory_may_open_its_locks() {
        for (dir, lock) in [(0o755, 0o600), (0o2775, 0o660), (0o777, 0o666), (0o700, 0o600), (0o2770, 0o660)] {
            assert_eq!(mode_of_locks(dir), lock, "{dir:o}");
        }
        for (found, wanted, is_open) in
            [(0o644, 0o600, true), (0o600, 0o600, false), (0o664, 0o660, true), (0o604, 0o660, true), (0, 0o600, false)]
        {
            assert_eq!(is_too_open(found, wanted), is_open, "{found:o} {wanted:o}");
        }
    }
}
