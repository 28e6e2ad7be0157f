//! Marks taken over from leases that are already there.
//!
//! Where clients have kept leases without a gate, tokens have been granted. A gate that began at 0
//! would let their former holders in again.

use crate::{failure::Failure, git, repository::Repository};
use git_fence_core::{Accept, Event, FenceName, Mark, RefName, Settings, State, Token};
use gix::objs::commit::MessageRef;

/// What a lease commit says of its token.
const TRAILER: &str = "Fence-Token";

/// A mark that a lease asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    pub(crate) fence: FenceName,
    pub(crate) mark: Mark,
    pub(crate) lease: RefName,
}

impl Raise {
    /// Whether the fence is there already.
    pub(crate) fn is_done(&self, state: &State) -> bool {
        state.fence(&self.fence).mark >= self.mark
    }

    pub(crate) fn on_record(self, pusher: String) -> Event {
        let reason = format!("taken over from the lease '{}', which was there before the gate", self.lease);
        Event::MarkRaised { fence: self.fence, mark: self.mark, reason, pusher }
    }
}

/// The marks that the leases of `repository` ask for, and the leases that cannot be read.
pub(crate) fn read(repository: &Repository, settings: &Settings) -> Result<(Vec<Raise>, Vec<RefName>), Failure> {
    let format = "--format=%(refname)%00%(contents)%00";
    let listed = git::ask(&repository.common_dir, &["for-each-ref", format, "refs/fence/*/lease"])?;
    let mut fields = listed.split(|b| *b == 0);
    let (mut raises, mut unreadable) = (Vec::new(), Vec::new());
    while let (Some(name), Some(message)) = (fields.next(), fields.next()) {
        let lease = RefName::new(name.strip_prefix(b"\n").unwrap_or(name));
        match (fence_of(&lease), token_in(message)) {
            (Some(fence), Some(token)) => {
                let accept = settings.rules(&fence).map_or(Accept::Above, |rules| rules.accept);
                raises.extend(mark_before(token, accept).map(|mark| Raise { fence, mark, lease }));
            }
            _ => unreadable.push(lease),
        }
    }
    Ok((raises, unreadable))
}

fn fence_of(lease: &RefName) -> Option<FenceName> {
    let name = lease.as_bytes().strip_prefix(b"refs/fence/")?.strip_suffix(b"/lease")?;
    FenceName::parse(name).ok()
}

fn token_in(message: &[u8]) -> Option<Token> {
    let body = MessageRef::from_bytes(message).body()?;
    let mut found = body.trailers().filter(|trailer| trailer.token.eq_ignore_ascii_case(TRAILER.as_bytes()));
    let token = found.next()?;
    found.next().is_none().then(|| Token::parse(&token.value).ok()).flatten()
}

/// The mark that leaves `token` to its holder and keeps everybody before it out.
fn mark_before(token: Token, accept: Accept) -> Option<Mark> {
    match accept {
        Accept::AtOrAbove => Some(token.into()),
        Accept::Above => Token::try_from(token.get() - 1).ok().map(Mark::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lease_may_still_write_and_nobody_before_it() {
        let token = |n: u64| Token::try_from(n).unwrap();
        assert_eq!(mark_before(token(5), Accept::Above), Some(token(4).into()));
        assert_eq!(mark_before(token(5), Accept::AtOrAbove), Some(token(5).into()));
        assert_eq!(mark_before(token(1), Accept::Above), None);
    }

    #[test]
    fn a_lease_has_one_token_in_its_trailers() {
        assert_eq!(token_in(b"held\n\nFence-Lease: x\nFence-Token: 7\n"), Token::parse(b"7").ok());
        for none in
            ["held\n", "held\n\nFence-Token: 07\n", "held\n\nFence-Token: 7\nFence-Token: 8\n", "Fence-Token: 7\n"]
        {
            assert_eq!(token_in(none.as_bytes()), None, "{none}");
        }
    }
}
