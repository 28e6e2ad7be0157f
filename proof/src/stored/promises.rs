//! The promises while the lease is in a store, and what must be seen, or they would hold vacuously.

use super::{
    Stored,
    world::{Carries, HaltFacts, MarkVersion, StoreHeld, StoredWorld},
};
use stateright::Property;

/// Refs move in token order.
pub const TOKEN_ORDER: &str = "refs move in token order, and no token at or below one that has written writes";
/// A lost lease stays lost.
pub const LOST_IS_LOST: &str =
    "a holder that was told that its lease is lost, and no push unsettled, never writes afterwards";
/// What a takeover has stopped stays stopped.
pub const DONE_IS_DONE: &str =
    "once a grant or a revocation is done, no holder before it, as the store shows, moves anything";
/// One writer for each number.
pub const ONE_PER_NUMBER: &str = "of two holders of the same number, at most one writes";
/// Conclusions after lost replies are true.
pub const STORE_BELIEF: &str = "what a client concludes about its push is true, and stays true";
/// Grants count from what has written.
pub const ABOVE_THE_MARK: &str = "the token of a grant is above the mark as it was read";
/// No write that was not the holder's.
pub const NO_LIE: &str = "nobody writes without having been granted the lease";
/// Rolling back revives nobody.
pub const NO_REVIVAL: &str = "no old holder that a rollback has made current again writes after its successor";
/// What a store has forgotten stays over, from the first write on.
pub const FORGOTTEN: &str = "whatever the store forgets: after a write, nobody writes whose lease was granted earlier";
/// Nobody is told "lost" for nothing.
pub const LOST_FOR_A_REASON: &str =
    "while the store forgets nothing, a lease is lost only if somebody else has it or has moved the mark";

/// A halt holds.
pub const HALTED: &str =
    "while the store forgets nothing, nothing moves from the time when a halt is done until it is resumed";

const ALL: [&str; 11] = [
    TOKEN_ORDER,
    LOST_IS_LOST,
    DONE_IS_DONE,
    ONE_PER_NUMBER,
    STORE_BELIEF,
    ABOVE_THE_MARK,
    NO_LIE,
    NO_REVIVAL,
    FORGOTTEN,
    LOST_FOR_A_REASON,
    HALTED,
];

/// What must be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Two ownerships have written, one after the other.
    Takeover,
    /// An overtaken holder has read the mark, and was refused.
    StaleRefused,
    /// A push whose reply may have been lost has landed.
    Landed,
    /// One has not landed.
    NeverLanded,
    /// A revocation was done.
    Revoked,
    /// A halt was done.
    Halted,
    /// A run that was granted the lease after a halt had been resumed has written.
    WritesAfterHalt,
    /// A run that was granted the lease after a rollback has written.
    WritesAfterRollback,
    /// The gate has refused the liar.
    LieRefused,
}

const SIGHTS: [(Sight, &str); 9] = [
    (Sight::Takeover, "takeover"),
    (Sight::StaleRefused, "a stale holder is refused"),
    (Sight::Landed, "landed after all"),
    (Sight::NeverLanded, "never landed"),
    (Sight::Revoked, "revoked"),
    (Sight::Halted, "halted"),
    (Sight::WritesAfterHalt, "writes after a halt"),
    (Sight::WritesAfterRollback, "writes after a rollback"),
    (Sight::LieRefused, "a lie is refused"),
];

/// The properties to check.
pub(super) fn of(model: &Stored) -> Vec<Property<Stored>> {
    let promises: [Property<Stored>; 11] = [
        Property::always(ALL[0], holds::<0>),
        Property::always(ALL[1], holds::<1>),
        Property::always(ALL[2], holds::<2>),
        Property::always(ALL[3], holds::<3>),
        Property::always(ALL[4], holds::<4>),
        Property::always(ALL[5], holds::<5>),
        Property::always(ALL[6], holds::<6>),
        Property::always(ALL[7], holds::<7>),
        Property::always(ALL[8], holds::<8>),
        Property::always(ALL[9], holds::<9>),
        Property::always(ALL[10], holds::<10>),
    ];
    let sights: [Property<Stored>; 9] = [
        Property::sometimes(SIGHTS[0].1, sees::<0>),
        Property::sometimes(SIGHTS[1].1, sees::<1>),
        Property::sometimes(SIGHTS[2].1, sees::<2>),
        Property::sometimes(SIGHTS[3].1, sees::<3>),
        Property::sometimes(SIGHTS[4].1, sees::<4>),
        Property::sometimes(SIGHTS[5].1, sees::<5>),
        Property::sometimes(SIGHTS[6].1, sees::<6>),
        Property::sometimes(SIGHTS[7].1, sees::<7>),
        Property::sometimes(SIGHTS[8].1, sees::<8>),
    ];
    let must_see =
        |name: &str| SIGHTS.iter().any(|(sight, of_sight)| *of_sight == name && model.scenario.must_see(*sight));
    promises.into_iter().chain(sights.into_iter().filter(|sight| must_see(sight.name))).collect()
}

fn holds<const N: usize>(model: &Stored, world: &StoredWorld) -> bool {
    model.latches.first(N, || match ALL[N] {
        STORE_BELIEF => world.beliefs.iter().all(|(push, landed)| world.has_landed(*push) == *landed),
        _ => world.broken & (1 << N) == 0,
    })
}

fn sees<const N: usize>(_: &Stored, world: &StoredWorld) -> bool {
    let believes = |landed| world.lost > 0 && world.beliefs.iter().any(|(_, belief)| *belief == landed);
    match SIGHTS[N].0 {
        Sight::Landed => believes(true),
        Sight::NeverLanded => believes(false),
        sight => world.seen & (1 << sight as u8) != 0,
    }
}

/// What a write breaks, and what it shows.
pub(super) fn written(world: &mut StoredWorld, makes: &MarkVersion) {
    let token = makes.record.get().token;
    let mut writes = world.marks.iter().filter(|mark| mark.carries == Carries::Refs);
    if writes.any(|mark| mark.record.get().token >= token) {
        set(world, TOKEN_ORDER);
    }
    let Some(owner) = makes.owner else { return set(world, NO_LIE) };
    let (facts, mut later) = (&world.owners[owner], world.owners.iter().skip(owner + 1));
    let later_wrote = later.clone().any(|later| later.wrote);
    let is_overtaken = later.any(|by| by.is_done && by.overtakes & (1 << owner) != 0);
    let is_halted = world.owners.iter().any(|other| other.is_done && other.halt == Some(HaltFacts::Stands));
    let mut others = world.owners.iter().enumerate().filter(|(other, _)| *other != owner);
    let broken = [
        (facts.is_lost, LOST_IS_LOST),
        (is_overtaken, DONE_IS_DONE),
        (others.any(|(_, other)| other.wrote && other.first == facts.first), ONE_PER_NUMBER),
        (facts.is_revived && later_wrote, NO_REVIVAL),
        (later_wrote, FORGOTTEN),
        (world.rollbacks == 0 && is_halted, HALTED),
    ];
    let (after_rollback, after_halt) = (facts.after_rollback, facts.after_halt);
    let takes_over = world.owners.iter().take(owner).any(|before| before.wrote);
    broken.into_iter().filter(|(is_broken, _)| *is_broken).for_each(|(_, promise)| set(world, promise));
    world.owners[owner].wrote = true;
    let seen = [
        (after_rollback, Sight::WritesAfterRollback),
        (after_halt, Sight::WritesAfterHalt),
        (takes_over, Sight::Takeover),
    ];
    seen.into_iter().filter(|(is_seen, _)| *is_seen).for_each(|(_, sight)| see(world, sight));
}

/// A grant with this token was made, after the mark was read at `mark`.
pub(super) fn granted(world: &mut StoredWorld, token: u64, mark: usize) {
    if token <= world.marks[mark].record.get().token.get() {
        set(world, ABOVE_THE_MARK);
    }
}

/// The holder of `held` was told that its lease is lost.
pub(super) fn told_lost(world: &mut StoredWorld, held: StoreHeld) {
    let is_moved = world.marks.iter().skip(held.read + 1).any(|mark| mark.owner != Some(held.owner));
    let is_there = world.now.is_some_and(|now| world.records[now].owner == held.owner);
    if world.rollbacks == 0 && is_there && !is_moved {
        set(world, LOST_FOR_A_REASON);
    }
}

/// The mark has told the holder `owner` that its push does not count.
pub(super) fn refused(world: &mut StoredWorld, owner: usize) {
    if world.owners.iter().skip(owner + 1).any(|other| other.is_done) {
        see(world, Sight::StaleRefused);
    }
}

/// This was seen.
pub(super) fn see(world: &mut StoredWorld, sight: Sight) {
    world.seen |= 1 << sight as u8;
}

fn set(world: &mut StoredWorld, promise: &str) {
    if let Some(n) = ALL.iter().position(|name| *name == promise) {
        world.broken |= 1 << n;
    }
}
