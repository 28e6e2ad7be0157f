//! Taking a lease, as a state machine: read it, ask the gate where it is held, swap, and find out what a lost answer
//! means.
//!
//! [`Taking::step`] is given what was learned and says what to do next. It does nothing itself, so that the client, its
//! tests and the model all run the same rules.

use crate::{Code, GateSays, LeaseSnapshot, Life, Stamp, SwapRefused};
use std::time::Duration;

/// How many times a lease is tried for before it counts as somebody else's, and how many lost answers are borne.
pub const MOST_TRIES: u8 = 3;

/// What a lease is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// To hold it.
    Hold,
    /// To take it away from its holder.
    Revoke,
}

/// How far the taking of a lease has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    purpose: Purpose,
    tries_left: u8,
    stage: Stage,
}

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// The lease, read.
    Reading(Option<Beaten>),
    /// The lease, read once more after the last try.
    LastLook(Beaten),
    /// The gate's word on a lease that looks held.
    AskingFirst(Sight),
    /// The gate's word after the store itself refused.
    AskingAfter(Beaten),
    /// The answer to a swap.
    Swapping(Sent),
    /// Whether an earlier swap, whose answer was lost, is what stands there.
    Checking(Sent, TakingRefusal),
}

/// What is known of a swap on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    sight: Sight,
    lost_answers: u8,
    may_try_next_token: bool,
}

/// What a try that failed has taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Beaten {
    no_gate: bool,
    crowded: bool,
}

/// What was seen of the lease, as far as taking it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sight {
    /// Whether it can be taken.
    pub life: Life,
    /// Whether it was taken and not released.
    pub is_held: bool,
    /// Whether there is a record at all.
    pub exists: bool,
    /// Whether its holder has seen a gate.
    pub gate: bool,
    /// Whether all is as it was at the try before.
    pub is_unchanged: bool,
}

impl Sight {
    /// What `snapshot` shows at `now`; `before` is what the last try saw.
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
            exists: snapshot.lease.is_some(),
            gate: snapshot.gate(),
            is_unchanged: before.is_some_and(|before| before.versions() == snapshot.versions()),
        }
    }

    /// Whether it must be left to its holder. Where a gate judges, it knows better than this machine's clock.
    fn is_alive(self) -> bool {
        match self.life {
            Life::Free | Life::Expired => false,
            Life::Alive => true,
            Life::AliveOrLate => !self.gate,
        }
    }
}

/// Why a swap was refused, as far as taking a lease goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingRefusal {
    /// By the gate: the token is not above the mark that it named.
    Stale,
    /// By the gate: somebody holds the lease.
    Held,
    /// By the gate: another push is being settled.
    Busy,
    /// By the gate: not a move that is allowed.
    Invalid,
    /// By the gate, for another reason.
    ByGate,
    /// By the store: somebody was quicker, or others were at it.
    ByStore {
        /// Whether others were at it at that moment.
        crowded: bool,
    },
}

impl TakingRefusal {
    /// What `refused` means.
    pub fn of(refused: &SwapRefused) -> TakingRefusal {
        let Some(gate) = &refused.gate else { return TakingRefusal::ByStore { crowded: refused.crowded } };
        match gate.code {
            Some(Code::Stale) if gate.mark.is_some() => TakingRefusal::Stale,
            _ if gate.holder.is_some() => TakingRefusal::Held,
            Some(Code::Busy) => TakingRefusal::Busy,
            Some(Code::LeaseInvalid) => TakingRefusal::Invalid,
            _ => TakingRefusal::ByGate,
        }
    }
}

/// What was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingAnswer {
    /// The lease was read.
    Seen(Sight),
    /// The gate says that somebody holds it.
    GateSaysHeld,
    /// The gate says that nobody does.
    GateSaysFree,
    /// There is no gate.
    NoGate,
    /// The swap landed.
    Won,
    /// It did not.
    Refused(TakingRefusal),
    /// Nobody answered. The number of lost answers that are borne: fewer where somebody wants this to end.
    Unknown {
        /// How many lost answers are borne.
        most: u8,
    },
    /// It was not sent.
    NotSent {
        /// How many lost answers are borne.
        most: u8,
    },
    /// Whether what was swapped in earlier is what stands there.
    IsThere(bool),
}

impl From<&GateSays> for TakingAnswer {
    fn from(says: &GateSays) -> TakingAnswer {
        match says {
            GateSays::Held(_) => TakingAnswer::GateSaysHeld,
            GateSays::Free => TakingAnswer::GateSaysFree,
            GateSays::NoGate => TakingAnswer::NoGate,
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingNext {
    /// Read the lease.
    Read,
    /// Wait a moment, then read it: those who were beaten together must not come back together.
    RestThenRead,
    /// Ask the gate.
    AskGate,
    /// Make a record and swap it in.
    Propose,
    /// Make it again with the token after the mark that the gate named, and swap that in.
    ProposeAboveMark,
    /// Send the very same swap again: if it has landed already, that does no harm.
    SwapAgain,
    /// Read whether what was swapped in is what stands there.
    Check,
    /// It is over.
    End(TakingEnd),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakingEnd {
    /// It is ours.
    Ours,
    /// It is somebody else's, as the gate says.
    TheirsByGate,
    /// It is somebody else's, as was read.
    Theirs,
    /// It changed hands each time we tried, and somebody has it.
    TheirsAgain,
    /// Nobody holds it, so there is nothing to take away.
    NothingHeld,
    /// The store refused, although nothing had changed.
    RefusedByStore,
    /// The gate refused.
    RefusedByGate,
    /// The gate does not let us take it away.
    MayNotRevoke,
    /// The gate is busy with another push.
    GateIsBusy,
    /// Others were at the record each time we tried.
    Crowded,
    /// Others take it and give it back.
    ChangesHands,
    /// An answer was lost, and could not be settled.
    MayBeOurs,
    /// It was not sent.
    NotSent,
}

impl Taking {
    /// The beginning, and what to do first.
    pub fn start(purpose: Purpose) -> (Taking, TakingNext) {
        (Taking { purpose, tries_left: MOST_TRIES, stage: Stage::Reading(None) }, TakingNext::Read)
    }

    /// Goes on with what was learned.
    ///
    /// # Panics
    /// When `answer` does not answer what was to be done: that is a mistake of the caller.
    #[must_use]
    pub fn step(self, answer: TakingAnswer) -> (Taking, TakingNext) {
        use TakingAnswer as A;
        match (self.stage, answer) {
            (Stage::Reading(before), A::Seen(sight)) => self.seen(before, sight),
            (Stage::LastLook(beaten), A::Seen(sight)) => self.end(last_look(beaten, sight)),
            (Stage::AskingFirst(_) | Stage::AskingAfter(_), A::GateSaysHeld) => self.end(TakingEnd::TheirsByGate),
            (Stage::AskingFirst(sight), A::GateSaysFree) => self.propose(sight),
            (Stage::AskingFirst(_), A::NoGate) => self.end(TakingEnd::Theirs),
            (Stage::AskingAfter(beaten), A::GateSaysFree) => self.beaten(beaten),
            (Stage::AskingAfter(beaten), A::NoGate) => self.beaten(Beaten { no_gate: true, ..beaten }),
            (Stage::Swapping(_), A::Won) | (Stage::Checking(..), A::IsThere(true)) => self.end(TakingEnd::Ours),
            (Stage::Swapping(sent), A::Unknown { most }) => self.swap_again(sent, most, TakingEnd::MayBeOurs),
            (Stage::Swapping(sent), A::NotSent { .. }) if sent.lost_answers == 0 => self.end(TakingEnd::NotSent),
            // Not this one, but one before may have landed.
            (Stage::Swapping(sent), A::NotSent { most }) => self.swap_again(sent, most, TakingEnd::MayBeOurs),
            // A swap of ours whose answer was lost may be what stands in the way of this one.
            (Stage::Swapping(sent), A::Refused(refusal)) if sent.lost_answers > 0 => {
                self.at(Stage::Checking(sent, refusal), TakingNext::Check)
            }
            (Stage::Swapping(sent), A::Refused(refusal)) | (Stage::Checking(sent, refusal), A::IsThere(false)) => {
                self.refused(sent, refusal)
            }
            (stage, answer) => unreachable!("{answer:?} answers nothing that was asked at {stage:?}"),
        }
    }

    fn seen(self, before: Option<Beaten>, sight: Sight) -> (Taking, TakingNext) {
        // Nobody was quicker where nothing has changed: it was refused for another reason.
        if before.is_some_and(|before| sight.is_unchanged && !before.crowded) {
            return self.end(TakingEnd::RefusedByStore);
        }
        match self.purpose {
            Purpose::Revoke if !sight.is_held => self.end(TakingEnd::NothingHeld),
            Purpose::Hold if sight.is_alive() && before.is_some_and(|before| before.no_gate) => {
                self.end(TakingEnd::Theirs)
            }
            Purpose::Hold if sight.is_alive() => self.at(Stage::AskingFirst(sight), TakingNext::AskGate),
            Purpose::Hold | Purpose::Revoke => self.propose(sight),
        }
    }

    fn propose(self, sight: Sight) -> (Taking, TakingNext) {
        let sent = Sent { sight, lost_answers: 0, may_try_next_token: true };
        self.at(Stage::Swapping(sent), TakingNext::Propose)
    }

    fn swap_again(self, sent: Sent, most: u8, otherwise: TakingEnd) -> (Taking, TakingNext) {
        if sent.lost_answers >= most {
            return self.end(otherwise);
        }
        let sent = Sent { lost_answers: sent.lost_answers + 1, ..sent };
        self.at(Stage::Swapping(sent), TakingNext::SwapAgain)
    }

    fn refused(self, sent: Sent, refusal: TakingRefusal) -> (Taking, TakingNext) {
        match refusal {
            TakingRefusal::Stale if sent.may_try_next_token => {
                let sent = Sent { may_try_next_token: false, ..sent };
                self.at(Stage::Swapping(sent), TakingNext::ProposeAboveMark)
            }
            TakingRefusal::Held => self.end(TakingEnd::TheirsByGate),
            TakingRefusal::Busy if sent.lost_answers > 0 => self.end(TakingEnd::MayBeOurs),
            TakingRefusal::Busy => self.end(TakingEnd::GateIsBusy),
            TakingRefusal::Invalid if self.purpose == Purpose::Revoke => self.end(TakingEnd::MayNotRevoke),
            // What was read may be old by now: it is worth another try.
            TakingRefusal::Invalid => self.beaten(Beaten::default()),
            TakingRefusal::Stale | TakingRefusal::ByGate => self.end(TakingEnd::RefusedByGate),
            TakingRefusal::ByStore { crowded } => {
                let beaten = Beaten { no_gate: false, crowded };
                // A gate gets to hear of it too. Where there was no lease nobody is asked: the question could be
                // created in its place.
                if self.purpose == Purpose::Hold && sent.sight.exists {
                    self.at(Stage::AskingAfter(beaten), TakingNext::AskGate)
                } else {
                    self.beaten(beaten)
                }
            }
        }
    }

    /// Somebody came first, and may be gone again.
    fn beaten(self, beaten: Beaten) -> (Taking, TakingNext) {
        let tried = Taking { tries_left: self.tries_left - 1, ..self };
        match (tried.tries_left, self.purpose) {
            (0, Purpose::Hold) => tried.at(Stage::LastLook(beaten), TakingNext::RestThenRead),
            (0, Purpose::Revoke) => tried.end(TakingEnd::ChangesHands),
            _ => tried.at(Stage::Reading(Some(beaten)), TakingNext::RestThenRead),
        }
    }

    fn at(self, stage: Stage, next: TakingNext) -> (Taking, TakingNext) {
        (Taking { stage, ..self }, next)
    }

    fn end(self, end: TakingEnd) -> (Taking, TakingNext) {
        (self, TakingNext::End(end))
    }
}

/// What is said after the last try: others have it, one after the other, or nobody can get at it.
fn last_look(beaten: Beaten, sight: Sight) -> TakingEnd {
    match (sight.is_unchanged, beaten.crowded) {
        (false, _) if sight.exists => TakingEnd::TheirsAgain,
        (false, _) => TakingEnd::ChangesHands,
        (true, true) => TakingEnd::Crowded,
        (true, false) => TakingEnd::RefusedByStore,
    }
}
