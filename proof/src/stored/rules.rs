//! What the client, the remote and the gate do. [`holes`](super::holes) leaves something out of it.

/// When a new holder raises the mark before it begins to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierRule {
    /// Never.
    Never,
    /// When the barrier is due and the mark's number is lower.
    IfMarkIsLower,
    /// When the barrier is due, whatever the mark's number.
    WhenDue,
}

/// When a barrier that was refused is sent again, from the mark that is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierAgain {
    /// If the mark names the writer that it named before the grant, or the lease that the grant overtook. Never where the
    /// barrier is only a touch: there the mark does not show whose it was.
    IfNoOtherWrote,
    /// The same, also where the barrier is only a touch.
    AlsoByTouch,
    /// The same, and what is sent again is only a touch: its refusal is taken for that of a gate which does not know the store.
    OnlyByTouch,
    /// If a push would count.
    IfItCounts,
}

/// From which version of the mark a holder pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushesFrom {
    /// From the one that it read before its grant, or has made itself since.
    Known,
    /// From the one that is there when it pushes.
    Current,
}

/// Whose push counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingRule {
    /// Each whose token is above the mark.
    Number,
    /// As `MarkRecord::admits` says.
    Core,
}

/// A gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateRules {
    /// It asks the store whether the lease is held with this token. Otherwise it refuses barriers, and a touch must do.
    pub asks: bool,
    /// It checks the holder's proof.
    pub proves: bool,
    /// Barriers carry the proof of the beat: the one of the lease has not been used yet.
    pub barrier_shows_beat: bool,
    /// It admits no barrier for a lease whose pushes do not count.
    pub knows_overtaken: bool,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRules {
    /// The mark moves only from the version that the pusher expects.
    pub compares_mark: bool,
    /// Which version that is.
    pub pushes_from: PushesFrom,
    /// Whose push counts.
    pub counting: CountingRule,
    /// When a new holder raises the mark.
    pub barrier: BarrierRule,
    /// When it tries that again.
    pub again: BarrierAgain,
    /// The due barrier is cleared in the store before the mark is raised, and not after it.
    pub clears_first: bool,
    /// A release with a push that may still be on its way makes a barrier due.
    pub leaves_barrier: bool,
    /// A grant counts from the mark, too, and not only from the store.
    pub reads_mark: bool,
    /// Nobody takes a halted lease.
    pub heeds_halts: bool,
    /// A halt whose barrier is not up is made once more, and not taken for done.
    pub completes_halts: bool,
    /// A lost reply is settled by a touch, and not by looking.
    pub touches: bool,
    /// A holder recognizes a touch of its own whose reply was lost.
    pub knows_own_touch: bool,
    /// The gate, if there is one.
    pub gate: Option<GateRules>,
}

impl StoreRules {
    /// With all steps, without a gate.
    pub const WHOLE: StoreRules = StoreRules {
        compares_mark: true,
        pushes_from: PushesFrom::Known,
        counting: CountingRule::Core,
        barrier: BarrierRule::WhenDue,
        again: BarrierAgain::IfNoOtherWrote,
        clears_first: false,
        leaves_barrier: true,
        reads_mark: true,
        heeds_halts: true,
        completes_halts: true,
        touches: true,
        knows_own_touch: true,
        gate: None,
    };

    /// As first designed: the mark is read again at each push, and the barrier is tried again wherever a push would count.
    pub const FIRST_DESIGN: StoreRules =
        StoreRules { pushes_from: PushesFrom::Current, again: BarrierAgain::IfItCounts, ..StoreRules::WHOLE };

    /// The same with a gate.
    #[must_use]
    pub const fn with(self, gate: GateRules) -> StoreRules {
        StoreRules { gate: Some(gate), ..self }
    }

    /// Whether a barrier only touches the mark: the gate lets nobody raise it.
    pub fn only_touches(&self) -> bool {
        self.gate.is_some_and(|gate| !gate.asks)
    }
}

impl GateRules {
    /// A gate that asks the store.
    pub const ASKING: GateRules =
        GateRules { asks: true, proves: true, barrier_shows_beat: true, knows_overtaken: true };

    /// A gate that does not know the store: it judges tokens and ownerships by its own mark.
    pub const UNASKING: GateRules = GateRules { asks: false, ..GateRules::ASKING };
}
