//! The standard input of the hook.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_core::hostile::push(bytes));
