//! Tokens, names of fences and refs, ids, secrets, durations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_core::hostile::small_values(bytes));
