//! A line of the log, a state, a plan.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_fence_core::hostile::line(bytes));
