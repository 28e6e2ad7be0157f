//! The codes of refusals. Each is declared here, once; the list in docs/codes.md is generated from it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is declared for a code besides its meaning.
struct Entry {
    /// What the refused pusher can do; markdown.
    remedy: &'static str,
    /// Whether the push may be retried with the same token.
    retryable: bool,
    /// Whether the refusal is about the lease itself, not about what is written under it.
    of_lease: bool,
}

const PLAIN: Entry = Entry { remedy: "", retryable: false, of_lease: false };

/// The doc comment of each entry is its meaning, here and in docs/codes.md.
macro_rules! codes {
    ($(#[doc = $meaning:literal] $variant:ident = $name:literal { $($field:ident: $value:expr),+ })+) => {
        /// The stable name of a reason to refuse, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$variant),+];

            /// The code as it is printed.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)+ }
            }

            /// The meaning; markdown.
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
    Stale = "FENCE-STALE" { remedy: "stop; to start over, get a new token from the source of this one" }

    /// the push would move a guarded ref without a token
    Missing = "FENCE-MISSING" { remedy: "with leases: `git fence run`, `git fence push`; with tokens of your own: `-o fence-token=<n>` or the trailer `Fencing-Token: <n>`" }

    /// the push or its token cannot be parsed
    Malformed = "FENCE-MALFORMED" { remedy: "see the message" }

    /// two different tokens for one fence
    Ambiguous = "FENCE-AMBIGUOUS" { remedy: "send one" }

    /// the token is further above the mark than `fence.maxJump` allows
    Jump = "FENCE-JUMP" { remedy: "check the source of the token" }

    /// an older push is still in flight, or has moved one of your refs (`"retryable":true`; in the second case with `"ref"`)
    Busy = "FENCE-BUSY" { remedy: "push again with the same token; with `\"ref\"`, fetch first", retryable: true }

    /// the push comes from inside a hook of the push it would wait for
    Nested = "FENCE-NESTED" { remedy: "push from post-receive" }

    /// the receive-pack that will move the refs cannot be found
    Unseen = "FENCE-UNSEEN" { remedy: "see [settings](settings.md)" }

    /// the fence takes lease tokens, and the push lacks the lease, its token or its proof
    LeaseRequired = "FENCE-LEASE-REQUIRED" { remedy: "`git fence run`, `git fence push`" }

    /// another holder has the lease (`holder` says who and for how long)
    LeaseHeld = "FENCE-LEASE-HELD" { remedy: "skip, or wait", of_lease: true }

    /// the pusher held the lease and has lost it
    LeaseLost = "FENCE-LEASE-LOST" { remedy: "stop; to start over, acquire a new lease", of_lease: true }

    /// an operator has halted the fence: nobody gets its lease, and only those who need no token write (`halt` says who, since when and why)
    Halted = "FENCE-HALTED" { remedy: "stop; to start over, acquire a new lease when the fence has been resumed", of_lease: true }

    /// the change to the lease is not allowed, or the fence takes its own tokens and grants no leases
    LeaseInvalid = "FENCE-LEASE-INVALID" { remedy: "see the message", of_lease: true }

    /// the gate could not ask the store that keeps the leases (`fence.store`) who holds the lease
    Store = "FENCE-STORE" { remedy: "push again with the same token when the store answers", retryable: true }

    /// the fence's files or settings cannot be used
    Broken = "FENCE-BROKEN" { remedy: "contact the server's operator" }
}

impl Code {
    /// What the refused pusher can do; markdown.
    pub fn remedy(self) -> &'static str {
        self.entry().remedy
    }

    /// Whether the push may be retried with the same token: unchanged, or after a fetch.
    pub fn is_retryable(self) -> bool {
        self.entry().retryable
    }

    /// Whether the refusal is about the lease itself, not about what is written under it.
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
    fn every_code_round_trips_and_has_a_meaning_and_a_remedy() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(serde_json::from_value::<Code>(code.as_str().into()).unwrap(), *code);
            assert!(code.as_str().starts_with("FENCE-") && !code.meaning().is_empty() && !code.remedy().is_empty());
        }
    }
}
