//! Which fences are shown: of families, the members that are in use, or those that are asked for.

use crate::failure::CommandError;
use git_fence_core::{FenceName, NoFence, Rules, Settings, Stamp, State};
use serde::Serialize;
use std::borrow::Cow;

/// The members of a family.
#[derive(Serialize)]
pub(super) struct MembersStatus {
    /// Those that have a mark of their own.
    pub(super) known: usize,
    /// Those of them whose lease is held.
    pub(super) held: usize,
}

/// How many members of a family are shown if nobody asks for them.
const MOST_MEMBERS: usize = 100;

/// The rules of the fences to show: `only` this one, or all in the settings. Of families, the members that are in use; if one is asked
/// for, all that are known.
pub(super) fn shown<'s>(
    settings: &'s Settings,
    state: &State,
    only: Option<&FenceName>,
    now: &Stamp,
) -> Result<Vec<Cow<'s, Rules>>, CommandError> {
    let members = |rules: &'s Rules, is_shown: &dyn Fn(&FenceName) -> bool, most| {
        let members = state.members(&rules.fence).filter(|member| rules.is_family() && is_shown(member)).take(most);
        let members: Vec<_> = members.map(|member| Cow::Owned(rules.of_member(member.clone()))).collect();
        std::iter::once(Cow::Borrowed(rules)).chain(members)
    };
    let Some(only) = only else {
        let in_use =
            |member: &FenceName| is_held(state, member, now) || state.in_flight.iter().any(|it| it.touches(member));
        return Ok(settings.fences.iter().flat_map(|rules| members(rules, &in_use, MOST_MEMBERS)).collect());
    };
    match settings.fence_called(only) {
        Ok(rules) => Ok(vec![rules]),
        Err(NoFence::Family(_)) => {
            let family = settings.fences.iter().find(|rules| rules.fence == *only);
            Ok(family.into_iter().flat_map(|rules| members(rules, &|_| true, usize::MAX)).collect())
        }
        Err(no_fence) => Err(CommandError::Other {
            what: no_fence.to_string(),
            hint: "list the fences:  git-fence-hook status".to_owned(),
        }),
    }
}

fn is_held(state: &State, fence: &FenceName, now: &Stamp) -> bool {
    state.fence(fence).lease.is_some_and(|standing| standing.left_at(now).is_some())
}

impl MembersStatus {
    pub(super) fn of(family: &FenceName, state: &State, now: &Stamp) -> MembersStatus {
        let known = state.members(family).count();
        MembersStatus { known, held: state.members(family).filter(|member| is_held(state, member, now)).count() }
    }
}
