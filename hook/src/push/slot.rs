//! The push in the slot: whether it is over, and waiting until it is.

use crate::{
    host::{
        clock,
        process::{self, Liveness},
    },
    repository::{Repository, refs::RefError},
};
use git_fence_core::{Evidence, InFlight, Place, PlannedRef, PushId, Rules, Settings, View, refs_say_over, text};
use git_fence_system::process::ProcessHandle;
use std::{thread, time::Duration};

/// What is known of a push in flight.
#[derive(Debug)]
pub(crate) enum Fate {
    /// Nothing of it will move any more.
    Over(Evidence),
    /// Its refs may still move. With a pidfd one can wait for the end of its receive-pack.
    Running(Option<ProcessHandle>),
}

/// Where one looks from, and which push one has been watching for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookout<'a> {
    pub(crate) here: &'a Place,
    pub(crate) watched: Option<(PushId, Duration)>,
}

/// Looks whether `flight` is over; `bound` is how long one that cannot be seen may take.
///
/// The process is looked at before the refs: refs that are read after its end are final.
pub(crate) fn fate_of(
    flight: &InFlight,
    plan: &[PlannedRef],
    lookout: Lookout<'_>,
    bound: Duration,
    repository: &Repository,
) -> Result<Fate, RefError> {
    Ok(match process_of(flight, lookout, bound) {
        Fate::Running(_) if all_moved(plan, repository)? => Fate::Over(Evidence::RefsMoved),
        fate => fate,
    })
}

/// What can be known of `flight` by its process, or by the time that has passed where that cannot be seen.
fn process_of(flight: &InFlight, lookout: Lookout<'_>, bound: Duration) -> Fate {
    match (view_of(flight, lookout.here), &flight.receive_pack) {
        (View::Rebooted, _) => Fate::Over(Evidence::Rebooted),
        (View::Clear, Some(receive_pack)) => match process::look_at(receive_pack) {
            Liveness::Dead => Fate::Over(Evidence::ReceivePackGone),
            Liveness::Alive(pidfd) => Fate::Running(pidfd),
        },
        (View::Clear, None) | (View::Hidden, _) if age_of(flight, lookout) >= bound => Fate::Over(Evidence::TimePassed),
        (View::Clear, None) | (View::Hidden, _) => Fate::Running(None),
    }
}

/// Whether a push has ended for all to see, without a look at its refs.
pub(crate) fn has_plainly_ended(flight: &InFlight, lookout: Lookout<'_>, bound: Duration) -> bool {
    !matches!(process_of(flight, lookout, bound), Fate::Running(_))
}

/// How long a push that cannot be seen may take: the shortest wait of its fences.
pub(crate) fn bound_of(flight: &InFlight, settings: &Settings) -> Duration {
    let rules = flight.stakes.iter().filter_map(|stake| settings.rules(&stake.fence));
    rules.map(|rules| rules.wait).min().unwrap_or(Rules::for_repo().wait)
}

/// Whether the form of protection is the bounded one: nobody here can see whether it still runs.
pub(crate) fn is_bounded(flight: &InFlight, here: &Place) -> bool {
    flight.receive_pack.is_none() || view_of(flight, here) == View::Hidden
}

/// What can be known here about the receive-pack of `flight`.
pub(crate) fn view_of(flight: &InFlight, here: &Place) -> View {
    here.view_of(&flight.place, clock::booted_after(&flight.time))
}

/// The first and the last ref are asked before all of them: a push of 100,000 refs that is half
/// done is found out by two.
fn all_moved(plan: &[PlannedRef], repository: &Repository) -> Result<bool, RefError> {
    let ends: Vec<PlannedRef> = plan.first().into_iter().chain(plan.last()).cloned().collect();
    for refs in [&ends[..], plan] {
        if !refs_say_over(refs, &repository.ref_values(refs.iter().map(|planned| &planned.name))?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For how long a push has certainly been under way. Other machines' clocks may be wrong, and one
/// that is ahead must not make it look older: then only what was watched from here counts.
pub(crate) fn age_of(flight: &InFlight, lookout: Lookout<'_>) -> Duration {
    let recorded = if lookout.here.boot == flight.place.boot {
        Duration::from_millis(clock::uptime_ms().saturating_sub(flight.place.uptime_ms))
    } else {
        clock::time_since(&flight.time)
    };
    let watched = lookout.watched.filter(|(push, _)| *push == flight.push);
    watched.map_or(recorded, |(_, watched)| recorded.max(watched))
}

/// Waits a moment for the push in the slot: until its receive-pack ends, at most `moment`.
pub(crate) fn wait_a_moment(pidfd: Option<&ProcessHandle>, moment: Duration) {
    match pidfd {
        Some(pidfd) => {
            pidfd.has_ended_within(moment);
        }
        None => thread::sleep(moment),
    }
}

/// Who is in the slot, for those who wait: made of text that was tamed when it was recorded.
pub(crate) fn describe(flight: &InFlight, fence: &git_fence_core::FenceName) -> String {
    let token = flight.token_for(fence).map_or("a push without a token".to_owned(), |token| format!("token {token}"));
    let owner = flight.who.owner.as_ref().map_or(String::new(), |owner| format!(" ({})", text::in_quotes(owner)));
    format!("{token} of {}{owner}, let through at {}", text::in_quotes(&flight.who.pusher), flight.time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(place: &Place, push: u64) -> InFlight {
        let json = serde_json::json!({
            "push": push, "time": "2999-01-01T00:00:00.000Z", "stakes": [{ "fence": "repo", "token": null, "mark": 0 }], "who": { "pusher": "x" },
            "plan": { "refs": [], "count": 0, "digest": "" }, "place": place,
        });
        serde_json::from_value(json).unwrap()
    }

    /// A machine whose clock is ahead lets through a push: it is as old as it has been watched, and
    /// what was watched of another push does not count.
    #[test]
    fn what_cannot_be_seen_is_as_old_as_it_has_certainly_been_under_way() {
        let place = |boot: &str| Place { boot: boot.to_owned(), machine: None, pid_ns: 1, uptime_ms: 0 };
        let (here, there) = (place("here"), place("there"));
        let age = |watched| age_of(&flight(&there, 7), Lookout { here: &here, watched });
        assert_eq!(age(None), Duration::ZERO);
        assert_eq!(age(Some((PushId(7), Duration::from_secs(9)))), Duration::from_secs(9));
        assert_eq!(age(Some((PushId(6), Duration::from_secs(9)))), Duration::ZERO);
    }

    /// Two boots of one machine id: a reboot only where this one is the later, as far as clocks can tell.
    #[test]
    fn a_reboot_is_believed_only_if_this_boot_began_after_the_push() {
        let place =
            |boot: &str| Place { boot: boot.to_owned(), machine: Some("m".to_owned()), pid_ns: 1, uptime_ms: 0 };
        let view =
            |time: &str| view_of(&InFlight { time: time.to_owned(), ..flight(&place("there"), 7) }, &place("here"));
        assert_eq!(view("1970-01-02T00:00:00.000Z"), View::Rebooted);
        for time in [clock::now().as_str(), "2999-01-01T00:00:00.000Z", "", "soon"] {
            assert_eq!(view(time), View::Hidden, "{time}");
        }
    }
}
