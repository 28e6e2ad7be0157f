//! What git-fence needs of the operating system, once for the gate and for the client.
//!
//! Mechanism only. What a receive-pack is, whom a keeper ends, how long somebody waits: that is decided by those who
//! call. Nothing in here knows of fences, leases or git.
//!
//! The modules work on every Unix, through `std`, `rustix`, `nix` and `signal-hook`. What only Linux has lies in one
//! folder, `linux/`, and is reached through one name, `os`. To port the client is to write the same items once more,
//! `macos/` for example, and to name them below; each module says what they would be made of. The gate stays with
//! Linux: it opens files in ways that only Linux has (`hook/src/log/directory.rs`). With a folder of empty functions the
//! client compiles for `aarch64-apple-darwin`, and nothing outside of this crate has to change for that.
//!
//! | module | what another Unix has to give (`os`) |
//! |---|---|
//! | [`clock`] | nanoseconds since the boot, suspend included |
//! | [`place`] | an id of the boot and one of the machine |
//! | [`process`] | a process's parent, group, session and start, its arguments; all processes; a handle to wait for one |
//! | [`lock`] | who holds a lock, or "not known" |
//! | [`signals`] | which signals this process ignores |
//! | [`program`] | the program of this process |
//! | [`descriptor`] | the flags for passing a descriptor on |
//! | [`env`](mod@env), [`Environment`], [`terminal`], [`user`] | nothing |
//!
//! Two things are not here because a library has them: a lock is `File::try_lock`, which is `flock` on Linux and on the
//! BSDs, and quoting for a shell as git does it is `gix::quote::single`.

pub mod clock;
pub mod descriptor;
pub mod env;
mod environment;
mod identity;
pub mod lock;
pub mod place;
pub mod process;
pub mod program;
pub mod signals;
pub mod terminal;
pub mod user;

pub use environment::Environment;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as os;
#[cfg(not(target_os = "linux"))]
compile_error!("git-fence-system needs a folder for this system, as 'linux/' is for Linux: see lib.rs");
