//! The promises on a remote without a hook.

use super::{Hookless, Op, SwapRemote, is_grant, op_of, run_of};
use stateright::Property;

/// Only the holder writes.
pub const ONE_HOLDER: &str = "only the holder of the lease writes";
/// A lease has one holder.
pub const NOT_BOTH: &str = "two runs never hold the same lease";
/// The counter increases.
pub const COUNTER: &str = "every grant has a higher token than all before it";
/// Conclusions after lost answers are true.
pub const BELIEF: &str = "what a client concludes after a lost answer is true";

pub(super) fn all() -> Vec<Property<Hookless>> {
    vec![
        Property::always(ONE_HOLDER, |model: &Hookless, remote: &SwapRemote| {
            model.latches.first(0, || is_written_by_its_holder(remote))
        }),
        Property::always(NOT_BOTH, |model: &Hookless, remote: &SwapRemote| {
            let [one, other] = remote.held.map(|held| held.map(|held| held.record));
            model.latches.first(1, || one.is_none() || one != other)
        }),
        Property::always(COUNTER, |model: &Hookless, remote: &SwapRemote| {
            let of_lease = remote.moves.iter().filter(|(is_branch, _)| !is_branch);
            let tokens: Vec<u8> = of_lease.filter_map(|(_, p)| Some(remote.pushes[*p].new?.token)).collect();
            model.latches.first(2, || tokens.is_sorted_by(|before, after| before < after))
        }),
        Property::always(BELIEF, |model: &Hookless, remote: &SwapRemote| {
            let has_moved = |p: usize| remote.moves.contains(&(true, p));
            let is_true = |p: usize| remote.pushes[p].belief.is_none_or(|belief| belief == has_moved(p));
            model.latches.first(3, || (0..remote.pushes.len()).all(is_true))
        }),
        Property::sometimes("takeover", |_: &Hookless, remote: &SwapRemote| {
            let grant = |r: usize| remote.moves.iter().any(|(_, p)| is_grant(*p) && run_of(*p) == r);
            grant(0) && grant(1)
        }),
        Property::sometimes("a zombie is refused", |_: &Hookless, remote: &SwapRemote| {
            let is_zombie = |p: &usize| op_of(*p) == Op::Push && remote.pushes[*p].refused;
            (0..remote.pushes.len()).any(|p| is_zombie(&p))
        }),
        Property::sometimes("landed after all", |_: &Hookless, remote: &SwapRemote| {
            remote.pushes.iter().any(|push| push.belief == Some(true))
        }),
        Property::sometimes("never landed", |_: &Hookless, remote: &SwapRemote| {
            remote.pushes.iter().any(|push| push.belief == Some(false))
        }),
    ]
}

fn is_written_by_its_holder(remote: &SwapRemote) -> bool {
    let mut holder = None;
    remote.moves.iter().all(|(is_branch, p)| {
        if !is_branch && is_grant(*p) {
            holder = Some(run_of(*p));
        }
        !is_branch || holder == Some(run_of(*p))
    })
}
