//! Taking a lease: [`Taking`] says what to do, and this does it.

use crate::{
    client::{Client, used_up},
    clock,
    failure::Failure,
    git::How,
    lease::{
        held::{HeldLease, HeldStore, Key, LeaseDir, Pulse, TakenBy},
        jobs::{Clocks, JobsAsk},
    },
    random,
    store::{
        home::{LeaseHome, TAKEN_MEANWHILE},
        remote::remembered_gate,
    },
};
use git_fence_core::{
    Ahead, Beat, Due, Format, GateSays, Halt, HeldBy, JobName, Lease, LeaseId, LeasePart, LeaseSnapshot, LeaseStore,
    MOST_TRIES, Purpose, Record, Secret, Sight, Stamp, Swap, SwapRefused, Swapped, Taking, TakingAnswer, TakingEnd,
    TakingNext, TakingRefusal, Token, Ttl, next_token,
};
use std::{mem, sync::atomic::Ordering, thread, time::Duration};

/// Who wants a lease, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    pub(crate) owner: String,
    pub(crate) ttl: Ttl,
    pub(crate) words: Option<String>,
    /// How far clocks may differ where no gate judges.
    pub(crate) skew: Duration,
    /// The command that wants it.
    pub(crate) taken_by: TakenBy,
    /// What it does to the fence's scheduled jobs.
    pub(crate) jobs: JobsAsk,
}

/// What came of trying to take a lease.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is ours.
    Ours(LeaseDir),
    /// It is somebody else's, whose clock may be ahead.
    Theirs(HeldBy, Option<Ahead>),
    /// No tick of the job is to be started, or not yet.
    NothingDue(Box<Due>),
}

const BUSY: &str = "another push has held the slot for longer than the gate waits (FENCE-BUSY)";
/// How long the last try of an interrupted run may take.
const LAST_TRY: Duration = Duration::from_secs(10);
/// The longest rest before the next try.
const REST: Duration = Duration::from_millis(250);

impl Client {
    /// Takes the lease where it is free.
    pub(crate) fn acquire(&self, request: &LeaseRequest) -> Result<Taken, Failure> {
        let (end, taker) = self.take(request, Purpose::Hold)?;
        let barrier = taker.barrier_if(end);
        let taken = taker.taken(end)?;
        if let Taken::Ours(dir) = &taken
            && let Err(failure) =
                barrier.and_then(|was_due| if was_due { self.renew_after_waiting(dir, request.ttl) } else { Ok(()) })
        {
            // Nobody may work under it. It is given back, and a barrier that is not up stays due.
            let _ = self.release(dir);
            return Err(failure);
        }
        Ok(taken)
    }

    /// Renews a lease of which a good part has passed: a gate lets a barrier wait.
    fn renew_after_waiting(&self, dir: &LeaseDir, ttl: Ttl) -> Result<(), Failure> {
        if clock::left_until(&dir.pulse()?.good_until, &self.clock.now()) > ttl.duration() * 2 / 3 {
            return Ok(());
        }
        match self.renew(dir) {
            Ok(_) => Ok(()),
            Err(Failure::Lost { .. }) => Err(self.busy(TAKEN_MEANWHILE)),
            Err(failure) => Err(failure),
        }
    }

    /// Does what [`Taking`] says until it has ended.
    pub(super) fn take<'a>(
        &'a self,
        request: &'a LeaseRequest,
        purpose: Purpose,
    ) -> Result<(TakingEnd, Taker<'a>), Failure> {
        let mut taker = Taker::new(self, request, purpose)?;
        let (mut taking, mut next) = Taking::start(purpose);
        loop {
            let answer = match next {
                TakingNext::Read => taker.read(None)?,
                TakingNext::RestThenRead => taker.rest_then_read()?,
                TakingNext::AskGate => taker.ask_gate()?,
                TakingNext::Propose => taker.propose()?,
                TakingNext::ProposeAboveMark => taker.propose_above_mark()?,
                TakingNext::SwapAgain => taker.swap_again()?,
                TakingNext::Check => taker.check()?,
                TakingNext::End(end) => return Ok((end, taker)),
            };
            (taking, next) = taking.step(answer);
        }
    }
}

/// The state of the loop around [`Taking`].
pub(super) struct Taker<'a> {
    client: &'a Client,
    request: &'a LeaseRequest,
    purpose: Purpose,
    /// The record that is being tried for.
    pub(super) attempt: Attempt<'a>,
    /// What was read last, when, and for how long its beat has been unchanged.
    pub(super) seen: LeaseSnapshot,
    now: Stamp,
    watched: Duration,
    /// What the last answers said.
    by: Option<HeldBy>,
    pub(super) halt: Option<Halt>,
    refused: SwapRefused,
    pub(super) why: String,
    not_sent: Option<Failure>,
    /// What is due, and how far the gate's clock is ahead of ours, if it has said so.
    due: Option<Due>,
    gate_ahead_ms: i64,
}

/// One try: the new lease, its directory and its store. The directory is removed unless the lease was taken, or may
/// have been: then this clone knows it again.
pub(super) struct Attempt<'a> {
    pub(super) id: LeaseId,
    master: Secret,
    pub(super) dir: LeaseDir,
    pub(super) store: LeaseHome<'a>,
    may_be_ours: bool,
}

impl<'a> Attempt<'a> {
    fn begin(client: &'a Client, job: Option<&JobName>) -> Result<Attempt<'a>, Failure> {
        let (id, master) = (random::lease_id(), random::secret());
        let dir = LeaseDir::create(&client.local, &id, &client.clock.now())?;
        let store = LeaseHome::open(client, dir.objects(), false)?.wanted_for(job.cloned());
        Ok(Attempt { id, master, dir, store, may_be_ours: false })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.may_be_ours {
            self.dir.remove();
        }
    }
}

impl<'a> Taker<'a> {
    fn new(client: &'a Client, request: &'a LeaseRequest, purpose: Purpose) -> Result<Taker<'a>, Failure> {
        Ok(Taker {
            client,
            request,
            purpose,
            attempt: Attempt::begin(client, request.jobs.job())?,
            seen: LeaseSnapshot::default(),
            now: client.clock.now(),
            watched: Duration::ZERO,
            by: None,
            halt: None,
            refused: SwapRefused::default(),
            why: String::new(),
            not_sent: None,
            due: None,
            gate_ahead_ms: 0,
        })
    }

    /// Reads the lease; `before` is what the last try saw.
    fn read(&mut self, before: Option<&LeaseSnapshot>) -> Result<TakingAnswer, Failure> {
        let store = &self.attempt.store;
        self.seen = store.read_to_take(&self.request.owner, self.purpose)?;
        let now = self.client.clock.now();
        self.watched = store.watched(&self.seen, &now);
        self.now = store.by_its_clock(now.clone());
        let clocks = self.clocks(&now)?;
        self.due = self.request.jobs.due(&self.seen, clocks, self.request.skew, &self.client.fence)?;
        if self.due.as_ref().is_some_and(|due| !matches!(due, Due::Start(_))) {
            return Ok(TakingAnswer::NothingDue);
        }
        let mut sight = Sight::of(&self.seen, before, &self.now, self.request.skew, self.watched);
        // A halt whose barrier is not up is made once more: that puts it up.
        sight.is_halted &= self.purpose != Purpose::Halt || !store.barrier_is_due()?;
        Ok(TakingAnswer::Seen(sight))
    }

    /// The clocks by which ticks are due: the store's, or the gate's where it has told us, and ours.
    fn clocks(&self, ours: &Stamp) -> Result<Clocks, Failure> {
        let judge_ms = self.now.unix_ms.saturating_add_signed(self.gate_ahead_ms);
        let is_ahead = self.request.jobs.ahead(&self.seen, judge_ms) > self.request.skew;
        // Asked only where it matters: a fresh clone does not know whether there is a gate.
        let by_gate = match &self.attempt.store {
            LeaseHome::Remote(remote) if is_ahead && !self.seen.gate() => {
                remote.ask_gate(&self.request.owner)?;
                remote.gate()
            }
            LeaseHome::Remote(_) => self.seen.gate(),
            LeaseHome::Store(_) => false,
        };
        Ok(Clocks { judge_ms, ours_ms: ours.unix_ms, by_gate })
    }

    /// Starts the next try after a random pause, so that runs that collided do not collide again.
    fn rest_then_read(&mut self) -> Result<TakingAnswer, Failure> {
        thread::sleep(REST.mul_f64(random::fraction()));
        self.attempt = Attempt::begin(self.client, self.request.jobs.job())?;
        let before = mem::take(&mut self.seen);
        self.read(Some(&before))
    }

    fn ask_gate(&mut self) -> Result<TakingAnswer, Failure> {
        let says = self.attempt.store.ask_gate(&self.request.owner)?;
        let answer = TakingAnswer::from(&says);
        match says {
            GateSays::Held(by) => self.by = Some(by),
            GateSays::Halted(halt) => self.halt = Some(halt),
            GateSays::Free | GateSays::NoGate => {}
        }
        Ok(answer)
    }

    /// Makes the record and its first beat, and swaps them in.
    fn propose(&mut self) -> Result<TakingAnswer, Failure> {
        let last = self.seen.lease.as_ref().map(|seen| &seen.lease);
        let token = self.purpose.token(last, self.attempt.store.highest()?).ok_or_else(used_up)?;
        let held = self.prepare(token)?;
        let sent = self.client.clock.now();
        let store = &self.attempt.store;
        let beat = self.client.beat_of(&held, None, self.seen.gate(), &store.by_its_clock(sent.clone()));
        let at = store.prepare(&Record::Beat { beat: &beat, owner: &held.lease.owner, proof: None })?;
        let good_until = clock::after(&sent, held.lease.ttl.duration());
        // Written before it is sent: a run that dies from here on may hold the lease, and can prove it.
        self.attempt.dir.set_pulse(&Pulse { at, nonce: beat.nonce, good_until })?;
        self.attempt.dir.set_held(&held)?;
        self.swap(None)
    }

    /// The same with the token after the mark that the gate named.
    fn propose_above_mark(&mut self) -> Result<TakingAnswer, Failure> {
        let mark = self.refused.gate.as_ref().and_then(|gate| gate.mark).unwrap_or_default();
        self.attempt.dir.set_held(&self.prepare(next_token(None, mark).ok_or_else(used_up)?)?)?;
        self.swap(None)
    }

    /// An interrupted run must still find out whether it took the lease, or it leaves the lease held.
    fn swap_again(&mut self) -> Result<TakingAnswer, Failure> {
        let last_try = How { within: Some(LAST_TRY), ..How::default() };
        self.swap(self.is_interrupted().then_some(&last_try))
    }

    fn swap(&mut self, how: Option<&How>) -> Result<TakingAnswer, Failure> {
        let Attempt { dir, store, .. } = &self.attempt;
        let (held, pulse) = (dir.held()?, dir.pulse()?);
        let lease = Swap { part: LeasePart::Lease, from: held.parent.clone(), to: held.at.clone() };
        let beat = Swap { part: LeasePart::Beat, from: self.seen.beat_at.clone(), to: pulse.at };
        let pushed = store.push(&[lease, beat], &[], &mut |sending| {
            if let Some(how) = how {
                sending.how = how.clone();
            }
        })?;
        let most = if self.is_interrupted() { 1 } else { MOST_TRIES };
        let answer = pushed.answer;
        if held.gate != store.gate() {
            dir.set_held(&HeldLease { gate: store.gate(), ..held })?;
        }
        Ok(match answer {
            Swapped::Won => TakingAnswer::Won,
            Swapped::Refused(refused) => self.refused(*refused),
            Swapped::Unknown { why } => {
                self.why = why;
                TakingAnswer::Unknown { most }
            }
            Swapped::NotSent(failure) => {
                self.why = failure.in_one_line();
                self.not_sent = Some(failure);
                TakingAnswer::NotSent { most }
            }
        })
    }

    fn refused(&mut self, refused: SwapRefused) -> TakingAnswer {
        let refusal = TakingRefusal::of(&refused);
        if refusal == TakingRefusal::Busy {
            BUSY.clone_into(&mut self.why);
        }
        self.by = refused.gate.as_ref().and_then(|gate| gate.holder.clone());
        if let Some(now) = refused.gate.as_ref().and_then(|gate| gate.now) {
            let (theirs, ours) = (now.seconds().saturating_mul(1000), self.client.clock.now().unix_ms);
            self.gate_ahead_ms = i64::try_from(theirs).unwrap_or(i64::MAX).saturating_sub_unsigned(ours);
        }
        self.halt = refused.gate.as_ref().and_then(|gate| gate.halt.clone());
        self.refused = refused;
        TakingAnswer::Refused(refusal)
    }

    /// Whether the store shows the record of this try.
    fn check(&mut self) -> Result<TakingAnswer, Failure> {
        let held = self.attempt.dir.held()?;
        let now = self.attempt.store.read().map_err(|e| {
            self.attempt.may_be_ours = true;
            may_be_ours(self.request.ttl, &e.in_one_line())
        })?;
        Ok(TakingAnswer::IsThere(now.lease.is_some_and(|now| now.at == held.at)))
    }

    /// A new lease with this token, to replace the one that was read.
    fn prepare(&self, token: Token) -> Result<HeldLease, Failure> {
        let client = self.client;
        let lease = self.wished_for(token)?;
        let parent = self.seen.lease.as_ref().map(|seen| seen.at.clone());
        let at = self.attempt.store.prepare(&Record::Lease { lease: &lease, parent: parent.as_ref(), proof: None })?;
        Ok(HeldLease {
            fence: client.fence.clone(),
            remote: client.remote.name.clone(),
            url: client.remote.url.clone(),
            lease,
            at,
            parent,
            key: Key::Master(self.attempt.master.clone()),
            gate: false,
            taken_by: Some(self.request.taken_by),
            pending: None,
            store: self.attempt.store.to_keep(token),
        })
    }

    fn wished_for(&self, token: Token) -> Result<Lease, Failure> {
        let (reason, state) = self.purpose.begins(self.seen.lease.as_ref().map(|seen| &seen.lease));
        let nonce = random::nonce();
        Ok(Lease {
            format: Format::OneUse,
            id: self.attempt.id.clone(),
            token,
            owner: self.request.owner.clone(),
            state,
            ttl: self.request.ttl,
            reason,
            words: self.request.words.clone(),
            since: Some(Beat::deadline_at(self.attempt.store.by_its_clock(self.client.clock.now()).unix_ms)),
            jobs: self.request.jobs.after(self.seen.jobs(), self.due.as_ref(), token, &self.request.owner)?,
            holder: self.attempt.master.of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        })
    }

    /// If the lease was taken: puts up the barrier that is due where another holder was overtaken. Returns whether one was.
    pub(super) fn barrier_if(&self, end: TakingEnd) -> Result<bool, Failure> {
        let (TakingEnd::Ours, LeaseHome::Store(store)) = (end, &self.attempt.store) else { return Ok(false) };
        let Attempt { dir, .. } = &self.attempt;
        let (held, pulse) = (dir.held()?, dir.pulse()?);
        let Some(mark) = store.put_up_barrier(&held, &pulse.nonce)? else { return Ok(false) };
        let kept = held.store.clone().map(|kept| HeldStore { mark, ..kept });
        dir.set_held(&HeldLease { store: kept, ..held })?;
        Ok(true)
    }

    /// Whether the command was asked to end.
    fn is_interrupted(&self) -> bool {
        let Client { stop, hurry, .. } = self.client;
        [stop, hurry].into_iter().flatten().any(|asked| asked.load(Ordering::Relaxed))
    }

    /// What the end means.
    pub(super) fn taken(mut self, end: TakingEnd) -> Result<Taken, Failure> {
        let client = self.client;
        match end {
            TakingEnd::Ours => {
                self.attempt.may_be_ours = true;
                Ok(Taken::Ours(self.attempt.dir.clone()))
            }
            TakingEnd::TheirsByGate => self.theirs(self.by.clone(), None),
            TakingEnd::Theirs => {
                let ahead = self.seen.ahead(&self.now, self.request.skew, self.watched);
                self.theirs(self.seen.held_by(&self.now), ahead)
            }
            TakingEnd::TheirsAgain => self.theirs(self.seen.last_holder(&self.now), None),
            TakingEnd::NothingDue => match self.due.take() {
                Some(due) => {
                    self.tell_of_skip(&due);
                    Ok(Taken::NothingDue(Box::new(due)))
                }
                None => self.theirs(None, None),
            },
            TakingEnd::ChangesHands | TakingEnd::NothingHeld | TakingEnd::NotHalted => self.theirs(None, None),
            TakingEnd::Halted => match self.halt.take().or_else(|| self.seen.halt()) {
                Some(halt) => Err(client.halted(halt)),
                None => Err(client.refused(&self.refused)),
            },
            TakingEnd::GateIsBusy => Err(client.busy(BUSY)),
            TakingEnd::Crowded => Err(client.busy(self.refused.why.join("; "))),
            TakingEnd::RefusedByStore => Err(client.refused(&self.refused)),
            TakingEnd::RefusedByGate => Err(match &self.refused.gate {
                Some(gate) => client.refused_by(gate, &self.refused.said),
                None => client.refused(&self.refused),
            }),
            TakingEnd::MayNotRevoke => Err(client.may_not(self.purpose.verb())),
            TakingEnd::MayBeOurs => {
                self.attempt.may_be_ours = true;
                Err(may_be_ours(self.request.ttl, &self.why))
            }
            TakingEnd::NotSent => Err(self.not_sent.take().unwrap_or_else(|| client.unreachable(self.why.clone()))),
        }
    }

    /// Tells a gate that the run starts nothing. It is only for its record: without an answer, nothing runs either.
    fn tell_of_skip(&self, due: &Due) {
        let LeaseHome::Remote(remote) = &self.attempt.store else { return };
        // Beside a lease a question cannot move anything, and a remote without a gate is asked only once.
        let may_be_gate = self.seen.lease.is_some() && remembered_gate(self.client) != Some(false);
        if let Some(skip) = self.request.jobs.skip(due).filter(|_| may_be_gate) {
            let _ = remote.tell_of_skip(&self.request.owner, &skip);
        }
    }

    fn theirs(&self, by: Option<HeldBy>, ahead: Option<Ahead>) -> Result<Taken, Failure> {
        let by = by.ok_or_else(|| self.client.busy("other runs take and release it"))?;
        Ok(Taken::Theirs(by, ahead))
    }
}

/// The answer to a swap was lost and could not be settled.
fn may_be_ours(ttl: Ttl, why: &str) -> Failure {
    Failure::Unknown { why: format!("this run may have taken the lease, which then lasts {ttl}: {why}") }
}
