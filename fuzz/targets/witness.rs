//! What the mutex holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_hook::hostile::witness(bytes));
