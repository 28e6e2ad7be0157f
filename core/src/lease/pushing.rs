//! Pushing under a lease, as a state machine: the lease moves together with the refs, and a lost answer is settled.
//!
//! That the lease still shows the version before a lost push does not mean that the push failed: it can land seconds
//! later. So the lease is advanced by a compare-and-swap from that version. If this succeeds, the lost push did not land
//! and never will; if it fails, what stands there says what became of it.
//!
//! [`Pushing::step`] is given what was learned, and says what to write down and what to do next. What it says to write
//! down must be on disk before anything else is done: whoever dies in between finds out from there.

use crate::{Code, LeaseId, StoredLease, SwapRefused, Version};

/// What the holder's push does with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HolderMove {
    /// On to the next token.
    Advance,
    /// Give it back.
    Release,
}

/// How far a push under a lease has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pushing {
    wanted: HolderMove,
    /// What the push whose answer was lost does with the lease: this one, or one before it.
    lost: HolderMove,
    stage: Stage,
}

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// The answer to the push.
    Sending,
    /// What stands there after a refusal that a lost lease may have caused.
    Checking,
    /// The answer to the swap that settles a lost push.
    Settling(Whose),
    /// What stands there after that swap was refused.
    ReadingBack(Whose),
    /// Whether the lost push is in the history.
    ReadingHistory(Whose),
    /// Whether the user's refs are where the push was to bring them.
    ReadingRefs(Became),
}

/// Which push is being settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    /// This one.
    Own,
    /// One before it, of this run or of one that was killed.
    Earlier,
}

/// What became of a push whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Became {
    /// The lease is where the push was to bring it.
    Landed,
    /// It was there, and others have had it since it was released.
    LandedBefore,
    /// It was there, and has been taken over since.
    LandedThenLost,
    /// It did not land, and never will.
    Nothing,
}

/// Where the lease stands, seen from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whereabouts {
    /// Where it was before the push.
    BeforePush,
    /// Where the push was to bring it.
    AfterPush,
    /// Ours, and somewhere else: what this machine knew of it was old.
    Elsewhere,
    /// It has been taken over, or is gone.
    NotOurs,
}

/// What was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingAnswer {
    /// It landed.
    Landed,
    /// It did not. Whether a lost lease can be the cause.
    Refused {
        /// Whether a lost lease can be the cause.
        may_be_lost: bool,
    },
    /// Nobody answered.
    Unknown,
    /// It was not sent.
    NotSent,
    /// Where the lease stands.
    At(Whereabouts),
    /// Whether the lost push is in the history of the lease.
    InHistory(bool),
    /// Whether all of the user's refs are where the push was to bring them.
    AllThere(bool),
}

/// What must be written down before anything else is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Note {
    /// Nothing new.
    Nothing,
    /// The push did not land and will not.
    Unmoved,
    /// The lease is where the push was to bring it.
    MovedByPush,
    /// The lease is where the settling swap brought it.
    MovedBySettling,
    /// The lease is where it was seen.
    MovedToSeen,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingNext {
    /// Push, with the lease.
    Send,
    /// Advance the lease alone, from where it was before the lost push.
    Settle,
    /// Read the lease.
    Read,
    /// Read its history.
    ReadHistory,
    /// Read the user's refs.
    ReadRefs,
    /// It is over.
    End(PushingEnd),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushingEnd {
    /// It landed.
    Landed,
    /// It was refused, and the lease is still ours.
    Refused,
    /// It was not sent.
    NotSent,
    /// It did not land, and never will.
    DidNotLand,
    /// What this machine knew of the lease was old.
    Outdated,
    /// The lease moved, and some of the refs did not.
    InPart,
    /// It cannot be known what became of the refs: they have moved on.
    MovedOn,
    /// It could not be found out whether it landed.
    Unknown,
    /// It could not be found out what became of an earlier push, and this one was not sent.
    EarlierUnknown,
    /// The lease was released by an earlier push, whose answer was lost.
    ReleasedBefore,
    /// The lease has been taken over.
    Lost {
        /// Whether a gate, where there is one, has not heard of this push: the store refused it first.
        gate_is_unaware: bool,
    },
    /// The push landed, and the lease has been taken over since.
    LandedThenLost,
    /// The lease moved with the push and has been taken over since. Whether all of its refs moved cannot be known.
    LostOnTheWay,
}

/// One step: where it stands now, what to write down, what to do.
pub type PushingStep = (Pushing, Note, PushingNext);

impl Pushing {
    /// The beginning. `lost` is what an earlier push does with the lease, whose answer was lost.
    pub fn start(wanted: HolderMove, lost: Option<HolderMove>) -> PushingStep {
        let pushing = Pushing { wanted, lost: lost.unwrap_or(wanted), stage: Stage::Sending };
        match lost {
            Some(_) => pushing.go(Note::Nothing, Stage::Settling(Whose::Earlier), PushingNext::Settle),
            None => pushing.go(Note::Nothing, Stage::Sending, PushingNext::Send),
        }
    }

    /// Goes on with what was learned.
    ///
    /// # Panics
    /// When `answer` does not answer what was to be done: that is a mistake of the caller.
    #[must_use]
    pub fn step(self, answer: PushingAnswer) -> PushingStep {
        use PushingAnswer as A;
        use Whereabouts as At;
        match (self.stage, answer) {
            (Stage::Sending, A::Landed) => self.end(Note::MovedByPush, PushingEnd::Landed),
            (Stage::Sending, A::NotSent) => self.end(Note::Unmoved, PushingEnd::NotSent),
            (Stage::Sending, A::Refused { may_be_lost: false }) => self.end(Note::Unmoved, PushingEnd::Refused),
            (Stage::Sending, A::Refused { may_be_lost: true }) => {
                self.go(Note::Nothing, Stage::Checking, PushingNext::Read)
            }
            (Stage::Sending, A::Unknown) => self.go(Note::Nothing, Stage::Settling(Whose::Own), PushingNext::Settle),
            (Stage::Checking, A::At(At::BeforePush)) => self.end(Note::Unmoved, PushingEnd::Refused),
            // A transaction that failed half way: the lease's ref moved, and another could not.
            (Stage::Checking, A::At(At::AfterPush)) => self.read_refs(Note::MovedByPush, Became::Landed),
            // From now on what is written down is right; but to go on as if nothing had been would hide why.
            (Stage::Checking, A::At(At::Elsewhere)) => self.end(Note::MovedToSeen, PushingEnd::Outdated),
            (Stage::Checking, A::At(At::NotOurs)) => {
                self.end(Note::Unmoved, PushingEnd::Lost { gate_is_unaware: true })
            }
            (Stage::Settling(whose), A::Landed) => self.settled(whose, Note::MovedBySettling, Became::Nothing),
            // This very swap may be the one that landed: the next settling sees that.
            (Stage::Settling(whose), A::Unknown | A::NotSent) => self.unsettled(whose),
            (Stage::Settling(whose), A::Refused { .. }) => {
                self.go(Note::Nothing, Stage::ReadingBack(whose), PushingNext::Read)
            }
            (Stage::ReadingBack(whose), A::At(At::AfterPush)) => self.settled(whose, Note::MovedByPush, Became::Landed),
            // Neither has moved it, and the lost push may still be under way.
            (Stage::ReadingBack(whose), A::At(At::BeforePush)) => self.unsettled(whose),
            // An earlier attempt at settling landed, and its answer was lost, too.
            (Stage::ReadingBack(whose), A::At(At::Elsewhere)) => {
                self.settled(whose, Note::MovedToSeen, Became::Nothing)
            }
            (Stage::ReadingBack(whose), A::At(At::NotOurs)) => {
                self.go(Note::Nothing, Stage::ReadingHistory(whose), PushingNext::ReadHistory)
            }
            // What was released is somebody else's by now, as it should be.
            (Stage::ReadingHistory(whose), A::InHistory(true)) if self.lost == HolderMove::Release => {
                self.settled(whose, Note::MovedByPush, Became::LandedBefore)
            }
            (Stage::ReadingHistory(_), A::InHistory(true)) => self.read_refs(Note::Nothing, Became::LandedThenLost),
            (Stage::ReadingHistory(_), A::InHistory(false)) => {
                self.end(Note::Nothing, PushingEnd::Lost { gate_is_unaware: false })
            }
            (Stage::ReadingRefs(Became::LandedThenLost), A::AllThere(true)) => {
                self.end(Note::Nothing, PushingEnd::LandedThenLost)
            }
            (Stage::ReadingRefs(Became::LandedThenLost), _) => self.end(Note::Nothing, PushingEnd::LostOnTheWay),
            (Stage::ReadingRefs(_), A::AllThere(true)) => self.end(Note::Nothing, PushingEnd::Landed),
            (Stage::ReadingRefs(Became::LandedBefore), A::AllThere(false)) => {
                self.end(Note::Nothing, PushingEnd::MovedOn)
            }
            (Stage::ReadingRefs(_), A::AllThere(false)) => self.end(Note::Nothing, PushingEnd::InPart),
            (Stage::ReadingRefs(_), A::Unknown) => self.end(Note::Nothing, PushingEnd::Unknown),
            (stage, answer) => unreachable!("{answer:?} answers nothing that was asked at {stage:?}"),
        }
    }

    /// It is known what became of the lost push.
    fn settled(self, whose: Whose, note: Note, became: Became) -> PushingStep {
        match (whose, became) {
            (Whose::Own, Became::Nothing) => self.end(note, PushingEnd::DidNotLand),
            (Whose::Own, became) => self.read_refs(note, became),
            (Whose::Earlier, Became::Landed | Became::LandedBefore) if self.lost == HolderMove::Release => {
                self.end(note, PushingEnd::ReleasedBefore)
            }
            (Whose::Earlier, _) => Pushing { lost: self.wanted, ..self }.go(note, Stage::Sending, PushingNext::Send),
        }
    }

    fn unsettled(self, whose: Whose) -> PushingStep {
        let end = match whose {
            Whose::Own => PushingEnd::Unknown,
            Whose::Earlier => PushingEnd::EarlierUnknown,
        };
        self.end(Note::Nothing, end)
    }

    /// That the lease has moved does not say that the refs have: a server that is killed while it moves the refs of one
    /// transaction, file by file, leaves some of them behind.
    fn read_refs(self, note: Note, became: Became) -> PushingStep {
        self.go(note, Stage::ReadingRefs(became), PushingNext::ReadRefs)
    }

    fn go(self, note: Note, stage: Stage, next: PushingNext) -> PushingStep {
        (Pushing { stage, ..self }, note, next)
    }

    fn end(self, note: Note, end: PushingEnd) -> PushingStep {
        (self, note, PushingNext::End(end))
    }
}

impl Whereabouts {
    /// Where `now` stands, seen from the holder of the lease `id`, whose push was to bring it from `before` to `after`.
    pub fn of(now: Option<&StoredLease>, id: &LeaseId, before: &Version, after: Option<&Version>) -> Whereabouts {
        match now.filter(|now| now.lease.id == *id) {
            None => Whereabouts::NotOurs,
            Some(now) if now.at == *before => Whereabouts::BeforePush,
            Some(now) if Some(&now.at) == after => Whereabouts::AfterPush,
            Some(_) => Whereabouts::Elsewhere,
        }
    }
}

impl SwapRefused {
    /// Whether a lease that is not ours any more can be the cause of this refusal. What is surely about the user's own
    /// refs is not looked into any further.
    pub fn may_be_lost(&self) -> bool {
        match self.gate.as_ref().and_then(|gate| gate.code) {
            None => self.lease_may_have_moved,
            Some(code) => matches!(code, Code::Stale | Code::LeaseLost | Code::LeaseRequired | Code::LeaseInvalid),
        }
    }
}
