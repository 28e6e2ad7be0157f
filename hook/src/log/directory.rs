//! A directory in which no link is followed.
//!
//! Whoever owns a repository may put links wherever they like in it, and root runs these commands, too, as do
//! the other members of a group. So everything in `fence/` and `hooks/` is opened, made, renamed and removed
//! through here: relative to a directory that was opened as itself, never through a link, regular files only. What is
//! made is made new, and given to the directory's owner by its descriptor, never by its name.
//!
//! Here, in [`files`](crate::log::files) and where refs are read, the gate calls the operating system by itself: the
//! client opens nothing in this way. All else that is needed of it lies in `git-fence-system`.

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
    /// Opens the directory at `path`, which must not be a link itself; where it is reached from may be one.
    pub(crate) fn open(path: &Path) -> io::Result<Directory> {
        let opened = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        opened.map(Directory).map_err(|e| if is_link(path) { link(path) } else { e.into() })
    }

    /// Opens the directory at `path`, wherever a link of that name leads: the git directory is where its operator
    /// says that it is.
    pub(crate) fn open_as_named(path: &Path) -> io::Result<Directory> {
        Ok(Directory(rustix::fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens one that lies in this directory, and is no link.
    pub(crate) fn inner(&self, name: &OsStr) -> io::Result<Directory> {
        let opened = rustix::fs::openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        opened.map(Directory).map_err(|e| match self.look(name) {
            Ok(found) if kind(&found) == FileType::Symlink => link(Path::new(name)),
            _ => e.into(),
        })
    }

    /// Opens a regular file that is there.
    pub(crate) fn file(&self, name: &OsStr, purpose: For) -> io::Result<File> {
        let flags = FILE
            | match purpose {
                For::Reading => OFlags::RDONLY,
                For::Writing => OFlags::RDWR,
                For::Appending => OFlags::RDWR | OFlags::APPEND,
            };
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP => link(Path::new(name)),
            // What a pipe or a socket answers that has nobody at its other end.
            Errno::NXIO => irregular(),
            _ => e.into(),
        })?;
        let found = rustix::fs::fstat(&opened)?;
        if kind(&found) != FileType::RegularFile {
            return Err(irregular());
        }
        if purpose != For::Reading && self.is_anothers_by_hard_link(&found)? {
            return Err(io::Error::other("it is a hard link to a file of somebody else, and root writes to none"));
        }
        Ok(opened.into())
    }

    /// Makes a file that is not there yet: with these permissions, whatever the umask, and the directory's owner.
    pub(crate) fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let made = rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        give_to_owner(&made, &self.stat()?)?;
        Ok(made.into())
    }

    /// The same, over whatever was there: a name that is nobody else's to use.
    pub(crate) fn create_over(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.remove_if_there(name)?;
        self.create(name, mode)
    }

    /// Makes a directory in this one, with its owner and permissions. Says whether it was not there yet.
    ///
    /// It gets its name when it is ready: somebody else may be waiting to use it.
    pub(crate) fn make_inner(&self, name: &OsStr) -> io::Result<bool> {
        match self.inner(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            there => return there.map(|_| false),
        }
        let prefix = [name.as_bytes(), b".making-"].concat();
        // What somebody has left who was killed right here. Whoever is at it right now begins again.
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
            // Two at once: the other one was first, or has removed this one.
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
        // Between making and opening it, somebody may have put another in its place. An empty one is as good.
        if !made.names()?.is_empty() {
            return Err(io::Error::other("somebody else has put something into a directory that is just being made"));
        }
        let made = made.readable()?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(like.st_mode & 0o7777))?;
        give_to_owner(&made, &like)
    }

    /// Removes a directory that nothing is in.
    fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// What is there under `name`: of a link, the link.
    pub(crate) fn look(&self, name: &OsStr) -> io::Result<Stat> {
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

    /// Everything in it.
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

    /// Makes the names in it survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.readable()?)?)
    }

    /// To be listed, synced or changed: passing through needs less than that.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// Where the system lets everybody make hard links, a name in here may be one of root's own files.
    fn is_anothers_by_hard_link(&self, file: &Stat) -> io::Result<bool> {
        let is_root = rustix::process::geteuid().is_root();
        Ok(is_root && file.st_nlink > 1 && file.st_uid != self.stat()?.st_uid)
    }
}

/// Root works for others: what it makes belongs to whoever owns the directory.
fn give_to_owner(made: &OwnedFd, dir: &Stat) -> io::Result<()> {
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
    io::Error::other(format!("'{}' is a link, and no link is followed here", path.display()))
}

fn irregular() -> io::Error {
    io::Error::other("it is not a regular file")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what the methods under test are to withstand")]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_pipes_and_what_is_there_already_are_not_opened() {
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
        // A name that is nobody else's to use is taken back, and what it led to stays.
        dir.create_over("to-file".as_ref(), 0o640).unwrap();
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "content");
        assert!(fs::symlink_metadata(at("to-file")).unwrap().is_file());
    }
}
