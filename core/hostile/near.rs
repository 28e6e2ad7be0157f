//! Near misses: valid input with a few small edits.

use proptest::{collection::vec, prelude::*, sample::Index};

/// Bytes that mean something to one parser or another.
const TELLING: &[u8] = b"\0\n\r\t \x1b:=+-.,/'\"\\{}[]019aAxsm\x7f\xff\xc3\xa4";

/// `valid` with up to three edits: a byte inserted, removed or changed, a piece repeated, the end cut off.
pub(crate) fn near(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => proptest::sample::select(TELLING), 1 => any::<u8>()];
    let edit = (0..6u8, any::<Index>(), any::<Index>(), byte);
    (valid, vec(edit, 0..4)).prop_map(|(mut bytes, edits)| {
        for (kind, here, there, byte) in edits {
            let at = here.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => _ = bytes.remove(at),
                2 if at < bytes.len() => bytes[at] = byte,
                3 if at < bytes.len() => bytes[at] ^= 0x20,
                4 => {
                    let piece = bytes[at..at + there.index(bytes.len() + 1 - at)].to_vec();
                    bytes.splice(at..at, piece);
                }
                5 => bytes.truncate(at),
                _ => {}
            }
        }
        bytes
    })
}

/// Any bytes, and near misses of `valid`.
pub(crate) fn hostile(valid: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![6 => near(valid), 1 => vec(any::<u8>(), 0..200)]
}

/// The number of cases, chosen so that all properties together take seconds. A failure prints the smallest
/// failing case, which then becomes a test of its own.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
