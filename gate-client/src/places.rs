//! Where leases are kept, and why one of these places cannot be used: sentences and hints for people.

use git_fence_core::{Elsewhere, FenceName, LeasePart, StoreFault, StoreFaultKind, StorePlace, text};

/// What is wrong with a store.
pub(crate) fn of_store(place: &str, fault: &StoreFault) -> String {
    let (why, place) = (&fault.why, if place.is_empty() { "of the leases" } else { place });
    match fault.kind {
        StoreFaultKind::Unreachable => format!("cannot reach the store {place}: {why}"),
        StoreFaultKind::Denied => format!("no access to the store {place}: {why}"),
        StoreFaultKind::Unusable => format!("cannot use the store {place}: {why}"),
    }
}

/// Where the lease is kept instead.
pub(crate) fn kept_elsewhere(remote: &str, fence: &FenceName, at: &Elsewhere) -> String {
    let remote = text::in_quotes(remote);
    match at {
        Elsewhere::InRemote => format!("the lease of fence '{fence}' is kept in the remote {remote} itself"),
        Elsewhere::InStore(StorePlace { store, resource }) => {
            format!("the lease of fence '{fence}' of {remote} is kept in the store {store}, as '{resource}'")
        }
        Elsewhere::OwnTokens => format!("fence '{fence}' of {remote} takes tokens of its pushers' own, and no leases"),
        Elsewhere::MarkGone => {
            format!("the mark of fence '{fence}' is gone from {remote}: {} does not exist", LeasePart::Mark.of(fence))
        }
    }
}

/// How to go on where the lease is kept elsewhere.
pub(crate) fn where_to_look(fence: &FenceName, at: &Elsewhere) -> String {
    match at {
        Elsewhere::InRemote => {
            "nothing was taken. Leave out --store, GIT_FENCE_STORE and fence.store, or move the lease:  git fence store move remote URL".to_owned()
        }
        Elsewhere::InStore(StorePlace { store, resource }) => format!(
            "nothing was taken. Use that store: fence.store = {store} (with your user), fence.resource = {resource};  or move the lease:  git fence store move FROM TO"
        ),
        Elsewhere::OwnTokens => {
            "nothing was taken. Push with a token of your own:  git fence push --token N;  or let leases have it:  git fence store move own URL".to_owned()
        }
        Elsewhere::MarkGone => format!(
            "somebody has removed it, and without it old tokens would count again. Put it back from what the store knows:  git fence store init --mark --fence {}",
            fence.in_shell()
        ),
    }
}
