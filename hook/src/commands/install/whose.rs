//! Whether root may write the hooks of somebody else's repository.

use crate::{commands::advice, failure::CommandError, host::layout::Site, repository::Repository};
use git_fence_system::user;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const ROOT: u32 = 0;

/// Root writes only where the owner could: the owner's `core.hooksPath` may lead to any directory, of root's or of others.
pub(super) fn check(repository: &Repository, site: &Site) -> Result<(), CommandError> {
    match (user::is_root(), foreign(repository, site.hooks())) {
        (true, Some(place)) => Err(CommandError::Other {
            what: format!(
                "core.hooksPath is '{}', which does not belong to the repository's owner: nothing was changed",
                site.hooks().display()
            ),
            hint: format!(
                "correct the setting in '{}', or install as the owner:  {}",
                place.display(),
                advice::as_owner(repository, &advice::install(repository)),
            ),
        }),
        _ => Ok(()),
    }
}

/// The file of a user that sets `core.hooksPath` to a directory that is not the owner's, or would be created in one.
fn foreign(repository: &Repository, hooks: &Path) -> Option<PathBuf> {
    let uid_of = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
    let place = repository.place_of("core.hooksPath")?.path?;
    let owner = uid_of(&repository.common_dir)?;
    let is_owners = owner == ROOT || hooks.ancestors().find_map(uid_of) == Some(owner);
    (!is_owners && uid_of(&place) != Some(ROOT)).then_some(place)
}
