//! The push in the slot: whether it is over.

use crate::{
    host::{
        clock,
        process::{self, Liveness},
    },
    repository::{Repository, refs::RefError},
};
use git_fence_core::{Evidence, InFlight, Place, PlannedRef, PushId, Rules, Settings, View, refs_say_over, text};
use git_fence_system::process::ProcessHandle;
use std::time::Duration;

/// What is known about a push in flight.
#[derive(Debug)]
pub(crate) enum FlightState {
    /// It will not move any more refs.
    Over(Evidence),
    /// Its refs may still move. With a process handle, one can wait for its receive-pack to exit.
    Running(Option<ProcessHandle>),
}

/// Where this process runs, and which push it has been watching for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewpoint<'a> {
    pub(crate) here: &'a Place,
    pub(crate) watched: Option<(PushId, Duration)>,
}

/// Checks whether `flight` is over. `bound` is how long a push may take whose process is not visible.
///
/// The process is inspected before the refs: refs that are read after its end are final.
pub(crate) fn state_of(
    flight: &InFlight,
    plan: &[PlannedRef],
    viewpoint: Viewpoint<'_>,
    bound: Duration,
    repository: &Repository,
) -> Result<FlightState, RefError> {
    Ok(match process_of(flight, viewpoint, bound) {
        FlightState::Running(_) if all_moved(plan, repository)? => FlightState::Over(Evidence::RefsMoved),
        flight_state => flight_state,
    })
}

/// What the process of `flight` shows, or the elapsed time if the process is not visible.
fn process_of(flight: &InFlight, viewpoint: Viewpoint<'_>, bound: Duration) -> FlightState {
    match (view_of(flight, viewpoint.here), &flight.receive_pack) {
        (View::Rebooted, _) => FlightState::Over(Evidence::Rebooted),
        (View::Clear, Some(receive_pack)) => match process::liveness_of(receive_pack) {
            Liveness::Dead => FlightState::Over(Evidence::ReceivePackGone),
            Liveness::Alive(pidfd) => FlightState::Running(pidfd),
        },
        (View::Clear, None) | (View::Hidden, _) if age_of(flight, viewpoint) >= bound => {
            FlightState::Over(Evidence::TimePassed)
        }
        (View::Clear, None) | (View::Hidden, _) => FlightState::Running(None),
    }
}

/// Whether a push has visibly ended, without reading its refs.
pub(crate) fn has_visibly_ended(flight: &InFlight, viewpoint: Viewpoint<'_>, bound: Duration) -> bool {
    !matches!(process_of(flight, viewpoint, bound), FlightState::Running(_))
}

/// How long a push may take whose process is not visible: the shortest wait of its fences.
pub(crate) fn bound_of(flight: &InFlight, settings: &Settings) -> Duration {
    let rules = flight.stakes.iter().filter_map(|stake| settings.rules(&stake.fence));
    rules.map(|rules| rules.wait).min().unwrap_or(Rules::for_repo().wait)
}

/// Whether the push has only the bounded form of protection: from here nobody can see whether it still runs.
pub(crate) fn is_bounded(flight: &InFlight, here: &Place) -> bool {
    flight.receive_pack.is_none() || view_of(flight, here) == View::Hidden
}

/// How well the receive-pack of `flight` can be seen from here.
pub(crate) fn view_of(flight: &InFlight, here: &Place) -> View {
    here.view_of(&flight.place, clock::booted_after(&flight.time))
}

/// Reads the first and the last ref before all of them: two reads are enough to see that a push of 100,000 refs is only
/// half done.
fn all_moved(plan: &[PlannedRef], repository: &Repository) -> Result<bool, RefError> {
    let ends: Vec<PlannedRef> = plan.first().into_iter().chain(plan.last()).cloned().collect();
    for refs in [&ends[..], plan] {
        if !refs_say_over(refs, &repository.ref_values(refs.iter().map(|planned| &planned.name))?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The minimum time that a push has been in flight. The clock of another machine may be wrong, and one that is ahead
/// must not make the push look older: then only the time that it was watched from here counts.
pub(crate) fn age_of(flight: &InFlight, viewpoint: Viewpoint<'_>) -> Duration {
    let recorded = if viewpoint.here.boot == flight.place.boot {
        Duration::from_millis(clock::uptime_ms().saturating_sub(flight.place.uptime_ms))
    } else {
        clock::time_since(&flight.time)
    };
    let watched = viewpoint.watched.filter(|(push, _)| *push == flight.push);
    watched.map_or(recorded, |(_, watched)| recorded.max(watched))
}

/// Describes the push in the slot to those who wait. The text was sanitized when it was recorded.
pub(crate) fn describe(flight: &InFlight, fence: &git_fence_core::FenceName) -> String {
    let token = flight.token_for(fence).map_or("a push without a token".to_owned(), |token| format!("token {token}"));
    let owner = flight.who.owner.as_ref().map_or(String::new(), |owner| format!(" ({})", text::in_quotes(owner)));
    format!("{token} of {}{owner}, admitted at {}", text::in_quotes(&flight.who.pusher), flight.time)
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

    /// A machine whose clock is ahead admits a push: its age is the time that it was watched, and time spent watching
    /// another push does not count.
    #[test]
    fn age_of_an_invisible_push_is_the_time_it_was_watched() {
        let place = |boot: &str| Place { boot: boot.to_owned(), machine: None, pid_ns: 1, uptime_ms: 0 };
        let (here, there) = (place("here"), place("there"));
        let age = |watched| age_of(&flight(&there, 7), Viewpoint { here: &here, watched });
        assert_eq!(age(None), Duration::ZERO);
        assert_eq!(age(Some((PushId(7), Duration::from_secs(9)))), Duration::from_secs(9));
        assert_eq!(age(Some((PushId(6), Duration::from_secs(9)))), Duration::ZERO);
    }

    /// Two boots with one machine id are a reboot only if this boot is the later one, as far as the clocks show.
    #[test]
    fn reboot_counts_only_if_this_boot_began_after_the_push() {
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
