//! A directory in which no link is followed.
//!
//! The owner of a repository can put links anywhere in it, but root and other members of a group run these commands too.
//! So everything in `fence/` and `hooks/` is opened, created, renamed and removed through this module: relative to a
//! directory opened as itself, never through a link, and only regular files. New files are created exclusively and given
//! to the directory's owner by file descriptor, never by name.
//!
//! This module, [`files`](crate::log::files) and the code that reads refs are the only ones of the gate that call the
//! operating system directly: the client opens no files in this way. Everything else is in `git-fence-system`.

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
    Appending,
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Directory {
    /// Opens the directory at `path`, which must not be a link itself; its parents may be.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let opened = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        opened.map(Directory).map_err(|e| if is_link(path) { link(path) } else { e.into() })
    }

    /// Opens the directory at `path`, and follows a link of that name: the operator decides where the git directory is.
    pub(crate) fn open_as_named(path: &Path) -> io::Result<Directory> {
        Ok(Directory(rustix::fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory in this one, which must not be a link.
    pub(crate) fn inner(&self, name: &OsStr) -> io::Result<Directory> {
        let opened = rustix::fs::openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        opened.map(Directory).map_err(|e| match self.stat_of(name) {
            Ok(found) if kind(&found) == FileType::Symlink => link(Path::new(name)),
            _ => e.into(),
        })
    }

    /// Opens an existing regular file.
    pub(crate) fn file(&self, name: &OsStr, purpose: For) -> io::Result<File> {
        let flags = FILE
            | match purpose {
                For::Reading => OFlags::RDONLY,
                For::Writing => OFlags::RDWR,
                For::Appending => OFlags::RDWR | OFlags::APPEND,
            };
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP => link(Path::new(name)),
            // The result for a pipe or socket without a peer.
            Errno::NXIO => irregular(),
            _ => e.into(),
        })?;
        let found = rustix::fs::fstat(&opened)?;
        if kind(&found) != FileType::RegularFile {
            return Err(irregular());
        }
        if purpose != For::Reading && self.is_foreign_hard_link(&found)? {
            return Err(io::Error::other("it is a hard link to another user's file, and root does not write to those"));
        }
        Ok(opened.into())
    }

    /// Creates a new file with these permissions, regardless of the umask, and the directory's owner.
    pub(crate) fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let made = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        chown_to_owner(&made, &self.stat()?)?;
        Ok(made.into())
    }

    /// The same, replacing an existing file: for names that only this program uses.
    pub(crate) fn create_over(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.remove_if_there(name)?;
        self.create(name, mode)
    }

    /// Creates a directory in this one, with the same owner and permissions. Returns whether it is new.
    ///
    /// It gets its name when it is complete: another process may be waiting to use it.
    pub(crate) fn make_inner(&self, name: &OsStr) -> io::Result<bool> {
        match self.inner(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            there => return there.map(|_| false),
        }
        let prefix = [name.as_bytes(), b".making-"].concat();
        // Remove what a killed process has left. A process that is at this point right now starts over.
        for left in self.names()?.iter().filter(|left| left.as_bytes().starts_with(&prefix)) {
            let _ = self.remove_empty(left);
        }
        let making = OsString::from_vec([&prefix[..], std::process::id().to_string().as_bytes()].concat());
        let made = self.prepare(&making).and_then(|()| self.rename(&making, self, name));
        if made.is_err() {
            let _ = self.remove_empty(&making);
        }
        match made {
            Ok(()) => Ok(true),
            // Another process was faster, or has removed this one.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => self.inner(name).map(|_| false),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                self.make_inner(name)
            }
            Err(e) => Err(e),
        }
    }

    fn prepare(&self, name: &OsStr) -> io::Result<()> {
        rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?;
        let (made, like) = (self.inner(name)?, self.stat()?);
        // Another process may have replaced it before it was opened. An empty replacement is as good.
        if !made.names()?.is_empty() {
            return Err(io::Error::other("another process has created files in a directory that is being created"));
        }
        let made = made.readable()?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(like.st_mode & 0o7777))?;
        chown_to_owner(&made, &like)
    }

    /// Removes an empty directory.
    fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// The status of `name`; of a link, the link itself.
    pub(crate) fn stat_of(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The directory itself.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.0)?)
    }

    pub(crate) fn rename(&self, name: &OsStr, to: &Directory, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &to.0, new)?)
    }

    pub(crate) fn hard_link(&self, name: &OsStr, to: &Directory, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name, &to.0, new, AtFlags::empty())?)
    }

    pub(crate) fn symlink(&self, target: &Path, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    pub(crate) fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(OsString::from_vec(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes()))
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    pub(crate) fn remove_if_there(&self, name: &OsStr) -> io::Result<()> {
        match self.remove(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// The names of all entries.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(&name).to_owned());
            }
        }
        Ok(names)
    }

    /// Makes the names in it survive a machine crash.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.readable()?)?)
    }

    /// A descriptor to list, sync or change the directory: opening files in it needs less permission.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// If the system lets everybody create hard links, a name in here may be a link to one of root's own files.
    fn is_foreign_hard_link(&self, file: &Stat) -> io::Result<bool> {
        let is_root = rustix::process::geteuid().is_root();
        Ok(is_root && file.st_nlink > 1 && file.st_uid != self.stat()?.st_uid)
    }
}

/// Root works for others: new files belong to the directory's owner.
fn chown_to_owner(made: &OwnedFd, dir: &Stat) -> io::Result<()> {
    if rustix::process::geteuid().is_root() && rustix::fs::fstat(made)?.st_uid != dir.st_uid {
        rustix::fs::fchown(made, Some(Uid::from_raw(dir.st_uid)), Some(Gid::from_raw(dir.st_gid)))?;
    }
    Ok(())
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_link(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|found| kind(&found) == FileType::Symlink)
}

fn link(path: &Path) -> io::Error {
    io::Error::other(format!("'{}' is a link, and links are not followed here", path.display()))
}

fn irregular() -> io::Error {
    io::Error::other("it is not a regular file")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "creates what the methods under test must refuse")]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_pipes_and_existing_files_are_not_opened() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::write(at("file"), "content").unwrap();
        fs::create_dir(at("dir")).unwrap();
        symlink("file", at("to-file")).unwrap();
        symlink("nowhere", at("to-nowhere")).unwrap();
        symlink("dir", at("to-dir")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let dir = Directory::open(temp.path()).unwrap();
        for purpose in [For::Reading, For::Writing, For::Appending] {
            assert!(dir.file("file".as_ref(), purpose).is_ok());
            for name in ["to-file", "to-nowhere", "pipe", "dir"] {
                assert!(dir.file(name.as_ref(), purpose).is_err(), "{name} {purpose:?}");
            }
        }
        for name in ["file", "to-file", "to-nowhere", "pipe", "dir"] {
            assert!(dir.create(name.as_ref(), 0o600).is_err(), "{name}");
        }
        assert!(!at("nowhere").exists());
        assert!(Directory::open(&at("to-dir")).unwrap_err().to_string().contains("is a link"));
        assert!(dir.inner("to-dir".as_ref()).unwrap_err().to_string().contains("is a link"));
        assert!(dir.make_inner("to-dir".as_ref()).is_err() && dir.make_inner("to-nowhere".as_ref()).is_err());
        assert!(dir.make_inner("new".as_ref()).unwrap() && !dir.make_inner("new".as_ref()).unwrap());
        // A name that only this program uses is replaced, and the link's target stays.
        dir.create_over("to-file".as_ref(), 0o640).unwrap();
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "content");
        assert!(fs::symlink_metadata(at("to-file")).unwrap().is_file());
    }
}
