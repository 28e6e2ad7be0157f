//! By when something must be done, by a clock that counts suspend.

use git_fence_core::StoreFault;
use git_fence_system::clock;
use std::{sync::mpsc, thread, time::Duration};

/// A moment by which an answer must have come.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Duration);

/// No attempt is given less: an engine that is asked for an answer in no time has no chance.
const SHORTEST: Duration = Duration::from_millis(50);

impl Deadline {
    /// This long from now.
    pub fn within(time: Duration) -> Deadline {
        Deadline(clock::since_boot().saturating_add(time))
    }

    /// A part of the time, for one of so many that are asked in turn: one that does not answer leaves time for the others.
    /// Never less than an attempt needs.
    pub fn share(&self, among: u32, most: Duration) -> Deadline {
        let part = (self.left() / among.max(1)).min(most).max(SHORTEST * 2);
        Deadline(self.0.min(Deadline::within(part).0))
    }

    /// How long is left.
    pub fn left(&self) -> Duration {
        self.0.saturating_sub(clock::since_boot())
    }

    /// How long is left; an error where there is no time for another attempt. Asked before each attempt.
    pub fn time_for_an_attempt(&self) -> Result<Duration, StoreFault> {
        let left = self.left();
        if left < SHORTEST { Err(StoreFault::unreachable("it did not answer in time")) } else { Ok(left) }
    }
}

/// Runs what cannot be bounded otherwise in a thread of its own, which is left behind when the time is over.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn bounded<T: Send + 'static>(until: &Deadline, task: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(task()));
    result.recv_timeout(until.left()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_a_part_but_enough_for_an_attempt() {
        let hour = Duration::from_secs(3600);
        let all = Deadline::within(hour);
        assert!(all.share(3, hour).left() <= hour / 3);
        assert!(all.share(3, Duration::from_secs(5)).left() <= Duration::from_secs(5));
        let short = Deadline::within(Duration::from_millis(3000));
        assert!(short.share(1000, hour).time_for_an_attempt().is_ok());
        assert!(short.share(1, hour).left() <= Duration::from_millis(3000));
    }
}
