//! The content of the mutex file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_hook::hostile::witness(bytes));
