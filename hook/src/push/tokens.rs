//! The tokens that a push brings along.

use crate::{
    host::surroundings::Environment,
    push::{
        plan::Guarded,
        trailers::{self, Stamps},
    },
    repository::Repository,
};
use git_fence_core::{FenceName, Offer, Reject, Settings, Source, read_options};

/// The tokens of a push: from its options, or where there are none, from the trailers that count as those of
/// `pusher`, as the host names it to the byte.
pub(crate) fn brought_along(
    guarded: &Guarded,
    repository: &Repository,
    environment: &Environment,
    settings: &Settings,
    pusher: &[u8],
) -> Result<(Offer, Source), Reject> {
    let options = environment.push_options().map_err(|e| Reject::malformed(e.to_string()))?;
    let offer = read_options(&options, settings)?;
    if !offer.is_empty() {
        return Ok((offer, Source::Option));
    }
    if guarded.guarded_refs().next().is_none() {
        return Ok((offer, Source::None));
    }
    let Stamps { offer: mut stamped, unstamped } = trailers::read(guarded, repository, environment, settings, pusher)?;
    if stamped.is_empty() {
        return Ok((offer, Source::None));
    }
    // One stamped branch does not speak for the others of its fence.
    let exempt = |fence: &FenceName| settings.rules(fence).is_some_and(|rules| rules.exempts(pusher));
    if let Some(planned) = unstamped.into_iter().find(|planned| !exempt(&planned.fence)) {
        return Err(Reject::Missing { fence: planned.fence, name: Some(planned.name) });
    }
    // Not the secret: who can send that as an option can send the token so, too.
    stamped.owner = offer.owner;
    Ok((stamped, Source::Trailer))
}
