//! The codes of refusals: every code is declared here, once. README's list of codes is made from it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is declared of a code besides its meaning.
struct Entry {
    /// What whoever is refused can do; markdown.
    remedy: &'static str,
    /// Whether the push may be tried again with the same token.
    retryable: bool,
    /// Whether it is about a lease itself, and not about what is written under one.
    of_lease: bool,
}

const PLAIN: Entry = Entry { remedy: "", retryable: false, of_lease: false };

/// The comment of each entry is its meaning, here and in the README.
macro_rules! codes {
    ($(#[doc = $meaning:literal] $variant:ident = $name:literal { $($field:ident: $value:expr),+ })+) => {
        /// The stable name of a reason, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)+
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Code] = &[$(Code::$variant),+];

            /// The code as it is printed.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)+ }
            }

            /// What it means; markdown.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning.trim_ascii(),)+ }
            }

            fn entry(self) -> Entry {
                match self { $(Code::$variant => Entry { $($field: $value,)+ ..PLAIN },)+ }
            }
        }
    };
}

codes! {
    /// the token is not above the mark: a newer run has written
    Stale = "FENCE-STALE" { remedy: "stop; to start over, get a new token where this one came from" }

    /// a guarded ref would move without a token
    Missing = "FENCE-MISSING" { remedy: "`-o fence-token=<n>`" }

    /// the push or its token cannot be read as one
    Malformed = "FENCE-MALFORMED" { remedy: "see the message" }

    /// two different tokens for one fence
    Ambiguous = "FENCE-AMBIGUOUS" { remedy: "send one" }

    /// the token is further above the mark than `fence.maxJump` allows
    Jump = "FENCE-JUMP" { remedy: "check where it comes from" }

    /// an older push is still moving its refs, or has moved one of yours (`"retryable":true`, then with `"ref"`)
    Busy = "FENCE-BUSY" { remedy: "push again, same token; with `\"ref\"`, fetch first", retryable: true }

    /// the push comes from inside a hook of the push it would wait for
    Nested = "FENCE-NESTED" { remedy: "push from post-receive" }

    /// the receive-pack that will move the refs cannot be found
    Unseen = "FENCE-UNSEEN" { remedy: "see [settings](docs/settings.md)" }

    /// the fence takes tokens of leases, and the push comes without its lease, its token or its proof
    LeaseRequired = "FENCE-LEASE-REQUIRED" { remedy: "`git fence run`, `git fence push`" }

    /// the lease is somebody else's (`holder` says whose and for how long)
    LeaseHeld = "FENCE-LEASE-HELD" { remedy: "leave it, or wait", of_lease: true }

    /// the lease was the pusher's and is no more
    LeaseLost = "FENCE-LEASE-LOST" { remedy: "stop; to start over, take a new lease", of_lease: true }

    /// what the push would make of the lease is not allowed, or the fence takes tokens of its own and grants none
    LeaseInvalid = "FENCE-LEASE-INVALID" { remedy: "see the message", of_lease: true }

    /// the fence's own files or settings cannot be used
    Broken = "FENCE-BROKEN" { remedy: "for the server's operator" }
}

impl Code {
    /// What whoever is refused can do; markdown.
    pub fn remedy(self) -> &'static str {
        self.entry().remedy
    }

    /// Whether the push may be tried again with the same token: as it is, or after a fetch.
    pub fn is_retryable(self) -> bool {
        self.entry().retryable
    }

    /// Whether it is about a lease itself, and not about what is written under one.
    pub fn is_about_the_lease(self) -> bool {
        self.entry().of_lease
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written_and_says_what_it_means() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(serde_json::from_value::<Code>(code.as_str().into()).unwrap(), *code);
            assert!(code.as_str().starts_with("FENCE-") && !code.meaning().is_empty() && !code.remedy().is_empty());
        }
    }
}
