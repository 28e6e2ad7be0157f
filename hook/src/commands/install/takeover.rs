//! Marks taken over from leases that are already there.
//!
//! Where clients have kept leases without a gate, tokens have been granted. A gate that began at 0
//! would let their former holders in again.

use crate::{
    commands::failure::CommandError,
    repository::{Repository, git},
};
use git_fence_core::{Accept, Event, FenceName, Lease, LeasePart, Mark, RefName, Settings, State, Token, TokenKind};
use gix::objs::commit::MessageRef;

/// What the leases of others say of their token, too.
const TRAILER: &str = "Fence-Token";

/// A mark that a lease asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    pub(crate) fence: FenceName,
    pub(crate) mark: Mark,
    pub(crate) lease: RefName,
}

impl Raise {
    /// Whether the fence is there already, or takes no tokens of leases.
    pub(crate) fn is_done(&self, state: &State) -> bool {
        let fence = state.fence(&self.fence);
        fence.kind == Some(TokenKind::Own) || fence.mark >= self.mark
    }

    pub(crate) fn on_record(self, pusher: String) -> Event {
        let reason = format!("taken over from the lease '{}', which was there before the gate", self.lease);
        Event::MarkRaised { fence: self.fence, mark: self.mark, reason, pusher }
    }
}

/// What the leases of a repository say.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The marks that they ask for.
    pub(crate) raises: Vec<Raise>,
    /// Refs that are no lease of ours. The mark is taken from them all the same, where they name a token.
    pub(crate) unreadable: Vec<RefName>,
    /// Those that have granted a token after which none could be granted any more.
    pub(crate) at_the_end: Vec<(RefName, Token)>,
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
        let token = record.map(|record| record.token).ok().or_else(|| token_in(message));
        if let Some(token) = token.filter(|token| token.is_at_the_end()) {
            leases.at_the_end.push((lease, token));
        } else if let (Some((fence, _)), Some(token)) = (LeasePart::in_name(&lease), token) {
            let accept = settings.rules(&fence).map_or(Accept::Above, |rules| rules.accept);
            let mark = accept.mark_before(token);
            leases.raises.extend((mark > Mark::default()).then_some(Raise { fence, mark, lease }));
        }
    }
    Ok(leases)
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
    fn a_lease_of_others_has_one_token_in_its_trailers() {
        assert_eq!(token_in(b"held\n\nFence-Lease: x\nFence-Token: 7\n"), Token::parse(b"7").ok());
        for none in
            ["held\n", "held\n\nFence-Token: 07\n", "held\n\nFence-Token: 7\nFence-Token: 8\n", "Fence-Token: 7\n"]
        {
            assert_eq!(token_in(none.as_bytes()), None, "{none}");
        }
    }
}
