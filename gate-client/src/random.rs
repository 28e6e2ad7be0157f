//! What nobody else can guess.

use git_fence_core::{LeaseId, Secret, nonce_of};

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness two runs would be one: there is nothing to go on with.
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

pub(crate) fn lease_id() -> LeaseId {
    LeaseId::of(bytes())
}

pub(crate) fn secret() -> Secret {
    Secret::of(bytes())
}

pub(crate) fn nonce() -> String {
    nonce_of(bytes())
}

/// A number from 0 up to and without 1.
pub(crate) fn fraction() -> f64 {
    f64::from(u32::from_le_bytes(bytes())) / (f64::from(u32::MAX) + 1.0)
}
