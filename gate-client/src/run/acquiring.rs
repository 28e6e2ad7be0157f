//! Taking the first free lease of several, and waiting for one.

use crate::{
    client::{Client, PATIENCE},
    clock::{self, Clock, left_until},
    commands::own::GO_ON,
    failure::Failure,
    lease::{
        held::LeaseDir,
        taking::{LeaseRequest, Taken},
    },
    random,
    run::{
        waiting::WaitingLine,
        watch::{RunEvent, note},
    },
};
use git_fence_core::{Ahead, Due, HeldBy, Version, text};
use git_fence_system::signals::SIGTERM;
use std::{
    sync::{Arc, atomic::AtomicBool, mpsc::Receiver},
    time::Duration,
};

/// How long to wait between two tries for a lease that is held: a little at first, then longer.
const FIRST_PROBE: Duration = Duration::from_millis(500);
const PROBE: Duration = Duration::from_secs(5);
/// How long taking a lease may take in all: several answers.
const LONGEST_TRY: Duration = Duration::from_secs(60);
/// How long a release may take: as long as the lease lasts and a little more, because a connection takes time, but not
/// longer than this. It expires by itself.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);
const BEYOND_THE_LEASE: Duration = Duration::from_secs(5);

/// The result of trying for a lease.
pub(crate) enum FirstFree {
    Ours(Client, LeaseDir),
    /// All are held. This is the first; its holder's clock may be ahead.
    AllHeld(Client, HeldBy, Option<Ahead>),
    /// No tick of the run's job is to be started, or not yet.
    NothingDue(Client, Box<Due>),
    /// By this signal. The failure says that the lease may still have been taken.
    Interrupted(i32, Option<Failure>),
}

/// How long to wait for a lease that is held, and whether to say so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) length: Duration,
    pub(crate) is_quiet: bool,
}

/// Tries one after the other, and again until the wait has passed.
pub(crate) fn take_first_free(
    clients: &[Client],
    request: &LeaseRequest,
    wait: Wait,
    events: &Receiver<RunEvent>,
    stop: &Arc<AtomicBool>,
) -> Result<FirstFree, Failure> {
    try_until_free(&clients[0].clock, wait, events, || try_each(clients, request, stop))
}

/// Takes a single lease, and waits for it.
pub(crate) fn take_when_free(
    client: &Client,
    request: &LeaseRequest,
    length: Duration,
    events: &Receiver<RunEvent>,
) -> Result<LeaseDir, Failure> {
    let wait = Wait { length, is_quiet: false };
    let taken = try_until_free(&client.clock, wait, events, || {
        Ok(match client.acquire(request)? {
            Taken::Ours(dir) => FirstFree::Ours(client.clone(), dir),
            Taken::Theirs(by, ahead) => FirstFree::AllHeld(client.clone(), by, ahead),
            Taken::NothingDue(due) => FirstFree::NothingDue(client.clone(), due),
        })
    })?;
    match taken {
        FirstFree::Ours(_, dir) => Ok(dir),
        FirstFree::AllHeld(_, by, _) => Err(Failure::timed_out(&client.fence, by, length)),
        FirstFree::NothingDue(..) => Err(client.busy("no tick is due")),
        FirstFree::Interrupted(signal, left_behind) => {
            let left = left_behind.map_or("nothing was taken".to_owned(), |failure| failure.in_one_line());
            let what = format!("the wait for the lease of fence '{}' is over; {left}", client.fence);
            Err(Failure::Interrupted { signal, what, hint: GO_ON.to_owned() })
        }
    }
}

fn try_until_free(
    clock: &Clock,
    wait: Wait,
    events: &Receiver<RunEvent>,
    mut try_once: impl FnMut() -> Result<FirstFree, Failure>,
) -> Result<FirstFree, Failure> {
    let end = clock::after(&clock.now(), wait.length);
    let (mut line, mut pause) = (WaitingLine::new(wait.is_quiet), FIRST_PROBE);
    let mut watch = Watch::default();
    loop {
        if let Some(signal) = events.try_iter().find_map(|event| asks_to_end(&event)) {
            return Ok(FirstFree::Interrupted(signal, None));
        }
        let tried = try_once();
        if let Some(signal) = events.try_iter().find_map(|event| asks_to_end(&event)) {
            let left_behind = match tried {
                Ok(FirstFree::Ours(client, dir)) => release(&client, &dir).err(),
                Err(unknown @ Failure::Unknown { .. }) => Some(unknown),
                _ => None,
            };
            return Ok(FirstFree::Interrupted(signal, left_behind));
        }
        let mut left = left_until(&end, &clock.now());
        if let Ok(FirstFree::AllHeld(_, by, ahead)) = &tried
            && !wait.length.is_zero()
        {
            left = left.max(watch.left(by, ahead.as_ref()));
        }
        match tried {
            Ok(FirstFree::AllHeld(client, by, _)) if !left.is_zero() => line.tell(&client.fence, &by, left),
            Err(failure)
                if !left.is_zero() && (failure.is_unreachable() || matches!(failure, Failure::Busy { .. })) => {}
            tried => return tried,
        }
        let event = line.pause(events, spread(pause).min(left));
        pause = (2 * pause).min(PROBE);
        if let Some(signal) = event.as_ref().and_then(asks_to_end) {
            return Ok(FirstFree::Interrupted(signal, None));
        }
    }
}

/// Waits until a tick may start; the signal that ends the run before.
pub(crate) fn wait_for_tick(clock: &Clock, wait: Duration, events: &Receiver<RunEvent>) -> Option<i32> {
    let end = clock::after(&clock.now(), wait);
    loop {
        // By the clock that counts suspend, which the wait itself does not.
        let left = left_until(&end, &clock.now());
        if left.is_zero() {
            return None;
        }
        if let Some(signal) = events.recv_timeout(left.min(PROBE)).ok().as_ref().and_then(asks_to_end) {
            return Some(signal);
        }
    }
}

/// `pause`, plus or minus a half: runs that were refused together must not retry together.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + random::fraction())
}

/// The signal that asks `run` to end. The end of git counts as one, too.
fn asks_to_end(event: &RunEvent) -> Option<i32> {
    match event {
        RunEvent::Signal(signal) => Some(*signal),
        RunEvent::GitIsGone => Some(SIGTERM),
        RunEvent::Command(_) | RunEvent::Heartbeat(_) => None,
    }
}

/// Watches a heartbeat whose deadline means nothing because its holder's clock is ahead. A run that waits and has not
/// seen the heartbeat before must watch it for a while, even beyond its own wait: otherwise a fresh clone could never
/// take the lease. If the heartbeat changes, the holder is alive, and the normal wait applies.
#[derive(Default)]
struct Watch {
    first: Option<Version>,
    has_reported: bool,
}

impl Watch {
    /// How much longer to watch.
    fn left(&mut self, by: &HeldBy, ahead: Option<&Ahead>) -> Duration {
        let Some(ahead) = ahead else { return Duration::ZERO };
        if *self.first.get_or_insert_with(|| ahead.beat.clone()) != ahead.beat {
            return Duration::ZERO;
        }
        if !std::mem::replace(&mut self.has_reported, true) {
            note(&format!(
                "the clock of {} is ahead by {} s or more: watching its heartbeat for another {} s",
                text::in_quotes(&by.owner),
                ahead.by.as_secs(),
                ahead.left.as_secs_f64().ceil()
            ));
        }
        ahead.left
    }
}

/// Takes the first free one. An unreachable remote never counts as held.
fn try_each(clients: &[Client], request: &LeaseRequest, stop: &Arc<AtomicBool>) -> Result<FirstFree, Failure> {
    let (mut held, mut halted, mut failed) = (None, None::<Failure>, None::<Failure>);
    for client in clients {
        match bounded(client, stop).acquire(request) {
            Ok(Taken::Ours(dir)) => {
                if let Some(failure) = &failed {
                    note(&format!("{}; trying the next one", failure.in_one_line()));
                }
                return Ok(FirstFree::Ours(client.clone(), dir));
            }
            Ok(Taken::Theirs(by, ahead)) => held = held.or(Some((client.clone(), by, ahead))),
            // A schedule has one fence of one remote.
            Ok(Taken::NothingDue(due)) => return Ok(FirstFree::NothingDue(client.clone(), due)),
            Err(failure @ Failure::Halted { .. }) => halted = halted.or(Some(failure)),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    match (failed, held, halted) {
        (Some(failure), _, _) => Err(failure),
        (None, Some((client, by, ahead)), _) => Ok(FirstFree::AllHeld(client, by, ahead)),
        (None, None, Some(failure)) => Err(failure),
        (None, None, None) => Err(Failure::usage("no fence given", "git fence run -- CMD")),
    }
}

/// A client that gives up on a remote that does not answer, and stops at once when `run` is asked to end. It asks for no
/// password, at a terminal either: a heartbeat could not ask, and the lease would be lost.
fn bounded(client: &Client, stop: &Arc<AtomicBool>) -> Client {
    let until = Some(clock::after(&client.clock.now(), LONGEST_TRY));
    Client { until, stop: Some(stop.clone()), patience: Some(PATIENCE), ..client.unattended() }
}

/// Releases the lease; retries once if the remote did not answer and there is time left.
pub(crate) fn release(client: &Client, dir: &LeaseDir) -> Result<(), Failure> {
    let now = client.clock.now();
    let left = dir.pulse().map_or(Duration::ZERO, |pulse| left_until(&pulse.good_until, &now));
    let until = clock::after(&now, (left + BEYOND_THE_LEASE).min(LONGEST_RELEASE));
    let client = Client { until: Some(until.clone()), ..client.unattended() };
    let released = match client.release(dir) {
        Err(failure) if may_succeed_now(&failure) && !left_until(&until, &client.clock.now()).is_zero() => {
            client.release(dir)
        }
        released => released,
    };
    // What could not be released stays known to this clone:  git fence release  finds it.
    if released.is_err() {
        dir.leave();
    }
    released
}

/// Whether to try once more to release.
fn may_succeed_now(failure: &Failure) -> bool {
    failure.is_retryable() || matches!(failure, Failure::Unknown { .. })
}
