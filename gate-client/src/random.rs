//! Random values.

use git_fence_core::{LeaseId, Secret, nonce_of};

fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness two runs could be mistaken for one, so there is no fallback.
    getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
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

/// A number from 0 to 1, excluding 1.
pub(crate) fn fraction() -> f64 {
    f64::from(u32::from_le_bytes(bytes())) / (f64::from(u32::MAX) + 1.0)
}
