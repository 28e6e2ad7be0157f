//! What git and the gate say of a push.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_client::hostile::answer(bytes));
