//! A configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_hook::hostile::settings::file(bytes));
