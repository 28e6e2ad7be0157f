//! The heartbeat: a thread that renews a lease until it is stopped.

use crate::{client::Client, clock, failure::Failure, lease::held::LeaseDir, random};
use git_fence_core::Stamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A connection takes time, however short the TTL.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);

/// What the heartbeat reports.
#[derive(Debug)]
pub(crate) enum HeartbeatNews {
    /// The new deadline.
    Renewed(Stamp),
    /// This attempt failed. The next one follows while the lease lasts.
    Failed(Failure),
    /// The lease was lost.
    Lost(Failure),
}

/// A running heartbeat.
#[must_use = "the heartbeat runs until it is stopped"]
pub(crate) struct Heartbeat {
    stop: Sender<()>,
    /// Ends the current attempt.
    hurry: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Heartbeat {
    /// Renews the lease in `dir` every third of its TTL, with a jitter of a tenth.
    pub(crate) fn start(
        client: &Client,
        dir: &LeaseDir,
        ttl: Duration,
        tell: impl Fn(HeartbeatNews) + Send + 'static,
    ) -> Heartbeat {
        let (stop, stopped) = mpsc::channel();
        let client = dir.held().map_or_else(|_| client.clone(), |held| client.with_store_of(&held));
        let (mut client, dir) = (client.unattended(), dir.clone());
        let hurry = Arc::new(AtomicBool::new(false));
        client.stop = Some(hurry.clone());
        // A failed attempt is reported anyway.
        client.waiting = None;
        let thread = thread::spawn(move || {
            let mut pause = ttl / 3;
            while stopped.recv_timeout(jittered(pause)) == Err(RecvTimeoutError::Timeout) {
                let Ok(pulse) = dir.pulse() else { return };
                // Checked before the attempt: an expired lease must not be renewed silently.
                if clock::left_until(&pulse.good_until, &client.clock.now()).is_zero() {
                    return;
                }
                // An attempt that hangs must not use up the rest of the lease.
                let enough = clock::after(&client.clock.now(), (ttl / 4).max(SHORTEST_ATTEMPT));
                let is_sooner = clock::left_until(&pulse.good_until, &enough).is_zero();
                client.until = Some(if is_sooner { pulse.good_until } else { enough });
                pause = match client.renew(&dir) {
                    Ok(until) => {
                        tell(HeartbeatNews::Renewed(until));
                        ttl / 3
                    }
                    Err(lost @ Failure::Lost { .. }) => return tell(HeartbeatNews::Lost(lost)),
                    Err(failure) => {
                        tell(HeartbeatNews::Failed(failure));
                        (ttl / 12).min(Duration::from_secs(5))
                    }
                };
            }
        });
        Heartbeat { stop, hurry, thread }
    }

    /// Stops the heartbeat and waits for its end: a renewal after the release would fight the next holder.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        self.hurry.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// `pause`, with a jitter of a tenth.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.9 + 0.2 * random::fraction())
}
