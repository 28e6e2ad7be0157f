//! A URL, and the client's environment.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_client::hostile::surroundings(bytes));
