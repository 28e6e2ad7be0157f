//! Programs: this one, and whether a file is executable.
//!
//! Another Unix: this program is `std::env::current_exe`, which on macOS and FreeBSD is a file name, and so another file
//! once the program has been replaced.

use crate::os;
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// This program, even if its file has been replaced.
pub fn own() -> PathBuf {
    os::process::own_program()
}

/// Whether this process may run the file.
pub fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

/// Whether starting a program failed because it has no interpreter: a script without a `#!` line.
pub fn has_no_interpreter(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
}
