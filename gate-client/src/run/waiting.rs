//! Whose turn it is: trying for a lease, of several the first that is free.

use crate::{
    clock::{self, left_until},
    failure::Failure,
    lease::{
        client::Client,
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

/// How long to wait between two looks at a lease that is held: a little at first, then longer.
const FIRST_PROBE: Duration = Duration::from_millis(500);
const PROBE: Duration = Duration::from_secs(5);
/// How long a remote may take to say whether the lease is free.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to take the lease back: it expires by itself.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(20);

/// What came of trying for a lease.
pub(crate) enum Won {
    Ours(Client, LeaseDir),
    /// All are held; this is the first, and its holder's clock may be ahead.
    Nobody(Client, HeldBy, Option<Ahead>),
    /// By this signal. What is left to say: that the lease may have been taken all the same.
    Interrupted(i32, Option<Failure>),
}

/// Tries one after the other, and where that is wanted again and again.
pub(crate) fn take_first_free(
    clients: &[Client],
    wish: &LeaseRequest,
    wait: Duration,
    events: &Receiver<RunEvent>,
    stop: &Arc<AtomicBool>,
) -> Result<Won, Failure> {
    let clock = &clients[0].clock;
    let end = clock::after(&clock.now(), wait);
    let (mut has_spoken, mut pause) = (false, FIRST_PROBE);
    let mut watch = Watch::default();
    loop {
        if let Some(signal) = events.try_iter().find_map(|event| asks_to_end(&event)) {
            return Ok(Won::Interrupted(signal, None));
        }
        let tried = try_each(clients, wish, stop);
        if let Some(signal) = events.try_iter().find_map(|event| asks_to_end(&event)) {
            let left_behind = match tried {
                Ok(Won::Ours(client, dir)) => give_back(&client, &dir).err(),
                Err(unknown @ Failure::Unknown { .. }) => Some(unknown),
                _ => None,
            };
            return Ok(Won::Interrupted(signal, left_behind));
        }
        let mut left = left_until(&end, &clock.now());
        if let Ok(Won::Nobody(_, by, ahead)) = &tried
            && !wait.is_zero()
        {
            left = left.max(watch.left(by, ahead.as_ref()));
        }
        match tried {
            Ok(Won::Nobody(client, by, _)) if !left.is_zero() => {
                if !has_spoken {
                    note(&format!(
                        "waiting up to {} s for {}, which holds fence '{}'",
                        left.as_secs_f64().ceil(),
                        text::in_quotes(&by.owner),
                        client.fence
                    ));
                    has_spoken = true;
                }
            }
            Err(Failure::Unreachable { .. } | Failure::Busy { .. }) if !left.is_zero() => {}
            tried => return tried,
        }
        let event = events.recv_timeout(spread(pause).min(left));
        pause = (2 * pause).min(PROBE);
        if let Some(signal) = event.ok().as_ref().and_then(asks_to_end) {
            return Ok(Won::Interrupted(signal, None));
        }
    }
}

/// `pause`, give or take a half: those who were turned away together do not come back together.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + random::fraction())
}

/// The signal by which `run` is asked to end. That git is gone is one, too.
fn asks_to_end(event: &RunEvent) -> Option<i32> {
    match event {
        RunEvent::Signal(signal) => Some(*signal),
        RunEvent::GitIsGone => Some(SIGTERM),
        RunEvent::Command(_) | RunEvent::Heartbeat(_) => None,
    }
}

/// The watch over a heartbeat whose deadline says nothing, because its holder's clock is ahead. Whoever waits and has
/// not seen it before must see it stand still for a while, however short its wait was to be: or nobody with a fresh
/// clone would ever get in. One that moves is alive, and then the wait is what it was to be.
#[derive(Default)]
struct Watch {
    first: Option<Version>,
    has_spoken: bool,
}

impl Watch {
    /// For how long it is worth while to go on.
    fn left(&mut self, by: &HeldBy, ahead: Option<&Ahead>) -> Duration {
        let Some(ahead) = ahead else { return Duration::ZERO };
        if *self.first.get_or_insert_with(|| ahead.beat.clone()) != ahead.beat {
            return Duration::ZERO;
        }
        if !std::mem::replace(&mut self.has_spoken, true) {
            note(&format!(
                "the clock of {} is ahead, by {} s or more: its heartbeat is watched for another {} s",
                text::in_quotes(&by.owner),
                ahead.by.as_secs(),
                ahead.left.as_secs_f64().ceil()
            ));
        }
        ahead.left
    }
}

/// The first free one. A remote that cannot be reached is never taken for one that is held.
fn try_each(clients: &[Client], wish: &LeaseRequest, stop: &Arc<AtomicBool>) -> Result<Won, Failure> {
    let (mut held, mut failed) = (None, None::<Failure>);
    for client in clients {
        match in_good_time(client, stop).acquire(wish) {
            Ok(Taken::Ours(dir)) => {
                if let Some(failure) = &failed {
                    note(&format!("{}; going on with the next", failure.in_one_line()));
                }
                return Ok(Won::Ours(client.clone(), dir));
            }
            Ok(Taken::Theirs(by, ahead)) => held = held.or(Some((client.clone(), by, ahead))),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    match (failed, held) {
        (Some(failure), _) => Err(failure),
        (None, Some((client, by, ahead))) => Ok(Won::Nobody(client, by, ahead)),
        (None, None) => Err(Failure::usage("no fence to hold", "git fence run -- CMD")),
    }
}

/// A client that does not wait for ever for a remote that never answers, and not at all when `run` is
/// asked to end. In front of a terminal it waits: somebody may be typing a password, and what interrupts
/// `run` there interrupts git, too.
fn in_good_time(client: &Client, stop: &Arc<AtomicBool>) -> Client {
    if io::stdin().is_terminal() {
        return client.clone();
    }
    Client { until: Some(clock::after(&client.clock.now(), PATIENCE)), stop: Some(stop.clone()), ..client.clone() }
}

/// Gives the lease back; once more where the remote did not answer.
pub(crate) fn give_back(client: &Client, dir: &LeaseDir) -> Result<(), Failure> {
    let in_time = || Client { until: Some(clock::after(&client.clock.now(), PATIENCE_AT_THE_END)), ..client.clone() };
    let released = match in_time().release(dir) {
        Err(failure) if failure.is_retryable() || matches!(failure, Failure::Unknown { .. }) => in_time().release(dir),
        released => released,
    };
    dir.remove();
    released
}
