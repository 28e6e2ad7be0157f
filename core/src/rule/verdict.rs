//! Why a push is refused, in words and as a code.
//!
//! A refusal is a variant of [`Reject`], with its sentence, and one arm of [`Reject::facts`].

use crate::{Code, FenceName, LeaseId, Mark, ObjectId, RefName, Token, TokenKind, text};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// Who holds a lease, for those who would have liked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// What its owner calls itself.
    pub owner: String,
    /// The ownership.
    pub lease: LeaseId,
    /// Its token.
    pub token: Token,
    /// For how long, unless it is renewed.
    pub left_ms: u64,
}

/// A ref that is not where a push says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedRef {
    /// As the pusher names it.
    pub name: RefName,
    /// What it is at.
    pub now: Option<ObjectId>,
    /// What the pusher says it is at; `none` where that is nothing.
    pub claimed: String,
}

impl fmt::Display for MovedRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |id: &str| if id == "none" { "is not there".to_owned() } else { format!("is at {id}") };
        let now = at(self.now.as_ref().map_or("none", ObjectId::as_str));
        let claimed = at(&self.claimed);
        write!(f, "ref '{}' {now}, but this push says that it {claimed}: another push was faster", self.name)
    }
}

/// A refusal. Its `Display` is the sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// A newer token has moved refs here.
    #[error("token {token} is not above {mark}, the mark of fence '{fence}'")]
    Stale {
        /// The fence.
        fence: FenceName,
        /// The push's token.
        token: Token,
        /// The fence's mark.
        mark: Mark,
        /// The kind of tokens that it takes, where that is decided.
        kind: Option<TokenKind>,
    },
    /// No token for a fence that wants one.
    #[error("the push moves refs of fence '{fence}' and carries no token for it{}", of_ref(.name))]
    Missing {
        /// The fence.
        fence: FenceName,
        /// Where trailers were looked for: the ref that has none.
        name: Option<RefName>,
    },
    /// Something in the push cannot be read.
    #[error("{why}")]
    Malformed {
        /// What, and what was expected.
        why: String,
        /// Whether it is a token.
        is_token: bool,
    },
    /// Two different tokens.
    #[error("the push carries tokens {} and {} for fence '{fence}': exactly one is allowed", .tokens.0, .tokens.1)]
    Ambiguous {
        /// The fence.
        fence: FenceName,
        /// Both.
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
    /// The wait ran out.
    #[error("{}", busy(.fence.as_ref(), .holder, *.waited))]
    Busy {
        /// The fence, where it is one fence's slot that is taken.
        fence: Option<FenceName>,
        /// Who is in the way: the push in the slot, or the lock and whoever holds it.
        holder: String,
        /// For how long.
        waited: Duration,
    },
    /// A ref is not where the push says it is. Git would decline it too, but only after the gate.
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
        /// Whether the parent is its own receive-pack: the hook runs twice in one push.
        twice: bool,
    },
    /// No receive-pack above this hook, or it is gone.
    #[error("{why}")]
    Unseen {
        /// What was looked for.
        why: String,
    },
    /// No lease where the fence has granted one.
    #[error("fence '{fence}' is written under a lease: {why}")]
    LeaseRequired {
        /// The fence.
        fence: FenceName,
        /// What is missing.
        why: String,
    },
    /// Somebody has it.
    #[error("the lease of fence '{fence}' is held by {}, with token {}, for another {} s", text::in_quotes(&.by.owner), .by.token, .by.left_ms.div_ceil(1000))]
    LeaseHeld {
        /// The fence.
        fence: FenceName,
        /// Who.
        by: Box<HeldBy>,
    },
    /// Somebody else has it, or nobody.
    #[error("the lease of fence '{fence}' is not this run's any more: {now}")]
    LeaseLost {
        /// The fence.
        fence: FenceName,
        /// Who has it now.
        now: String,
    },
    /// Not a move that is allowed.
    #[error("the lease of fence '{fence}' stays as it is: {why}")]
    LeaseInvalid {
        /// The fence.
        fence: FenceName,
        /// Why.
        why: String,
    },
    /// A lease where the fence takes tokens of another kind.
    #[error("fence '{fence}' takes tokens of its own, and grants no leases")]
    OwnTokens {
        /// The fence.
        fence: FenceName,
    },
    /// The fence's own files or settings.
    #[error("{what}")]
    Broken {
        /// What failed, with the file's or the setting's name.
        what: String,
        /// What mends it.
        mend: String,
    },
}

impl Reject {
    /// A push that cannot be read, and why.
    pub fn malformed(why: impl Into<String>) -> Reject {
        Reject::Malformed { why: why.into(), is_token: false }
    }

    /// A token that cannot be read, and why.
    pub fn malformed_token(why: impl Into<String>) -> Reject {
        Reject::Malformed { why: why.into(), is_token: true }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.facts().code
    }

    /// The fence that refused, where it was one.
    pub fn fence(&self) -> Option<&FenceName> {
        self.facts().fence
    }

    /// What to do now.
    pub fn hint(&self) -> Cow<'_, str> {
        self.facts().hint
    }

    /// Whether the push may be tried again with the same token: as it is, or after a fetch.
    pub fn is_retryable(&self) -> bool {
        self.code().is_retryable()
    }

    /// Whether it is about the lease itself. Such a refusal stands where a fence only observes, too: a
    /// lease that two may have is none, and without any gate git would refuse the same push.
    pub fn is_about_the_lease(&self) -> bool {
        self.code().is_about_the_lease()
    }

    /// The token and the mark that were compared, where it is about that. For a grant they are not
    /// the push's and the fence's own: there the mark is what the next token is counted from.
    pub fn compared(&self) -> Option<(Token, Mark)> {
        match self {
            Reject::Stale { token, mark, .. } | Reject::Jump { token, mark, .. } => Some((*token, *mark)),
            _ => None,
        }
    }

    /// What there is to say of each refusal besides its sentence: code, fence, hint.
    fn facts(&self) -> Facts<'_> {
        match self {
            Reject::Stale { fence, token, mark, kind } => {
                Facts::of(Code::Stale, fence, too_old(token.get() == mark.get(), *kind))
            }
            Reject::Missing { fence, .. } => Facts::of(Code::Missing, fence, without_token(fence)),
            Reject::Malformed { is_token: false, .. } => {
                Facts::of(Code::Malformed, None, "nothing was written. Mend what the line above names, and push again")
            }
            Reject::Malformed { is_token: true, .. } => Facts::of(
                Code::Malformed,
                None,
                "nothing was written. Tokens are whole numbers from 1 up, as in  -o fence-token=42",
            ),
            Reject::Ambiguous { fence, .. } => {
                Facts::of(Code::Ambiguous, fence, "send one token for each fence, as an option or as a trailer")
            }
            Reject::Jump { fence, .. } => {
                Facts::of(Code::Jump, fence, "check where the token comes from; fence.maxJump sets the limit")
            }
            Reject::Busy { fence, .. } => Facts::of(
                Code::Busy,
                fence.as_ref(),
                "nothing was written. The same push with the same token may be tried again",
            ),
            // The one code that says "try again", and for the same reason: others write here, nothing is spent.
            Reject::Moved { fence, .. } => {
                Facts::of(Code::Busy, fence, "nothing was written. Fetch, and push again; the same token may be used")
            }
            Reject::Nested { fence, twice: false } => {
                Facts::of(Code::Nested, fence, "push after the outer push has ended, for instance from post-receive")
            }
            Reject::Nested { fence, twice: true } => {
                Facts::of(Code::Nested, fence, "keep one of the two:  hooks/pre-receive  or the one in its dispatcher")
            }
            Reject::Unseen { .. } => Facts::of(
                Code::Unseen,
                None,
                "where the host starts hooks elsewhere (GitLab), set  fence.receivePack = none",
            ),
            Reject::LeaseRequired { fence, .. } => Facts::of(
                Code::LeaseRequired,
                fence,
                format!(
                    "run the work under a lease,  git fence run -- COMMAND,  or push with  git fence push. {WHO_CHANGES}"
                ),
            ),
            Reject::LeaseHeld { fence, .. } => Facts::of(
                Code::LeaseHeld,
                fence,
                "nothing was written. Leave it to its holder, or wait:  git fence run --if-held wait",
            ),
            Reject::LeaseLost { fence, .. } => Facts::of(
                Code::LeaseLost,
                fence,
                "nothing was written. Stop: another run may have gone on from here. To start over,  git fence acquire",
            ),
            Reject::LeaseInvalid { fence, .. } => {
                Facts::of(Code::LeaseInvalid, fence, "nothing was written. Leases are moved by  git fence")
            }
            Reject::OwnTokens { fence } => Facts::of(
                Code::LeaseInvalid,
                fence,
                format!("nothing was written. Push with a token from where the others get theirs. {WHO_CHANGES}"),
            ),
            Reject::Broken { mend, .. } => Facts::of(Code::Broken, None, mend),
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

/// Who may change the kind of tokens that a fence takes, and how.
const WHO_CHANGES: &str = "Only the server's operator changes that:  git-fence-hook tokens";

/// What to do with a token that is too old. Nobody is sent from one kind of tokens to the other.
fn too_old(has_written: bool, kind: Option<TokenKind>) -> String {
    let what = if has_written {
        "this token has written here already, and writes once"
    } else {
        "a newer run has written here: stop"
    };
    let then = match kind {
        Some(TokenKind::Lease) => "run again under a new lease:  git fence run",
        Some(TokenKind::Own) | None => "get a new token from where this one came from",
    };
    format!("{what}. Another number will not help; to start over, {then}")
}

/// How to send a token for `fence`.
fn without_token(fence: &FenceName) -> String {
    let token = if fence.as_str() == FenceName::REPO { "<n>".to_owned() } else { format!("{fence}:<n>") };
    format!("push with  -o fence-token={token},  or end the commit's message with the trailer  Fencing-Token: {token}")
}

fn of_ref(name: &Option<RefName>) -> String {
    name.as_ref().map_or(String::new(), |name| format!(": none in what '{name}' moves to"))
}

fn busy(fence: Option<&FenceName>, holder: &str, waited: Duration) -> String {
    let waited = waited.as_secs_f64();
    match fence {
        Some(_) => format!("waited {waited:.1} s for {holder}, whose refs are still moving"),
        None => format!("waited {waited:.1} s, and {holder}"),
    }
}

fn nested(twice: bool) -> &'static str {
    if twice {
        "the gate ran twice for this push: it is installed twice"
    } else {
        "this push comes from inside a hook of another push, which would have to end first"
    }
}
