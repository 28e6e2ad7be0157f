//! What a command failed of, in words and as an exit code.

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
/// The lease was ours and is not any more: said by the single commands.
pub(crate) const NOT_OURS: u8 = 12;
/// The remote cannot be reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// The lease was lost while it was needed.
pub(crate) const LOST: u8 = 75;

/// Why a command did not do what was asked. Its `Display` is the sentence for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Asked for in a way that cannot be done.
    #[error("{what}")]
    Usage { what: String, hint: String },
    /// The remote does not answer, or not as git does.
    #[error("the remote {} cannot be reached: {why}", text::in_quotes(remote))]
    Unreachable { remote: String, why: String },
    /// It answers, and others are at it: nothing was taken and nothing has landed.
    #[error("fence '{fence}' is busy: {why}")]
    Busy { fence: FenceName, why: String },
    /// Somebody else has the lease.
    #[error("the lease of fence '{fence}' is held by {}", who(by))]
    Held { fence: FenceName, by: Box<HeldBy> },
    /// It is ours already.
    #[error("the lease of fence '{fence}' is held already, by this clone, with token {token}")]
    HeldHere { fence: FenceName, token: Token },
    /// It was ours. `by` is who has it instead, as far as that is known.
    #[error("the lease of fence '{fence}' is not ours any more: {now}")]
    Lost { fence: FenceName, now: String, by: Option<Box<HeldBy>> },
    /// The remote said no, for a reason that is not the lease. With the gate's code, where it was the gate.
    #[error("the push was refused: {why}")]
    Refused { why: String, code: Option<Code> },
    /// It takes no push options.
    #[error("the remote {} takes no push options", text::in_quotes(remote))]
    NoOptions { remote: String },
    /// Whether a push landed could not be found out.
    #[error("whether the push landed is not known: {why}")]
    Unknown { why: String },
    /// It has not left this machine.
    #[error("nothing was sent: {why}")]
    NotSent { why: String },
    /// It did not, and will not.
    #[error("the push did not land: {why}")]
    DidNotLand { why: String },
    /// The lease went on with it and these refs did not.
    #[error("the push landed in part: the lease has moved on, and {} not where it was to go ({why})", are(refs))]
    InPart { refs: Vec<String>, why: String },
    /// A file of ours cannot be read or written.
    #[error("cannot use '{}'", path.display())]
    File { path: PathBuf, source: io::Error },
    /// There is no git, or none that can be run.
    #[error("cannot run git")]
    CannotRunGit(#[source] io::Error),
    /// What is on this machine or in the remote cannot be used.
    #[error("{what}")]
    Broken { what: String, hint: String, source: Option<Cause> },
}

#[derive(Serialize)]
struct FailureJson<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    /// Who has the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a HeldBy>,
    /// Whether the same may well succeed in a while.
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

    /// Ours no more, for a reason of its own.
    pub(crate) fn lost(fence: &FenceName, now: impl Into<String>) -> Failure {
        Failure::Lost { fence: fence.clone(), now: now.into(), by: None }
    }

    /// The same, with what happened before the lease was lost.
    pub(crate) fn after(self, before: &str) -> Failure {
        match self {
            Failure::Lost { fence, now, by } => Failure::Lost { fence, now: format!("{before}, {now}"), by },
            other => other,
        }
    }

    /// Who has the lease instead of us.
    pub(crate) fn holder(&self) -> Option<HeldBy> {
        match self {
            Failure::Lost { by, .. } => by.as_deref().cloned(),
            _ => None,
        }
    }

    /// The word that programs read.
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

    /// Whether the same may well succeed in a while.
    pub(crate) fn is_retryable(&self) -> bool {
        use Failure::{Busy, DidNotLand, Held, Unreachable};
        matches!(self, Busy { .. } | DidNotLand { .. } | Held { .. } | Unreachable { .. })
    }

    /// What to do now.
    pub(crate) fn hint(&self) -> String {
        match self {
            Failure::Usage { hint, .. } | Failure::Broken { hint, .. } => hint.clone(),
            Failure::Unreachable { .. } => {
                "nothing was taken, nothing was skipped and nothing has landed. Try again when  git ls-remote  answers".to_owned()
            }
            Failure::Busy { .. } => {
                "nothing was taken and nothing has landed. Try again in a while: the same token is good".to_owned()
            }
            Failure::Held { .. } => {
                "leave it to its holder, or wait for it:  git fence run --if-held wait -- COMMAND".to_owned()
            }
            Failure::HeldHere { .. } => {
                "go on with it:  git fence push, renew, advance,  or give it back:  git fence release".to_owned()
            }
            Failure::Lost { .. } => {
                "stop: another run may have gone on from here. Do not pick another number. To start over,  git fence acquire".to_owned()
            }
            Failure::Refused { code: Some(Code::Stale), .. } => {
                "stop: a newer run has written here. Do not pick another number".to_owned()
            }
            Failure::NoOptions { .. } => {
                "leave out -o; where there is a gate, the server's operator sets  receive.advertisePushOptions = true,  as  git-fence-hook install  does".to_owned()
            }
            Failure::File { .. } => {
                "the lease's local state is kept in the repository's git directory: it must be writable and there must be room".to_owned()
            }
            Failure::CannotRunGit(_) => "git must be in the PATH".to_owned(),
            Failure::Refused { .. } => "nothing was moved. Fix what it names, and try again".to_owned(),
            Failure::Unknown { .. } => {
                "the next command on this lease finds out before it does anything else, as  git fence advance;  without a lease, look with  git ls-remote".to_owned()
            }
            Failure::NotSent { .. } => "nothing has landed, and no token is spent. Fix what it names, and push again".to_owned(),
            Failure::DidNotLand { .. } => "nothing of it will land any more: push again".to_owned(),
            Failure::InPart { .. } => {
                "the server was stopped while it moved the refs, or somebody has moved them since. Look with  git ls-remote,  and push again".to_owned()
            }
        }
    }

    /// For people, on standard error.
    pub(crate) fn prose(&self) -> String {
        let because: String = causes(self).map(|cause| format!("  because: {cause}\n")).collect();
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
    // To the next second: what has 100 ms left is still held.
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
