//! Push options, and the values of trailers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_core::hostile::options(bytes));
