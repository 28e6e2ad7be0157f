//! Why a push is refused, as a message and as a code.
//!
//! Each refusal is a variant of [`Reject`], with its message, and one arm of [`Reject::facts`].

use super::hint::{self, WHO_CHANGES};
use crate::{
    Code, FenceName, Halt, JobName, LeaseId, Mark, ObjectId, RefName, StoreFault, Tick, Token, TokenKind, text,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// The holder of a lease, as shown to a pusher that wanted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// The name its owner gave.
    pub owner: String,
    /// The id of this ownership.
    pub lease: LeaseId,
    /// Its token.
    pub token: Token,
    /// When this ownership began, if it is known: RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The time left unless the lease is renewed. Older gates call it `left_ms`.
    #[serde(alias = "left_ms")]
    pub expires_in_ms: u64,
    /// How far the holder says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

/// A ref whose value is not what a push claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedRef {
    /// As the pusher names it.
    pub name: RefName,
    /// Its value.
    pub now: Option<ObjectId>,
    /// The value that the pusher claims; `none` for a ref that does not exist.
    pub claimed: String,
}

impl fmt::Display for MovedRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now.as_ref().map_or("does not exist".to_owned(), |id| format!("is at {id}"));
        let claimed = if self.claimed == "none" { "not to exist".to_owned() } else { format!("at {}", self.claimed) };
        write!(f, "ref '{}' {now}, but the push expects it {claimed}: another push was faster", self.name)
    }
}

/// A store whose records are older than the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreBehind {
    /// The store, in quotes.
    pub store: String,
    /// The highest token in it.
    pub counter: Mark,
    /// The fence's mark.
    pub mark: Mark,
}

/// A tick that is in the future by the gate's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickAhead {
    /// The job.
    pub job: JobName,
    /// The tick.
    pub tick: Tick,
    /// The gate's clock.
    pub now: Tick,
}

/// A refusal. Its `Display` is the message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// A newer token has written here.
    #[error("token {token} is not above {mark}, the mark of fence '{fence}'")]
    Stale {
        /// The fence.
        fence: FenceName,
        /// The push's token.
        token: Token,
        /// The fence's mark.
        mark: Mark,
        /// The kind of tokens that the fence takes, if decided.
        kind: Option<TokenKind>,
    },
    /// No token for a fence that requires one.
    #[error("the push moves refs of fence '{fence}' and carries no token for it{}", of_ref(.name))]
    Missing {
        /// The fence.
        fence: FenceName,
        /// The ref without a token, if trailers were searched.
        name: Option<RefName>,
        /// The kind of tokens that the fence takes, if decided.
        kind: Option<TokenKind>,
    },
    /// Something in the push is malformed.
    #[error("{why}")]
    Malformed {
        /// What, and what was expected.
        why: String,
        /// Whether it is the token.
        is_token: bool,
    },
    /// Two different tokens.
    #[error("the push carries tokens {} and {} for fence '{fence}': exactly one is allowed", .tokens.0, .tokens.1)]
    Ambiguous {
        /// The fence.
        fence: FenceName,
        /// The two tokens.
        tokens: (Token, Token),
    },
    /// Too far above the mark.
    #[error("token {token} is more than {limit} above {mark}, the mark of fence '{fence}'")]
    Jump {
        /// The fence.
        fence: FenceName,
        /// The push's token.
        token: Token,
        /// The fence's mark.
        mark: Mark,
        /// `fence.maxJump`.
        limit: u64,
    },
    /// The wait timed out.
    #[error("{}", busy(.fence.as_ref(), .holder, *.waited))]
    Busy {
        /// The fence whose slot is occupied; `None` if it is the lock.
        fence: Option<FenceName>,
        /// What the push waited for: the push in the slot, or the lock and its holder.
        holder: String,
        /// How long it waited.
        waited: Duration,
    },
    /// A ref does not have the value that the push claims. Git would decline it too, but only after the gate.
    #[error("{moved}")]
    Moved {
        /// The fence.
        fence: FenceName,
        /// The ref.
        moved: Box<MovedRef>,
    },
    /// A push that would wait for its own parent.
    #[error("{}", nested(*.twice))]
    Nested {
        /// The fence.
        fence: FenceName,
        /// Whether that parent is its own receive-pack: the hook ran twice in one push.
        twice: bool,
    },
    /// No receive-pack among the ancestors of this hook, or it has exited.
    #[error("{why}")]
    Unseen {
        /// What was not found.
        why: String,
    },
    /// The fence takes tokens of leases, and the push lacks something of its lease.
    #[error("fence '{fence}' requires a lease: {why}")]
    LeaseRequired {
        /// The fence.
        fence: FenceName,
        /// What is missing.
        why: String,
    },
    /// Another holder has the lease.
    #[error("the lease of fence '{fence}' is held by {}, with token {}, for another {} s", text::in_quotes(&.by.owner), .by.token, .by.expires_in_ms.div_ceil(1000))]
    LeaseHeld {
        /// The fence.
        fence: FenceName,
        /// The holder.
        by: Box<HeldBy>,
    },
    /// The pusher no longer holds the lease: another does, or nobody.
    #[error("the lease of fence '{fence}' is no longer held by this run: {now}")]
    LeaseLost {
        /// The fence.
        fence: FenceName,
        /// Who holds it now.
        now: String,
    },
    /// The fence is halted.
    #[error("fence '{fence}' is {halt}")]
    Halted {
        /// The fence.
        fence: FenceName,
        /// By whom, since when and why.
        halt: Box<Halt>,
    },
    /// A change of the lease that is not allowed.
    #[error("the lease of fence '{fence}' was not changed: {why}")]
    LeaseInvalid {
        /// The fence.
        fence: FenceName,
        /// Why.
        why: String,
    },
    /// A tick that is not due by the gate's clock.
    #[error("the lease of fence '{fence}' was not granted: tick {} of the job '{}' is in the future, it is {} here", .ahead.tick, .ahead.job, .ahead.now)]
    TickAhead {
        /// The fence.
        fence: FenceName,
        /// Which, and how far.
        ahead: Box<TickAhead>,
    },
    /// A lease on a fence that is not configured.
    #[error("this repository has no fence '{fence}'")]
    NoSuchFence {
        /// The fence that was named.
        fence: FenceName,
        /// Those that there are.
        fences: Vec<FenceName>,
    },
    /// A lease on a fence that takes tokens of its own.
    #[error("fence '{fence}' takes tokens of its own and grants no leases")]
    OwnTokens {
        /// The fence.
        fence: FenceName,
    },
    /// The store that keeps the leases has an older state than the repository.
    #[error("{} has granted tokens up to {} for fence '{fence}', whose mark is {}: it has lost records", .behind.store, .behind.counter, .behind.mark)]
    StoreBehind {
        /// The fence.
        fence: FenceName,
        /// How far.
        behind: Box<StoreBehind>,
    },
    /// The store that keeps the leases could not be asked.
    #[error("who holds the lease of fence '{fence}' could not be asked: {fault}")]
    Store {
        /// The fence.
        fence: FenceName,
        /// What failed, and what to do about it.
        fault: Box<StoreFault>,
    },
    /// The fence's own files or settings are unusable.
    #[error("{what}")]
    Broken {
        /// What failed, with the file's or the setting's name.
        what: String,
        /// What fixes it.
        fix: String,
    },
}

impl Reject {
    /// A malformed push, and why.
    pub fn malformed(why: impl Into<String>) -> Reject {
        Reject::Malformed { why: why.into(), is_token: false }
    }

    /// A malformed token, and why.
    pub fn malformed_token(why: impl Into<String>) -> Reject {
        Reject::Malformed { why: why.into(), is_token: true }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.facts().code
    }

    /// The fence that refused, if it was a fence.
    pub fn fence(&self) -> Option<&FenceName> {
        self.facts().fence
    }

    /// What the pusher should do.
    pub fn hint(&self) -> Cow<'_, str> {
        self.facts().hint
    }

    /// Whether the push may be retried with the same token: unchanged, or after a fetch.
    pub fn is_retryable(&self) -> bool {
        self.code().is_retryable()
    }

    /// Whether it is about the lease itself. Such a refusal is enforced in observe mode too: a lease that two
    /// can hold protects nothing, and without a gate git would refuse the same push.
    pub fn is_about_the_lease(&self) -> bool {
        self.code().is_about_the_lease()
    }

    /// The token and the mark that were compared, if any. For a grant they are not the push's token and the
    /// fence's mark: the mark is then what the next token is counted from.
    pub fn compared(&self) -> Option<(Token, Mark)> {
        match self {
            Reject::Stale { token, mark, .. } | Reject::Jump { token, mark, .. } => Some((*token, *mark)),
            _ => None,
        }
    }

    /// What each refusal has besides its message: code, fence, hint.
    fn facts(&self) -> Facts<'_> {
        match self {
            Reject::Stale { fence, token, mark, kind } => {
                Facts::of(Code::Stale, fence, hint::too_old(fence, token.get() == mark.get(), *kind))
            }
            Reject::Missing { fence, kind, .. } => Facts::of(Code::Missing, fence, hint::without_token(fence, *kind)),
            Reject::Malformed { is_token: false, .. } => {
                Facts::of(Code::Malformed, None, "nothing was written. Fix what the error names, and push again")
            }
            Reject::Malformed { is_token: true, .. } => Facts::of(
                Code::Malformed,
                None,
                "nothing was written. A token is a whole number, 1 or more, as in  -o fence-token=42",
            ),
            Reject::Ambiguous { fence, .. } => {
                Facts::of(Code::Ambiguous, fence, "nothing was written. Send one token for each fence")
            }
            Reject::Jump { fence, .. } => Facts::of(
                Code::Jump,
                fence,
                "check where the token comes from. The limit is the setting  fence.maxJump",
            ),
            Reject::Busy { fence, .. } => {
                Facts::of(Code::Busy, fence.as_ref(), "nothing was written. Push again with the same token")
            }
            // Busy is the one retryable code, and the reason is the same: another push writes here, no token is spent.
            Reject::Moved { fence, .. } => {
                Facts::of(Code::Busy, fence, "nothing was written. Fetch, and push again with the same token")
            }
            Reject::Nested { fence, twice: false } => {
                Facts::of(Code::Nested, fence, "push after the outer push has ended, for example from post-receive")
            }
            Reject::Nested { fence, twice: true } => {
                Facts::of(Code::Nested, fence, "keep one of the two:  hooks/pre-receive  or the one in its dispatcher")
            }
            Reject::Unseen { .. } => Facts::of(
                Code::Unseen,
                None,
                "if this host starts hooks elsewhere (GitLab), set  fence.receivePack = none",
            ),
            Reject::LeaseRequired { fence, .. } => {
                Facts::of(Code::LeaseRequired, fence, format!("{}. {WHO_CHANGES}", hint::under_a_lease(fence)))
            }
            Reject::LeaseHeld { fence, .. } => Facts::of(
                Code::LeaseHeld,
                fence,
                format!("nothing was written. Skip this run, or wait:  {} --if-held wait", hint::command("run", fence)),
            ),
            Reject::LeaseLost { fence, .. } => Facts::of(
                Code::LeaseLost,
                fence,
                format!(
                    "nothing was written. Stop: another run may have continued from here. To start over, run  {}",
                    hint::command("acquire", fence)
                ),
            ),
            Reject::Halted { fence, .. } => Facts::of(
                Code::Halted,
                fence,
                "nothing was written. Stop: nobody gets the lease of this fence, and no token counts, until it is resumed. \
                 To start over then, take a new lease or a new token",
            ),
            Reject::LeaseInvalid { fence, .. } => {
                Facts::of(Code::LeaseInvalid, fence, "nothing was written. Use  git fence  to change leases")
            }
            Reject::TickAhead { fence, .. } => Facts::of(
                Code::LeaseInvalid,
                fence,
                "nothing was started. Compare the clocks of this machine and of the server",
            ),
            Reject::NoSuchFence { fence, fences } => {
                let names: Vec<String> = fences.iter().map(|fence| format!("'{fence}'")).collect();
                let hint = format!("nothing was written. Its fences are {}", names.join(", "));
                Facts::of(Code::LeaseInvalid, fence, hint)
            }
            Reject::OwnTokens { fence } => Facts::of(
                Code::LeaseInvalid,
                fence,
                format!(
                    "nothing was written. Push with a token from where the other pushers get theirs. {WHO_CHANGES}"
                ),
            ),
            Reject::StoreBehind { fence, behind } => Facts::of(
                Code::Stale,
                fence,
                format!(
                    "nothing was written. A new lease gets a token above {}:  {}",
                    behind.mark,
                    hint::command("run", fence)
                ),
            ),
            Reject::Store { fence, fault } => Facts::of(
                Code::Store,
                fence,
                format!(
                    "nothing was written. Push again with the same token. For the server's operator: {}",
                    fault.hint
                ),
            ),
            Reject::Broken { fix, .. } => Facts::of(Code::Broken, None, fix),
        }
    }
}

/// See [`Reject::facts`].
struct Facts<'a> {
    code: Code,
    fence: Option<&'a FenceName>,
    hint: Cow<'a, str>,
}

impl<'a> Facts<'a> {
    fn of(code: Code, fence: impl Into<Option<&'a FenceName>>, hint: impl Into<Cow<'a, str>>) -> Facts<'a> {
        Facts { code, fence: fence.into(), hint: hint.into() }
    }
}

fn of_ref(name: &Option<RefName>) -> String {
    name.as_ref().map_or(String::new(), |name| format!(": no trailer in what '{name}' moves to"))
}

fn busy(fence: Option<&FenceName>, holder: &str, waited: Duration) -> String {
    let waited = waited.as_secs_f64();
    match fence {
        Some(_) => format!("timed out after {waited:.1} s waiting for {holder}, whose refs are still moving"),
        None => format!("timed out after {waited:.1} s: {holder}"),
    }
}

fn nested(twice: bool) -> &'static str {
    if twice {
        "the gate is installed twice: it ran twice for this push"
    } else {
        "this push comes from inside a hook of another push and would have to wait for it"
    }
}
