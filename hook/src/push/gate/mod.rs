//! The decision under the lock: settle what is over, judge, and take the slot or wait for it.
//!
//! [`Gate::admit`] is for pushes, [`Gate::renew`] for heartbeats. Whether a refusal takes effect is not decided here but
//! by [`Enforcement`](git_fence_core::Enforcement).

mod entry;
mod heartbeat;
mod waiting;

pub(crate) use waiting::Waiting;

use crate::{
    host::clock,
    log::store::{Store, StoreError},
    push::{
        arrival::Arrival,
        gate::waiting::operator_is_waiting,
        plan::{Guarded, unreadable},
        recorder::Recorder,
        settling::{Landings, SettlingError, settle_finished},
        slot::Viewpoint,
        store_question::ANSWER_LASTS_MS,
        verdict::{Admission, Objection},
    },
};
use git_fence_core::{
    Claim, Decision, FenceName, Ground, InFlight, Reject, Rules, Settings, Source, State, Token, decide,
};

/// A push at the gate: everything known about it before the lock is taken.
pub(crate) struct Gate<'a> {
    pub(crate) arrival: &'a Arrival<'a>,
    pub(crate) settings: &'a Settings,
    pub(crate) recorder: &'a Recorder<'a>,
    pub(crate) guarded: &'a Guarded,
    pub(crate) claims: Vec<Claim<'a>>,
    pub(crate) source: Source,
    /// What is wrong with the push, regardless of the log.
    pub(crate) flaw: Option<Reject>,
    /// When the stores that keep the leases answered, if they were asked: in milliseconds since boot, because this counts
    /// the time that the machine was suspended.
    pub(crate) answered: Option<u64>,
}

/// What came of one attempt under the lock.
enum Attempt {
    /// The push is admitted, and that is on record.
    Admitted(Admission),
    /// It had to wait, and tries again.
    Waited,
    /// It could be admitted, but what the stores answered is too old.
    Outdated,
}

impl Gate<'_> {
    /// Admits the push or returns an objection. When this returns, an admission has been recorded. `None` if the stores must
    /// be asked again first, without the lock.
    pub(crate) fn admit(&self, waiting: &mut Waiting) -> Result<Option<Admission>, Objection> {
        if let Some(flaw) = self.flaw.clone().filter(|_| self.recorder.enforcement.upholds(Ground::Push)) {
            return Err(self.flawed(flaw));
        }
        loop {
            match self.attempt(waiting)? {
                Attempt::Admitted(admission) => return Ok(Some(admission)),
                Attempt::Outdated => return Ok(None),
                Attempt::Waited => {}
            }
        }
    }

    /// An objection to the push itself. What to do without a token depends on the kind of tokens that the fence takes,
    /// which only the log knows.
    fn flawed(&self, flaw: Reject) -> Objection {
        let Reject::Missing { fence, name, .. } = flaw else { return flaw.into() };
        match self.open() {
            Ok(store) => {
                let kind = self.rules_of(&fence).and_then(|rules| store.state().fence(&fence).kind(rules));
                self.object(store, Reject::Missing { fence, name, kind })
            }
            Err(_) => Objection::off_record(Reject::Missing { fence, name, kind: None }),
        }
    }

    /// One attempt under the lock.
    fn attempt(&self, waiting: &mut Waiting) -> Result<Attempt, Objection> {
        let viewpoint = waiting.viewpoint(&self.arrival.here);
        let mut store = self.open()?;
        let landings = self.settle_finished(&mut store, viewpoint)?;
        let reread = match self.reread_refs(&mut store) {
            Ok(reread) => reread,
            Err(reject) => return Err(self.object(store, reject)),
        };
        match decide(store.state(), &self.claims, &clock::stamp(&self.arrival.here)) {
            Decision::Refuse(reject) => Err(self.object(store, reject)),
            Decision::Wait(fence) => {
                let admitted = self.wait_for(&fence, store, landings, viewpoint, waiting)?;
                Ok(admitted.map_or(Attempt::Waited, Attempt::Admitted))
            }
            Decision::Admit { .. } if self.answers_are_old() => Ok(Attempt::Outdated),
            Decision::Admit { .. } if self.yields(&mut store) => {
                drop(store);
                waiting.pause(self.recorder.budget.left());
                Ok(Attempt::Waited)
            }
            Decision::Admit { overruled, leases } => {
                let admission = self.enter(store, overruled, leases, reread)?;
                let waited = waiting.has_notified.then(|| self.recorder.budget.spent());
                Ok(Attempt::Admitted(Admission { waited, ..admission }))
            }
        }
    }

    /// Whether what the stores answered is too old: somebody may have taken the lease over since.
    fn answers_are_old(&self) -> bool {
        self.answered.is_some_and(|answered| clock::uptime_ms().saturating_sub(answered) > ANSWER_LASTS_MS)
    }

    /// Whether an operator's command waits for a slot that this push would take. The command goes first, as long as this
    /// push may still wait.
    fn yields(&self, store: &mut Store) -> bool {
        let fences: Vec<&FenceName> = self.claims.iter().map(|claim| &claim.rules.fence).collect();
        !self.recorder.budget.left().is_zero() && operator_is_waiting(store, &self.arrival.here, &fences)
    }

    fn open(&self) -> Result<Store, Objection> {
        self.recorder.open().map_err(Objection::off_record)
    }

    /// Settles the pushes that block this one and are over.
    fn settle_finished(&self, store: &mut Store, viewpoint: Viewpoint<'_>) -> Result<Landings, Objection> {
        let is_in_the_way = |state: &State, flight: &InFlight| {
            self.claims.iter().any(|claim| state.is_in_the_way(flight, &claim.rules.fence))
        };
        let settled = settle_finished(store, &self.arrival.repository, self.settings, viewpoint, is_in_the_way);
        settled.map_err(|e| match e {
            SettlingError::Refs(e) => Objection::off_record(unreadable(e)),
            SettlingError::Store(e) => self.broken(&e),
        })
    }

    fn rules_of(&self, fence: &FenceName) -> Option<&Rules> {
        self.claims.iter().map(|claim| claim.rules).find(|rules| rules.fence == *fence)
    }

    fn token_for(&self, fence: &FenceName) -> Option<Token> {
        self.claims.iter().find(|claim| claim.rules.fence == *fence)?.token
    }

    /// The token of the lease record that the push requests, or of the push that it reports.
    fn token_asked_for(&self, fence: &FenceName) -> Option<Token> {
        let asked = self.claims.iter().find(|claim| claim.rules.fence == *fence)?.lease?;
        let of_record = asked.lease.as_ref().map(|proposal| proposal.lease.token);
        of_record.or_else(|| asked.stopped.as_ref().map(|stopped| stopped.token))
    }

    fn object(&self, store: Store, reject: Reject) -> Objection {
        let token = reject.fence().and_then(|fence| self.token_for(fence).or_else(|| self.token_asked_for(fence)));
        Objection::under_lock(store, reject, token, self.source)
    }

    fn broken(&self, error: &StoreError) -> Objection {
        Objection::off_record(self.recorder.broken(error))
    }
}
