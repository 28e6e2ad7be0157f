//! The commands that git sends to the remote helper.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_client::hostile::helper(bytes));
