//! Why a command failed: a sentence and a hint for people, JSON and an exit code for programs.

use git_fence_core::{Code, FenceName, HeldBy, Token, text};
use serde::Serialize;
use std::{
    error::Error,
    io, iter,
    path::{Path, PathBuf},
};

/// What led to a failure.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// The lease is held elsewhere.
pub(crate) const HELD: u8 = 11;
/// The lease was lost: exit code of the single commands.
pub(crate) const NOT_OURS: u8 = 12;
/// The remote cannot be reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// The lease was lost while it was needed: exit code of `run` and `push`.
pub(crate) const LOST: u8 = 75;

/// Why a command failed. `Display` is the sentence for people, without its causes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line cannot be used.
    #[error("{what}")]
    Usage { what: String, hint: String },
    /// The remote does not answer, or does not speak git's protocol.
    #[error("cannot reach the remote {}: {why}", text::in_quotes(remote))]
    Unreachable { remote: String, why: String },
    /// Others use the fence at this moment. Nothing was taken, and nothing landed.
    #[error("fence '{fence}' is busy: {why}")]
    Busy { fence: FenceName, why: String },
    /// Another run holds the lease.
    #[error("the lease of fence '{fence}' is held by {}", who(by))]
    Held { fence: FenceName, by: Box<HeldBy> },
    /// This clone holds the lease.
    #[error("this clone already holds the lease of fence '{fence}', with token {token}")]
    HeldHere { fence: FenceName, token: Token },
    /// The lease was taken over, released or revoked. `by` is the new holder, if known.
    #[error("lost the lease of fence '{fence}': {now}")]
    Lost { fence: FenceName, now: String, by: Option<Box<HeldBy>> },
    /// The remote refused the push, not because of the lease. `code` is the gate's, if the gate refused it.
    #[error("the push was refused: {why}")]
    Refused { why: String, code: Option<Code> },
    /// The remote does not accept push options.
    #[error("the remote {} does not accept push options", text::in_quotes(remote))]
    NoOptions { remote: String },
    /// The push may or may not have landed.
    #[error("could not find out whether the push landed: {why}")]
    Unknown { why: String },
    /// The push did not leave this machine.
    #[error("nothing was sent: {why}")]
    NotSent { why: String },
    /// The push did not land, and never will.
    #[error("the push did not land: {why}")]
    DidNotLand { why: String },
    /// The lease moved, and these refs did not.
    #[error("the push landed in part: the lease moved, but {} not at the pushed value ({why})", are(refs))]
    InPart { refs: Vec<String>, why: String },
    /// A file of the lease's local state cannot be read or written.
    #[error("cannot use '{}'", path.display())]
    File { path: PathBuf, source: io::Error },
    /// Git is not installed, or cannot be run.
    #[error("cannot run git")]
    CannotRunGit(#[source] io::Error),
    /// Something on this machine or in the remote is unusable.
    #[error("{what}")]
    Broken { what: String, hint: String, source: Option<Cause> },
}

#[derive(Serialize)]
struct FailureJson<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    /// The holder of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a HeldBy>,
    /// Whether the same command may succeed later.
    retryable: bool,
    reason: String,
}

impl Failure {
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage { what: what.into(), hint: hint.into() }
    }

    pub(crate) fn broken(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Broken { what: what.into(), hint: hint.into(), source: None }
    }

    /// The same, with its cause.
    pub(crate) fn because(self, cause: impl Into<Cause>) -> Failure {
        match self {
            Failure::Broken { what, hint, .. } => Failure::Broken { what, hint, source: Some(cause.into()) },
            other => other,
        }
    }

    /// A refusal that no gate has given a code.
    pub(crate) fn refused(why: impl Into<String>) -> Failure {
        Failure::Refused { why: why.into(), code: None }
    }

    /// The sentence with all its causes, in one line.
    pub(crate) fn in_one_line(&self) -> String {
        causes(self).fold(self.to_string(), |line, cause| format!("{line}: {cause}"))
    }

    /// The lease was lost for the reason `now`.
    pub(crate) fn lost(fence: &FenceName, now: impl Into<String>) -> Failure {
        Failure::Lost { fence: fence.clone(), now: now.into(), by: None }
    }

    /// The same failure, with what happened before the lease was lost.
    pub(crate) fn after(self, before: &str) -> Failure {
        match self {
            Failure::Lost { fence, now, by } => Failure::Lost { fence, now: format!("{before}, {now}"), by },
            other => other,
        }
    }

    /// Who took the lease over.
    pub(crate) fn holder(&self) -> Option<HeldBy> {
        match self {
            Failure::Lost { by, .. } => by.as_deref().cloned(),
            _ => None,
        }
    }

    /// The `outcome` in JSON.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Failure::Usage { .. } => "usage",
            Failure::Unreachable { .. } => "unreachable",
            Failure::Busy { .. } => "busy",
            Failure::Held { .. } | Failure::HeldHere { .. } => "held",
            Failure::Lost { .. } => "lost",
            Failure::Refused { .. } => "refused",
            Failure::Unknown { .. } => "unknown",
            Failure::NotSent { .. } => "not-sent",
            Failure::DidNotLand { .. } => "not-landed",
            Failure::InPart { .. } => "landed-in-part",
            Failure::File { .. } | Failure::CannotRunGit(_) | Failure::NoOptions { .. } | Failure::Broken { .. } => {
                "broken"
            }
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage { .. } => 2,
            Failure::Unreachable { .. } | Failure::Busy { .. } | Failure::Unknown { .. } => UNREACHABLE,
            Failure::Held { .. } | Failure::HeldHere { .. } => HELD,
            Failure::Lost { .. } => LOST,
            Failure::Refused { .. }
            | Failure::NotSent { .. }
            | Failure::DidNotLand { .. }
            | Failure::InPart { .. }
            | Failure::File { .. }
            | Failure::CannotRunGit(_)
            | Failure::NoOptions { .. }
            | Failure::Broken { .. } => 1,
        }
    }

    /// Whether the same command may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        use Failure::{Busy, DidNotLand, Held, Unreachable};
        matches!(self, Busy { .. } | DidNotLand { .. } | Held { .. } | Unreachable { .. })
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Failure::Usage { hint, .. } | Failure::Broken { hint, .. } => hint.clone(),
            Failure::Unreachable { .. } => {
                "no lease was taken, nothing was skipped and nothing landed. Try again when  git ls-remote  works".to_owned()
            }
            Failure::Busy { .. } => {
                "no lease was taken and nothing landed. Try again later; the same token is still valid".to_owned()
            }
            Failure::Held { .. } => {
                "leave the work to the holder, or wait:  git fence run --if-held wait -- COMMAND".to_owned()
            }
            Failure::HeldHere { .. } => {
                "use it:  git fence push, renew, advance,  or release it:  git fence release".to_owned()
            }
            Failure::Lost { .. } => {
                "stop: another run may have continued the work. Another token will not help. To start over:  git fence acquire".to_owned()
            }
            Failure::Refused { code: Some(Code::Stale), .. } => {
                "stop: a newer run has written here. Another token will not help".to_owned()
            }
            Failure::NoOptions { .. } => {
                "push without -o. If the server has a gate, its operator must set  receive.advertisePushOptions = true,  as  git-fence-hook install  does".to_owned()
            }
            Failure::File { .. } => {
                "the local state of a lease is kept in the git directory: it must be writable and have free space".to_owned()
            }
            Failure::CannotRunGit(_) => "install git, or add it to the PATH".to_owned(),
            Failure::Refused { .. } => "no ref moved. Fix the cause, and try again".to_owned(),
            Failure::Unknown { .. } => {
                "the next command with this lease finds out first, for example  git fence advance.  Without a lease, check with  git ls-remote".to_owned()
            }
            Failure::NotSent { .. } => "nothing landed and no token was spent. Fix the cause, and push again".to_owned(),
            Failure::DidNotLand { .. } => "it will not land later either: push again".to_owned(),
            Failure::InPart { .. } => {
                "the server stopped while it moved the refs, or another writer has moved them since. Check with  git ls-remote,  and push again".to_owned()
            }
        }
    }

    /// For people, on standard error.
    pub(crate) fn prose(&self) -> String {
        let because: String = causes(self).map(|cause| format!("  caused by: {cause}\n")).collect();
        format!("error: {self}\n{because}hint: {}\n", self.hint())
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let holder = match self {
            Failure::Held { by, .. } | Failure::Lost { by: Some(by), .. } => Some(&**by),
            _ => None,
        };
        let owner = holder.map(|by| by.owner.as_str()).filter(|_| matches!(self, Failure::Held { .. }));
        let (outcome, retryable) = (self.outcome(), self.is_retryable());
        let all = FailureJson { outcome, owner, holder, retryable, reason: self.in_one_line() };
        serde_json::to_string(&all).unwrap_or_default()
    }
}

/// Who holds a lease, with which token and for how long.
pub(crate) fn who(by: &HeldBy) -> String {
    let owner = text::in_quotes(&by.owner);
    // Rounded up: a lease with 100 ms left is still held.
    format!("{owner}, with token {}, for another {} s", by.token, by.left_ms.div_ceil(1000))
}

/// The names, and whether it is one or more.
fn are(refs: &[String]) -> String {
    let names: Vec<String> = refs.iter().map(|name| text::one_line(name.as_bytes(), 200)).collect();
    format!("{} {}", names.join(", "), if refs.len() == 1 { "is" } else { "are" })
}

/// A file of ours that cannot be read or written.
pub(crate) fn of_file(path: &Path, source: io::Error) -> Failure {
    Failure::File { path: path.to_owned(), source }
}

/// What led to `error`, one after the other.
fn causes(error: &dyn Error) -> impl Iterator<Item = &dyn Error> {
    iter::successors(error.source(), |&cause| cause.source())
}
