//! Killing a program at each of its system calls in turn.

use std::collections::HashMap;

/// System calls that touch nothing outside of the process: to be killed at one of them is to be
/// killed at the next one that does.
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

/// A system call as strace counts them: by name, and how many of that name came before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemCall {
    name: String,
    nth: usize,
}

impl SystemCall {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What tells strace to kill the program when it enters this call.
    pub(crate) fn kill(&self) -> String {
        format!("inject={}:signal=KILL:when={}", self.name, self.nth)
    }
}

/// The system calls of a trace that strace wrote for one process, in their order.
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
