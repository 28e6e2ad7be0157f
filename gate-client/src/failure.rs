//! Why a command failed: a sentence and a hint for people, JSON and an exit code for programs.

use crate::{
    denied::{Denied, Said},
    git::{Ran, said::Denial},
    places::{kept_elsewhere, of_store, where_to_look},
    report::{CurrentHolder, outcome::Outcome},
    run::watch::code_of_signal,
};
use git_fence_core::{Code, Elsewhere, FenceName, Halt, HeldBy, StoreFault, StoreFaultKind, text};
use git_fence_system::colours::say;
use std::{
    error::Error,
    io, iter,
    path::{Path, PathBuf},
    time::Duration,
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
/// There is no right to read or to write.
pub(crate) const DENIED: u8 = 77;

/// Why a command failed. `Display` is the sentence for people, without its causes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line cannot be used.
    #[error("{what}")]
    Usage { what: String, hint: String },
    /// The command of a run cannot be started, which is known before a lease is asked for.
    #[error("{what}")]
    CannotStart { what: String, hint: String, code: u8 },
    /// The remote does not answer, or does not speak git's protocol.
    #[error("cannot reach the remote {}: {why}", text::in_quotes(remote))]
    Unreachable { remote: String, why: String, said: Said },
    /// There is no right to read or to write.
    #[error("{0}")]
    Denied(Box<Denied>),
    /// The store of the leases cannot be used. `place` is empty if its URL could not even be read.
    #[error("{}", of_store(place, fault))]
    Store { place: String, fault: StoreFault },
    /// The lease of the fence is kept in another place than this command was told.
    #[error("{}", kept_elsewhere(remote, fence, at))]
    Elsewhere { remote: String, fence: FenceName, at: Elsewhere },
    /// Others use the fence at this moment. Nothing was taken, and nothing landed.
    #[error("fence '{fence}' is busy: {why}")]
    Busy { fence: FenceName, why: String },
    /// Another run holds the lease.
    #[error("the lease of fence '{fence}' is held by {}", who(by))]
    Held { fence: FenceName, by: Box<HeldBy> },
    /// Another run still held the lease at the end of the wait.
    #[error("timed out after {} s: the lease of fence '{fence}' is held by {}", waited.as_secs(), who(by))]
    TimedOut { fence: FenceName, by: Box<HeldBy>, waited: Duration },
    /// This clone holds the lease.
    #[error("this clone already holds the lease of fence '{fence}', with token {}", by.token)]
    HeldHere { fence: FenceName, by: Box<HeldBy> },
    /// Another command in this clone holds the lease.
    #[error("another command in this clone holds the lease of fence '{fence}', as {}", who(by))]
    InUse { fence: FenceName, by: Box<HeldBy> },
    /// A command of this clone was killed and has left the lease; `from` says which.
    #[error("this clone holds the lease of fence '{fence}', with token {}, {from}", by.token)]
    LeftBehind { fence: FenceName, by: Box<HeldBy>, from: &'static str },
    /// A signal ended the command. `what` says what became of its work and of the lease.
    #[error("interrupted: {what}")]
    Interrupted { signal: i32, what: String, hint: String },
    /// The lease was taken over, released, revoked or halted. `by` is the new holder, if known; `halt` says who halted the
    /// fence, if somebody did.
    #[error("lost the lease of fence '{fence}': {now}")]
    Lost { fence: FenceName, now: String, by: Option<Box<HeldBy>>, halt: Option<Box<Halt>> },
    /// The fence is halted: nobody gets its lease.
    #[error("fence '{fence}' is {halt}")]
    Halted { remote: String, fence: FenceName, halt: Box<Halt> },
    /// The remote refused the push, not because of the lease. `code` is the gate's, if the gate refused it.
    #[error("the push was refused: {why}")]
    Refused { why: String, code: Option<Code>, said: Said },
    /// The gate has no fence of this name.
    #[error("the gate of {} has no fence '{fence}'", text::in_quotes(remote))]
    NoSuchFence { remote: String, fence: FenceName, fences: Vec<FenceName> },
    /// The gate does not let this pusher revoke leases, or halt and resume fences.
    #[error("the gate of {} does not allow you to {verb} the lease of fence '{fence}'", text::in_quotes(remote))]
    MayNotRevoke { remote: String, fence: FenceName, verb: &'static str },
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
    /// Something moved, and these refs did not.
    #[error("the push landed in part: {} not at the pushed value ({why})", are(refs))]
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

    /// The lease was still held by `by` when the wait was over.
    pub(crate) fn timed_out(fence: &FenceName, by: HeldBy, waited: Duration) -> Failure {
        Failure::TimedOut { fence: fence.clone(), by: Box::new(by), waited }
    }

    /// Whether the remote or the store did not answer: us, or the gate that asked it.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Failure::Unreachable { .. }
                | Failure::Store { fault: StoreFault { kind: StoreFaultKind::Unreachable, .. }, .. }
                | Failure::Refused { code: Some(Code::Store), .. }
        )
    }

    /// A refusal that no gate has given a code.
    pub(crate) fn refused(why: impl Into<String>) -> Failure {
        Failure::Refused { why: why.into(), code: None, said: Said::default() }
    }

    /// Git could not list the remote's refs. `otherwise` is what is denied, where the remote only says that something is.
    pub(crate) fn unheard(remote: &str, ran: &Ran, otherwise: Denial) -> Failure {
        let (remote, said) = (remote.to_owned(), Said::from(ran.said()));
        match ran.denial(otherwise).filter(|_| ran.gave_up_after.is_none()) {
            Some(denial) => Failure::Denied(Box::new(Denied { remote, denial, by: None, said })),
            None => Failure::Unreachable { remote, why: ran.complaint(), said },
        }
    }

    /// The same, of a git whose messages the user has seen.
    pub(crate) fn already_shown(mut self) -> Failure {
        match &mut self {
            Failure::Unreachable { said, .. } | Failure::Refused { said, .. } => said.is_shown = true,
            Failure::Denied(denied) => denied.said.is_shown = true,
            _ => {}
        }
        self
    }

    /// What the remote and git have printed, as far as the sentence does not say it.
    fn said(&self) -> Said {
        let said = match self {
            Failure::Unreachable { said, .. } | Failure::Refused { said, .. } => said,
            Failure::Denied(denied) => &denied.said,
            _ => return Said::default(),
        };
        let sentence = self.to_string();
        let is_new = |line: &&String| {
            let bare = line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")).unwrap_or(line);
            !sentence.contains(bare)
        };
        Said { lines: said.lines.iter().filter(is_new).cloned().collect(), is_shown: said.is_shown }
    }

    /// The sentence with all its causes and what the remote says, in one line.
    pub(crate) fn in_one_line(&self) -> String {
        let line = causes(self).fold(self.to_string(), |line, cause| format!("{line}: {cause}"));
        let said = self.said().lines;
        if said.is_empty() { line } else { format!("{line}: {}", said.join("; ")) }
    }

    /// The lease was lost for the reason `now`.
    pub(crate) fn lost(fence: &FenceName, now: impl Into<String>) -> Failure {
        Failure::Lost { fence: fence.clone(), now: now.into(), by: None, halt: None }
    }

    /// The same failure, with the halt that the gate names. What was read may be older.
    pub(crate) fn by_halt(self, said: Option<&Halt>) -> Failure {
        match (self, said) {
            (Failure::Lost { fence, by, halt: None, .. }, Some(said)) => {
                Failure::Lost { fence, now: format!("it is {said}"), by, halt: Some(Box::new(said.clone())) }
            }
            (other, _) => other,
        }
    }

    /// The same failure, with what happened before the lease was lost.
    pub(crate) fn after(self, before: &str) -> Failure {
        match self {
            Failure::Lost { fence, now, by, halt } => {
                Failure::Lost { fence, now: format!("{before}, {now}"), by, halt }
            }
            other => other,
        }
    }

    /// Who holds the lease instead, or took it over.
    pub(crate) fn holder(&self) -> Option<CurrentHolder> {
        match self {
            Failure::Held { by, .. } | Failure::TimedOut { by, .. } | Failure::Lost { by: Some(by), .. } => {
                Some(CurrentHolder::of((**by).clone(), false))
            }
            Failure::HeldHere { by, .. } | Failure::InUse { by, .. } | Failure::LeftBehind { by, .. } => {
                Some(CurrentHolder::of((**by).clone(), true))
            }
            _ => None,
        }
    }

    /// Who halted the fence, if that is why.
    pub(crate) fn halt(&self) -> Option<Halt> {
        match self {
            Failure::Halted { halt, .. } | Failure::Lost { halt: Some(halt), .. } => Some((**halt).clone()),
            _ => None,
        }
    }

    /// The fence that it is about.
    pub(crate) fn fence(&self) -> Option<&FenceName> {
        match self {
            Failure::Busy { fence, .. }
            | Failure::Held { fence, .. }
            | Failure::TimedOut { fence, .. }
            | Failure::HeldHere { fence, .. }
            | Failure::InUse { fence, .. }
            | Failure::LeftBehind { fence, .. }
            | Failure::Lost { fence, .. }
            | Failure::Halted { fence, .. }
            | Failure::NoSuchFence { fence, .. }
            | Failure::Elsewhere { fence, .. }
            | Failure::MayNotRevoke { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// The code of the fence's rule, also where no gate has said it. None if something else refused or failed.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Failure::Busy { .. } => Some(Code::Busy),
            Failure::Held { .. }
            | Failure::TimedOut { .. }
            | Failure::HeldHere { .. }
            | Failure::InUse { .. }
            | Failure::LeftBehind { .. } => Some(Code::LeaseHeld),
            Failure::Halted { .. } | Failure::Lost { halt: Some(_), .. } => Some(Code::Halted),
            Failure::Lost { .. } => Some(Code::LeaseLost),
            Failure::Refused { code, .. } => *code,
            Failure::MayNotRevoke { .. } | Failure::NoSuchFence { .. } => Some(Code::LeaseInvalid),
            _ => None,
        }
    }

    /// The `outcome` in JSON.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Failure::Usage { .. } => Outcome::Usage,
            Failure::CannotStart { .. } => Outcome::NotStarted,
            Failure::Unreachable { .. } => Outcome::Unreachable,
            Failure::Denied(_) => Outcome::Denied,
            Failure::Store { fault, .. } => match fault.kind {
                StoreFaultKind::Unreachable => Outcome::Unreachable,
                StoreFaultKind::Denied => Outcome::Denied,
                StoreFaultKind::Unusable => Outcome::Broken,
            },
            Failure::Elsewhere { .. } => Outcome::KeptElsewhere,
            Failure::Busy { .. } => Outcome::Busy,
            Failure::Held { .. } | Failure::HeldHere { .. } | Failure::InUse { .. } | Failure::LeftBehind { .. } => {
                Outcome::Held
            }
            Failure::TimedOut { .. } => Outcome::TimedOut,
            Failure::Interrupted { .. } => Outcome::Interrupted,
            Failure::Halted { .. }
            | Failure::Lost { halt: Some(_), .. }
            | Failure::Refused { code: Some(Code::Halted), .. } => Outcome::Halted,
            Failure::Lost { .. } => Outcome::Lost,
            Failure::Refused { code: Some(Code::Store), .. } => Outcome::Unreachable,
            Failure::Refused { .. } | Failure::MayNotRevoke { .. } => Outcome::Refused,
            Failure::NoSuchFence { .. } => Outcome::NoSuchFence,
            Failure::Unknown { .. } => Outcome::Unknown,
            Failure::NotSent { .. } => Outcome::NotSent,
            Failure::DidNotLand { .. } => Outcome::NotLanded,
            Failure::InPart { .. } => Outcome::LandedInPart,
            Failure::File { .. } | Failure::CannotRunGit(_) | Failure::NoOptions { .. } | Failure::Broken { .. } => {
                Outcome::Broken
            }
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage { .. } | Failure::NoSuchFence { .. } => 2,
            Failure::CannotStart { code, .. } => *code,
            Failure::Unreachable { .. } | Failure::Busy { .. } | Failure::Unknown { .. } => UNREACHABLE,
            // The gate's own question was not answered.
            Failure::Refused { code: Some(Code::Store), .. } => UNREACHABLE,
            Failure::Held { .. }
            | Failure::TimedOut { .. }
            | Failure::HeldHere { .. }
            | Failure::InUse { .. }
            | Failure::LeftBehind { .. }
            | Failure::Halted { .. } => HELD,
            Failure::Interrupted { signal, .. } => code_of_signal(*signal),
            Failure::Lost { .. } | Failure::Refused { code: Some(Code::Halted), .. } => LOST,
            Failure::Denied(_) => DENIED,
            Failure::Store { fault, .. } => match fault.kind {
                StoreFaultKind::Unreachable => UNREACHABLE,
                StoreFaultKind::Denied => DENIED,
                StoreFaultKind::Unusable => 1,
            },
            Failure::Elsewhere { .. } => 2,
            Failure::Refused { .. }
            | Failure::MayNotRevoke { .. }
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
        use Failure::{Busy, DidNotLand, Held, InUse, Interrupted, TimedOut};
        self.is_unreachable()
            || matches!(
                self,
                Busy { .. } | DidNotLand { .. } | Held { .. } | InUse { .. } | Interrupted { .. } | TimedOut { .. }
            )
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Failure::Usage { hint, .. }
            | Failure::CannotStart { hint, .. }
            | Failure::Broken { hint, .. }
            | Failure::Interrupted { hint, .. } => hint.clone(),
            Failure::InUse { .. } => "wait until that command has ended, and try again".to_owned(),
            Failure::LeftBehind { .. } => "give it back:  git fence release".to_owned(),
            Failure::Unreachable { .. } => {
                "no lease was taken, nothing was skipped and nothing landed. Try again when  git ls-remote  works".to_owned()
            }
            Failure::Denied(denied) => denied.hint(),
            Failure::Store { fault, .. } if fault.kind == StoreFaultKind::Unreachable => {
                format!("no lease was taken, nothing was skipped and nothing landed: {}", fault.hint)
            }
            Failure::Store { fault, .. } => fault.hint.clone(),
            Failure::Elsewhere { fence, at, .. } => where_to_look(fence, at),
            Failure::Busy { .. } => {
                "no lease was taken and nothing landed. Try again later; the same token is still valid".to_owned()
            }
            Failure::Held { .. } => "leave the work to the holder, or wait for it with  --wait 5m".to_owned(),
            Failure::TimedOut { .. } => {
                "nothing was taken and nothing landed. Leave the work to the holder, or wait longer".to_owned()
            }
            Failure::HeldHere { .. } => {
                "use it:  git fence push, renew, advance,  or release it:  git fence release".to_owned()
            }
            Failure::Halted { .. } | Failure::Lost { halt: Some(_), .. } | Failure::Refused { code: Some(Code::Halted), .. } => {
                "stop: nobody gets the lease, and nothing lands under one, until it is resumed:  git fence resume --reason …".to_owned()
            }
            Failure::Lost { .. } => {
                "stop: another run may have continued the work. Another token will not help. To start over:  git fence acquire".to_owned()
            }
            Failure::Refused { code: Some(Code::Stale), .. } => {
                "stop: a newer run has written here. Another token will not help".to_owned()
            }
            Failure::Refused { code: Some(Code::Store), .. } => {
                "no ref moved: the server could not ask the store of the leases. Push again later; its operator runs  git-fence-hook doctor".to_owned()
            }
            Failure::Refused { code: Some(Code::LeaseInvalid), .. } => {
                "nothing changed. Fences and the longest TTL are settings of the server".to_owned()
            }
            Failure::NoSuchFence { fences, .. } => {
                let names: Vec<String> = fences.iter().map(|fence| format!("'{fence}'")).collect();
                format!("use one of its fences: {}", names.join(", "))
            }
            Failure::MayNotRevoke { verb, .. } => {
                format!("ask the server's operator to run  git-fence-hook {verb},  or to add you to fence.allowRevoke")
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
        format!("error: {self}\n{}{because}hint: {}\n", self.said().prose(), self.hint())
    }

    /// Prints it to standard error.
    pub(crate) fn print(&self) {
        say(&self.prose());
    }
}

/// Who holds a lease, with which token and for how long.
pub(crate) fn who(by: &HeldBy) -> String {
    let owner = text::in_quotes(&by.owner);
    // Rounded up: a lease with 100 ms left is still held.
    format!("{owner}, with token {}, for another {} s", by.token, by.expires_in_ms.div_ceil(1000))
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
