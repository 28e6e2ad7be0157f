//! What a push presents: its tokens, and what it requests for leases.

use crate::{
    host::{
        clock::{self, WaitBudget},
        surroundings::{self, Environment},
    },
    push::{
        arrival::Arrival,
        leases,
        plan::Guarded,
        store_question,
        trailers::{self, Stamps},
    },
    repository::Repository,
};
use git_fence_core::{
    Claim, FenceName, JobName, LeaseAsk, Offer, Reject, Rules, Settings, Source, StoppedPush, TickSkip, read_options,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
};

/// What a push presents, as far as it can be read.
pub(crate) struct Presented {
    /// The exact bytes of the pusher's name, as reported by the host.
    pusher: OsString,
    pub(crate) offer: Offer,
    /// Where the tokens came from.
    pub(crate) source: Source,
    /// The request for each fence's lease.
    asks: BTreeMap<FenceName, LeaseAsk>,
    /// What is wrong with the push. If its fences only observe, it is admitted nevertheless.
    pub(crate) flaw: Option<Reject>,
}

impl Presented {
    /// Reads the tokens and lease requests of a push, and finds what is wrong with them.
    pub(crate) fn read(arrival: &Arrival<'_>, guarded: &Guarded, settings: &Settings) -> Presented {
        let Arrival { repository, environment, .. } = arrival;
        let pusher = surroundings::pusher(environment);
        let tokens = read_tokens(guarded, repository, environment, settings, pusher.as_bytes());
        let (offer, source, no_tokens) = match tokens {
            Ok((offer, source)) => (offer, source, None),
            Err(reject) => (Offer::default(), Source::None, Some(reject)),
        };
        let may_revoke = |rules: &Rules| rules.lets_revoke(pusher.as_bytes());
        let asks = leases::requests(guarded, &offer, settings, &may_revoke, repository, environment);
        let (asks, no_lease) = match asks {
            Ok(asks) => (asks, None),
            Err(reject) => (BTreeMap::new(), Some(reject)),
        };
        let takes_a_slot = !guarded.refs.is_empty() && !guarded.is_heartbeat();
        let unseen = || arrival.unseen(settings).filter(|_| takes_a_slot);
        let flaw = guarded.flaw.clone().or(no_tokens).or(no_lease).or_else(unseen);
        Presented { pusher, offer, source, asks, flaw }
    }

    /// The push that it reports, if it only asks.
    pub(crate) fn stopped(&self) -> Option<&StoppedPush> {
        self.asks.values().find_map(|ask| ask.stopped.as_ref().filter(|_| ask.only_asks))
    }

    /// The scheduled run that starts nothing, if it only asks.
    pub(crate) fn skip(&self) -> Option<&TickSkip> {
        self.asks.values().find_map(|ask| ask.skip.as_ref().filter(|_| ask.only_asks))
    }

    /// The scheduled job for which it asks for a lease.
    pub(crate) fn job(&self) -> Option<&JobName> {
        let mut proposals = self.asks.values().filter_map(|ask| ask.lease.as_ref());
        self.skip().map(|skip| &skip.job).or_else(|| proposals.find_map(|proposal| proposal.lease.starts()))
    }

    /// Asks the stores that keep the leases of its fences, where the answer decides. Returns when the last answer came, in
    /// milliseconds since boot.
    ///
    /// A mark that moves alone and carries no proof spends nothing, whatever the store says. So a lost answer is settled
    /// by a touch also while the store does not answer.
    pub(crate) fn ask_stores(&mut self, guarded: &Guarded, settings: &Settings, budget: &WaitBudget) -> Option<u64> {
        let mut answered = None;
        for (fence, ask) in self.asks.iter_mut().filter(|_| self.flaw.is_none()) {
            let (Some(rules), Some(mark)) = (settings.rules(fence), &mut ask.mark) else { continue };
            let writes = guarded.guarded_refs().any(|planned| planned.fence == *fence);
            if writes || mark.proof.is_some() {
                mark.answer = store_question::ask(&rules, budget).map(|answer| answer.map(|answer| answer.entry));
                answered = mark.answer.as_ref().map(|_| clock::uptime_ms()).or(answered);
            }
        }
        answered
    }

    /// What it presents for each fence that it touches.
    pub(crate) fn claims<'a>(&'a self, guarded: &Guarded, fences: &'a [Cow<'_, Rules>]) -> Vec<Claim<'a>> {
        let of_refs: HashSet<&FenceName> = guarded.guarded_refs().map(|planned| &planned.fence).collect();
        let claim = |rules: &'a Rules| {
            let is_guarded = of_refs.contains(&rules.fence);
            // A token is spent on guarded refs. A lease has its own.
            let token = self.offer.token(&rules.fence).filter(|_| is_guarded);
            let exempt = rules.exempts(self.pusher.as_bytes());
            Claim { rules, token, exempt, guarded: is_guarded, lease: self.asks.get(&rules.fence) }
        };
        fences.iter().map(|rules| claim(rules)).collect()
    }
}

/// The tokens of a push: from its options, or if there are none, from the trailers that count for `pusher` (the exact
/// bytes that the host reports).
fn read_tokens(
    guarded: &Guarded,
    repository: &Repository,
    environment: &Environment,
    settings: &Settings,
    pusher: &[u8],
) -> Result<(Offer, Source), Reject> {
    let options = surroundings::push_options(environment).map_err(|e| Reject::malformed(e.to_string()))?;
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
    // A stamped branch does not count for the other refs of its fence.
    let exempt = |fence: &FenceName| settings.rules(fence).is_some_and(|rules| rules.exempts(pusher));
    if let Some(planned) = unstamped.into_iter().find(|planned| !exempt(&planned.fence)) {
        return Err(Reject::Missing { fence: planned.fence, name: Some(planned.name), kind: None });
    }
    // Not the secret: a client that can send it as an option can send the token as an option, too.
    stamped.owner = offer.owner;
    Ok((stamped, Source::Trailer))
}
