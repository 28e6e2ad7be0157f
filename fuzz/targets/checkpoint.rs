//! A checkpoint and the log after it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_hook::hostile::checkpoint(bytes));
