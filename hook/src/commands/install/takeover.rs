//! Initial marks from existing leases.
//!
//! Clients that used leases without a gate have been granted tokens. A gate that started at 0 would admit their former
//! holders.

use crate::{
    failure::CommandError,
    push::catch_up,
    repository::{Repository, git},
};
use git_fence_core::{
    Accept, Event, FenceName, Lease, LeasePart, LeaseState, Mark, MarkLine, RefName, Reject, Settings, State, Token,
    TokenKind,
};
use gix::objs::commit::MessageRef;

/// The trailer with the token in lease records, also in those of other programs.
const TRAILER: &str = "Fence-Token";

/// A mark that a lease requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    pub(crate) fence: FenceName,
    pub(crate) mark: Mark,
    pub(crate) lease: RefName,
}

impl Raise {
    /// Whether the mark is already high enough, or the fence accepts no lease tokens.
    pub(crate) fn is_done(&self, state: &State) -> bool {
        let fence = state.fence(&self.fence);
        fence.kind == Some(TokenKind::Own) || fence.mark >= self.mark
    }

    pub(crate) fn on_record(self, pusher: String) -> Event {
        let reason = format!("taken from the lease '{}', which existed before the gate", self.lease);
        Event::MarkRaised { fence: self.fence, mark: self.mark, reason, pusher }
    }
}

/// The leases of a repository.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The marks that they require.
    pub(crate) raises: Vec<Raise>,
    /// Lease refs that are not git-fence records. If they name a token, it still raises the mark.
    pub(crate) unreadable: Vec<RefName>,
    /// Leases whose token is too close to the maximum.
    pub(crate) exhausted: Vec<(RefName, Token)>,
}

/// Reads the leases of `repository`.
pub(crate) fn read(repository: &Repository, settings: &Settings) -> Result<Leases, CommandError> {
    let format = "--format=%(refname)%00%(contents)%00";
    let listed = git::ask(&repository.common_dir, &["for-each-ref", format, "refs/fence/*/lease"])?;
    let mut fields = listed.split(|b| *b == 0);
    let mut leases = Leases::default();
    while let (Some(name), Some(message)) = (fields.next(), fields.next()) {
        let lease = RefName::new(name.strip_prefix(b"\n").unwrap_or(name));
        let record = Lease::read(message);
        if record.is_err() {
            leases.unreadable.push(lease.clone());
        }
        // Its fence's mark says how far the tokens have come where they are kept now.
        if record.as_ref().is_ok_and(|record| record.state == LeaseState::Moved) {
            continue;
        }
        let token = record.map(|record| record.token).ok().or_else(|| token_in(message));
        if let Some(token) = token.filter(|token| token.is_at_the_end()) {
            leases.exhausted.push((lease, token));
        } else if let (Some((fence, _)), Some(token)) = (LeasePart::in_name(&lease), token) {
            let accept = settings.rules(&fence).map_or(Accept::Above, |rules| rules.accept);
            let mark = accept.mark_before(token);
            leases.raises.extend((mark > Mark::default()).then_some(Raise { fence, mark, lease }));
        }
    }
    Ok(leases)
}

/// The marks in the repository that the log does not have where they are, and those that cannot be read.
pub(crate) fn marks(
    repository: &Repository,
    state: &State,
    settings: &Settings,
    pusher: &str,
) -> (Vec<MarkLine>, Vec<(RefName, Reject)>) {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for rules in &settings.fences {
        match catch_up::compare_mark_with_log(repository, state, rules, pusher) {
            Ok(line) => found.extend(line),
            Err(reject) => unreadable.push((LeasePart::Mark.of(&rules.fence), reject)),
        }
    }
    (found, unreadable)
}

fn token_in(message: &[u8]) -> Option<Token> {
    let body = MessageRef::from_bytes(message).body()?;
    let mut found = body.trailers().filter(|trailer| trailer.token.eq_ignore_ascii_case(TRAILER.as_bytes()));
    let token = found.next()?;
    found.next().is_none().then(|| Token::parse(&token.value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_lease_counts_if_it_has_exactly_one_token_trailer() {
        assert_eq!(token_in(b"held\n\nFence-Lease: x\nFence-Token: 7\n"), Token::parse(b"7").ok());
        for none in
            ["held\n", "held\n\nFence-Token: 07\n", "held\n\nFence-Token: 7\nFence-Token: 8\n", "Fence-Token: 7\n"]
        {
            assert_eq!(token_in(none.as_bytes()), None, "{none}");
        }
    }
}
