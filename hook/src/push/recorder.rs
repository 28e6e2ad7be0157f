//! The log, for one push: opening it, writing to it, and the verdict that goes into it.

use crate::{
    host::{clock::Patience, surroundings, syslog},
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
use git_fence_core::{AskedRef, Enforcement, Event, Place, Refused, Reject, Rules, Settings, Who, heirs};
use std::time::Duration;

/// The lock is held for moments only. So long it is waited for even where patience has run out, or
/// a refusal would go unrecorded because another is just being written.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Who writes lines about a push, and by which settings.
pub(crate) struct Recorder<'a> {
    arrival: &'a Arrival<'a>,
    /// Nothing where they cannot be read.
    settings: Option<&'a Settings>,
    dir: FenceDir,
    pub(crate) who: Who,
    pub(crate) patience: Patience,
    /// Which refusals of this push stand.
    pub(crate) enforcement: Enforcement,
}

impl<'a> Recorder<'a> {
    /// For a push of which nothing is known but the settings: it may touch any of their fences.
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
            patience: Patience::of(shortest_wait(fences.clone()), arrival.start),
            enforcement: Enforcement::of(fences, false),
        }
    }

    /// From here on it is about what `guarded` touches.
    pub(crate) fn narrow_to(&mut self, guarded: &Guarded, settings: &Settings) {
        let fences = guarded.fences(settings);
        self.patience = Patience::of(shortest_wait(fences.iter().copied()), self.arrival.start);
        self.enforcement = Enforcement::of(fences, guarded.comes_to_leases());
    }

    /// The refusal of a push whose settings cannot be read. Nobody knows in which mode: it stands.
    pub(crate) fn refuse_without_settings(arrival: &'a Arrival<'a>, reject: Reject) -> Refusal {
        let recorder = Recorder::without_settings(arrival, [&Rules::for_repo()]);
        recorder.put_on_record(reject.into(), Event::PushRejected)
    }

    /// The verdict, on record: what speaks against a push is a refusal, unless its fences only observe. Observe mode
    /// is applied here, to whatever the push could not go on from, and by [`decide`](git_fence_core::decide), to what
    /// each of several fences says.
    pub(crate) fn verdict_on(&self, judged: Result<Admission, Objection>) -> Verdict {
        match judged {
            Ok(admission) => Verdict::Admitted(admission),
            Err(objection) if self.enforcement.upholds(objection.ground) => {
                Verdict::Refused(self.put_on_record(objection, Event::PushRejected))
            }
            Err(objection) => Verdict::Observed(self.put_on_record(objection, Event::PushObserved)),
        }
    }

    /// Writes the line that an objection comes to.
    fn put_on_record(&self, objection: Objection, event: fn(Refused) -> Event) -> Refusal {
        let Objection { reject, token, source, log, .. } = objection;
        let store = match log {
            LogFor::Open(store) => Some(*store),
            LogFor::Closed => self.open_as_it_is().ok(),
            LogFor::Unusable => None,
        };
        // What cannot be put on record is said all the same, and for its own reason.
        let Some(store) = store else { return reject.into() };
        let fence = reject.fence().cloned();
        let compared = reject.compared();
        let token = compared.map(|(token, _)| token).or(token);
        let mark = compared.map(|(_, mark)| mark);
        let mark = mark.or_else(|| fence.as_ref().map(|fence| store.state().fence(fence).mark));
        let commands = &self.arrival.push.commands;
        let refused = Refused {
            code: reject.code(),
            reason: reject.to_string(),
            fence: fence.clone(),
            token,
            mark,
            source,
            who: self.who.clone(),
            refs: AskedRef::of(commands),
            count: commands.len(),
            elapsed_us: self.elapsed_us(),
        };
        match self.commit(store, event(refused), Durability::Lazy) {
            Ok(()) => Refusal { reject, fence, token, mark },
            Err(broken) => broken.into(),
        }
    }

    /// The log under the lock, begun where the settings allow that, with a change of settings recorded.
    pub(crate) fn open(&self) -> Result<Store, Reject> {
        self.open_as_it_is().map_err(|e| self.broken(&e))
    }

    fn open_as_it_is(&self) -> Result<Store, StoreError> {
        let Some(settings) = self.settings else { return self.lock() };
        let mut store = match self.lock() {
            Err(StoreError::Damage(Damage::NoLog(_))) if settings.init_at_first_push => {
                Store::begin(&self.dir, &self.who.pusher, &self.here().boot, &self.patience)?;
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
        Store::lock(&self.dir, &self.here().boot, &self.patience.with_grace(GRACE))
    }

    fn here(&self) -> &Place {
        &self.arrival.here
    }

    /// Puts `event` on record and lets the lock go. Who listens is told after that.
    pub(crate) fn commit(&self, mut store: Store, event: Event, durability: Durability) -> Result<(), Reject> {
        store.append(event).map_err(|e| self.broken(&e))?;
        self.commit_appended(store, durability)
    }

    /// The same for what has been appended already.
    pub(crate) fn commit_appended(&self, store: Store, durability: Durability) -> Result<(), Reject> {
        let written = store.commit(durability).map_err(|e| self.broken(&e))?;
        syslog::announce(self.settings.and_then(|settings| settings.syslog.as_ref()), &written);
        Ok(())
    }

    pub(crate) fn elapsed_us(&self) -> u64 {
        u64::try_from(self.patience.spent().as_micros()).unwrap_or(u64::MAX)
    }

    /// What a fence that cannot be used means for the push.
    pub(crate) fn broken(&self, error: &StoreError) -> Reject {
        let mend = match error {
            StoreError::Locked(held) => {
                let (holder, waited) = (held.to_string(), self.patience.spent());
                return Reject::Busy { fence: None, holder, waited };
            }
            StoreError::Damage(Damage::NoLog(_)) => {
                "nothing was written. The server's operator begins it with  git-fence-hook install,  all marks at 0"
            }
            StoreError::Damage(Damage::LostLog(_)) => {
                "nothing was written. The server's operator restores it from a backup;  git-fence-hook status  says what else there is"
            }
            StoreError::Damage(Damage::Io { .. }) => {
                "nothing was written. The server's operator makes room, or lets the pusher's user write there"
            }
            StoreError::Damage(Damage::CheckpointVersion { .. }) => {
                "nothing was written. The server's operator installs a newer git-fence-hook"
            }
            StoreError::Damage(_) | StoreError::PlanLost { .. } => {
                "nothing was written. The server's operator restores it from a backup, or looks at  git-fence-hook repair"
            }
        };
        Reject::Broken { what: error.to_string(), mend: mend.to_owned() }
    }
}

/// How long the push may wait in all: no longer than any of its fences allows.
fn shortest_wait<'r>(fences: impl IntoIterator<Item = &'r Rules>) -> Duration {
    fences.into_iter().map(|rules| rules.wait).min().unwrap_or_default()
}
