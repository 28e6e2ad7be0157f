//! The commits of leases and beats, written and read without running git.

use crate::failure::{Cause, Failure};
use git_fence_core::{ObjectId, Version};
use gix::objs::{Commit, Kind, Tree};
use std::path::Path;

/// A commit that was read.
#[derive(Debug)]
pub(crate) struct LeaseCommit {
    pub(crate) parents: Vec<ObjectId>,
    pub(crate) message: Vec<u8>,
    /// The committer's time, in seconds since 1970.
    pub(crate) time: u64,
}

/// Writes a commit with the empty tree to the object directory `dir`. Its author is the owner, for people to read,
/// whatever git is configured to.
pub(crate) fn write_commit(
    dir: &Path,
    hash: gix::hash::Kind,
    owner: &str,
    parent: Option<&ObjectId>,
    message: &str,
    unix_ms: u64,
) -> Result<ObjectId, Failure> {
    let store = gix::odb::loose::Store::at(dir, hash);
    let write = |kind: Kind, bytes: &[u8]| -> Result<gix::ObjectId, Failure> {
        use gix::objs::Write as _;
        store.write_buf(kind, bytes).map_err(|e| {
            let what = format!("cannot write to '{}'", dir.display());
            Failure::broken(what, "there must be room in the repository's git directory").because(e)
        })
    };
    let tree = write(Kind::Tree, &encoded(&Tree::empty()))?;
    let name: String = owner.chars().filter(|c| !matches!(c, '<' | '>')).collect();
    let signature = gix::actor::Signature {
        name: if name.trim().is_empty() { "git-fence".into() } else { name.trim().into() },
        email: "git-fence@localhost".into(),
        time: gix::date::Time { seconds: i64::try_from(unix_ms / 1000).unwrap_or(0), offset: 0 },
    };
    let parents = parent.map(from_core).transpose()?.into_iter().collect();
    let commit = Commit {
        tree,
        parents,
        author: signature.clone(),
        committer: signature,
        encoding: None,
        message: message.into(),
        extra_headers: Vec::new(),
    };
    to_core(&write(Kind::Commit, &encoded(&commit))?)
}

/// Reads the commit `id` from the object directory `dir`.
pub(crate) fn read_commit(dir: &Path, hash: gix::hash::Kind, id: &ObjectId) -> Result<LeaseCommit, Cause> {
    use gix::prelude::FindExt as _;
    let store = gix::odb::at(dir.to_owned(), hash)?;
    let mut buffer = Vec::new();
    let found = store.find(&from_core(id)?, &mut buffer)?;
    if found.kind != Kind::Commit {
        return Err(format!("it is a {} and not a commit", found.kind).into());
    }
    let commit = gix::objs::CommitRef::from_bytes(found.data, hash)?;
    let parents = commit.parents().map(|id| to_core(&id)).collect::<Result<_, _>>()?;
    let time = commit.committer().ok().and_then(|committer| committer.time().ok()).map_or(0, |time| time.seconds);
    Ok(LeaseCommit { parents, message: commit.message.to_vec(), time: u64::try_from(time).unwrap_or(0) })
}

/// The commit of this version.
pub(crate) fn commit_of(version: &Version) -> Result<ObjectId, Failure> {
    let id = ObjectId::parse(version.as_str().as_bytes()).ok().flatten();
    id.ok_or_else(|| Failure::broken(format!("'{version}' is not the name of a commit"), "take the lease again"))
}

/// The hash algorithm of `id`.
pub(crate) fn hash_of(id: &ObjectId) -> gix::hash::Kind {
    if id.as_str().len() == 64 { gix::hash::Kind::Sha256 } else { gix::hash::Kind::Sha1 }
}

/// Whether the object directory `dir` has the object `id`.
pub(crate) fn has_object(dir: &Path, hash: gix::hash::Kind, id: &ObjectId) -> bool {
    use gix::prelude::FindExt as _;
    let store = gix::odb::at(dir.to_owned(), hash);
    store.is_ok_and(|store| from_core(id).is_ok_and(|id| store.find(&id, &mut Vec::new()).is_ok()))
}

/// Copies the commit `id` from the object directory `from` to `to`.
pub(crate) fn copy_commit(from: &Path, to: &Path, hash: gix::hash::Kind, id: &ObjectId) -> Result<(), Failure> {
    use gix::{objs::Write as _, prelude::FindExt as _};
    let unusable = |dir: &Path, cause: Cause| {
        Failure::broken(format!("cannot use '{}'", dir.display()), "try again").because(cause)
    };
    let store = gix::odb::at(from.to_owned(), hash).map_err(|e| unusable(from, e.into()))?;
    let mut buffer = Vec::new();
    let found = store.find(&from_core(id)?, &mut buffer).map_err(|e| unusable(from, e.into()))?;
    let written = gix::odb::loose::Store::at(to, hash).write_buf(found.kind, found.data);
    written.map(drop).map_err(|e| unusable(to, e.into()))
}

fn encoded(object: &impl gix::objs::WriteTo) -> Vec<u8> {
    let mut bytes = Vec::new();
    object.write_to(&mut bytes).expect("memory can be written to");
    bytes
}

fn from_core(id: &ObjectId) -> Result<gix::ObjectId, Failure> {
    gix::ObjectId::from_hex(id.as_str().as_bytes())
        .map_err(|e| Failure::broken(format!("'{id}' is not the name of an object"), "report it").because(e))
}

fn to_core(id: &gix::ObjectId) -> Result<ObjectId, Failure> {
    let id = ObjectId::parse(id.to_hex().to_string().as_bytes()).ok().flatten();
    id.ok_or_else(|| Failure::broken("an object has the null id", "report it"))
}
