//! What the client, the remote and the gate do, and what can be left out of it.

/// When a new holder raises the mark before it begins to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierRule {
    /// Never.
    Never,
    /// When a holder was overtaken and the mark's number is lower than the barrier.
    IfMarkIsLower,
    /// When a holder was overtaken, whatever the mark's number.
    WhenDue,
    /// At each grant.
    EachGrant,
}

/// Whose push counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingRule {
    /// Each whose token is above the mark.
    Number,
    /// As `MarkRecord::admits` says.
    Core,
    /// As `MarkRecord::admits` says, and only that of the ownership which the mark names.
    Named,
}

/// A gate that asks the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateRules {
    /// It asks the store whether the lease is held with this token.
    pub asks: bool,
    /// It checks the holder's proof.
    pub proves: bool,
    /// Barriers carry no proof: their token has not been used yet.
    pub bare_barriers: bool,
    /// It admits no barrier for a lease whose pushes do not count.
    pub knows_overtaken: bool,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRules {
    /// The mark moves only from the version that the pusher has read.
    pub compares_mark: bool,
    /// Whose push counts.
    pub counting: CountingRule,
    /// When a new holder raises the mark.
    pub barrier: BarrierRule,
    /// A new holder whose barrier was refused tries it again from the mark that is there.
    pub retries_barrier: bool,
    /// A grant counts from the mark, too, and not only from the store.
    pub reads_mark: bool,
    /// A lost reply is settled by a touch, and not by looking.
    pub touches: bool,
    /// The gate, if there is one.
    pub gate: Option<GateRules>,
}

impl StoreRules {
    /// As designed, without a gate: a new holder raises the mark when it has overtaken another.
    pub const DESIGNED: StoreRules = StoreRules {
        compares_mark: true,
        counting: CountingRule::Core,
        barrier: BarrierRule::WhenDue,
        retries_barrier: true,
        reads_mark: true,
        touches: true,
        gate: None,
    };

    /// Each new holder raises the mark, from the version that it read before its swap in the store. If that is refused, it
    /// gives the lease up.
    pub const EACH_GRANT: StoreRules =
        StoreRules { barrier: BarrierRule::EachGrant, retries_barrier: false, ..StoreRules::DESIGNED };

    /// The same, and only the ownership that the mark names may write.
    pub const NAMED: StoreRules = StoreRules { counting: CountingRule::Named, ..StoreRules::EACH_GRANT };

    /// The three, and what they do.
    pub const WHOLE: [(&'static str, StoreRules); 3] = [
        ("as designed", StoreRules::DESIGNED),
        ("with a barrier at each grant", StoreRules::EACH_GRANT),
        ("with a barrier at each grant, and only the ownership that the mark names writes", StoreRules::NAMED),
    ];

    /// Without one of the steps, and what is left out.
    pub const HOLES: [(&'static str, StoreRules); 6] = [
        ("without the compare-and-swap on the mark", StoreRules { compares_mark: false, ..StoreRules::DESIGNED }),
        ("without Fence-First", StoreRules { counting: CountingRule::Number, ..StoreRules::DESIGNED }),
        ("without the barrier", StoreRules { barrier: BarrierRule::Never, ..StoreRules::DESIGNED }),
        (
            "with a barrier only where the mark's number is lower",
            StoreRules { barrier: BarrierRule::IfMarkIsLower, ..StoreRules::DESIGNED },
        ),
        ("with a counter from the store alone", StoreRules { reads_mark: false, ..StoreRules::DESIGNED }),
        ("settling by looking", StoreRules { touches: false, ..StoreRules::DESIGNED }),
    ];

    /// The same with a gate that asks the store.
    #[must_use]
    pub const fn with(self, gate: GateRules) -> StoreRules {
        StoreRules { gate: Some(gate), ..self }
    }
}

impl GateRules {
    /// Without one of the steps, and what is left out.
    pub const HOLES: [(&'static str, StoreRules); 5] = [
        ("a gate that does not ask the store", GateRules { asks: false, ..GateRules::WHOLE }.alone()),
        ("a gate that wants no proof", GateRules { proves: false, ..GateRules::WHOLE }.alone()),
        ("barriers that carry the proof", GateRules { bare_barriers: false, ..GateRules::WHOLE }.alone()),
        (
            "a gate that admits barriers for an overtaken lease",
            GateRules { knows_overtaken: false, ..GateRules::WHOLE }.alone(),
        ),
        (
            "a gate, without the barrier",
            StoreRules { barrier: BarrierRule::Never, ..StoreRules::DESIGNED }.with(GateRules::WHOLE),
        ),
    ];

    const fn alone(self) -> StoreRules {
        StoreRules::DESIGNED.with(self)
    }

    /// With all its steps.
    pub const WHOLE: GateRules = GateRules { asks: true, proves: true, bare_barriers: true, knows_overtaken: true };
}
