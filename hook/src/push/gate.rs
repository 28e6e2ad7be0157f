//! The decision under the lock: settle what is over, judge, and take the slot or wait for it.

use crate::{
    host::{clock, process, surroundings::Environment},
    log::store::{Durability, Store, StoreError},
    push::{
        plan::{Guarded, unreadable},
        record::{GRACE, Recorder},
        settling::{Landings, SettlingError, settle_what_is_over},
        slot::{self, Fate, Lookout},
        turn,
        voice::{self, Refusal},
    },
    repository::Repository,
};
use git_fence_core::{
    Claim, Decision, Event, FenceName, InFlight, LeaseChange, LeaseMove, Mode, Place, Plan, PushId, ReceivePack,
    Reject, Rules, Settings, Source, Stake, State, Token, decide, outdated,
};
use git_fence_system::process::ProcessHandle;
use std::time::{Duration, Instant};

/// The first look at the slot comes soon, later ones this far apart.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Waits shorter than this are not talked about.
const WORTH_SAYING: Duration = Duration::from_millis(500);

/// A push at the gate: everything that is known about it before the lock is taken.
pub(crate) struct Gate<'a> {
    pub(crate) record: &'a Recorder<'a>,
    pub(crate) repository: &'a Repository,
    pub(crate) environment: &'a Environment,
    pub(crate) settings: &'a Settings,
    pub(crate) guarded: Guarded,
    pub(crate) claims: Vec<Claim<'a>>,
    pub(crate) source: Source,
    /// What is wrong with the push, where all its fences only observe.
    pub(crate) flaw: Option<Reject>,
    /// The receive-pack that this hook runs for; none where the host starts hooks elsewhere.
    pub(crate) receive_pack: Option<ReceivePack>,
}

/// What holds a push up.
struct InTheWay {
    push: PushId,
    fence: FenceName,
    holder: String,
    /// To wait for the end of its receive-pack.
    pidfd: Option<ProcessHandle>,
    /// Its receive-pack is an ancestor of this hook, and so many receive-packs away.
    ancestor: Option<usize>,
    /// Its token is older than this push's.
    is_older: bool,
    /// For how long it has been there.
    age: Duration,
    /// It cannot be seen, and has been watched for all but this of the time it may take.
    unwatched: Option<Duration>,
}

impl Gate<'_> {
    /// Lets the push through or says why not. Either is on record when this returns.
    pub(crate) fn pass(&self) -> Result<(), Refusal> {
        let mut moment = FIRST_LOOK;
        let mut has_spoken = false;
        let mut evicted = None;
        let mut watching: Option<(PushId, Instant)> = None;
        loop {
            let watched = watching.map(|(push, since)| (push, since.elapsed()));
            let lookout = Lookout { here: self.record.here, watched };
            let mut store = self.record.open(self.settings)?;
            let found = self.settle_what_is_over(&mut store, lookout)?;
            let looked = match self.look_again(&mut store) {
                Ok(looked) => looked,
                Err(reject) => return Err(self.refuse(store, reject)),
            };
            let fence = match decide(store.state(), &self.claims, &clock::stamp(self.record.here)) {
                Decision::Refuse(reject) => return Err(self.refuse(store, reject)),
                Decision::Admit { .. } if self.yields(&mut store) => {
                    drop(store);
                    slot::wait_a_moment(None, moment.min(self.record.patience.left()));
                    moment = (moment * 2).min(LOOK_EVERY);
                    continue;
                }
                Decision::Admit { overruled, leases } => {
                    self.admit(store, overruled, leases, looked)?;
                    if has_spoken {
                        voice::waited(self.record.patience.spent());
                    }
                    return Ok(());
                }
                Decision::Wait(fence) => fence,
            };
            let Some(in_the_way) = self.who_is_in_the_way(&store, &fence, lookout)? else {
                // It ended between the two looks.
                continue;
            };
            if watching.is_none_or(|(push, _)| push != in_the_way.push) {
                watching = Some((in_the_way.push, Instant::now()));
            }
            if let Some(reject) = self.end_of_waiting(&in_the_way) {
                let enforces = self.rules_of(&fence).is_some_and(|rules| rules.mode == Mode::Enforce);
                // What becomes of a lease can only be said when nobody else may be moving it.
                let moves_leases = self.claims.iter().any(|claim| claim.lease.is_some());
                return if enforces || moves_leases {
                    Err(self.refuse(store, reject))
                } else {
                    self.admit(store, Some(reject), Vec::new(), None)
                };
            }
            if evicted != Some(in_the_way.push) && self.may_evict(&in_the_way) {
                evicted = Some(in_the_way.push);
                self.evict(store, &in_the_way)?;
            } else if found == Landings::Landed {
                self.record.commit_appended(store, Durability::Synced)?;
            } else {
                // Nothing else is written by those who only wait. What they found out is found again.
                drop(store);
            }
            if !has_spoken && self.record.patience.spent() >= WORTH_SAYING {
                voice::waiting(&in_the_way.holder, self.record.patience.left());
                has_spoken = true;
            }
            slot::wait_a_moment(in_the_way.pidfd.as_ref(), moment.min(self.record.patience.left().max(FIRST_LOOK)));
            moment = (moment * 2).min(LOOK_EVERY);
        }
    }

    /// Whether an operator's command waits for a slot that this push would take. It goes first, as long as this push
    /// may wait.
    fn yields(&self, store: &mut Store) -> bool {
        let fences: Vec<&FenceName> = self.claims.iter().map(|claim| &claim.rules.fence).collect();
        !self.record.patience.left().is_zero() && turn::somebody_waits(store, self.record.here, &fences)
    }

    /// Settles the pushes in this push's way that are over.
    pub(crate) fn settle_what_is_over(&self, store: &mut Store, lookout: Lookout<'_>) -> Result<Landings, Refusal> {
        let is_in_the_way = |state: &State, flight: &InFlight| {
            self.claims.iter().any(|claim| state.is_in_the_way(flight, &claim.rules.fence))
        };
        settle_what_is_over(store, self.repository, self.settings, lookout, is_in_the_way).map_err(|e| match e {
            SettlingError::Refs(e) => unreadable(e).into(),
            SettlingError::Store(e) => self.broken(&e),
        })
    }

    /// Who is in the slot of `fence`, unless they are gone by now.
    fn who_is_in_the_way(
        &self,
        store: &Store,
        fence: &FenceName,
        lookout: Lookout<'_>,
    ) -> Result<Option<InTheWay>, Refusal> {
        let occupied = store.state().fence(fence);
        let Some(flight) = occupied.slot.first() else { return Ok(None) };
        let plan = store.plan_of(flight).map_err(|e| self.broken(&e))?;
        let bound = slot::bound_of(flight, self.settings);
        let fate = slot::fate_of(flight, &plan, lookout, bound, self.repository).map_err(unreadable)?;
        let Fate::Running(pidfd) = fate else { return Ok(None) };
        let age = slot::age_of(flight, lookout);
        let is_bounded = slot::is_bounded(flight, self.record.here);
        let theirs = flight.receive_pack.filter(|_| !is_bounded);
        Ok(Some(InTheWay {
            push: flight.push,
            fence: fence.clone(),
            holder: slot::describe(flight, fence),
            pidfd,
            ancestor: theirs.and_then(|theirs| process::receive_packs_above().position(|above| above == theirs)),
            is_older: newest_of(flight, fence) < self.token_for(fence).or_else(|| self.token_asked_for(fence)),
            age,
            unwatched: is_bounded.then(|| bound.saturating_sub(age)),
        }))
    }

    /// Why this push waits no longer: it would wait for its own parent, or its time is up.
    fn end_of_waiting(&self, in_the_way: &InTheWay) -> Option<Reject> {
        let fence = in_the_way.fence.clone();
        if let Some(depth) = in_the_way.ancestor {
            return Some(Reject::Nested { fence, twice: depth == 0 });
        }
        let patience = &self.record.patience;
        let holder = in_the_way.holder.clone();
        // What no clock can tell the age of is over when somebody has watched it for its whole time. Whoever did
        // nearly that stays for the rest, or each would begin anew and nobody ever see its end.
        let is_nearly_over = in_the_way.unwatched.is_some_and(|rest| rest <= GRACE);
        let gives_up = patience.left().is_zero() && !is_nearly_over;
        gives_up.then(|| Reject::Busy { fence: Some(fence), holder, waited: patience.spent() })
    }

    fn may_evict(&self, in_the_way: &InTheWay) -> bool {
        let rules = self.rules_of(&in_the_way.fence).filter(|rules| rules.mode == Mode::Enforce);
        let after = rules.and_then(|rules| rules.evict_after);
        in_the_way.is_older && after.is_some_and(|after| in_the_way.age >= after)
    }

    /// Asks the receive-pack in the slot to end. Whether it does is seen by the next look.
    fn evict(&self, store: Store, in_the_way: &InTheWay) -> Result<(), Refusal> {
        let Some(pidfd) = &in_the_way.pidfd else { return Ok(()) };
        let reason = match process::ask_to_end(pidfd) {
            Ok(()) => "it was in the way of a newer push, for longer than fence.evictAfter".to_owned(),
            Err(e) => {
                format!("it is in the way of a newer push, for longer than fence.evictAfter, but cannot be ended: {e}")
            }
        };
        let event = Event::PushEvicted { push: in_the_way.push, reason, who: self.record.who.clone() };
        self.record.commit(store, event, Durability::Lazy)
    }

    /// Takes the slots: from here on everybody else waits until the refs have moved. `overruled` is
    /// what an enforcing fence would have said; `looked` is what the refs are at, which settling compares
    /// with.
    fn admit(
        &self,
        store: Store,
        overruled: Option<Reject>,
        leases: Vec<LeaseChange>,
        looked: Option<Guarded>,
    ) -> Result<(), Refusal> {
        let overruled = self.flaw.clone().or(overruled);
        let guarded = match looked {
            Some(looked) => looked,
            None => Guarded::part_of(self.record.push, self.settings, self.repository).map_err(unreadable)?,
        };
        if !guarded.moves_the_same_as(&self.guarded) {
            let why = "a symbolic ref was changed while it was being pushed to: try again";
            return Err(self.refuse(store, Reject::malformed(why)));
        }
        if let Some(reject) = outdated(&self.claims, &guarded.refs) {
            return Err(self.refuse(store, reject));
        }
        // Hooks outlive a receive-pack that is killed. Its refs will never move, so it gets no slot.
        if let Some(gone) = self.receive_pack.filter(|it| matches!(process::look_at(it), process::Liveness::Dead)) {
            let why = format!("the receive-pack of this push, pid {}, is gone", gone.pid);
            return Err(self.refuse(store, Reject::Unseen { why }));
        }
        store.keep_plan(&guarded.refs).map_err(|e| self.broken(&e))?;
        let mut stakes = self.stakes(&store);
        let is_grant = |change: &&LeaseChange| change.change == LeaseMove::Grant;
        let grant = |change: &LeaseChange| {
            let mark = store.state().fence(&change.fence).mark.max(change.raises_to);
            (change.fence.clone(), change.standing.lease.token, mark)
        };
        let grants: Vec<_> = leases.iter().filter(is_grant).map(grant).collect();
        let accepted = Event::PushAccepted {
            push: store.next_push(),
            stake: stakes.remove(0),
            also: stakes,
            leases,
            code: overruled.as_ref().map(Reject::code),
            reason: overruled.as_ref().map(ToString::to_string),
            source: self.source,
            who: self.record.who.clone(),
            plan: Plan::of(guarded.refs),
            receive_pack: self.receive_pack,
            place: Place { uptime_ms: clock::uptime_ms(), ..self.record.here.clone() },
            elapsed_us: self.record.elapsed_us(),
        };
        self.record.commit(store, accepted, Durability::Synced)?;
        if let Some(reject) = overruled {
            let token = reject.fence().and_then(|fence| self.token_for(fence));
            voice::overruled(&Refusal { token, ..Refusal::from(reject) });
        }
        for (fence, token, mark) in grants {
            voice::granted(&fence, token, mark);
        }
        Ok(())
    }

    fn stakes(&self, store: &Store) -> Vec<Stake> {
        let stake = |claim: &Claim<'_>| Stake {
            fence: claim.rules.fence.clone(),
            token: claim.token,
            mark: store.state().fence(&claim.rules.fence).mark,
        };
        self.claims.iter().map(stake).collect()
    }

    fn rules_of(&self, fence: &FenceName) -> Option<&Rules> {
        self.claims.iter().map(|claim| claim.rules).find(|rules| rules.fence == *fence)
    }

    fn token_for(&self, fence: &FenceName) -> Option<Token> {
        self.claims.iter().find(|claim| claim.rules.fence == *fence)?.token
    }

    pub(crate) fn refuse(&self, store: Store, reject: Reject) -> Refusal {
        let token = reject.fence().and_then(|fence| self.token_for(fence).or_else(|| self.token_asked_for(fence)));
        self.record.refuse(store, reject, token, Some(self.source))
    }

    /// The token of the record that the push wants the lease to show.
    fn token_asked_for(&self, fence: &FenceName) -> Option<Token> {
        let claim = self.claims.iter().find(|claim| claim.rules.fence == *fence)?;
        Some(claim.lease?.lease.as_ref()?.lease.token)
    }

    pub(crate) fn broken(&self, error: &StoreError) -> Refusal {
        self.record.broken(error)
    }
}

/// The newest token that `flight` speaks of: a takeover carries none, but is newer than whoever it takes from.
fn newest_of(flight: &InFlight, fence: &FenceName) -> Option<Token> {
    let leases = flight.leases.iter().filter(|change| change.fence == *fence);
    leases.map(|change| change.standing.lease.token).chain(flight.token_for(fence)).max()
}
