//! Refs, fences and objects as numbers, so that a state is small.

/// The number of a ref.
pub type Ref = usize;
/// A branch of fence `repo`.
pub const MAIN: Ref = 0;
/// Another branch of fence `repo`.
pub const DEV: Ref = 1;
/// The branch of fence `deploy`.
pub const SITE: Ref = 2;
/// The lease of fence `repo`.
pub const LEASE: Ref = 3;
/// Its heartbeat.
pub const BEAT: Ref = 4;
/// The names of the refs.
pub const NAMES: [&str; 5] =
    ["refs/heads/main", "refs/heads/dev", "refs/heads/deploy/site", "refs/fence/repo/lease", "refs/fence/repo/beat"];

/// The number of a fence.
pub type FenceNo = usize;
/// The fence that every repository has.
pub const REPO: FenceNo = 0;
/// A named one.
pub const DEPLOY: FenceNo = 1;

/// The fence that guards a ref.
pub fn fence_of(on: Ref) -> FenceNo {
    if on == SITE { DEPLOY } else { REPO }
}

/// Whether it is a branch, and not a lease ref.
pub fn is_branch(on: Ref) -> bool {
    on <= SITE
}

/// The number of an object.
pub type Object = u8;
/// No object.
pub const NONE: Object = 0;
/// The initial value of the branches.
pub const START: Object = 1;
/// An object that does not exist.
pub const NOWHERE: Object = 2;

/// The new value of a ref in push `p`.
pub fn made_by(p: usize, on: Ref, again: bool) -> Object {
    let kind = match on {
        LEASE if again => 3,
        LEASE => 1,
        BEAT => 2,
        _ => 0,
    };
    8 + 4 * u8::try_from(p).unwrap_or(u8::MAX) + kind
}

/// The push that created a lease object.
pub fn maker_of(object: Object) -> usize {
    usize::from(object - 8) / 4
}
