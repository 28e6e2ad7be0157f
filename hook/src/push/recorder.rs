//! The log, for one push: opening it, writing to it, and recording the verdict.

use crate::{
    host::{clock::WaitBudget, surroundings, syslog},
    log::{
        files::FenceDir,
        journal::Damage,
        store::{Durability, Store, StoreError},
    },
    push::{
        arrival::Arrival,
        plan::Guarded,
        verdict::{Admission, LogFor, Objection, Refusal, Verdict},
    },
};
use git_fence_core::{
    AskedRef, Enforcement, Event, JobName, Place, Refused, Reject, Rules, Settings, SkipCause, StoppedPush, TickSkip,
    Who, heirs,
};
use std::time::Duration;

/// How long to wait for the lock even if the push may wait no longer. The lock is held only briefly; without this, a
/// refusal would go unrecorded because another one is being written.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Writes the lines about a push, according to its settings.
pub(crate) struct Recorder<'a> {
    arrival: &'a Arrival<'a>,
    /// `None` if they cannot be read.
    settings: Option<&'a Settings>,
    dir: FenceDir,
    pub(crate) who: Who,
    /// The push that this one reports: the line is about that push.
    pub(crate) stopped: Option<StoppedPush>,
    /// The scheduled run that starts nothing and says so, and the job for which a lease is asked.
    pub(crate) skip: Option<TickSkip>,
    pub(crate) job: Option<JobName>,
    pub(crate) budget: WaitBudget,
    /// Which refusals of this push take effect.
    pub(crate) enforcement: Enforcement,
}

impl<'a> Recorder<'a> {
    /// For a push of which only the settings are known: it may touch any of their fences.
    pub(crate) fn of(arrival: &'a Arrival<'a>, settings: &'a Settings) -> Recorder<'a> {
        Recorder { settings: Some(settings), ..Recorder::without_settings(arrival, &settings.fences) }
    }

    fn without_settings<'r>(
        arrival: &'a Arrival<'a>,
        fences: impl IntoIterator<Item = &'r Rules> + Clone,
    ) -> Recorder<'a> {
        Recorder {
            arrival,
            settings: None,
            dir: FenceDir::at(arrival.repository.fence_dir()),
            who: surroundings::who(arrival.environment),
            stopped: None,
            skip: None,
            job: None,
            budget: WaitBudget::of(shortest_wait(fences.clone()), arrival.start),
            enforcement: Enforcement::of(fences, false),
        }
    }

    /// Restricts the recorder to the fences that `guarded` touches.
    pub(crate) fn narrow_to(&mut self, guarded: &Guarded, settings: &Settings) {
        let fences = guarded.fences(settings);
        self.budget = WaitBudget::of(shortest_wait(fences.iter().map(AsRef::as_ref)), self.arrival.start);
        self.enforcement = Enforcement::of(fences.iter().map(AsRef::as_ref), guarded.concerns_leases());
    }

    /// The refusal of a push whose settings cannot be read. The mode is unknown, so the refusal takes effect.
    pub(crate) fn refuse_without_settings(arrival: &'a Arrival<'a>, reject: Reject) -> Refusal {
        let recorder = Recorder::without_settings(arrival, [&Rules::for_repo()]);
        recorder.record(reject.into(), Refused::on_record)
    }

    /// The recorded verdict: an objection is a refusal, unless the fences only observe. Observe mode is applied here, to
    /// objections that stop the push, and in [`decide`](git_fence_core::decide), to the decision of each of several
    /// fences.
    pub(crate) fn verdict_on(&self, judged: Result<Admission, Objection>) -> Verdict {
        match judged {
            Ok(admission) => Verdict::Admitted(admission),
            Err(objection) if self.enforcement.upholds(objection.ground) => {
                Verdict::Refused(self.record(objection, Refused::on_record))
            }
            Err(objection) => Verdict::Observed(self.record(objection, Event::PushObserved)),
        }
    }

    /// Records an objection.
    fn record(&self, objection: Objection, event: fn(Refused) -> Event) -> Refusal {
        let Objection { reject, token, source, log, .. } = objection;
        let store = match log {
            LogFor::Open(store) => Some(*store),
            LogFor::Closed => self.open_log().ok(),
            LogFor::Unusable => None,
        };
        // An objection that cannot be recorded is still reported, with its own reason.
        let Some(store) = store else { return reject.into() };
        let fence = reject.fence().cloned();
        let compared = reject.compared();
        let token = compared.map(|(token, _)| token).or(token);
        let mark = compared.map(|(_, mark)| mark);
        let mark = mark.or_else(|| fence.as_ref().map(|fence| store.state().fence(fence).mark));
        let (refs, count) = self.asked_refs();
        let refused = Refused {
            code: reject.code(),
            reason: reject.to_string(),
            fence: fence.clone(),
            token,
            mark,
            source,
            job: self.job.clone().filter(|_| matches!(reject, Reject::LeaseHeld { .. } | Reject::Halted { .. })),
            who: self.who.clone(),
            refs,
            count,
            elapsed_us: self.elapsed_us(),
        };
        let event = self.skipped(&reject).unwrap_or_else(|| event(refused));
        match self.commit(store, event, Durability::Lazy) {
            Ok(()) => Refusal { reject, fence, token, mark },
            Err(broken) => broken.into(),
        }
    }

    /// The line about a scheduled run that starts nothing: it is no refusal. One that found the lease held is one, if it is.
    fn skipped(&self, reject: &Reject) -> Option<Event> {
        let skip = self.skip.as_ref().filter(|skip| skip.found != SkipCause::Held)?;
        let answer = matches!(reject, Reject::LeaseHeld { .. } | Reject::LeaseInvalid { .. });
        let fence = reject.fence().filter(|_| answer)?.clone();
        Some(Event::TickSkipped { fence, skip: skip.clone(), who: self.who.clone() })
    }

    /// The refs that it asked to move, as far as they fit in a line, and how many there are.
    fn asked_refs(&self) -> (Vec<AskedRef>, usize) {
        match &self.stopped {
            Some(stopped) => (AskedRef::named(&stopped.refs), stopped.count),
            None => (AskedRef::of(&self.arrival.push.commands), self.arrival.push.commands.len()),
        }
    }

    /// The log under the lock, created if the settings allow it, with a change of settings recorded.
    pub(crate) fn open(&self) -> Result<Store, Reject> {
        self.open_log().map_err(|e| self.broken(&e))
    }

    fn open_log(&self) -> Result<Store, StoreError> {
        let Some(settings) = self.settings else { return self.lock() };
        let mut store = match self.lock() {
            Err(StoreError::Damage(Damage::NoLog(_))) if settings.init_at_first_push => {
                Store::begin(&self.dir, &self.who.pusher, &self.here().boot, &self.budget)?;
                self.lock()?
            }
            locked => locked?,
        };
        let (before, digest) = (store.state().settings.as_ref(), Some(settings.digest()));
        if before.is_none_or(|before| before.digest != digest) {
            let heirs = before.map_or_else(Vec::new, |before| heirs(before, settings));
            let settings = serde_json::to_value(settings).unwrap_or_default();
            store.append(Event::SettingsChanged { settings, digest, heirs })?;
        }
        Ok(store)
    }

    /// Whether there is a log at all.
    pub(crate) fn has_log(&self) -> bool {
        self.dir.has(&self.dir.log())
    }

    fn lock(&self) -> Result<Store, StoreError> {
        Store::lock(&self.dir, &self.here().boot, &self.budget.with_grace(GRACE))
    }

    fn here(&self) -> &Place {
        &self.arrival.here
    }

    /// Records `event` and releases the lock. Syslog gets the lines afterwards.
    pub(crate) fn commit(&self, mut store: Store, event: Event, durability: Durability) -> Result<(), Reject> {
        store.append(event).map_err(|e| self.broken(&e))?;
        self.commit_appended(store, durability)
    }

    /// The same for lines that have already been appended.
    pub(crate) fn commit_appended(&self, store: Store, durability: Durability) -> Result<(), Reject> {
        let written = store.commit(durability).map_err(|e| self.broken(&e))?;
        syslog::announce(self.settings.and_then(|settings| settings.syslog.as_ref()), &written);
        Ok(())
    }

    pub(crate) fn elapsed_us(&self) -> u64 {
        u64::try_from(self.budget.spent().as_micros()).unwrap_or(u64::MAX)
    }

    /// The refusal for a log that cannot be used.
    pub(crate) fn broken(&self, error: &StoreError) -> Reject {
        let fix = match error {
            StoreError::Locked(held) => {
                let (holder, waited) = (held.to_string(), self.budget.spent());
                return Reject::Busy { fence: None, holder, waited };
            }
            StoreError::Damage(Damage::NoLog(_)) => {
                "nothing was written. Ask the server's operator to create it, all marks at 0:  git-fence-hook install"
            }
            StoreError::Damage(Damage::LostLog(_)) => {
                "nothing was written. Ask the server's operator to restore it from a backup, or to run  git-fence-hook status  for other options"
            }
            StoreError::Damage(Damage::Io { .. }) => {
                "nothing was written. Ask the server's operator to free disk space, or to let the pusher's user write there"
            }
            StoreError::Damage(Damage::CheckpointVersion { .. }) => {
                "nothing was written. Ask the server's operator to install a newer git-fence-hook"
            }
            StoreError::Damage(_) | StoreError::PlanLost { .. } => {
                "nothing was written. Ask the server's operator to restore it from a backup, or to see  git-fence-hook repair"
            }
        };
        Reject::Broken { what: error.to_string(), fix: fix.to_owned() }
    }
}

/// How long the push may wait in total: the shortest wait of its fences.
fn shortest_wait<'r>(fences: impl IntoIterator<Item = &'r Rules>) -> Duration {
    fences.into_iter().map(|rules| rules.wait).min().unwrap_or_default()
}
