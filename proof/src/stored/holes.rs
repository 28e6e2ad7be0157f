//! Steps that are left out, and the scenario in which that shows.

use super::{BarrierAgain, BarrierRule, CountingRule, GateRules, Op, StoreRules, StoredScenario, scenarios::scenario};
use Op::{Acquire, Halt, Push, Release};

/// A step that is left out.
#[derive(Debug)]
pub struct Hole {
    /// What is left out.
    pub what: &'static str,
    /// Where that shows.
    pub scenario: StoredScenario,
    /// What is done.
    pub rules: StoreRules,
}

const WHOLE: StoreRules = StoreRules::WHOLE;

/// Steps without which a promise breaks.
pub fn holes() -> Vec<Hole> {
    let mut all = of_client();
    all.extend(of_barrier());
    all.extend(of_gate());
    all.extend(of_halts());
    all
}

fn of_client() -> Vec<Hole> {
    let settling: [&[Op]; 2] = [&[Acquire, Push, Push], &[Acquire]];
    vec![
        hole("as first designed: the mark is read again at each push", released(), StoreRules::FIRST_DESIGN),
        hole("without the compare-and-swap on the mark", two_runs(), StoreRules { compares_mark: false, ..WHOLE }),
        hole("with a counter from the store alone", two_runs(), StoreRules { reads_mark: false, ..WHOLE }),
        hole("settling by looking", two_runs(), StoreRules { touches: false, ..WHOLE }),
        hole(
            "a touch of one's own counts as another's",
            scenario("settling", "two replies are lost", &settling, (2, 0)),
            StoreRules { knows_own_touch: false, ..WHOLE },
        ),
    ]
}

fn of_barrier() -> Vec<Hole> {
    let three: [&[Op]; 3] = [&[Acquire, Push], &[Acquire, Push], &[Acquire, Push]];
    let unsettled: [&[Op]; 2] = [&[Acquire, Push, Release], &[Acquire, Push]];
    let again = StoreRules { again: BarrierAgain::IfItCounts, ..WHOLE };
    let by_touch = StoreRules { again: BarrierAgain::AlsoByTouch, ..WHOLE };
    let falls_back = StoreRules { again: BarrierAgain::OnlyByTouch, ..WHOLE };
    let then_none: [&[Op]; 3] = [&[Acquire, Push], &[Acquire, Push], &[Acquire]];
    vec![
        hole("without the barrier", two_runs(), StoreRules { barrier: BarrierRule::Never, ..WHOLE }),
        hole(
            "with a barrier only where the mark's number is lower",
            two_runs(),
            StoreRules { barrier: BarrierRule::IfMarkIsLower, ..WHOLE },
        ),
        hole("the barrier is tried again wherever a push would count", three_runs(&three, 0, 1), again),
        hole(
            "the barrier is cleared before it is up",
            three_runs(&three, 1, 0),
            StoreRules { clears_first: true, ..WHOLE },
        ),
        hole(
            "a release with an unsettled push leaves no barrier",
            scenario("unsettled", "a lease is released, and nobody knows what became of a push", &unsettled, (1, 0)),
            StoreRules { leaves_barrier: false, ..WHOLE },
        ),
        hole(
            "a barrier that is only a touch is tried again",
            three_runs(&three, 0, 0),
            by_touch.with(GateRules::UNASKING),
        ),
        hole(
            "a barrier that was refused becomes a touch, and a gate that asks the store",
            three_runs(&then_none, 1, 1),
            falls_back.with(GateRules::ASKING),
        ),
        hole(
            "without the barrier, and a gate that does not ask the store",
            two_runs(),
            StoreRules { barrier: BarrierRule::Never, ..WHOLE }.with(GateRules::UNASKING),
        ),
    ]
}

fn of_gate() -> Vec<Hole> {
    vec![
        hole("a gate that does not ask the store", lied_to(), WHOLE.with(GateRules::UNASKING)),
        hole("a gate that wants no proof", lied_to(), WHOLE.with(GateRules { proves: false, ..GateRules::ASKING })),
        hole(
            "barriers that carry the lease's proof",
            lied_to(),
            WHOLE.with(GateRules { barrier_shows_beat: false, ..GateRules::ASKING }),
        ),
        hole(
            "without the barrier, and a gate that asks the store",
            lied_to(),
            StoreRules { barrier: BarrierRule::Never, ..WHOLE }.with(GateRules::ASKING),
        ),
    ]
}

fn of_halts() -> Vec<Hole> {
    let twice: [&[Op]; 3] = [&[Acquire, Push], &[Halt], &[Halt]];
    let then: [&[Op]; 3] = [&[Acquire, Push], &[Halt], &[Acquire, Push]];
    let halted = |programs: &[&[Op]]| StoredScenario {
        sees: Vec::new(),
        ..scenario("halted", "the fence is halted, and somebody pushes", programs, (0, 0))
    };
    vec![
        hole("halting without the barrier", halted(&twice), StoreRules { barrier: BarrierRule::Never, ..WHOLE }),
        hole(
            "a halt whose barrier is not up is taken for done",
            halted(&twice),
            StoreRules { completes_halts: false, ..WHOLE },
        ),
        hole("a halted lease is taken", halted(&then), StoreRules { heeds_halts: false, ..WHOLE }),
    ]
}

/// Steps that break nothing if they alone are left out: the version of the mark stops what they would stop.
pub fn needless() -> Vec<Hole> {
    // Between its two grants the other's barrier publishes the proof of a beat.
    let again: [&[Op]; 2] = [&[Acquire, Acquire, Push], &[Acquire, Push]];
    vec![
        hole("without Fence-First", released(), StoreRules { counting: CountingRule::Number, ..WHOLE }),
        hole(
            "a gate that admits barriers for an overtaken lease",
            StoredScenario {
                lies: 1,
                ..scenario("again", "a run takes the lease back, and somebody lies", &again, (0, 1))
            },
            WHOLE.with(GateRules { knows_overtaken: false, ..GateRules::ASKING }),
        ),
    ]
}

fn hole(what: &'static str, scenario: StoredScenario, rules: StoreRules) -> Hole {
    Hole { what, scenario, rules }
}

fn two_runs() -> StoredScenario {
    scenario("two runs", "one takes over from the other", &[&[Acquire, Push, Push], &[Acquire, Push]], (1, 1))
}

fn released() -> StoredScenario {
    let programs: [&[Op]; 2] = [&[Acquire, Release, Acquire, Push], &[Acquire, Push]];
    scenario("released", "a lease is released and taken again, and the store rolls back twice", &programs, (0, 2))
}

fn three_runs(programs: &[&[Op]], lost: u8, rollbacks: u8) -> StoredScenario {
    scenario("three runs", "one takes over from the other", programs, (lost, rollbacks))
}

fn lied_to() -> StoredScenario {
    let programs: [&[Op]; 2] = [&[Acquire, Push, Push], &[Acquire, Push]];
    StoredScenario { lies: 1, ..scenario("lied to", "two runs, and somebody lies", &programs, (0, 1)) }
}
