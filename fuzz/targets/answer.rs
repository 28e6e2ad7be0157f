//! The answers of git and of the gate to a push.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_client::hostile::answer(bytes));
