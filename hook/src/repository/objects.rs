//! The objects of a push: new ones are in quarantine and visible only through the environment.

use crate::{host::surroundings::Environment, repository::Repository};
use git_fence_core::{ObjectId, text};
use git_fence_system::env;
use gix::{
    bstr::ByteSlice,
    objs::{FindHeader, Kind},
    odb::Handle,
    prelude::FindExt,
};
use std::{
    ffi::OsStr,
    fmt::Display,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read '{object}': {why}")]
pub(crate) struct ObjectError {
    pub(crate) object: String,
    pub(crate) why: String,
}

impl ObjectError {
    pub(crate) fn of(object: &impl Display, why: &dyn Display) -> ObjectError {
        ObjectError { object: object.to_string(), why: text::one_line(why.to_string().as_bytes(), 200) }
    }
}

/// The quarantine, and the object directories behind it.
pub(crate) struct Objects {
    stores: Vec<Handle>,
    pub(crate) hash: gix::hash::Kind,
}

/// The parents and the message of a commit.
pub(crate) struct Commit {
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) message: Vec<u8>,
}

impl Objects {
    pub(crate) fn open(repository: &Repository, environment: &Environment) -> Result<Objects, ObjectError> {
        let hash = repository.object_hash;
        let mut stores = Vec::new();
        for dir in object_directories(repository, environment) {
            let opened = gix::odb::at(dir.clone(), hash);
            stores.push(opened.map_err(|e| ObjectError::of(&dir.display(), &e))?);
        }
        Ok(Objects { stores, hash })
    }

    /// The kind and content of object `id`. The content is `None` if the object has no message, or is larger than `most`
    /// bytes: it might not fit into memory.
    pub(crate) fn find<'b>(
        &self,
        id: &gix::ObjectId,
        most: u64,
        buffer: &'b mut Vec<u8>,
    ) -> Result<(Kind, Option<&'b [u8]>), ObjectError> {
        let header = |store: &'_ Handle| store.try_header(id).ok().flatten();
        let held = self.stores.iter().find_map(|store| Some((store, header(store)?)));
        let Some((store, header)) = held else { return Err(ObjectError::of(id, &"it does not exist")) };
        if matches!(header.kind, Kind::Blob | Kind::Tree) || header.size > most {
            return Ok((header.kind, None));
        }
        let data = store.find(id, buffer).map_err(|e| ObjectError::of(id, &e))?;
        Ok((data.kind, Some(data.data)))
    }

    /// Whether `id` exists.
    pub(crate) fn has(&self, id: &gix::ObjectId) -> bool {
        self.stores.iter().any(|store| matches!(store.try_header(id), Ok(Some(_))))
    }

    /// The commit `id`, if it is one and not larger than `most` bytes.
    pub(crate) fn commit(&self, id: &ObjectId, most: u64) -> Result<Commit, ObjectError> {
        let mut buffer = Vec::new();
        let data = match self.find(&parse(id)?, most, &mut buffer)? {
            (Kind::Commit, Some(data)) => data,
            (Kind::Commit, None) => return Err(ObjectError::of(id, &format!("it is larger than {most} bytes"))),
            (kind, _) => return Err(ObjectError::of(id, &format!("it is a {kind}, not a commit"))),
        };
        let commit = gix::objs::CommitRef::from_bytes(data, self.hash).map_err(|e| ObjectError::of(id, &e))?;
        let parent = |id: &&gix::bstr::BStr| ObjectId::parse(id).ok().flatten();
        Ok(Commit { parents: commit.parents.iter().filter_map(parent).collect(), message: commit.message.to_vec() })
    }
}

/// The id as gix's type.
pub(crate) fn parse(id: &ObjectId) -> Result<gix::ObjectId, ObjectError> {
    gix::ObjectId::from_hex(id.as_str().as_bytes()).map_err(|e| ObjectError::of(&id.as_str(), &e))
}

/// The quarantine first, then the directory behind it and all alternates.
fn object_directories(repository: &Repository, environment: &Environment) -> Vec<PathBuf> {
    let main = environment.path(env::GIT_OBJECT_DIRECTORY).unwrap_or_else(|| repository.common_dir.join("objects"));
    let others = environment.get(env::GIT_ALTERNATE_OBJECT_DIRECTORIES).unwrap_or_default();
    let all = std::iter::once(main).chain(split_directories(others.as_bytes()));
    all.filter(|dir| dir.is_dir()).collect()
}

/// Separated by colons; a directory that starts with a double quote or contains a colon is quoted as in C.
pub(crate) fn split_directories(mut list: &[u8]) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    while !list.is_empty() {
        let colon = || list.iter().position(|b| *b == b':').unwrap_or(list.len());
        let quoted = list.starts_with(b"\"").then(|| gix::quote::ansi_c::undo(list.as_bstr()).ok()).flatten();
        let (dir, length) = quoted.unwrap_or_else(|| (list[..colon()].as_bstr().into(), colon()));
        if !dir.is_empty() {
            dirs.push(Path::new(OsStr::from_bytes(&dir)).to_owned());
        }
        list = list[length..].strip_prefix(b":").unwrap_or_default();
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_directories_may_contain_colons() {
        let dirs = split_directories(br#"/a:"/b:c":/d"#);
        assert_eq!(dirs, ["/a", "/b:c", "/d"].map(PathBuf::from));
        assert!(split_directories(b"").is_empty());
    }
}
