//! The terminal that somebody sits at, if there is one.
//!
//! Another Unix: the same.

use crate::process::Process;
use rustix::io::Errno;
use std::{io, os::fd::AsFd};

/// How many columns the terminal at `output` has; nothing where there is none, or where it does not know.
pub fn columns(output: impl AsFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// Whether this process is what the keys of its terminal go to.
pub fn is_in_foreground() -> bool {
    let Ok(own) = Process::own() else { return false };
    match rustix::termios::tcgetpgrp(io::stdin()) {
        Ok(group) => own.group == Some(group),
        // The terminal's group is outside of this pid namespace. So is ours, if it is that one.
        Err(Errno::OPNOTSUPP) => own.group.is_none(),
        Err(_) => false,
    }
}
