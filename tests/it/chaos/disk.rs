//! The content of a disk after a power loss: a small file system that replays the system calls of a program,
//! and tracks separately what was written and what was synced.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// A file: its content, and its content at the last sync.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Inode {
    written: Vec<u8>,
    synced: Vec<u8>,
}

/// One directory. Its names, and its names at the directory's last sync.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    dir: PathBuf,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    open: BTreeMap<u32, (usize, usize)>,
}

/// Which unsynced data a power loss destroys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// None: only the processes died.
    Nothing,
    /// All unsynced names and content.
    Everything,
    /// Names are as at the last sync; content survives.
    Names,
    /// Names survive; content is as at the last sync.
    Content,
    /// The second half of the content since the last sync.
    Half,
    /// The length survives, but the content is zeros.
    Zeros,
}

impl Loss {
    pub(crate) const ALL: [Loss; 6] =
        [Loss::Nothing, Loss::Everything, Loss::Names, Loss::Content, Loss::Half, Loss::Zeros];
}

/// The files of the directory.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

impl Disk {
    /// An existing directory: everything is synced.
    pub(crate) fn new(dir: &Path, files: &Files) -> Disk {
        let inodes = files.values().map(|data| Inode { written: data.clone(), synced: data.clone() }).collect();
        let names: BTreeMap<String, usize> = files.keys().cloned().zip(0..).collect();
        Disk { dir: dir.to_owned(), inodes, synced_names: names.clone(), names, open: BTreeMap::new() }
    }

    /// Applies a line that strace wrote with `-y -xx`, and returns whether it has changed anything.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let Some(call) = Call::parse(line) else { return false };
        match call.name.as_str() {
            "openat" => self.opened(&call),
            "write" => self.write(&call, None),
            "pwrite64" => self.write(&call, call.plain(3)),
            "ftruncate" => self.truncate(&call),
            "fsync" | "fdatasync" => self.sync(&call),
            "rename" | "renameat" | "renameat2" => self.rename(&call),
            "unlink" | "unlinkat" => self.unlink(&call),
            _ => false,
        }
    }

    fn name_of(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        // The hook works in the git directory, and its paths are relative to it.
        let inside = path.strip_prefix(&self.dir).or_else(|_| path.strip_prefix("./fence")).ok();
        let inside = inside.or_else(|| path.strip_prefix("fence").ok())?;
        let name = inside.to_str()?;
        (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
    }

    /// The names in the arguments of a call, relative to its directory argument if there is one.
    fn names_in(&self, call: &Call) -> Vec<String> {
        let from = call.fd.as_ref().map_or(Path::new(""), |(_, dir)| Path::new(dir));
        call.strings.iter().filter_map(|path| self.name_of(from.join(lossy(path)).to_str()?)).collect()
    }

    fn opened(&mut self, call: &Call) -> bool {
        let (Some(fd), Some(name)) = (call.result, self.names_in(call).pop()) else { return false };
        let is_new = !self.names.contains_key(&name);
        if is_new {
            self.inodes.push(Inode::default());
            self.names.insert(name.clone(), self.inodes.len() - 1);
        }
        let inode = self.names[&name];
        let at = if call.text.contains("O_APPEND") { usize::MAX } else { 0 };
        self.open.insert(fd, (inode, at));
        is_new
    }

    fn file_of(&self, call: &Call) -> Option<(u32, usize)> {
        let (fd, path) = call.fd.as_ref()?;
        self.name_of(path)?;
        Some((*fd, self.open.get(fd)?.0))
    }

    fn write(&mut self, call: &Call, offset: Option<usize>) -> bool {
        let (Some((fd, inode)), Some(data)) = (self.file_of(call), call.strings.last()) else { return false };
        let written = &mut self.inodes[inode].written;
        let position = &mut self.open.get_mut(&fd).unwrap().1;
        let at = offset.unwrap_or(if *position == usize::MAX { written.len() } else { *position });
        if offset.is_none() && *position != usize::MAX {
            *position += data.len();
        }
        written.resize(written.len().max(at + data.len()), 0);
        written[at..at + data.len()].copy_from_slice(data);
        true
    }

    fn truncate(&mut self, call: &Call) -> bool {
        let (Some((_, inode)), Some(length)) = (self.file_of(call), call.plain(1)) else { return false };
        self.inodes[inode].written.resize(length, 0);
        true
    }

    fn sync(&mut self, call: &Call) -> bool {
        if let Some((_, inode)) = self.file_of(call) {
            self.inodes[inode].synced = self.inodes[inode].written.clone();
            return true;
        }
        let is_dir = call.fd.as_ref().is_some_and(|(_, path)| Path::new(path) == self.dir);
        if is_dir {
            self.synced_names = self.names.clone();
        }
        is_dir
    }

    fn rename(&mut self, call: &Call) -> bool {
        let names = self.names_in(call);
        let [from, to] = &names[..] else { return false };
        let Some(inode) = self.names.remove(from) else { return false };
        self.names.insert(to.clone(), inode);
        true
    }

    fn unlink(&mut self, call: &Call) -> bool {
        let name = self.names_in(call).pop();
        name.is_some_and(|name| self.names.remove(&name).is_some())
    }

    /// The content after the power loss.
    pub(crate) fn after(&self, loss: Loss) -> Files {
        let names = if matches!(loss, Loss::Everything | Loss::Names) { &self.synced_names } else { &self.names };
        let survives = |inode: &Inode| {
            let Inode { written, synced } = inode;
            let first = written.iter().zip(synced).take_while(|(a, b)| a == b).count();
            match loss {
                Loss::Nothing | Loss::Names => written.clone(),
                Loss::Everything | Loss::Content => synced.clone(),
                Loss::Half => written[..first + (written.len() - first).div_ceil(2)].to_vec(),
                Loss::Zeros => {
                    let mut zeros = written.clone();
                    zeros[first..].fill(0);
                    zeros
                }
            }
        };
        names.iter().map(|(name, inode)| (name.clone(), survives(&self.inodes[*inode]))).collect()
    }

    /// All possible contents, each once.
    pub(crate) fn all_after(&self) -> Vec<(Loss, Files)> {
        let mut seen = BTreeSet::new();
        Loss::ALL
            .into_iter()
            .map(|loss| (loss, self.after(loss)))
            .filter(|(_, files)| seen.insert(files.clone()))
            .collect()
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A system call as strace shows it.
struct Call {
    name: String,
    text: String,
    /// The first file descriptor, with its path.
    fd: Option<(u32, String)>,
    strings: Vec<Vec<u8>>,
    result: Option<u32>,
}

impl Call {
    /// None for a failed call.
    fn parse(line: &str) -> Option<Call> {
        let (name, rest) = line.split_once('(')?;
        let name = name.rsplit(' ').next()?.to_owned();
        let (arguments, result) = rest.rsplit_once(" = ")?;
        if result.starts_with('-') {
            return None;
        }
        let strings = arguments.split('"').skip(1).step_by(2).map(unhex).collect();
        let fd = arguments
            .split_once('<')
            .and_then(|(fd, rest)| Some((fd.parse().ok()?, lossy(&unhex(rest.split_once('>')?.0)))));
        let result = result.split(['<', ' ']).next().and_then(|number| number.parse().ok());
        Some(Call { name, text: arguments.to_owned(), fd, strings, result })
    }

    /// The numeric argument at `index`.
    fn plain(&self, index: usize) -> Option<usize> {
        self.text.trim_end_matches(')').split(", ").nth(index)?.parse().ok()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    text.split("\\x").filter_map(|two| u8::from_str_radix(two, 16).ok()).collect()
}

#[test]
fn unsynced_writes_are_lost_on_power_loss() {
    let files: Files = [("log".to_owned(), b"one\n".to_vec())].into();
    let mut disk = Disk::new(Path::new("/f"), &files);
    let hex = |text: &str| text.bytes().map(|b| format!("\\x{b:02x}")).collect::<String>();
    let (log, fresh) = (hex("/f/log"), hex("/f/log.new"));
    let mut take = |line: String| assert!(disk.take(&line), "{line}");
    assert!(!Disk::new(Path::new("/f"), &files).take(&format!("openat(AT_FDCWD, \"{log}\", O_RDWR) = -1 ENOENT")));
    take(format!("7 openat(AT_FDCWD<{}>, \"{fresh}\", O_WRONLY|O_CREAT) = 4<{fresh}>", hex("/x")));
    take(format!("write(4<{fresh}>, \"{}\", 4) = 4", hex("new\n")));
    take(format!("rename(\"{fresh}\", \"{log}\") = 0"));
    assert_eq!(disk.after(Loss::Nothing)["log"], b"new\n");
    assert_eq!(disk.after(Loss::Everything)["log"], b"one\n");
    assert_eq!(disk.after(Loss::Content)["log"], b"", "the name without its content");
    assert_eq!(disk.after(Loss::Half)["log"], b"ne");
    disk.take(&format!("fsync(4<{log}>) = 0"));
    assert_eq!(disk.after(Loss::Content)["log"], b"new\n");
    assert_eq!(disk.after(Loss::Everything)["log"], b"one\n", "the name was not synced");
    disk.take(&format!("fsync(5<{}>) = 0", hex("/f")));
    assert_eq!(disk.after(Loss::Everything)["log"], b"new\n");
    // The same with names relative to an open directory.
    let (dir, log, fresh) = (hex("/f"), hex("log"), hex("log.new"));
    disk.take(&format!("openat(6<{dir}>, \"{fresh}\", O_RDWR|O_CREAT|O_EXCL) = 7<{}>", hex("/f/log.new")));
    disk.take(&format!("write(7<{}>, \"{}\", 2) = 2", hex("/f/log.new"), hex("2\n")));
    disk.take(&format!("renameat(6<{dir}>, \"{fresh}\", 6<{dir}>, \"{log}\") = 0"));
    assert_eq!(disk.after(Loss::Nothing), [("log".to_owned(), b"2\n".to_vec())].into());
    disk.take(&format!("unlinkat(6<{dir}>, \"{log}\", 0) = 0"));
    assert_eq!(disk.after(Loss::Nothing), Files::new());
}
