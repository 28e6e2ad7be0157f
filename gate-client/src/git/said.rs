//! What git prints on standard error when the remote refuses or cannot be reached: which lines matter, and whether they
//! say that there is no right.
//!
//! Git runs with `LC_ALL=C`, and reports no reason in any other way: a server that refuses before it has listed its refs
//! only prints something and hangs up.

use crate::git::Ran;
use git_fence_core::text;

/// Why there is no right to read or to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The remote does not know us, or does not let us read.
    Access,
    /// The remote does not let us write.
    Writing,
    /// It does not let us write the refs of leases.
    Leases,
    /// Somebody would have to type a user name, a password or a passphrase.
    Typing,
    /// Somebody would have to confirm the key of the host.
    HostKey,
}

/// The most lines to keep: a server can print without end.
const MOST_LINES: usize = 50;

/// What git and ssh add to every failure, and what says nothing about the reason.
const NOISE: [&str; 7] = [
    "fatal: Could not read from remote repository.",
    "Please make sure you have the correct access rights",
    "and the repository exists.",
    "error: failed to push some refs to ",
    "Warning: Permanently added ",
    "To ",
    "remote: fence: ",
];

/// What git and ssh print if somebody would have to type something.
const TYPING: [&str; 5] = [
    "fatal: could not read Username for ",
    "fatal: could not read Password for ",
    "fatal: unable to get password from user",
    "error: unable to read askpass response from ",
    "read_passphrase: can't open /dev/tty",
];

const HOST_KEY: [&str; 2] = ["Host key verification failed.", "No ED25519 host key is known for "];

/// What git and ssh print if the remote does not know us: no name, no key or no password that it accepts.
const UNKNOWN_HERE: [&str; 5] = [
    "fatal: Authentication failed for ",
    ": Permission denied (",
    "returned error: 401",
    "; HTTP 401 ",
    "Too many authentication failures",
];

/// What web servers answer through git.
const FORBIDDEN: [&str; 2] = ["returned error: 403", "; HTTP 403 "];

/// What hosts print to somebody who has no right. In lower case: each host spells it differently.
const DENIED: [&str; 16] = [
    "access denied",
    "denied by ",
    " denied to ",
    "permission denied",
    "insufficient permission",
    "no permission",
    "not have permission",
    "not allowed to push",
    "not allowed to write",
    "not allowed to access",
    "write access",
    "not authorized",
    "unauthorized",
    "read-only",
    "read only",
    "protected branch",
];

/// The same, from hosts that hide what may not be read, and from git's own shell.
const DENIED_AT_THE_DOOR: [&str; 4] = [
    "repository not found",
    "could not be found or you don't have permission",
    "unrecognized command 'git-receive-pack",
    "not allowed",
];

impl Ran {
    /// The lines that matter, in order, safe to show.
    pub(crate) fn said(&self) -> Vec<String> {
        let printed = String::from_utf8_lossy(&self.stderr);
        // What comes before a carriage return is progress that has been replaced.
        let lines = printed.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default().trim());
        let matter = lines.filter(|line| !line.is_empty() && !NOISE.iter().any(|noise| line.starts_with(noise)));
        matter.take(MOST_LINES).map(|line| text::one_line(line.as_bytes(), 300)).collect()
    }

    /// Why git could not read from the remote, or could not even list its refs, if it was for want of a right.
    pub(crate) fn denial(&self, otherwise: Denial) -> Option<Denial> {
        let said = self.said();
        let any = |is_it: &dyn Fn(&str) -> bool| said.iter().any(|line| is_it(line));
        let starts = |words: &[&str], line: &str| words.iter().any(|words| line.starts_with(words));
        let contains = |words: &[&str], line: &str| words.iter().any(|words| line.contains(words));
        if any(&|line| starts(&TYPING, line)) {
            return Some(Denial::Typing);
        }
        if any(&|line| starts(&HOST_KEY, line)) {
            return Some(Denial::HostKey);
        }
        if any(&|line| contains(&UNKNOWN_HERE, line)) {
            return Some(Denial::Access);
        }
        let of_host = |line: &str| is_denied(line) || contains(&DENIED_AT_THE_DOOR, &line.to_lowercase());
        any(&|line| contains(&FORBIDDEN, line) || of_host(line)).then_some(otherwise)
    }

    /// Whether a web server has answered the push itself with 401 or 403. Then git has not seen it.
    pub(crate) fn is_forbidden(&self) -> bool {
        let is_it = |line: &str| {
            ["401", "403"].iter().any(|code| line.starts_with(&format!("error: RPC failed; HTTP {code} ")))
        };
        String::from_utf8_lossy(&self.stderr).lines().any(is_it)
    }
}

/// Whether the remote says in this line that we have no right. ssh says "Permission denied" of connections, too.
pub(crate) fn is_denied(line: &str) -> bool {
    let line = line.to_lowercase();
    // A disk can be read-only, too.
    !line.starts_with("ssh: ") && !line.contains("file system") && DENIED.iter().any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

    fn printed(stderr: &str) -> Ran {
        Ran { status: ExitStatus::from_raw(128 << 8), stdout: Vec::new(), stderr: stderr.into(), gave_up_after: None }
    }

    /// What git adds to everything that ssh or the host printed.
    const BOILERPLATE: &str = "fatal: Could not read from remote repository.\n\n\
        Please make sure you have the correct access rights\nand the repository exists.\n";

    /// As printed by git 2.39 and 2.47, by OpenSSH, and by hosts.
    #[test]
    fn hosts_that_deny_are_told_from_hosts_that_cannot_be_reached() {
        let of = |words: &str| printed(&format!("{words}\n{BOILERPLATE}")).denial(Denial::Writing);
        for (words, denial) in [
            ("git@host: Permission denied (publickey).", Denial::Access),
            ("Host key verification failed.", Denial::HostKey),
            ("fatal: could not read Username for 'https://host': terminal prompts disabled", Denial::Typing),
            ("fatal: could not read Password for 'https://a@host': No such device or address", Denial::Typing),
            ("remote: bad\nfatal: Authentication failed for 'https://host/a.git/'", Denial::Access),
            ("fatal: unable to access 'https://host/': The requested URL returned error: 403", Denial::Writing),
            ("FATAL: W any app anna DENIED by fallthru\n(or you mis-spelled the reponame)", Denial::Writing),
            ("ERROR: Permission to a/b.git denied to bot.", Denial::Writing),
            ("ERROR: The key you are authenticating with has been marked as read only.", Denial::Writing),
            ("ERROR: Repository not found.", Denial::Writing),
            ("remote: ERROR: This deploy key does not have write access to this project.", Denial::Writing),
            ("fatal: unrecognized command 'git-receive-pack '/srv/a.git''", Denial::Writing),
        ] {
            assert_eq!(of(words), Some(denial), "{words}");
        }
        for words in [
            "ssh: connect to host h port 22: Connection refused",
            "ssh: connect to host h port 22: Permission denied",
            "ssh: Could not resolve hostname h: Name or service not known",
            "kex_exchange_identification: Connection closed by remote host",
            "fatal: '/srv/a.git' does not appear to be a git repository",
            "fatal: unable to access 'https://host/': The requested URL returned error: 503",
            "error: cannot lock: Read-only file system",
        ] {
            assert_eq!(of(words), None, "{words}");
        }
    }

    #[test]
    fn every_line_is_kept_but_those_that_say_nothing() {
        let said =
            printed(&format!("one\n\n  two\u{1b}[2J  \nremote: progress 1%\rremote: three   \n{BOILERPLATE}")).said();
        assert_eq!(said, ["one", "two[2J", "remote: three"]);
    }
}
