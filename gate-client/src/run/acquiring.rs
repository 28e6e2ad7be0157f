//! Taking the first free lease of several, and waiting for one.

use crate::{
    client::Client,
    clock::{self, left_until},
    failure::Failure,
    lease::{
        held::LeaseDir,
        taking::{LeaseRequest, Taken},
    },
    random,
    run::watch::{RunEvent, note},
};
use git_fence_core::{Ahead, HeldBy, Version, text};
use git_fence_system::signals::SIGTERM;
use std::{
    io::{self, IsTerminal as _},
    sync::{Arc, atomic::AtomicBool, mpsc::Receiver},
    time::Duration,
};

/// How long to wait between two tries for a lease that is held: a little at first, then longer.
const FIRST_PROBE: Duration = Duration::from_millis(500);
const PROBE: Duration = Duration::from_secs(5);
/// How long a remote may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a release may take. The lease expires by itself.
const PATIENCE_FOR_RELEASE: Duration = Duration::from_secs(20);

/// The result of trying for a lease.
pub(crate) enum FirstFree {
    Ours(Client, LeaseDir),
    /// All are held. This is the first; its holder's clock may be ahead.
    AllHeld(Client, HeldBy, Option<Ahead>),
    /// By this signal. The failure says that the lease may still have been taken.
    Interrupted(i32, Option<Failure>),
}

/// Tries one after the other, and again until `wait` has passed.
pub(crate) fn take_first_free(
    clients: &[Client],
    request: &LeaseRequest,
    wait: Duration,
    events: &Receiver<RunEvent>,
    stop: &Arc<AtomicBool>,
) -> Result<FirstFree, Failure> {
    let clock = &clients[0].clock;
    let end = clock::after(&clock.now(), wait);
    let (mut has_reported, mut pause) = (false, FIRST_PROBE);
    let mut watch = Watch::default();
    loop {
        if let Some(signal) = events.try_iter().find_map(|event| asks_to_end(&event)) {
            return Ok(FirstFree::Interrupted(signal, None));
        }
        let tried = try_each(clients, request, stop);
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
            && !wait.is_zero()
        {
            left = left.max(watch.left(by, ahead.as_ref()));
        }
        match tried {
            Ok(FirstFree::AllHeld(client, by, _)) if !left.is_zero() => {
                if !has_reported {
                    note(&format!(
                        "waiting up to {} s for {}, which holds fence '{}'",
                        left.as_secs_f64().ceil(),
                        text::in_quotes(&by.owner),
                        client.fence
                    ));
                    has_reported = true;
                }
            }
            Err(Failure::Unreachable { .. } | Failure::Busy { .. }) if !left.is_zero() => {}
            tried => return tried,
        }
        let event = events.recv_timeout(spread(pause).min(left));
        pause = (2 * pause).min(PROBE);
        if let Some(signal) = event.ok().as_ref().and_then(asks_to_end) {
            return Ok(FirstFree::Interrupted(signal, None));
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
    let (mut held, mut failed) = (None, None::<Failure>);
    for client in clients {
        match bounded(client, stop).acquire(request) {
            Ok(Taken::Ours(dir)) => {
                if let Some(failure) = &failed {
                    note(&format!("{}; trying the next one", failure.in_one_line()));
                }
                return Ok(FirstFree::Ours(client.clone(), dir));
            }
            Ok(Taken::Theirs(by, ahead)) => held = held.or(Some((client.clone(), by, ahead))),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    match (failed, held) {
        (Some(failure), _) => Err(failure),
        (None, Some((client, by, ahead))) => Ok(FirstFree::AllHeld(client, by, ahead)),
        (None, None) => Err(Failure::usage("no fence given", "git fence run -- CMD")),
    }
}

/// A client that gives up on a remote that does not answer, and stops at once when `run` is asked to end. At a
/// terminal it waits: the user may be typing a password, and a signal that interrupts `run` there interrupts
/// git, too.
fn bounded(client: &Client, stop: &Arc<AtomicBool>) -> Client {
    if io::stdin().is_terminal() {
        return client.clone();
    }
    Client { until: Some(clock::after(&client.clock.now(), PATIENCE)), stop: Some(stop.clone()), ..client.clone() }
}

/// Releases the lease; retries once if the remote did not answer.
pub(crate) fn release(client: &Client, dir: &LeaseDir) -> Result<(), Failure> {
    let in_time = || Client { until: Some(clock::after(&client.clock.now(), PATIENCE_FOR_RELEASE)), ..client.clone() };
    let released = match in_time().release(dir) {
        Err(failure) if failure.is_retryable() || matches!(failure, Failure::Unknown { .. }) => in_time().release(dir),
        released => released,
    };
    dir.remove();
    released
}
