//! Which process moves the refs, and whether it still runs.

use git_fence_core::{Place, ReceivePack};
pub(crate) use git_fence_system::process::Liveness;
use git_fence_system::{
    clock, place,
    process::{self, Identity, ProcessHandle, Signal},
};
use std::{io, path::PathBuf};

/// This machine, this boot, this PID namespace.
pub(crate) fn here() -> io::Result<Place> {
    Ok(Place {
        boot: place::boot_id()?,
        machine: place::machine_id(),
        pid_ns: place::pid_namespace()?,
        uptime_ms: clock::uptime_ms(),
    })
}

/// The receive-packs among the ancestors of this process, nearest first, found lazily.
pub(crate) fn receive_pack_ancestors() -> impl Iterator<Item = ReceivePack> {
    process::ancestors().filter_map(|ancestor| {
        let arguments = process::arguments(ancestor.pid)?;
        is_receive_pack(&arguments).then(|| as_recorded(ancestor.identity()))
    })
}

/// This process.
pub(crate) fn this() -> Option<ReceivePack> {
    Identity::own().map(as_recorded)
}

/// The program of a process, if it is visible.
pub(crate) fn program_of(process: &ReceivePack) -> Option<PathBuf> {
    identity_of(process).program()
}

/// Checks whether `process` still runs. Call it only where it was recorded: the same machine, boot and namespace.
pub(crate) fn liveness_of(process: &ReceivePack) -> Liveness {
    identity_of(process).liveness()
}

/// Asks the process to exit cleanly: SIGTERM, and SIGCONT so that a stopped process receives it. Never SIGKILL, which
/// would leave git's ref locks behind.
pub(crate) fn terminate(process: &ProcessHandle) -> io::Result<()> {
    for signal in [Signal::TERM, Signal::CONT] {
        process.signal(signal)?;
    }
    Ok(())
}

fn as_recorded(Identity { pid, start, incarnation }: Identity) -> ReceivePack {
    ReceivePack { pid, start, pidfd: incarnation }
}

fn identity_of(process: &ReceivePack) -> Identity {
    Identity { pid: process.pid, start: process.start, incarnation: process.pidfd }
}

/// Whether a NUL-separated argv is that of `git-receive-pack …` or `git … receive-pack …`.
fn is_receive_pack(cmdline: &[u8]) -> bool {
    let mut args = cmdline.strip_suffix(b"\0").unwrap_or(cmdline).split(|b| *b == 0);
    let program = args.next().unwrap_or_default();
    match program.rsplit(|b| *b == b'/').next().unwrap_or_default() {
        b"git-receive-pack" => true,
        b"git" => {
            // Git's own options come first; some have a value as the next argument.
            while let Some(arg) = args.next() {
                match arg {
                    b"-C" | b"-c" | b"--git-dir" | b"--work-tree" | b"--namespace" | b"--config-env"
                    | b"--super-prefix" | b"--attr-source" => {
                        args.next();
                    }
                    _ if arg.starts_with(b"-") => {}
                    subcommand => return subcommand == b"receive-pack",
                }
            }
            false
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_pack_is_recognized_by_its_argv() {
        for (argv, expected) in [
            (&["git-receive-pack", "/srv/a.git"][..], true),
            (&["/usr/lib/git-core/git-receive-pack", "."], true),
            (&["git", "receive-pack", "/srv/a.git"], true),
            (&["/usr/bin/git", "receive-pack", "--stateless-rpc", "."], true),
            (&["git", "-c", "a.b=receive-pack", "--no-pager", "receive-pack", "."], true),
            (&["git", "push", "origin", "receive-pack"], false),
            (&["git", "-C", "receive-pack", "push"], false),
            (&["git", "http-backend"], false),
            (&["sh", "-c", "git-receive-pack '/srv/a.git'"], false),
            (&["/bin/sh", "/hooks/git-receive-pack"], false),
            (&["git-receive-packer"], false),
            (&["git"], false),
            (&[""], false),
        ] {
            let cmdline = argv.join("\0") + "\0";
            assert_eq!(is_receive_pack(cmdline.as_bytes()), expected, "{argv:?}");
        }
    }
}
