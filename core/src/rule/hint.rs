//! What a refused pusher is told to do about tokens and leases. A hint never sends anybody from one kind of tokens to the
//! other, nor to the lease of another fence.

use crate::{FenceName, TokenKind};

/// Who may change the kind of tokens that a fence takes, and how.
pub(super) const WHO_CHANGES: &str = "Only the server's operator can change this:  git-fence-hook tokens";

/// A command of the client for the lease of `fence`.
pub(crate) fn command(name: &str, fence: &FenceName) -> String {
    match fence.as_str() {
        FenceName::REPO => format!("git fence {name}"),
        _ => format!("git fence {name} --fence {}", fence.in_shell()),
    }
}

/// How to push under a lease.
pub(super) fn under_a_lease(fence: &FenceName) -> String {
    let (run, push) = (command("run", fence), command("push", fence));
    format!("run the work under a lease with  {run} -- COMMAND,  or push with  {push}")
}

/// How to send a token of one's own.
fn with_a_token(fence: &FenceName) -> String {
    let (token, option) = match fence.as_str() {
        FenceName::REPO => ("<n>".to_owned(), "<n>".to_owned()),
        _ => (format!("{fence}:<n>"), format!("{}:<n>", fence.in_shell())),
    };
    format!("push with  -o fence-token={option},  or end the commit's message with the trailer  Fencing-Token: {token}")
}

/// What to do about a push without a token, on a fence that takes tokens of this kind.
pub(super) fn without_token(fence: &FenceName, kind: Option<TokenKind>) -> String {
    match kind {
        Some(TokenKind::Own) => with_a_token(fence),
        Some(TokenKind::Lease) => format!("{}. {WHO_CHANGES}", under_a_lease(fence)),
        None => format!(
            "{}. Or, with tokens of your own, {}. What lands first decides which of the two this fence takes",
            under_a_lease(fence),
            with_a_token(fence)
        ),
    }
}

/// What to do about a token that is too old.
pub(super) fn too_old(fence: &FenceName, has_written: bool, kind: Option<TokenKind>) -> String {
    let what = if has_written {
        "this token has written here, or the mark was raised to it; each token writes only once"
    } else {
        "a newer run has written here: stop"
    };
    let then = match kind {
        Some(TokenKind::Lease) => format!("run again under a new lease:  {}", command("run", fence)),
        Some(TokenKind::Own) | None => "get a new token from where this one came from".to_owned(),
    };
    format!("{what}. Another number will not help; to start over, {then}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeldBy, LeaseId, Reject, Token};

    /// Whether a hint names the way with leases, and the one with tokens.
    fn ways(hint: &str) -> (bool, bool) {
        (hint.contains("git fence "), hint.contains("fence-token="))
    }

    #[test]
    fn push_without_a_token_is_sent_where_the_tokens_of_its_fence_come_from() {
        for (kind, named) in
            [(None, (true, true)), (Some(TokenKind::Own), (false, true)), (Some(TokenKind::Lease), (true, false))]
        {
            let reject = Reject::Missing { fence: FenceName::repo(), name: None, kind };
            assert_eq!(ways(&reject.hint()), named, "{kind:?}: {}", reject.hint());
        }
    }

    #[test]
    fn hints_about_leases_name_the_fence_unless_it_is_repo() {
        let token = Token::parse(b"5").unwrap();
        let (owner, lease) = ("x".to_owned(), LeaseId::of([1; 16]));
        let by = Box::new(HeldBy { owner, lease, token, since: None, expires_in_ms: 1, progress: None });
        for (name, is_named) in [("repo", false), ("deploy", true)] {
            let fence = FenceName::parse(name.as_bytes()).unwrap();
            let (kind, words) = (Some(TokenKind::Lease), String::new());
            for reject in [
                Reject::Missing { fence: fence.clone(), name: None, kind },
                Reject::Stale { fence: fence.clone(), token, mark: token.into(), kind },
                Reject::LeaseRequired { fence: fence.clone(), why: words.clone() },
                Reject::LeaseHeld { fence: fence.clone(), by: by.clone() },
                Reject::LeaseLost { fence: fence.clone(), now: words.clone() },
            ] {
                let hint = reject.hint();
                assert_eq!(hint.contains("--fence deploy"), is_named, "{hint}");
                assert_eq!(ways(&hint), (true, false), "{hint}");
            }
        }
    }
}
