//! The terminal, if there is one.
//!
//! Another Unix: the same.

use crate::process::Process;
use rustix::io::Errno;
use std::{io, os::fd::AsFd};

/// The number of columns of the terminal at `output`; `None` if it is not a terminal or its size is unknown.
pub fn columns(output: impl AsFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// How wide help is: as the terminal, but no wider than lines that are easy to read. 80 columns if there is no terminal.
pub fn help_width() -> usize {
    columns(io::stdout()).or_else(|| columns(io::stderr())).map_or(80, |columns| usize::from(columns).min(100))
}

/// Whether this process is in the foreground of its terminal and receives its key strokes.
pub fn is_in_foreground() -> bool {
    let Ok(own) = Process::own() else { return false };
    match rustix::termios::tcgetpgrp(io::stdin()) {
        Ok(group) => own.group == Some(group),
        // The terminal's group is outside this PID namespace. If it is ours, so is ours.
        Err(Errno::OPNOTSUPP) => own.group.is_none(),
        Err(_) => false,
    }
}
