//! The directory the fence lives in, and making files in it.

use rustix::fs::{Gid, Mode, Uid};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
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

    pub(crate) fn mutex(&self) -> PathBuf {
        self.0.join("mutex")
    }

    /// Where the lines up to `seq` are moved. Names sort as their lines do.
    pub(crate) fn archive(&self, seq: u64) -> PathBuf {
        self.0.join(format!("audit-{seq:012}.jsonl"))
    }

    /// The files that lines were moved to, oldest first.
    pub(crate) fn archives(&self) -> io::Result<Vec<PathBuf>> {
        let is_archive = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let digits = name.strip_prefix("audit-").and_then(|rest| rest.strip_suffix(".jsonl"));
            digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        };
        let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(is_archive).collect();
        found.sort();
        Ok(found)
    }

    /// What installing has changed besides the hook, for uninstalling.
    pub(crate) fn changes(&self) -> PathBuf {
        self.0.join("installed.json")
    }

    /// Where the complete list of refs of a large push is kept until it is settled.
    pub(crate) fn plan_of(&self, push: git_fence_core::PushId) -> PathBuf {
        self.0.join(format!("plan-{push}.jsonl"))
    }

    /// Where a torn last line of the log, which began at byte `offset`, is set aside: under a name that
    /// nothing has yet.
    pub(crate) fn free_name_for_torn(&self, offset: u64) -> PathBuf {
        let first = std::iter::once(format!("torn-{offset}"));
        let names = first.chain((2_u64..).map(|n| format!("torn-{offset}-{n}")));
        let mut free = names.map(|name| self.0.join(name)).filter(|path| fs::symlink_metadata(path).is_err());
        free.next().unwrap_or_else(|| self.0.join("torn"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the directory, with the owner and permissions of the git directory it lies in.
    pub(crate) fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                let parent = fs::metadata(self.0.parent().unwrap_or(Path::new("/")))?;
                fs::set_permissions(&self.0, fs::Permissions::from_mode(parent.mode() & 0o7777))?;
                give_to_owner_of(&File::open(&self.0)?, &parent)
            }
        }
    }

    /// Opens a file of the fence, making it where it is missing: with the owner and permissions of
    /// the directory, whoever runs this and whatever the umask.
    pub(crate) fn open_or_make(&self, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
        match options.clone().create_new(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.open(path),
            Err(e) => Err(e),
            Ok(file) => {
                let dir = fs::metadata(&self.0)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(dir.mode() & 0o666))?;
                give_to_owner_of(&file, &dir)?;
                Ok(file)
            }
        }
    }

    /// Makes the names of files in it survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// Writes a whole file under its final name, at once: readers see the old one or the new one.
    pub(crate) fn replace(&self, path: &Path, content: &[u8], durably: bool) -> io::Result<()> {
        let new = path.with_extension("new");
        let written = self.write_new(&new, content, durably).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_new(&self, path: &Path, content: &[u8], durably: bool) -> io::Result<()> {
        room_for(content.len() as u64)?;
        let file = self.open_or_make(path, OpenOptions::new().write(true))?;
        file.set_len(0)?;
        io::Write::write_all(&mut &file, content)?;
        if durably { file.sync_all() } else { Ok(()) }
    }
}

/// Whether `path` leads to the file that is open as `file`.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    let id = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|it| (it.dev(), it.ino()));
    let open = id(file.metadata());
    open.is_some() && open == id(fs::metadata(path))
}

/// Root installs for others: what it makes belongs to whoever owns the directory.
pub(crate) fn give_to_owner_of(file: &File, dir: &fs::Metadata) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() || file.metadata()?.uid() == dir.uid() {
        return Ok(());
    }
    rustix::fs::fchown(file, Some(Uid::from_raw(dir.uid())), Some(Gid::from_raw(dir.gid())))?;
    Ok(())
}

/// Whether a file may grow to `size`. Asked before writing, because the kernel answers a write
/// beyond the limit with a signal that ends the process before it can say why.
pub(crate) fn room_for(size: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if size > limit => Err(io::ErrorKind::FileTooLarge.into()),
        _ => Ok(()),
    }
}
