//! Kills a program at each of its system calls in turn.

use std::collections::HashMap;

/// System calls without an effect outside the process: a kill at one of them equals a
/// kill at the next call that has one.
const INWARD: [&str; 14] = [
    "arch_prctl",
    "brk",
    "execve",
    "getrandom",
    "gettid",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "prlimit64",
    "rseq",
    "rt_sigaction",
    "set_robust_list",
    "set_tid_address",
];

/// A system call as strace counts it: by name, and the number of earlier calls with that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemCall {
    name: String,
    nth: usize,
}

impl SystemCall {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The strace option that kills the program when it enters this call.
    pub(crate) fn kill(&self) -> String {
        format!("inject={}:signal=KILL:when={}", self.name, self.nth)
    }
}

/// The system calls of one process in a trace by strace, in order.
pub(crate) fn system_calls_in(trace: &str) -> Vec<SystemCall> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((name, _)) = line.split_once('(') else { continue };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let nth = counts.entry(name.to_owned()).or_default();
        *nth += 1;
        if !INWARD.contains(&name) {
            calls.push(SystemCall { name: name.to_owned(), nth: *nth });
        }
    }
    calls
}
