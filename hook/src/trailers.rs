//! Tokens from trailers: for clients that cannot send push options.

use crate::{repository::Repository, surroundings::Environment};
use git_fence_core::{FenceName, ObjectId, Offer, PlannedRef, Reject, Settings, TRAILER, read_trailer};
use gix::{
    bstr::ByteSlice,
    objs::{FindHeader, Kind, commit::MessageRef},
    odb::Handle,
    prelude::FindExt,
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What the trailers of a push say.
pub(crate) struct Stamps {
    /// The tokens that were found.
    pub(crate) offer: Offer,
    /// Refs that move to something without a token: deletions too, which move to nothing.
    pub(crate) unstamped: Vec<PlannedRef>,
}

/// Reads the token of each guarded ref from what it moves to.
pub(crate) fn read(
    refs: &[PlannedRef],
    repository: &Repository,
    environment: &Environment,
    settings: &Settings,
) -> Result<Stamps, Reject> {
    let objects = Objects::open(repository, environment)?;
    let mut stamps = Stamps { offer: Offer::default(), unstamped: Vec::new() };
    for planned in refs {
        let is_stamped = match &planned.new {
            Some(id) => objects.tokens_in(id, &planned.fence, settings, &mut stamps.offer)?,
            None => false,
        };
        if !is_stamped {
            stamps.unstamped.push(planned.clone());
        }
    }
    Ok(stamps)
}

/// The objects of a push: new ones are in quarantine and only visible through the environment.
struct Objects {
    stores: Vec<Handle>,
    hash: gix::hash::Kind,
}

impl Objects {
    fn open(repository: &Repository, environment: &Environment) -> Result<Objects, Reject> {
        let hash = repository.object_hash;
        let mut stores = Vec::new();
        for dir in object_directories(repository, environment) {
            stores.push(gix::odb::at(dir.clone(), hash).map_err(|e| unreadable(&dir.display().to_string(), &e))?);
        }
        Ok(Objects { stores, hash })
    }

    /// Adds the tokens that `id` carries to `offer`: of an annotated tag its own, then the commit's.
    /// Says whether one is for `fence`.
    fn tokens_in(
        &self,
        id: &ObjectId,
        fence: &FenceName,
        settings: &Settings,
        offer: &mut Offer,
    ) -> Result<bool, Reject> {
        let mut next = gix::ObjectId::from_hex(id.as_str().as_bytes()).map_err(|e| unreadable(id.as_str(), &e))?;
        loop {
            let mut buffer = Vec::new();
            let (kind, data) = self.find(&next, &mut buffer)?;
            let (message, target) = match kind {
                Kind::Commit => {
                    let commit = gix::objs::CommitRef::from_bytes(data, self.hash);
                    (commit.map_err(|e| unreadable(id.as_str(), &e))?.message, None)
                }
                Kind::Tag => {
                    let tag = gix::objs::TagRef::from_bytes(data, self.hash);
                    let tag = tag.map_err(|e| unreadable(id.as_str(), &e))?;
                    (tag.message, Some(tag.target()))
                }
                Kind::Tree | Kind::Blob => return Ok(false),
            };
            let mut found = false;
            for value in token_trailers(message) {
                let (named, token) = read_trailer(&value, &next.to_hex_with_len(12).to_string(), settings)?;
                found |= named == *fence;
                offer.add(named, token)?;
            }
            match target {
                Some(target) if !found => next = target,
                _ => return Ok(found),
            }
        }
    }

    fn find<'b>(&self, id: &gix::ObjectId, buffer: &'b mut Vec<u8>) -> Result<(Kind, &'b [u8]), Reject> {
        let header = |store: &'_ Handle| store.try_header(id).ok().flatten();
        let held = self.stores.iter().find_map(|store| Some((store, header(store)?)));
        let Some((store, header)) = held else { return Err(unreadable(&id.to_string(), &"it is not there")) };
        if matches!(header.kind, Kind::Blob | Kind::Tree) {
            // It has no message, and may be larger than the memory.
            return Ok((header.kind, &[]));
        }
        let data = store.find(id, buffer).map_err(|e| unreadable(&id.to_string(), &e))?;
        Ok((data.kind, data.data))
    }
}

/// The values of the trailers that carry tokens. Keys are compared as git does, without case.
fn token_trailers(message: &[u8]) -> Vec<Vec<u8>> {
    let Some(body) = MessageRef::from_bytes(message).body() else { return Vec::new() };
    let ours = body.trailers().filter(|trailer| trailer.token.eq_ignore_ascii_case(TRAILER.as_bytes()));
    ours.map(|trailer| trailer.value.to_vec()).collect()
}

/// The quarantine first, then the store it is in front of and whatever else git was told of.
fn object_directories(repository: &Repository, environment: &Environment) -> Vec<PathBuf> {
    let main = environment.path("GIT_OBJECT_DIRECTORY").unwrap_or_else(|| repository.common_dir.join("objects"));
    let others = environment.get("GIT_ALTERNATE_OBJECT_DIRECTORIES").unwrap_or_default();
    let all = std::iter::once(main).chain(split_directories(others.as_bytes()));
    all.filter(|dir| dir.is_dir()).collect()
}

/// Colons separate; a directory that starts with a double quote or holds a colon is quoted as in C.
fn split_directories(mut list: &[u8]) -> Vec<PathBuf> {
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

fn unreadable(object: &str, why: &dyn std::fmt::Display) -> Reject {
    let why = git_fence_core::text::one_line(why.to_string().as_bytes(), 200);
    Reject::malformed(format!("'{object}' cannot be read for its {TRAILER} trailer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(message: &str) -> Vec<String> {
        token_trailers(message.as_bytes()).into_iter().map(|value| String::from_utf8(value).unwrap()).collect()
    }

    #[test]
    fn quoted_directories_may_hold_colons() {
        let dirs = split_directories(br#"/a:"/b:c":/d"#);
        assert_eq!(dirs, ["/a", "/b:c", "/d"].map(PathBuf::from));
        assert!(split_directories(b"").is_empty());
    }

    #[test]
    fn trailers_are_the_last_paragraph_and_never_the_subject() {
        assert_eq!(tokens("work\n\nFencing-Token: 5\n"), ["5"]);
        assert_eq!(tokens("work\n\nbody\n\nfencing-token: deploy:7\nSigned-off-by: a\n"), ["deploy:7"]);
        assert_eq!(tokens("work\n\nFencing-Token: 5\nFencing-Token: 6\n"), ["5", "6"]);
        assert_eq!(tokens("work\n\nFencing-Token: 4\n 2\n"), ["4 2"]);
        assert_eq!(tokens("Fencing-Token: 5\n"), [""; 0]);
        assert_eq!(tokens("work\n\nFencing-Token: 5\n\nmore\n"), [""; 0]);
        assert_eq!(tokens("work\n\nsee\nFencing-Token: 5\nand so on\n"), [""; 0]);
    }
}
