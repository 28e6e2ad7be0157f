//! Fresh numbers for records.

use git_fence_core::{LeaseId, Secret, nonce_of};

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness two records would be the same: the engines say so.
    let _ = getrandom::fill(&mut bytes);
    bytes
}

pub(super) fn nonce() -> String {
    nonce_of(bytes())
}

pub(super) fn lease_id() -> LeaseId {
    LeaseId::of(bytes())
}

pub(super) fn secret() -> Secret {
    Secret::of(bytes())
}
