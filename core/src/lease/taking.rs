//! Taking a lease, as a state machine: read it, ask the gate if it looks held, swap, and find out what a lost reply
//! means.
//!
//! [`Taking::step`] takes an answer and returns the next action. It does no IO, so the client, its tests and the model
//! all run the same rules.

use crate::{Code, GateSays, LeaseSnapshot, Life, Purpose, Stamp, SwapRefused};
use std::time::Duration;

/// How often to try before the lease counts as held by another, and how many lost replies to tolerate.
pub const MOST_TRIES: u8 = 3;

/// The state of taking a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    purpose: Purpose,
    tries_left: u8,
    stage: TakingStage,
}

/// What the machine is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TakingStage {
    /// The lease.
    Reading(Option<FailedTry>),
    /// The lease, read once more after the last try.
    ReadingLast(FailedTry),
    /// The gate's answer about a lease that looks held.
    AskingFirst(Sight),
    /// The gate's answer after the store itself refused.
    AskingAfter(FailedTry),
    /// The reply to a swap.
    Swapping(Sent),
    /// Whether an earlier swap, whose reply was lost, has landed.
    Checking(Sent, TakingRefusal),
}

/// What is known about a swap in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    sight: Sight,
    lost_answers: u8,
    may_try_next_token: bool,
}

/// What is known from a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct FailedTry {
    no_gate: bool,
    crowded: bool,
    /// Whether a gate with another clock refused the tick: then nothing need have changed.
    by_clock: bool,
    /// The gate did not allow it. What was read may have been outdated.
    not_allowed: bool,
}

/// What was read of the lease, reduced to what matters for taking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sight {
    /// Whether it can be taken.
    pub life: Life,
    /// Whether it was taken and not released.
    pub is_held: bool,
    /// Whether nobody gets it until it is resumed.
    pub is_halted: bool,
    /// Whether there is a record.
    pub exists: bool,
    /// Whether its holder has seen a gate.
    pub gate: bool,
    /// Whether nothing has changed since the last try.
    pub is_unchanged: bool,
}

impl Sight {
    /// Reduces `snapshot`, read at `now`; `before` is the snapshot of the last try.
    pub fn of(
        snapshot: &LeaseSnapshot,
        before: Option<&LeaseSnapshot>,
        now: &Stamp,
        skew: Duration,
        watched: Duration,
    ) -> Sight {
        Sight {
            life: snapshot.life(now, skew, watched),
            is_held: snapshot.is_held(),
            is_halted: snapshot.halt().is_some(),
            exists: snapshot.lease.is_some(),
            gate: snapshot.gate(),
            is_unchanged: before.is_some_and(|before| before.versions() == snapshot.versions()),
        }
    }

    /// Whether it still belongs to its holder. A gate knows better than this machine's clock.
    fn is_alive(self) -> bool {
        match self.life {
            Life::Free | Life::Expired => false,
            Life::Alive => true,
            Life::AliveOrLate => !self.gate,
        }
    }
}

/// Why a swap was refused, reduced to what matters for taking a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingRefusal {
    /// By the gate: the token is not above the mark that it reported.
    Stale,
    /// By the gate: another holder has the lease.
    Held,
    /// By the gate: the fence is halted.
    Halted,
    /// By the gate: another push is being settled.
    Busy,
    /// By the gate: the change is not allowed.
    Invalid,
    /// By the gate: the tick is in the future by its clock.
    TickAhead,
    /// By the gate, for another reason.
    ByGate,
    /// By the store: another run was faster, or others were changing the record.
    ByStore {
        /// Whether others were changing the record at that moment.
        crowded: bool,
    },
}

impl TakingRefusal {
    /// Classifies `refused`.
    pub fn of(refused: &SwapRefused) -> TakingRefusal {
        let Some(gate) = &refused.gate else { return TakingRefusal::ByStore { crowded: refused.crowded } };
        match gate.code {
            Some(Code::Stale) if gate.mark.is_some() => TakingRefusal::Stale,
            _ if gate.holder.is_some() => TakingRefusal::Held,
            Some(Code::Halted) => TakingRefusal::Halted,
            Some(Code::Busy) => TakingRefusal::Busy,
            Some(Code::LeaseInvalid) if gate.now.is_some() => TakingRefusal::TickAhead,
            Some(Code::LeaseInvalid) => TakingRefusal::Invalid,
            _ => TakingRefusal::ByGate,
        }
    }
}

/// The answer to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingAnswer {
    /// The lease was read.
    Seen(Sight),
    /// The lease was read, and no tick of the job is to be started.
    NothingDue,
    /// The gate says that another holds it.
    GateSaysHeld,
    /// The gate says that it is halted.
    GateSaysHalted,
    /// The gate says that nobody holds it.
    GateSaysFree,
    /// There is no gate.
    NoGate,
    /// The swap landed.
    Won,
    /// The swap was refused.
    Refused(TakingRefusal),
    /// There was no reply.
    Unknown {
        /// How many lost replies to tolerate: fewer if the run has been asked to stop.
        most: u8,
    },
    /// It was not sent.
    NotSent {
        /// How many lost replies to tolerate.
        most: u8,
    },
    /// Whether the earlier swap has landed.
    IsThere(bool),
}

impl From<&GateSays> for TakingAnswer {
    fn from(says: &GateSays) -> TakingAnswer {
        match says {
            GateSays::Held(_) => TakingAnswer::GateSaysHeld,
            GateSays::Halted(_) => TakingAnswer::GateSaysHalted,
            GateSays::Free => TakingAnswer::GateSaysFree,
            GateSays::NoGate => TakingAnswer::NoGate,
        }
    }
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingNext {
    /// Read the lease.
    Read,
    /// Wait a moment, then read it: runs that failed together must not retry together.
    RestThenRead,
    /// Ask the gate.
    AskGate,
    /// Make a record and swap it in.
    Propose,
    /// Make it again with the token after the mark that the gate reported, and swap that in.
    ProposeAboveMark,
    /// Send the same swap again: if it has landed already, that does no harm.
    SwapAgain,
    /// Read whether the swap has landed.
    Check,
    /// Stop.
    End(TakingEnd),
}

/// How the attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingEnd {
    /// We hold the lease.
    Ours,
    /// Another holds it, as the gate says.
    TheirsByGate,
    /// Another holds it, as was read.
    Theirs,
    /// It changed hands each time we tried, and another holds it now.
    TheirsAgain,
    /// There is nothing to take it for: no tick is to be started.
    NothingDue,
    /// It is halted: nobody gets it. For a halt: it was halted already.
    Halted,
    /// It is not halted, so there is nothing to resume.
    NotHalted,
    /// Nobody holds it, so there is nothing to revoke.
    NothingHeld,
    /// The store refused, although nothing had changed.
    RefusedByStore,
    /// The gate refused.
    RefusedByGate,
    /// The gate does not let us revoke, halt or resume it.
    MayNotRevoke,
    /// The gate is busy with another push.
    GateIsBusy,
    /// Others were changing the record each time we tried.
    Crowded,
    /// Others take and release it.
    ChangesHands,
    /// A reply was lost, and we could not find out whether the swap landed.
    MayBeOurs,
    /// It was not sent.
    NotSent,
}

impl Taking {
    /// The first state and action.
    pub fn start(purpose: Purpose) -> (Taking, TakingNext) {
        (Taking { purpose, tries_left: purpose.tries(), stage: TakingStage::Reading(None) }, TakingNext::Read)
    }

    /// The state and action after `answer`.
    ///
    /// # Panics
    /// If `answer` does not fit the last action: that is a bug in the caller.
    #[must_use]
    pub fn step(self, answer: TakingAnswer) -> (Taking, TakingNext) {
        use TakingAnswer as A;
        match (self.stage, answer) {
            (TakingStage::Reading(_) | TakingStage::ReadingLast(_), A::NothingDue) => self.end(TakingEnd::NothingDue),
            (TakingStage::Reading(before), A::Seen(sight)) => self.seen(before, sight),
            (TakingStage::ReadingLast(failed), A::Seen(sight)) => self.end(end_of_tries(failed, sight)),
            (TakingStage::AskingFirst(_) | TakingStage::AskingAfter(_), A::GateSaysHeld) => {
                self.end(TakingEnd::TheirsByGate)
            }
            (TakingStage::AskingFirst(_) | TakingStage::AskingAfter(_), A::GateSaysHalted) => {
                self.end(TakingEnd::Halted)
            }
            // It was resumed after it was read.
            (TakingStage::AskingFirst(sight), A::GateSaysFree) if sight.is_halted => {
                self.try_again(FailedTry::default())
            }
            (TakingStage::AskingFirst(sight), A::NoGate) if sight.is_halted => self.end(TakingEnd::Halted),
            (TakingStage::AskingFirst(sight), A::GateSaysFree) => self.propose(sight),
            (TakingStage::AskingFirst(_), A::NoGate) => self.end(TakingEnd::Theirs),
            (TakingStage::AskingAfter(failed), A::GateSaysFree) => self.try_again(failed),
            (TakingStage::AskingAfter(failed), A::NoGate) => self.try_again(FailedTry { no_gate: true, ..failed }),
            (TakingStage::Swapping(_), A::Won) | (TakingStage::Checking(..), A::IsThere(true)) => {
                self.end(TakingEnd::Ours)
            }
            (TakingStage::Swapping(sent), A::Unknown { most }) => self.swap_again(sent, most, TakingEnd::MayBeOurs),
            (TakingStage::Swapping(sent), A::NotSent { .. }) if sent.lost_answers == 0 => self.end(TakingEnd::NotSent),
            // This swap was not sent, but an earlier one may have landed.
            (TakingStage::Swapping(sent), A::NotSent { most }) => self.swap_again(sent, most, TakingEnd::MayBeOurs),
            // An earlier swap of ours, whose reply was lost, may have caused this refusal.
            (TakingStage::Swapping(sent), A::Refused(refusal)) if sent.lost_answers > 0 => {
                self.at(TakingStage::Checking(sent, refusal), TakingNext::Check)
            }
            (TakingStage::Swapping(sent), A::Refused(refusal))
            | (TakingStage::Checking(sent, refusal), A::IsThere(false)) => self.refused(sent, refusal),
            (stage, answer) => unreachable!("the answer {answer:?} does not fit the stage {stage:?}"),
        }
    }

    fn seen(self, before: Option<FailedTry>, sight: Sight) -> (Taking, TakingNext) {
        // If nothing has changed, nobody was faster: the swap was refused for another reason.
        if let Some(before) = before.filter(|before| sight.is_unchanged && !before.crowded && !before.by_clock) {
            return self.end(match self.purpose {
                _ if before.not_allowed => TakingEnd::MayNotRevoke,
                Purpose::Hold if sight.is_halted => TakingEnd::Halted,
                _ => TakingEnd::RefusedByStore,
            });
        }
        match self.purpose {
            Purpose::Revoke if !sight.is_held => self.end(TakingEnd::NothingHeld),
            Purpose::Resume if !sight.is_halted => self.end(TakingEnd::NotHalted),
            Purpose::Halt if sight.is_halted => self.end(TakingEnd::Halted),
            // Never taken over. A gate is asked, so that it records who wanted it.
            Purpose::Hold if sight.is_halted && before.is_some_and(|before| before.no_gate) => {
                self.end(TakingEnd::Halted)
            }
            Purpose::Hold if sight.is_halted => self.at(TakingStage::AskingFirst(sight), TakingNext::AskGate),
            Purpose::Hold if sight.is_alive() && before.is_some_and(|before| before.no_gate) => {
                self.end(TakingEnd::Theirs)
            }
            Purpose::Hold if sight.is_alive() => self.at(TakingStage::AskingFirst(sight), TakingNext::AskGate),
            Purpose::Hold | Purpose::Revoke | Purpose::Halt | Purpose::Resume => self.propose(sight),
        }
    }

    fn propose(self, sight: Sight) -> (Taking, TakingNext) {
        let sent = Sent { sight, lost_answers: 0, may_try_next_token: true };
        self.at(TakingStage::Swapping(sent), TakingNext::Propose)
    }

    fn swap_again(self, sent: Sent, most: u8, otherwise: TakingEnd) -> (Taking, TakingNext) {
        if sent.lost_answers >= most {
            return self.end(otherwise);
        }
        let sent = Sent { lost_answers: sent.lost_answers + 1, ..sent };
        self.at(TakingStage::Swapping(sent), TakingNext::SwapAgain)
    }

    fn refused(self, sent: Sent, refusal: TakingRefusal) -> (Taking, TakingNext) {
        match refusal {
            TakingRefusal::Stale if sent.may_try_next_token => {
                let sent = Sent { may_try_next_token: false, ..sent };
                self.at(TakingStage::Swapping(sent), TakingNext::ProposeAboveMark)
            }
            TakingRefusal::Held => self.end(TakingEnd::TheirsByGate),
            TakingRefusal::Halted if self.purpose == Purpose::Revoke => self.end(TakingEnd::NothingHeld),
            TakingRefusal::Halted => self.end(TakingEnd::Halted),
            TakingRefusal::Busy if sent.lost_answers > 0 => self.end(TakingEnd::MayBeOurs),
            // Others write here all the time, and a halt is for them.
            TakingRefusal::Busy if self.purpose == Purpose::Halt && self.tries_left > 1 => {
                self.try_again(FailedTry { crowded: true, ..FailedTry::default() })
            }
            TakingRefusal::Busy => self.end(TakingEnd::GateIsBusy),
            TakingRefusal::Invalid if self.purpose == Purpose::Revoke => self.end(TakingEnd::MayNotRevoke),
            // What we read may be outdated: try again.
            TakingRefusal::Invalid => {
                let not_allowed = self.purpose != Purpose::Hold;
                self.try_again(FailedTry { not_allowed, ..FailedTry::default() })
            }
            TakingRefusal::TickAhead => self.try_again(FailedTry { by_clock: true, ..FailedTry::default() }),
            TakingRefusal::Stale | TakingRefusal::ByGate => self.end(TakingEnd::RefusedByGate),
            TakingRefusal::ByStore { crowded } => {
                let failed = FailedTry { crowded, ..FailedTry::default() };
                // Ask, so that a gate sees the attempt too. Without a lease do not ask: the question's ref could be
                // created in its place.
                if self.purpose == Purpose::Hold && sent.sight.exists {
                    self.at(TakingStage::AskingAfter(failed), TakingNext::AskGate)
                } else {
                    self.try_again(failed)
                }
            }
        }
    }

    /// Another run was faster, and may be gone again.
    fn try_again(self, failed: FailedTry) -> (Taking, TakingNext) {
        let tried = Taking { tries_left: self.tries_left - 1, ..self };
        match (tried.tries_left, self.purpose) {
            (0, Purpose::Hold) => tried.at(TakingStage::ReadingLast(failed), TakingNext::RestThenRead),
            (0, Purpose::Revoke | Purpose::Halt | Purpose::Resume) => tried.end(TakingEnd::ChangesHands),
            _ => tried.at(TakingStage::Reading(Some(failed)), TakingNext::RestThenRead),
        }
    }

    fn at(self, stage: TakingStage, next: TakingNext) -> (Taking, TakingNext) {
        (Taking { stage, ..self }, next)
    }

    fn end(self, end: TakingEnd) -> (Taking, TakingNext) {
        (self, TakingNext::End(end))
    }
}

/// The result after the last try: others hold it, one after the other, or nobody can get it.
fn end_of_tries(failed: FailedTry, sight: Sight) -> TakingEnd {
    match (sight.is_unchanged, failed.crowded) {
        _ if sight.is_halted => TakingEnd::Halted,
        (false, _) if sight.exists => TakingEnd::TheirsAgain,
        (false, _) => TakingEnd::ChangesHands,
        (true, true) => TakingEnd::Crowded,
        (true, false) => TakingEnd::RefusedByStore,
    }
}
