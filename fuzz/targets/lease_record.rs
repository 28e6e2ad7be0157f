//! The commit messages of a lease and its beat.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_core::hostile::record(bytes));
