//! What git-fence needs from the operating system, for the gate and for the client.
//!
//! Mechanism only: what a receive-pack is, which processes a keeper ends, or how long to wait is decided by the callers.
//! Nothing in here knows about fences, leases or git.
//!
//! The modules work on every Unix, through `std`, `rustix`, `nix` and `signal-hook`. What only Linux has is in one folder,
//! `linux/`, imported under one name, `os`. To port the client, write the same items again, in `macos/` for example, and
//! import them below; each module says what to use. The gate stays on Linux: it opens files in ways that only Linux has
//! (`hook/src/log/directory.rs`). With a folder of empty functions, the client compiles for `aarch64-apple-darwin`, without
//! changes outside this crate.
//!
//! | module | what another Unix has to provide (`os`) |
//! |---|---|
//! | [`clock`] | nanoseconds since boot, including suspend |
//! | [`place`] | an id of the boot and one of the machine |
//! | [`process`] | a process's parent, group, session and start, its arguments; all processes; a handle to wait for one |
//! | [`lock`] | who holds a lock, or "unknown" |
//! | [`signals`] | which signals this process ignores |
//! | [`program`] | the program of this process |
//! | [`watch`] | waking when a process ends or a file is renamed; looking again at intervals would do |
//! | [`descriptor`] | the flags for passing a descriptor |
//! | [`env`](mod@env), [`Environment`], [`colours`], [`screen`], [`terminal`], [`user`] | nothing |
//!
//! Two things are not here because libraries have them: a lock is `File::try_lock`, which is `flock` on Linux and the
//! BSDs, and shell quoting in git's style is `gix::quote::single`.

pub mod clock;
pub mod colours;
pub mod descriptor;
pub mod env;
mod environment;
mod identity;
pub mod lock;
pub mod place;
pub mod process;
pub mod program;
pub mod screen;
pub mod signals;
pub mod terminal;
pub mod user;
pub mod watch;

pub use environment::Environment;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as os;
#[cfg(not(target_os = "linux"))]
compile_error!("git-fence-system does not support this system: write a folder like 'linux/' for it, see lib.rs");
