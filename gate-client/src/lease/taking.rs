//! Taking a lease: read it, then move both of its refs, if they are still as read.

use crate::{
    clock,
    failure::Failure,
    git::How,
    lease::{
        client::{Client, MOST_TRIES, reasons, used_up},
        held::{HeldLease, Key, LeaseDir, Pulse},
    },
    random,
    store::{
        answer::{GateAnswer, PushAnswer},
        objects::copy_commit,
        reading::{Ahead, LeaseSnapshot, Life, Mirror, SeenLease},
        sending::Sending,
    },
};
use git_fence_core::{
    Code, Format, HeldBy, Holder, Lease, LeasePart, LeaseState, Mark, ObjectId, Reason, Secret, Token, Ttl, next_token,
};
use std::{sync::atomic::Ordering, thread, time::Duration};

/// Who wants a lease, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    pub(crate) owner: String,
    pub(crate) ttl: Ttl,
    pub(crate) words: Option<String>,
    /// How far clocks may differ where no gate judges.
    pub(crate) skew: Duration,
}

/// What came of trying to take a lease.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is ours.
    Ours(LeaseDir),
    /// It is somebody else's, whose clock may be ahead.
    Theirs(HeldBy, Option<Ahead>),
}

/// What came of one try.
enum Try {
    Taken(Taken),
    Beaten(Beaten),
}

/// What a gate says of a lease.
enum Asked {
    Held(HeldBy),
    Free,
    /// Nobody but git answers.
    NoGate,
}

const BUSY: &str = "another push has been moving its refs for longer than the gate waits (FENCE-BUSY)";
/// How long the last try of somebody who was interrupted may take.
const LAST_TRY: Duration = Duration::from_secs(20);

/// What is known of a try that somebody else was quicker than, or that git refused.
#[derive(Debug, Default)]
struct Beaten {
    /// No gate answered.
    no_gate: bool,
    /// What the lease and its beat were at.
    at: Option<[Option<ObjectId>; 2]>,
    /// In git's words, or the gate's.
    why: Vec<String>,
    /// Whether git's words can mean that somebody else was at these refs at that moment.
    was_crowded: bool,
}

impl Beaten {
    /// Nobody was quicker where both refs are as they were: it was refused for another reason.
    fn refused_at(&self, now: &LeaseSnapshot) -> Option<String> {
        (*self.at.as_ref()? == now.values()).then(|| self.why.join("; "))
    }
}

/// What git says where a ref is locked by somebody else, who may fail, too: then nothing has moved.
const CROWDED: [&str; 5] =
    ["stale info", "lock", "transaction failed", "failed to update ref", "reference already exists"];
/// The longest that somebody who was beaten rests before the next try.
const REST: Duration = Duration::from_millis(250);

impl Client {
    /// Takes the lease where it is free: reads it, then moves both refs, if they are still as read.
    pub(crate) fn acquire(&self, wish: &LeaseRequest) -> Result<Taken, Failure> {
        let mut before = Beaten::default();
        for _ in 0..MOST_TRIES {
            match self.try_to_acquire(wish, Reason::Expired, &before)? {
                Try::Taken(taken) => return Ok(taken),
                // Somebody came first and may be gone again.
                Try::Beaten(again) => before = again,
            }
            // Those who were beaten together do not come back together.
            thread::sleep(REST.mul_f64(random::fraction()));
        }
        self.beaten(&before)
    }

    /// What is said after the last try: others have it, one after the other, or nobody can get at it.
    fn beaten(&self, before: &Beaten) -> Result<Taken, Failure> {
        let seen = self.read()?;
        match (before.refused_at(&seen), seen.last_holder(&self.clock.now())) {
            (None, Some(by)) => Ok(Taken::Theirs(by, None)),
            (None, None) => Err(self.busy("others take it and it is gone again")),
            (Some(why), _) if before.was_crowded => Err(self.busy(why)),
            (Some(why), _) => Err(Failure::Refused { why }),
        }
    }

    /// Takes the lease away from whoever has it, and gives it back at once. Says who had it.
    pub(crate) fn revoke(&self, wish: &LeaseRequest) -> Result<Option<Lease>, Failure> {
        let mut before = Beaten::default();
        for _ in 0..MOST_TRIES {
            let Some(theirs) = self.read()?.lease.filter(|seen| seen.lease.state == LeaseState::Held) else {
                return Ok(None);
            };
            match self.try_to_acquire(wish, Reason::Revoked, &before)? {
                Try::Taken(Taken::Ours(dir)) => {
                    dir.remove();
                    return Ok(Some(theirs.lease));
                }
                Try::Taken(Taken::Theirs(by, _)) => {
                    return Err(Failure::Held { fence: self.fence.clone(), by: Box::new(by) });
                }
                Try::Beaten(again) => before = again,
            }
            thread::sleep(REST.mul_f64(random::fraction()));
        }
        Err(self.busy("the lease keeps changing hands"))
    }

    /// One try. What the try `before` found out need not be found out again.
    fn try_to_acquire(&self, wish: &LeaseRequest, otherwise: Reason, before: &Beaten) -> Result<Try, Failure> {
        let mirror = self.mirror()?;
        let seen = mirror.read(&self.how(), 1)?;
        if let Some(why) = before.refused_at(&seen).filter(|_| !before.was_crowded) {
            return Err(Failure::Refused { why });
        }
        let master = random::secret();
        let lease = self.wished_for(wish, otherwise, &seen, &master)?;
        let dir = LeaseDir::create(&self.local, &lease.id, &self.clock.now())?;
        let tried = self.propose(&mirror, &seen, wish.skew, &dir, lease, &master, before);
        if !matches!(tried, Ok(Try::Taken(Taken::Ours(_)))) {
            dir.remove();
        }
        tried
    }

    fn wished_for(
        &self,
        wish: &LeaseRequest,
        otherwise: Reason,
        seen: &LeaseSnapshot,
        master: &Secret,
    ) -> Result<Lease, Failure> {
        let reason = match &seen.lease {
            None => Reason::First,
            Some(before) if before.lease.state == LeaseState::Released => Reason::Released,
            Some(_) => otherwise,
        };
        let (nonce, holder) = fresh(master);
        Ok(Lease {
            format: Format::OneUse,
            id: random::lease_id(),
            token: next(seen.lease.as_ref(), Mark::default())?,
            owner: wish.owner.clone(),
            state: if otherwise == Reason::Revoked { LeaseState::Released } else { LeaseState::Held },
            ttl: wish.ttl,
            reason,
            words: wish.words.clone(),
            holder,
            nonce,
        })
    }

    /// Puts `lease` in the place of what was `seen`, unless that is alive.
    #[expect(clippy::too_many_arguments, reason = "one step of two, not to be called by anybody else")]
    fn propose(
        &self,
        mirror: &Mirror<'_>,
        seen: &LeaseSnapshot,
        skew: Duration,
        dir: &LeaseDir,
        lease: Lease,
        master: &Secret,
        before: &Beaten,
    ) -> Result<Try, Failure> {
        let parent = seen.lease.as_ref().map(|seen| seen.commit.clone());
        let objects = [mirror.objects(), dir.objects()];
        // The lease stands on it, whatever is fetched later.
        if let Some(parent) = &parent {
            copy_commit(&objects[0], &objects[1], self.local.hash, parent)?;
        }
        let push = || self.sending(&[&objects[0], &objects[1]]);
        let commit = self.write_lease(dir, &lease, parent.as_ref(), None)?;
        let mut held = self.held(lease, commit, parent, Key::Master(master.clone()));
        let sent = self.clock.now();
        let revokes = held.lease.is_revocation();
        let watched = mirror.watched(seen, &sent);
        let is_alive = match seen.life(&sent, skew, watched) {
            Life::Free | Life::Expired => false,
            Life::Alive => true,
            // Where a gate judges, it knows better than this machine's clock.
            Life::AliveOrLate => !seen.gate(),
        };
        if let Some(theirs) = seen.held_by(&sent).filter(|_| is_alive && !revokes) {
            let asked = if before.no_gate { Asked::NoGate } else { self.ask(push(), dir, &held.lease.owner)? };
            match asked {
                Asked::Held(by) => return Ok(Try::Taken(Taken::Theirs(by, None))),
                // A gate that does not say that it is held says that it is free.
                Asked::Free => {}
                Asked::NoGate => {
                    return Ok(Try::Taken(Taken::Theirs(theirs, seen.ahead(&sent, skew, watched))));
                }
            }
        }
        let beat = self.beat_of(&held, None, seen.gate(), &sent);
        let good_until = clock::after(&sent, held.lease.ttl.duration());
        let commit = self.write_beat(dir, &beat, &held.lease.owner, None)?;
        let pulse = Pulse { commit, nonce: beat.nonce, good_until };
        let mut may_try_next_token = true;
        let mut lost_answers = 0;
        loop {
            // Whoever dies from here on may have it, and then can prove it.
            dir.set_held(&held)?;
            dir.set_pulse(&pulse)?;
            let mut sending = push().swap(LeasePart::Lease, held.parent.as_ref(), &held.commit);
            sending = sending.swap(LeasePart::Beat, seen.beat_at.as_ref(), &pulse.commit);
            // Whoever was interrupted still has to know what it has taken, or it leaves it held.
            if lost_answers > 0 && self.is_interrupted() {
                sending.how = How { within: Some(LAST_TRY), stop: None, ..sending.how };
            }
            let most_lost = if self.is_interrupted() { 1 } else { MOST_TRIES };
            let (refs, verdict) = match sending.send()? {
                PushAnswer::Landed { verdict, .. } => {
                    dir.set_held(&held.with_gate(verdict.is_some()))?;
                    return Ok(Try::Taken(Taken::Ours(dir.clone())));
                }
                PushAnswer::Refused { refs, verdict } => (refs, verdict),
                // It may have landed, and it may land yet. The very same objects are pushed again: if
                // they are there already, git says so, and if they come twice, it is the same lease.
                PushAnswer::Lost { .. } if lost_answers < most_lost => {
                    lost_answers += 1;
                    continue;
                }
                PushAnswer::Lost { why } => return Err(may_be_ours(&held.lease, &why)),
                PushAnswer::NotSent(why) if lost_answers == 0 => return Err(self.not_sent(why)),
                // Not this one, but the one before.
                PushAnswer::NotSent(_) if lost_answers < most_lost => {
                    lost_answers += 1;
                    continue;
                }
                PushAnswer::NotSent(why) => return Err(may_be_ours(&held.lease, &self.not_sent(why).to_string())),
                PushAnswer::NoAtomic => return Err(self.no_atomic()),
                PushAnswer::NoOptions => return Err(self.no_options()),
            };
            // A push of ours whose answer was lost may be what stands in the way of this one.
            if lost_answers > 0 && self.is_at(&held.commit).map_err(|e| may_be_ours(&held.lease, &e.to_string()))? {
                dir.set_held(&held.with_gate(verdict.is_some()))?;
                return Ok(Try::Taken(Taken::Ours(dir.clone())));
            }
            match verdict {
                Some(GateAnswer { code: Some(Code::Stale), mark: Some(mark), .. }) if may_try_next_token => {
                    may_try_next_token = false;
                    held.lease.token = next(None, mark)?;
                    (held.lease.nonce, held.lease.holder) = fresh(master);
                    held.commit = self.write_lease(dir, &held.lease, held.parent.as_ref(), None)?;
                }
                Some(GateAnswer { holder: Some(by), .. }) => return Ok(Try::Taken(Taken::Theirs(by, None))),
                Some(verdict) if verdict.code == Some(Code::Busy) => {
                    return Err(if lost_answers > 0 { may_be_ours(&held.lease, BUSY) } else { self.busy(BUSY) });
                }
                Some(verdict) if revokes && verdict.code == Some(Code::LeaseInvalid) => {
                    return Err(self.may_not_revoke());
                }
                // What was read may be old by now: then it is worth another try.
                Some(GateAnswer { code: Some(Code::LeaseInvalid), sentence, .. }) => {
                    let why = sentence.into_iter().collect();
                    return Ok(Try::Beaten(Beaten { at: Some(seen.values()), why, ..Beaten::default() }));
                }
                Some(verdict) => return Err(self.refused_by(&verdict)),
                // Git's own compare-and-swap: somebody was quicker. A gate gets to hear of it too. Where
                // there was no lease, nobody is asked: the question's ref could be created in its place.
                None => {
                    let may_ask = !revokes && seen.lease.is_some();
                    let asked = if may_ask { self.ask(push(), dir, &held.lease.owner)? } else { Asked::Free };
                    let no_gate = matches!(asked, Asked::NoGate);
                    let why = reasons(refs);
                    let was_crowded = why.iter().any(|why| CROWDED.iter().any(|words| why.contains(words)));
                    return Ok(match asked {
                        Asked::Held(by) => Try::Taken(Taken::Theirs(by, None)),
                        _ => Try::Beaten(Beaten { no_gate, at: Some(seen.values()), why, was_crowded }),
                    });
                }
            }
        }
    }

    /// Asks a gate whether the lease is held. A remote that does not answer has not said that it is.
    fn ask(&self, push: Sending<'_>, dir: &LeaseDir, owner: &str) -> Result<Asked, Failure> {
        match push.ask(&self.write_question(dir, owner)?)? {
            PushAnswer::Landed { verdict: Some(verdict), .. } | PushAnswer::Refused { verdict: Some(verdict), .. } => {
                match verdict {
                    GateAnswer { holder: Some(by), .. } => Ok(Asked::Held(by)),
                    GateAnswer { code: Some(Code::LeaseInvalid), .. } => Ok(Asked::Free),
                    GateAnswer { code: Some(Code::Busy), .. } => Err(self.busy(BUSY)),
                    other => Err(self.refused_by(&other)),
                }
            }
            PushAnswer::Lost { why } => Err(self.unreachable(why)),
            PushAnswer::NotSent(why) => Err(self.not_sent(why)),
            PushAnswer::Landed { .. } | PushAnswer::Refused { .. } | PushAnswer::NoOptions | PushAnswer::NoAtomic => {
                Ok(Asked::NoGate)
            }
        }
    }

    /// Whether the lease is what `commit` says.
    fn is_at(&self, commit: &ObjectId) -> Result<bool, Failure> {
        Ok(self.read()?.lease.is_some_and(|now| now.commit == *commit))
    }

    /// Whether somebody wants this to end.
    fn is_interrupted(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn held(&self, lease: Lease, commit: ObjectId, parent: Option<ObjectId>, key: Key) -> HeldLease {
        let (remote, url) = (self.remote.name.clone(), self.remote.url.clone());
        HeldLease { fence: self.fence.clone(), remote, url, lease, commit, parent, key, gate: false, pending: None }
    }
}

/// The nonce of a new record, and what the move after it must show.
fn fresh(master: &Secret) -> (String, Holder) {
    let nonce = random::nonce();
    let holder = master.of_record(LeasePart::Lease, &nonce).holder();
    (nonce, holder)
}

/// An answer to our taking the lease was lost, and it could not be found out whether we have it.
fn may_be_ours(lease: &Lease, why: &str) -> Failure {
    Failure::Unknown { why: format!("the lease may have been taken, and then lasts {}: {why}", lease.ttl) }
}

fn next(last: Option<&SeenLease>, mark: Mark) -> Result<Token, Failure> {
    next_token(last.map(|seen| seen.lease.token), mark).ok_or_else(used_up)
}
