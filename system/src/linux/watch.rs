//! Waiting until a process ends or a file is put in its place: a pidfd and inotify.

use crate::process::ProcessHandle;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// A watch on one name of a directory.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
    name: OsString,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The process has ended.
    ByProcess,
    /// The file was put in its place, or removed.
    ByFile,
    /// Neither is known to have happened.
    ByTime,
}

impl FileWatch {
    /// Watches for a file that is renamed to `path`, or removed from there. The file need not exist; its directory must.
    pub fn on(path: &Path) -> io::Result<FileWatch> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&inotify, directory, WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR)?;
        Ok(FileWatch { inotify, name: name.to_owned() })
    }

    /// Whether it happened since it was last asked. Does not wait.
    fn has_happened(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        let mut happened = false;
        while let Ok(event) = events.next() {
            // Without a name, events were dropped, or the directory is gone.
            happened |= event.file_name().is_none_or(|name| OsStr::from_bytes(name.to_bytes()) == self.name);
        }
        happened
    }
}

/// Waits until the process ends, or the file is put in its place, or `most` has passed.
pub fn wait_for_any(process: Option<&ProcessHandle>, file: Option<&FileWatch>, most: Duration) -> Woken {
    let start = Instant::now();
    loop {
        let left = most.saturating_sub(start.elapsed());
        match poll_both(process, file, left) {
            Ok(Woken::ByFile) if !file.is_some_and(FileWatch::has_happened) => {}
            Ok(woken) => return woken,
            // What cannot be polled is waited for by the clock.
            Err(_) => {
                thread::sleep(left);
                return Woken::ByTime;
            }
        }
    }
}

fn poll_both(process: Option<&ProcessHandle>, file: Option<&FileWatch>, most: Duration) -> io::Result<Woken> {
    let timeout = Timespec::try_from(most).map_err(io::Error::other)?;
    let process = process.map(|process| (PollFd::new(process, PollFlags::IN), Woken::ByProcess));
    let file = file.map(|file| (PollFd::new(&file.inotify, PollFlags::IN), Woken::ByFile));
    let (mut polled, meanings): (Vec<_>, Vec<_>) = process.into_iter().chain(file).unzip();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let ready = polled.iter().zip(meanings).find(|(fd, _)| !fd.revents().is_empty());
    Ok(ready.map_or(Woken::ByTime, |(_, meaning)| meaning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Pid;
    use std::{fs, process::Command};

    /// Longer than any test may run.
    const NEVER: Duration = Duration::from_secs(600);
    const AT_ONCE: Duration = Duration::ZERO;

    /// How git writes a ref.
    fn write_ref(path: &Path) {
        let lock = path.with_extension("lock");
        fs::write(&lock, "value").unwrap();
        fs::rename(&lock, path).unwrap();
    }

    #[test]
    fn file_that_is_put_in_its_place_wakes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main");
        let watch = FileWatch::on(&path).unwrap();
        assert_eq!(wait_for_any(None, Some(&watch), AT_ONCE), Woken::ByTime);
        let writer = thread::spawn({
            let path = path.clone();
            move || write_ref(&path)
        });
        assert_eq!(wait_for_any(None, Some(&watch), NEVER), Woken::ByFile);
        writer.join().unwrap();
        assert_eq!(wait_for_any(None, Some(&watch), AT_ONCE), Woken::ByTime, "it is told once");
        fs::remove_file(&path).unwrap();
        assert_eq!(wait_for_any(None, Some(&watch), NEVER), Woken::ByFile);
    }

    #[test]
    fn other_names_do_not_wake() {
        let dir = tempfile::tempdir().unwrap();
        let watch = FileWatch::on(&dir.path().join("main")).unwrap();
        write_ref(&dir.path().join("next"));
        assert_eq!(wait_for_any(None, Some(&watch), AT_ONCE), Woken::ByTime);
    }

    #[test]
    fn end_of_the_process_wakes() {
        let dir = tempfile::tempdir().unwrap();
        let watch = FileWatch::on(&dir.path().join("main")).unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = ProcessHandle::open(Pid::from_child(&child)).unwrap();
        assert_eq!(wait_for_any(Some(&handle), Some(&watch), AT_ONCE), Woken::ByTime);
        child.kill().unwrap();
        assert_eq!(wait_for_any(Some(&handle), Some(&watch), NEVER), Woken::ByProcess);
        child.wait().unwrap();
    }

    #[test]
    fn directory_that_is_not_there_cannot_be_watched() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FileWatch::on(&dir.path().join("topic/main")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
