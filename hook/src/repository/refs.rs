//! The values of refs, read in a way that is safe during a concurrent `git pack-refs`.
//!
//! Packing writes `packed-refs` first and removes the loose file afterwards. So the loose file is read first, and if it
//! does not exist, a `packed-refs` that is opened after that.

use crate::repository::{RefStorage, Repository};
use git_fence_core::{ObjectId, RefName, text};
use git_fence_system::env;
use gix::{
    bstr::ByteSlice,
    refs::{FullName, Target, file::loose::Reference, packed},
};
use rustix::{fs::OFlags, io::Errno};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

/// How many symbolic refs git follows.
const DEEPEST: usize = 5;
/// Up to this many names, git lists only these; above it, all refs.
const FEW: usize = 100;
/// Above this size, `packed-refs` is memory-mapped.
const MAP_ABOVE: u64 = 32 * 1024;

/// What a name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The name, and the symbolic refs that it leads to; the last one has the value.
    pub(crate) names: Vec<RefName>,
    /// The value.
    pub(crate) value: Option<ObjectId>,
}

/// Why refs cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefError {
    #[error("{} is not a valid ref name", text::quoted(.0.as_bytes()))]
    Name(RefName),
    #[error("cannot read ref '{0}': {1}")]
    Unreadable(RefName, String),
    #[error("cannot read '{}': {why}", path.display())]
    Packed { path: PathBuf, why: String },
    #[error("git could not list the refs: {0}")]
    Git(String),
}

impl Repository {
    /// The current values of `names`, through symbolic refs.
    pub(crate) fn ref_values<'a>(
        &self,
        names: impl IntoIterator<Item = &'a RefName>,
    ) -> Result<Vec<Option<ObjectId>>, RefError> {
        Ok(self.resolve_refs(names)?.into_iter().map(|resolved| resolved.value).collect())
    }

    /// What each of `names` resolves to now.
    pub(crate) fn resolve_refs<'a>(
        &self,
        names: impl IntoIterator<Item = &'a RefName>,
    ) -> Result<Vec<Resolved>, RefError> {
        let mut resolved: Vec<Resolved> =
            names.into_iter().map(|name| Resolved { names: vec![name.clone()], value: None }).collect();
        let mut open: Vec<usize> = (0..resolved.len()).collect();
        for _ in 0..=DEEPEST {
            let asked: Vec<RefName> = open.iter().filter_map(|at| resolved[*at].names.last().cloned()).collect();
            let targets = match self.ref_storage {
                RefStorage::Files => self.look_up_in_files(&asked)?,
                RefStorage::Reftable => self.look_up_through_git(&asked)?,
            };
            let mut symbolic = Vec::new();
            for (at, target) in open.into_iter().zip(targets) {
                match target {
                    Some(RefContent::Value(value)) => resolved[at].value = Some(value),
                    Some(RefContent::Symbolic(next)) => {
                        resolved[at].names.push(next);
                        symbolic.push(at);
                    }
                    None => {}
                }
            }
            open = symbolic;
            if open.is_empty() {
                return Ok(resolved);
            }
        }
        let endless = resolved[open[0]].names[0].clone();
        Err(RefError::Unreadable(endless, format!("it is a chain of more than {DEEPEST} symbolic refs")))
    }

    fn look_up_in_files(&self, names: &[RefName]) -> Result<Vec<Option<RefContent>>, RefError> {
        let names = names.iter().map(full_name).collect::<Result<Vec<_>, _>>()?;
        let mut found = names.iter().map(|name| self.look_up_loose(name)).collect::<Result<Vec<_>, _>>()?;
        let is_missing = |found: &Option<RefContent>| found.is_none();
        let packed = if found.iter().any(is_missing) { self.open_packed_refs()? } else { None };
        if let Some(packed) = packed {
            for (found, name) in found.iter_mut().zip(&names).filter(|(found, _)| is_missing(found)) {
                *found = self.look_up_packed(&packed, name)?;
            }
        }
        Ok(found)
    }

    fn look_up_loose(&self, name: &FullName) -> Result<Option<RefContent>, RefError> {
        let ref_name = || RefName::new(name.as_bstr().to_vec());
        let path = self.common_dir.join(OsStr::from_bytes(name.as_bstr()));
        let content = match read_without_following(&path) {
            Ok(content) => content,
            Err(e) if is_no_file(&e) => return Ok(None),
            // The oldest form of a symbolic ref is a link. Its target is a ref name, not a path.
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return self.look_up_link(&path, &ref_name());
            }
            Err(e) => return Err(RefError::Unreadable(ref_name(), e.to_string())),
        };
        let reference = Reference::try_from_path(name.clone(), &content, self.object_hash).ok();
        let found = reference.and_then(|reference| RefContent::in_target(reference.target));
        let nothing =
            || RefError::Unreadable(ref_name(), "its file contains neither an object id nor a ref".to_owned());
        found.map(Some).ok_or_else(nothing)
    }

    fn look_up_link(&self, path: &Path, name: &RefName) -> Result<Option<RefContent>, RefError> {
        let target = fs::read_link(path).map_err(|e| RefError::Unreadable(name.clone(), e.to_string()))?;
        let target = RefName::new(target.as_os_str().as_bytes());
        if !is_valid_name(&target) {
            return Err(RefError::Unreadable(name.clone(), "it is a link to something that is not a ref".to_owned()));
        }
        Ok(Some(RefContent::Symbolic(target)))
    }

    fn open_packed_refs(&self) -> Result<Option<packed::Buffer>, RefError> {
        let path = self.common_dir.join("packed-refs");
        if matches!(fs::metadata(&path), Err(e) if is_no_file(&e)) {
            return Ok(None);
        }
        let opened = packed::Buffer::open(path.clone(), MAP_ABOVE, self.object_hash);
        opened.map(Some).map_err(|e| RefError::Packed { path, why: e.to_string() })
    }

    fn look_up_packed(&self, packed: &packed::Buffer, name: &FullName) -> Result<Option<RefContent>, RefError> {
        let unreadable =
            |e: gix::Error| RefError::Packed { path: self.common_dir.join("packed-refs"), why: e.to_string() };
        let found = packed.try_find(name.as_ref()).map_err(unreadable)?;
        Ok(found.and_then(|reference| RefContent::in_target(Target::Object(reference.target()))))
    }

    /// Reftables are read by git: `for-each-ref` lists all refs except dangling symbolic refs.
    fn look_up_through_git(&self, names: &[RefName]) -> Result<Vec<Option<RefContent>>, RefError> {
        let mut listing = self.git();
        listing.args(["for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)"]);
        for name in names {
            full_name(name)?;
            if names.len() <= FEW {
                listing.arg(OsStr::from_bytes(name.as_bytes()));
            }
        }
        let listing = run(&mut listing, b"")?;
        let mut listed: HashMap<&[u8], RefContent> = HashMap::new();
        for line in listing.stdout.lines() {
            let fields: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            let [name, id, target] = fields[..] else { return Err(RefError::Git(text::quoted(line))) };
            let found = if target.is_empty() {
                RefContent::Value(ObjectId::parse(id).ok().flatten().ok_or_else(|| RefError::Git(text::quoted(line)))?)
            } else {
                self.symbolic_ref_through_git(name)?
            };
            listed.insert(name, found);
        }
        let absent: Vec<&RefName> = names.iter().filter(|name| !listed.contains_key(name.as_bytes())).collect();
        let dangling = self.dangling_among(&absent)?;
        for name in &dangling {
            listed.insert(name, self.symbolic_ref_through_git(name)?);
        }
        Ok(names.iter().map(|name| listed.get(name.as_bytes()).cloned()).collect())
    }

    /// Which of these names are dangling symbolic refs. Git does not list them, but warns when it is asked for their
    /// objects.
    fn dangling_among(&self, names: &[&RefName]) -> Result<Vec<Vec<u8>>, RefError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut input = Vec::new();
        for name in names {
            input.extend_from_slice(name.as_bytes());
            input.push(b'\n');
        }
        let asked = run(self.git().args(["cat-file", "--batch-check"]), &input)?;
        let warned = asked.stderr.lines().filter_map(|line| line.strip_prefix(b"warning: ignoring dangling symref "));
        Ok(warned.filter(|warned| names.iter().any(|name| name.as_bytes() == *warned)).map(<[u8]>::to_vec).collect())
    }

    /// The direct target of a symbolic ref: `for-each-ref` shows only the final one.
    fn symbolic_ref_through_git(&self, name: &[u8]) -> Result<RefContent, RefError> {
        let asked = run(self.git().args(["symbolic-ref", "--no-recurse"]).arg(OsStr::from_bytes(name)), b"")?;
        Ok(RefContent::Symbolic(RefName::new(asked.stdout.trim_end())))
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(&self.git_dir).env(env::LC_ALL.name, "C");
        git
    }
}

#[derive(Debug, Clone)]
enum RefContent {
    Value(ObjectId),
    Symbolic(RefName),
}

impl RefContent {
    /// `None` if the ref has the null id, which git calls a broken ref.
    fn in_target(target: Target) -> Option<RefContent> {
        match target {
            Target::Symbolic(name) => Some(RefContent::Symbolic(RefName::new(name.as_bstr().to_vec()))),
            Target::Object(id) => {
                ObjectId::parse(id.to_hex().to_string().as_bytes()).ok().flatten().map(RefContent::Value)
            }
        }
    }
}

fn read_without_following(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    #[expect(clippy::disallowed_methods, reason = "one of git's refs, and it does not follow links either")]
    let mut file = File::options().read(true).custom_flags(no_follow).open(path)?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Whether git allows a ref of this name, below `refs/`.
pub(crate) fn is_valid_name(name: &RefName) -> bool {
    full_name(name).is_ok()
}

/// Names come from pushers and become paths: only valid ref names below `refs/` are accepted.
fn full_name(name: &RefName) -> Result<FullName, RefError> {
    let refused = || RefError::Name(name.clone());
    if !name.as_bytes().starts_with(b"refs/") || name.is_too_long() {
        return Err(refused());
    }
    FullName::try_from(name.as_bytes().as_bstr()).map_err(|_| refused())
}

/// The file does not exist, a directory is in its place, a file is in the place of its directory, or the file system
/// does not allow the name.
fn is_no_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory | InvalidFilename)
}

fn run(command: &mut Command, input: &[u8]) -> Result<Output, RefError> {
    let failed = |e: io::Error| RefError::Git(e.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    // Writes while reading, so that full pipes cannot block both sides.
    let ran = thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    });
    let ran = ran.map_err(failed)?;
    if !ran.status.success() {
        return Err(RefError::Git(text::one_line(&ran.stderr, 200)));
    }
    Ok(ran)
}
