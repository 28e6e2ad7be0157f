//! Putting a refusal on record, from wherever in the pipeline it comes.

use crate::{
    host::{clock::Patience, syslog},
    log::{
        files::FenceDir,
        journal::Damage,
        store::{Durability, Store, StoreError},
    },
    push::voice::Refusal,
};
use git_fence_core::{AskedRef, Event, Place, Push, Refused, Reject, Settings, Source, Syslog, Token, Who, heirs};
use std::time::Duration;

/// The lock is held for moments only. So long it is waited for even where patience has run out, or
/// a refusal would go unrecorded because another is just being written.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// What every line about this push has in common.
pub(crate) struct Recorder<'a> {
    pub(crate) dir: FenceDir,
    pub(crate) here: &'a Place,
    pub(crate) who: Who,
    pub(crate) patience: Patience,
    pub(crate) push: &'a Push,
    /// Who else is told.
    pub(crate) syslog: Option<&'a Syslog>,
    /// Whether a refusal is one. Where no fence enforces, it is only on record.
    pub(crate) enforces: bool,
}

impl Recorder<'_> {
    /// The log under the lock, begun where the settings allow that, with a change of settings
    /// taken down.
    pub(crate) fn open(&self, settings: &Settings) -> Result<Store, Refusal> {
        let mut store = match self.lock() {
            Err(StoreError::Damage(Damage::NoLog(_))) if settings.init_at_first_push => {
                let begun = Store::begin(&self.dir, &self.who.pusher, &self.here.boot, &self.patience);
                begun.and_then(|()| self.lock())
            }
            locked => locked,
        }
        .map_err(|e| self.broken(&e))?;
        let (before, digest) = (store.state().settings.as_ref(), Some(settings.digest()));
        if before.is_none_or(|before| before.digest != digest) {
            let heirs = before.map_or_else(Vec::new, |before| heirs(before, settings));
            let settings = serde_json::to_value(settings).unwrap_or_default();
            store.append(Event::SettingsChanged { settings, digest, heirs }).map_err(|e| self.broken(&e))?;
        }
        Ok(store)
    }

    fn lock(&self) -> Result<Store, StoreError> {
        Store::lock(&self.dir, &self.here.boot, &self.patience.with_grace(GRACE))
    }

    /// Refuses a push about whose tokens nothing is known.
    pub(crate) fn refuse_unread(&self, reject: Reject, settings: Option<&Settings>) -> Refusal {
        let store = match settings {
            Some(settings) => self.open(settings).ok(),
            None => self.lock().ok(),
        };
        match store {
            Some(store) => self.refuse(store, reject, None, None),
            // It cannot be put on record. It is refused all the same, and for its own reason.
            None => reject.into(),
        }
    }

    /// Refuses the push and puts that on record.
    pub(crate) fn refuse(&self, store: Store, reject: Reject, token: Option<Token>, source: Option<Source>) -> Refusal {
        let fence = reject.fence().cloned();
        let compared = reject.compared();
        let token = compared.map(|(token, _)| token).or(token);
        let mark = compared.map(|(_, mark)| mark);
        let mark = mark.or_else(|| fence.as_ref().map(|fence| store.state().fence(fence).mark));
        let refused = Refused {
            code: reject.code(),
            reason: reject.to_string(),
            fence: fence.clone(),
            token,
            mark,
            source,
            who: self.who.clone(),
            refs: AskedRef::of(&self.push.commands),
            count: self.push.commands.len(),
            elapsed_us: self.elapsed_us(),
        };
        let event = if self.enforces { Event::PushRejected(refused) } else { Event::PushObserved(refused) };
        match self.commit(store, event, Durability::Lazy) {
            Ok(()) => Refusal { reject, fence, token, mark },
            Err(broken) => broken,
        }
    }

    /// Puts `event` on record and lets the lock go. Who listens is told after that.
    pub(crate) fn commit(&self, mut store: Store, event: Event, durability: Durability) -> Result<(), Refusal> {
        store.append(event).map_err(|e| self.broken(&e))?;
        self.commit_appended(store, durability)
    }

    /// The same for what has been appended already.
    pub(crate) fn commit_appended(&self, store: Store, durability: Durability) -> Result<(), Refusal> {
        let written = store.commit(durability).map_err(|e| self.broken(&e))?;
        syslog::announce(self.syslog, &written);
        Ok(())
    }

    pub(crate) fn elapsed_us(&self) -> u64 {
        u64::try_from(self.patience.spent().as_micros()).unwrap_or(u64::MAX)
    }

    /// What a fence that cannot be used means for the push.
    pub(crate) fn broken(&self, error: &StoreError) -> Refusal {
        let mend = match error {
            StoreError::Locked(held) => {
                let (holder, waited) = (held.to_string(), self.patience.spent());
                return Reject::Busy { fence: None, holder, waited }.into();
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
        Reject::Broken { what: error.to_string(), mend: mend.to_owned() }.into()
    }
}
