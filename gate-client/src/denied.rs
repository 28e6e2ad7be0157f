//! No right to read or to write: the sentence and the hint for people.

use crate::git::said::Denial;
use git_fence_core::text;
use std::fmt;

/// The lines that git and the remote printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) lines: Vec<String>,
    /// Whether the user has seen them already.
    pub(crate) is_shown: bool,
}

impl Said {
    /// Below an error, for people: one line each, unless they have been shown.
    pub(crate) fn prose(&self) -> String {
        let lines = self.lines.iter().filter(|_| !self.is_shown);
        lines.map(|line| format!("  {line}\n")).collect()
    }
}

impl From<Vec<String>> for Said {
    fn from(lines: Vec<String>) -> Said {
        Said { lines, is_shown: false }
    }
}

/// The remote, and what it denies.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) remote: String,
    pub(crate) denial: Denial,
    /// Who has declined a push behind the gate.
    pub(crate) by: Option<String>,
    pub(crate) said: Said,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remote = text::in_quotes(&self.remote);
        match self.denial {
            Denial::Access => write!(f, "the remote {remote} denies access"),
            Denial::Writing => write!(f, "the remote {remote} denies writing"),
            Denial::Leases => write!(f, "the remote {remote} does not accept refs/fence/*, where leases are kept"),
            Denial::Typing => write!(f, "the remote {remote} asks for a password, and nobody can type one here"),
            Denial::HostKey => write!(f, "the host key of the remote {remote} is not known here"),
        }?;
        self.by.iter().try_for_each(|by| write!(f, ": {by}"))
    }
}

impl Denied {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        let remote = &self.remote;
        match self.denial {
            Denial::Access => format!(
                "no ref moved. Check the key or the password with  git ls-remote {remote};  git fence run  asks for none: use ssh-agent, a key without a passphrase, or a credential helper"
            ),
            Denial::Writing => {
                "no ref moved. Ask the remote's owner for the right to write, there and to refs/fence/*, where leases are kept".to_owned()
            }
            Denial::Leases => {
                "no ref moved. Ask the remote's owner to allow refs/fence/* (gitolite:  RW+ refs/fence/ = NAME;  check hooks, hidden refs and protected refs)".to_owned()
            }
            Denial::Typing => {
                "no ref moved. Set up what needs no typing: a credential helper (git help credentials), or ssh with ssh-agent or a deploy key".to_owned()
            }
            Denial::HostKey => {
                "no ref moved. Connect once by hand, check the key and accept it:  ssh HOST".to_owned()
            }
        }
    }
}
