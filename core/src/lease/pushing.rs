//! Pushing under a lease, as a state machine: the lease moves together with the refs, and a lost reply is settled.
//!
//! When the reply to a push is lost and the lease is still at its old version, the push has not necessarily failed: it
//! can land seconds later. So the lease is advanced by a compare-and-swap from that version. If the swap succeeds, the
//! lost push did not land and never will; if it fails, the current version of the lease tells what happened.
//!
//! [`Pushing::step`] takes an answer and returns what to write down and what to do next. What is written down must be
//! on disk before the next action, so that a run that is killed in between can be resumed from there.

use crate::{Code, Holder, Lease, LeaseId, LeaseState, Mark, StoredLease, SwapRefused, Version, next_token};

/// What the holder's push does with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HolderMove {
    /// Advance to the next token.
    Advance,
    /// Release the lease.
    Release,
}

impl HolderMove {
    /// What the push that proposes `next` does with the lease.
    pub fn of(next: &Lease) -> HolderMove {
        match next.state {
            LeaseState::Held => HolderMove::Advance,
            LeaseState::Released | LeaseState::Halted | LeaseState::Moved => HolderMove::Release,
        }
    }

    /// The record after `lease`, with its own nonce and the holder that its next move requires. None if the fence has no
    /// tokens left.
    pub fn next(self, lease: &Lease, nonce: String, holder: Holder) -> Option<Lease> {
        let next = Lease { nonce, holder, ..lease.clone() };
        Some(match self {
            HolderMove::Advance => Lease { token: next_token(Some(lease.token), Mark::default())?, ..next },
            HolderMove::Release => Lease { state: LeaseState::Released, ..next },
        })
    }
}

/// The state of a push under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pushing {
    wanted: HolderMove,
    /// What the push whose reply was lost does with the lease: this push or an earlier one.
    lost: HolderMove,
    stage: PushingStage,
}

/// What the machine is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PushingStage {
    /// The reply to the push.
    Sending,
    /// The lease, read after a refusal that a lost lease may have caused.
    Checking {
        /// Whether a gate gave that refusal.
        by_gate: bool,
    },
    /// The reply to the swap that settles a lost push.
    Settling(LostPush),
    /// The lease, read after that swap was refused.
    ReadingBack(LostPush),
    /// Whether the lost push is in the lease's history.
    ReadingHistory(LostPush),
    /// Whether the user's refs have the values that the push was to give them.
    ReadingRefs(LostPushOutcome),
}

/// Which push is being settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LostPush {
    /// This push.
    Own,
    /// An earlier push, of this run or of one that was killed.
    Earlier,
}

/// The result of a push whose reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LostPushOutcome {
    /// The lease is at the version of the push.
    Landed,
    /// It was at that version, was released with the push, and others have held it since.
    LandedBefore,
    /// It was at that version, and has been taken over since.
    LandedThenLost,
    /// The push did not land, and never will.
    DidNotLand,
}

/// The lease's current version, seen by its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whereabouts {
    /// The version before the push.
    BeforePush,
    /// The version of the push.
    AfterPush,
    /// Another version that is ours: this machine's record was outdated.
    Elsewhere,
    /// It has been taken over, or is gone.
    NotOurs,
}

/// The answer to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingAnswer {
    /// The push or swap landed.
    Landed,
    /// It was refused.
    Refused {
        /// Whether a lost lease can be the cause.
        may_be_lost: bool,
        /// Whether a gate refused it, and so has seen it.
        by_gate: bool,
    },
    /// There was no reply.
    Unknown,
    /// It was not sent.
    NotSent,
    /// The lease's current version.
    At(Whereabouts),
    /// Whether the lost push is in the history of the lease.
    InHistory(bool),
    /// Whether all of the user's refs have the values that the push was to give them.
    AllThere(bool),
}

/// What must be written down before the next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Note {
    /// Nothing new.
    Nothing,
    /// The push did not land, and never will.
    Unmoved,
    /// The lease is at the version of the push.
    MovedByPush,
    /// The lease is at the version of the settling swap.
    MovedBySettling,
    /// The lease is at the version that was read.
    MovedToSeen,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingNext {
    /// Push, together with the lease.
    Send,
    /// Advance only the lease, from its version before the lost push.
    Settle,
    /// Read the lease.
    Read,
    /// Read the lease's history.
    ReadHistory,
    /// Read the user's refs.
    ReadRefs,
    /// Stop.
    End(PushingEnd),
}

/// How the push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingEnd {
    /// It landed.
    Landed,
    /// It was refused, and we still hold the lease.
    Refused,
    /// It was not sent.
    NotSent,
    /// It did not land, and never will.
    DidNotLand,
    /// This machine's record of the lease was outdated.
    Outdated,
    /// The lease moved, but some of the refs did not.
    InPart,
    /// Others have moved the refs since, so it cannot be told whether they moved.
    MovedOn,
    /// Could not find out whether the push landed.
    Unknown,
    /// Could not find out whether an earlier push landed, so this one was not sent.
    EarlierUnknown,
    /// An earlier push, whose reply was lost, released the lease.
    ReleasedBefore,
    /// The lease has been taken over.
    Lost {
        /// Whether a gate, if there is one, has not seen this push, because the store refused it first.
        gate_is_unaware: bool,
    },
    /// The push landed, and the lease has been taken over since.
    LandedThenLost,
    /// The lease moved with the push and has been taken over since. Whether all of its refs moved cannot be known.
    LostOnTheWay,
}

/// One step: the new state, what to write down, and the next action.
pub type PushingStep = (Pushing, Note, PushingNext);

impl Pushing {
    /// The first step. `lost` is what an earlier push, whose reply was lost, does with the lease.
    pub fn start(wanted: HolderMove, lost: Option<HolderMove>) -> PushingStep {
        let pushing = Pushing { wanted, lost: lost.unwrap_or(wanted), stage: PushingStage::Sending };
        match lost {
            Some(_) => pushing.go(Note::Nothing, PushingStage::Settling(LostPush::Earlier), PushingNext::Settle),
            None => pushing.go(Note::Nothing, PushingStage::Sending, PushingNext::Send),
        }
    }

    /// The step after `answer`.
    ///
    /// # Panics
    /// If `answer` does not fit the last action: that is a bug in the caller.
    #[must_use]
    pub fn step(self, answer: PushingAnswer) -> PushingStep {
        use PushingAnswer as A;
        use Whereabouts as At;
        match (self.stage, answer) {
            (PushingStage::Sending, A::Landed) => self.end(Note::MovedByPush, PushingEnd::Landed),
            (PushingStage::Sending, A::NotSent) => self.end(Note::Unmoved, PushingEnd::NotSent),
            (PushingStage::Sending, A::Refused { may_be_lost: false, .. }) => {
                self.end(Note::Unmoved, PushingEnd::Refused)
            }
            (PushingStage::Sending, A::Refused { may_be_lost: true, by_gate }) => {
                self.go(Note::Nothing, PushingStage::Checking { by_gate }, PushingNext::Read)
            }
            (PushingStage::Sending, A::Unknown) => {
                self.go(Note::Nothing, PushingStage::Settling(LostPush::Own), PushingNext::Settle)
            }
            (PushingStage::Checking { .. }, A::At(At::BeforePush)) => self.end(Note::Unmoved, PushingEnd::Refused),
            // A transaction failed halfway: the lease's ref moved, another ref did not.
            (PushingStage::Checking { .. }, A::At(At::AfterPush)) => {
                self.read_refs(Note::MovedByPush, LostPushOutcome::Landed)
            }
            // Correct the record, but stop: to continue silently would hide why it was wrong.
            (PushingStage::Checking { .. }, A::At(At::Elsewhere)) => self.end(Note::MovedToSeen, PushingEnd::Outdated),
            (PushingStage::Checking { by_gate }, A::At(At::NotOurs)) => {
                self.end(Note::Unmoved, PushingEnd::Lost { gate_is_unaware: !by_gate })
            }
            (PushingStage::Settling(whose), A::Landed) => {
                self.settled(whose, Note::MovedBySettling, LostPushOutcome::DidNotLand)
            }
            // This swap itself may have landed: the next attempt to settle will see it.
            (PushingStage::Settling(whose), A::Unknown | A::NotSent) => self.unsettled(whose),
            (PushingStage::Settling(whose), A::Refused { .. }) => {
                self.go(Note::Nothing, PushingStage::ReadingBack(whose), PushingNext::Read)
            }
            (PushingStage::ReadingBack(whose), A::At(At::AfterPush)) => {
                self.settled(whose, Note::MovedByPush, LostPushOutcome::Landed)
            }
            // Neither push nor swap has moved the lease, and the lost push may still be in flight.
            (PushingStage::ReadingBack(whose), A::At(At::BeforePush)) => self.unsettled(whose),
            // An earlier attempt to settle landed, and its reply was lost, too.
            (PushingStage::ReadingBack(whose), A::At(At::Elsewhere)) => {
                self.settled(whose, Note::MovedToSeen, LostPushOutcome::DidNotLand)
            }
            (PushingStage::ReadingBack(whose), A::At(At::NotOurs)) => {
                self.go(Note::Nothing, PushingStage::ReadingHistory(whose), PushingNext::ReadHistory)
            }
            // The lease was released, and another run has taken it since, as it may.
            (PushingStage::ReadingHistory(whose), A::InHistory(true)) if self.lost == HolderMove::Release => {
                self.settled(whose, Note::MovedByPush, LostPushOutcome::LandedBefore)
            }
            (PushingStage::ReadingHistory(_), A::InHistory(true)) => {
                self.read_refs(Note::Nothing, LostPushOutcome::LandedThenLost)
            }
            (PushingStage::ReadingHistory(_), A::InHistory(false)) => {
                self.end(Note::Nothing, PushingEnd::Lost { gate_is_unaware: false })
            }
            (PushingStage::ReadingRefs(LostPushOutcome::LandedThenLost), A::AllThere(true)) => {
                self.end(Note::Nothing, PushingEnd::LandedThenLost)
            }
            (PushingStage::ReadingRefs(LostPushOutcome::LandedThenLost), _) => {
                self.end(Note::Nothing, PushingEnd::LostOnTheWay)
            }
            (PushingStage::ReadingRefs(_), A::AllThere(true)) => self.end(Note::Nothing, PushingEnd::Landed),
            (PushingStage::ReadingRefs(LostPushOutcome::LandedBefore), A::AllThere(false)) => {
                self.end(Note::Nothing, PushingEnd::MovedOn)
            }
            (PushingStage::ReadingRefs(_), A::AllThere(false)) => self.end(Note::Nothing, PushingEnd::InPart),
            (PushingStage::ReadingRefs(_), A::Unknown) => self.end(Note::Nothing, PushingEnd::Unknown),
            (stage, answer) => unreachable!("the answer {answer:?} does not fit the stage {stage:?}"),
        }
    }

    /// The result of the lost push is known.
    fn settled(self, whose: LostPush, note: Note, outcome: LostPushOutcome) -> PushingStep {
        match (whose, outcome) {
            (LostPush::Own, LostPushOutcome::DidNotLand) => self.end(note, PushingEnd::DidNotLand),
            (LostPush::Own, outcome) => self.read_refs(note, outcome),
            (LostPush::Earlier, LostPushOutcome::Landed | LostPushOutcome::LandedBefore)
                if self.lost == HolderMove::Release =>
            {
                self.end(note, PushingEnd::ReleasedBefore)
            }
            (LostPush::Earlier, _) => {
                Pushing { lost: self.wanted, ..self }.go(note, PushingStage::Sending, PushingNext::Send)
            }
        }
    }

    fn unsettled(self, whose: LostPush) -> PushingStep {
        let end = match whose {
            LostPush::Own => PushingEnd::Unknown,
            LostPush::Earlier => PushingEnd::EarlierUnknown,
        };
        self.end(Note::Nothing, end)
    }

    /// The lease may have moved without the refs: a server that is killed while it moves the refs of one transaction,
    /// file by file, leaves some of them unmoved.
    fn read_refs(self, note: Note, outcome: LostPushOutcome) -> PushingStep {
        self.go(note, PushingStage::ReadingRefs(outcome), PushingNext::ReadRefs)
    }

    fn go(self, note: Note, stage: PushingStage, next: PushingNext) -> PushingStep {
        (Pushing { stage, ..self }, note, next)
    }

    fn end(self, note: Note, end: PushingEnd) -> PushingStep {
        (self, note, PushingNext::End(end))
    }
}

impl Whereabouts {
    /// Classifies `now` for the holder of the lease `id`, whose push was to move it from `before` to `after`.
    pub fn of(now: Option<&StoredLease>, id: &LeaseId, before: &Version, after: Option<&Version>) -> Whereabouts {
        match now.filter(|now| now.lease.id == *id) {
            None => Whereabouts::NotOurs,
            Some(now) if now.at == *before => Whereabouts::BeforePush,
            Some(now) if Some(&now.at) == after => Whereabouts::AfterPush,
            Some(_) => Whereabouts::Elsewhere,
        }
    }
}

impl From<&SwapRefused> for PushingAnswer {
    fn from(refused: &SwapRefused) -> PushingAnswer {
        PushingAnswer::Refused { may_be_lost: refused.may_be_lost(), by_gate: refused.gate.is_some() }
    }
}

impl SwapRefused {
    /// Whether a lost lease can be the cause of this refusal. Refusals that are only about the user's own refs need no
    /// further check.
    pub fn may_be_lost(&self) -> bool {
        match self.gate.as_ref().and_then(|gate| gate.code) {
            None => self.lease_may_have_moved,
            Some(code) => {
                matches!(code, Code::Stale | Code::LeaseLost | Code::LeaseRequired | Code::LeaseInvalid | Code::Halted)
            }
        }
    }
}
