//! Running the command under its lease: when to stop it, and how.

use crate::{
    client::Client,
    clock::{self, left_until},
    commands::context::{Context, shown},
    failure::Failure,
    lease::{
        heartbeat::{Heartbeat, HeartbeatNews},
        held::LeaseDir,
    },
    report::outcome::Outcome,
    run::{
        child::{CommandEvent, Spec, Supervised},
        inside,
        lookup::{NOT_EXECUTABLE, NOT_FOUND},
    },
};
use git_fence_core::Stamp;
use git_fence_system::{colours::say, env};
use std::{
    ffi::OsString,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

/// How often deadlines are checked: the clock used for waiting stops during suspend.
const TICK: Duration = Duration::from_millis(250);
/// The longest time between SIGTERM and SIGKILL.
const LONGEST_GRACE: Duration = Duration::from_secs(10);
/// Even if no time is left of the lease, a command gets a moment to exit by itself.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);

/// The time limits of a run, and how it fetches.
pub(crate) struct Bounds {
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) stall_after: Option<Duration>,
    /// Whether fetches are left alone even without a gate.
    pub(crate) plain_fetch: bool,
}

/// What the main thread waits for.
pub(crate) enum RunEvent {
    Signal(i32),
    /// The git that started `run` was killed.
    GitIsGone,
    Command(CommandEvent),
    Heartbeat(HeartbeatNews),
}

/// How the command ended.
pub(crate) enum Ended {
    ByItself(u8),
    NotStarted {
        code: u8,
        why: String,
    },
    /// Because the git that started `run` was killed, which is meant to stop the run.
    GitIsGone,
    /// Because the lease was lost.
    Lost(Failure),
    /// Because of a time limit: the outcome for programs, and the reason.
    Bounded(Outcome, String),
}

/// A run that has its lease.
pub(crate) struct Run<'a> {
    pub(crate) client: &'a Client,
    pub(crate) dir: &'a LeaseDir,
    pub(crate) bounds: &'a Bounds,
    pub(crate) ttl: Duration,
    pub(crate) began: Stamp,
}

impl Run<'_> {
    /// Runs the command while renewing the lease, and holds the lease for at least `--min-hold`.
    pub(crate) fn command(
        &self,
        context: &Context,
        command: &[OsString],
        tell: &Sender<RunEvent>,
        events: &Receiver<RunEvent>,
    ) -> Result<Ended, Failure> {
        let mut environment =
            inside::environment(self.client, self.dir, &context.environment, self.bounds.plain_fetch)?;
        let outer = context.environment.get(env::GIT_FENCE_RUNS).map(std::env::split_paths).into_iter().flatten();
        // A path with a colon cannot be in the list: then an inner run does not find this one.
        if let Ok(runs) = std::env::join_paths(outer.chain([self.dir.path().to_owned()])) {
            environment.set(env::GIT_FENCE_RUNS, runs);
        }
        let (program, args) =
            command.split_first().ok_or_else(|| Failure::usage("no command", "git fence run -- CMD"))?;
        let spec = Spec {
            program,
            args,
            remove: context.environment.all().map(|(name, _)| name.clone()).collect(),
            set: environment.all().map(|(name, value)| (name.clone(), value.clone())).collect(),
            grace: self.grace(),
        };
        let (beats, happens) = (tell.clone(), tell.clone());
        let started = Supervised::start(&spec, move |event| drop(happens.send(RunEvent::Command(event))));
        let supervised = started.map_err(|e| {
            Failure::broken(
                format!("cannot start the keeper of '{}'", shown(program)),
                "check for free memory, and try again",
            )
            .because(e)
        })?;
        let heartbeat = Heartbeat::start(self.client, self.dir, self.ttl, move |news| {
            drop(beats.send(RunEvent::Heartbeat(news)));
        });
        let ended = self.watch(&supervised, program, events);
        if matches!(ended, Ended::ByItself(_)) {
            self.hold_on(events);
        }
        heartbeat.stop();
        Ok(ended)
    }

    /// Waits until the command has ended.
    fn watch(&self, supervised: &Supervised, program: &OsString, events: &Receiver<RunEvent>) -> Ended {
        let mut good_until = self.good_until();
        let mut ending: Option<Ended> = None;
        loop {
            let now = self.client.clock.now();
            if ending.is_none()
                && let Some(reason) = self.reason_to_end(&now, &good_until)
            {
                // The command may use the time left of the lease to clean up.
                supervised.end(left_until(&good_until, &now).min(self.grace()).max(SHORTEST_GRACE.min(self.ttl)));
                ending = Some(reason);
            }
            match events.recv_timeout(TICK) {
                Ok(RunEvent::Signal(signal)) => supervised.forward(signal),
                Ok(RunEvent::GitIsGone) => {
                    supervised.end(self.grace());
                    ending = ending.or(Some(Ended::GitIsGone));
                }
                Ok(RunEvent::Heartbeat(HeartbeatNews::Renewed(until))) => good_until = until,
                Ok(RunEvent::Heartbeat(HeartbeatNews::Failed(failure))) => {
                    let left = left_until(&good_until, &self.client.clock.now());
                    let why = failure.in_one_line();
                    note(&format!("could not renew the lease, which lasts another {} s: {why}", left.as_secs()));
                }
                Ok(RunEvent::Heartbeat(HeartbeatNews::Lost(failure))) => {
                    let left = left_until(&good_until, &self.client.clock.now());
                    supervised.end(left.min(self.grace()).max(SHORTEST_GRACE.min(self.ttl)));
                    ending = Some(Ended::Lost(failure));
                }
                Ok(RunEvent::Command(event)) => {
                    if let Some(end) = end_of(event, program) {
                        return ending.unwrap_or(end);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Why the command must be stopped, if it must.
    fn reason_to_end(&self, now: &Stamp, good_until: &Stamp) -> Option<Ended> {
        if left_until(good_until, now) <= self.grace() {
            let left = left_until(good_until, now).as_secs();
            let why = format!("it was not renewed in time and has only {left} s left");
            return Some(Ended::Lost(Failure::lost(&self.client.fence, why)));
        }
        let held = self.began.age_at(now);
        if let Some(most) = self.bounds.max_hold.filter(|most| held >= *most) {
            return Some(Ended::Bounded(
                Outcome::Overran,
                format!("it ran longer than --max-hold, {} s", most.as_secs()),
            ));
        }
        let stall_after = self.bounds.stall_after?;
        let last = self.dir.progress().map_or_else(|| self.began.clone(), |progress| progress.at);
        let why = || format!("no  git fence progress  for longer than --stall-after, {} s", stall_after.as_secs());
        (last.age_at(now) >= stall_after).then(|| Ended::Bounded(Outcome::Stalled, why()))
    }

    /// Holds the lease until `--min-hold` has passed.
    fn hold_on(&self, events: &Receiver<RunEvent>) {
        let end = clock::after(&self.began, self.bounds.min_hold);
        while !left_until(&end, &self.client.clock.now()).is_zero() {
            if let Ok(RunEvent::Signal(_) | RunEvent::GitIsGone | RunEvent::Heartbeat(HeartbeatNews::Lost(_))) =
                events.recv_timeout(TICK)
            {
                return;
            }
        }
    }

    /// The time between SIGTERM and SIGKILL.
    fn grace(&self) -> Duration {
        (self.ttl / 6).min(LONGEST_GRACE)
    }

    fn good_until(&self) -> Stamp {
        self.dir.pulse().map_or_else(|_| self.began.clone(), |pulse| pulse.good_until)
    }
}

fn end_of(event: CommandEvent, program: &OsString) -> Option<Ended> {
    Some(match event {
        CommandEvent::Started => return None,
        CommandEvent::LeftBehind(count) => {
            let them = if count == 1 { "a process" } else { &format!("{count} processes") };
            note(&format!("the command exited and left {them} running: stopping what is left"));
            return None;
        }
        CommandEvent::CannotStart { not_found: true, why } => {
            Ended::NotStarted { code: NOT_FOUND, why: format!("command '{}' was not found: {why}", shown(program)) }
        }
        CommandEvent::CannotStart { not_found: false, why } => {
            Ended::NotStarted { code: NOT_EXECUTABLE, why: format!("cannot run '{}': {why}", shown(program)) }
        }
        CommandEvent::Exited(code) => Ended::ByItself(u8::try_from(code).unwrap_or(1)),
        CommandEvent::Killed(signal) => Ended::ByItself(code_of_signal(signal)),
        CommandEvent::KeeperGone => {
            note("the keeper of the command died, so the command was stopped and its exit status is unknown");
            Ended::ByItself(code_of_signal(9))
        }
    })
}

pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

pub(crate) fn note(text: &str) {
    say(&format!("note: {text}\n"));
}
