//! By when something must be done, by a clock that counts suspend.

use git_fence_core::StoreFault;
use git_fence_system::clock;
use std::time::Duration;

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

    /// This long from now, but not later than this deadline.
    pub fn earlier(&self, time: Duration) -> Deadline {
        Deadline(self.0.min(Deadline::within(time).0))
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
