//! The promises of the design, as properties of every reachable state.

use crate::{
    gate::Ruling,
    log::{
        ACCEPTED, LANDED, LEASE_LOST, REBOOTED, REFS_MOVED, REFUSED, REPORTED, SETTLED, STALE, TWICE, is_decided,
        push_of,
    },
    numbers::{BEAT, FenceNo, LEASE, REPO, is_branch},
    protocol::Protocol,
    records::token,
    scenarios::{Kind, Scenario},
    world::{Answer, ModelPush, Move, Phase, World},
};
use git_fence_core::{Claim, Decision, InFlight};
use stateright::Property;

/// No window, and token order.
pub const NO_WINDOW: &str = "1, 2: refs move in token order, and an older token never after a newer one";
/// A token is spent if and only if a ref moved.
pub const SPENT: &str = "3: a token is spent when a ref moved, and only then";
/// Decisions are recorded.
pub const ON_RECORD: &str = "4, 5: every decision is recorded once, and synced before a ref moves";
/// Nothing blocks.
pub const NOBODY_BLOCKS: &str = "6: a dead push never blocks, and the next token is admitted";
/// Only the holder writes.
pub const ONE_HOLDER: &str = "lease: only its holder writes, and after a grant no previous holder does";
/// The counter increases.
pub const COUNTER: &str = "lease: every grant has a higher token than all before it";
/// A successor's lease is safe.
pub const SUCCESSOR: &str = "lease: a previous holder does not change the lease of its successor";
/// A live lease is not granted again.
pub const NOT_TAKEN: &str = "lease: a live lease is not granted to another client";
/// One kind of tokens.
pub const ONE_KIND: &str = "lease: a fence accepts one kind of tokens, that of the first push or grant that lands";
/// Conclusions after lost answers are true.
pub const BELIEF: &str = "lease: what a client concludes after a lost answer is true";

/// The properties to check for a scenario.
pub fn of(scenario: &Scenario) -> Vec<Property<Protocol>> {
    type P = Protocol;
    type W = World;
    let mut properties: Vec<Property<P>> = vec![
        Property::always(NO_WINDOW, |model: &P, world: &W| {
            model.latches.first(0, || (0..2).all(|fence| is_in_order(world, fence)))
        }),
        Property::always(SPENT, |model: &P, world: &W| {
            model.latches.first(1, || (0..2).all(|fence| mark_is_what_moved(model, world, fence)))
        }),
        Property::always(ON_RECORD, |model: &P, world: &W| {
            model.latches.first(2, || (0..world.pushes.len()).all(|p| is_on_record(world, p)))
        }),
        Property::always(NOBODY_BLOCKS, |model: &P, world: &W| {
            model.latches.first(3, || (0..2).all(|fence| no_dead_push_blocks(model, world, fence)))
        }),
    ];
    if scenario.pushes.iter().any(|script| script.kind != Kind::Plain) {
        properties.extend([
            Property::always(ONE_HOLDER, |model: &P, world: &W| {
                model.latches.first(4, || lease_history(model, world).one_holder)
            }),
            Property::always(COUNTER, |model: &P, world: &W| {
                model.latches.first(5, || lease_history(model, world).counter)
            }),
            Property::always(SUCCESSOR, |model: &P, world: &W| {
                model.latches.first(6, || lease_history(model, world).successor)
            }),
            Property::always(NOT_TAKEN, |model: &P, world: &W| {
                model.latches.first(9, || lease_history(model, world).not_taken)
            }),
            Property::always(ONE_KIND, |model: &P, world: &W| model.latches.first(10, || has_one_kind(world))),
            Property::always(BELIEF, |model: &P, world: &W| {
                model.latches.first(7, || (0..world.pushes.len()).all(|p| belief_is_true(world, p)))
            }),
        ]);
    }
    properties.extend(reachable().into_iter().filter(|property| scenario.sometimes.contains(&property.name)));
    properties
}

/// States that must be reachable, or the promises would hold vacuously.
fn reachable() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("waits", |model: &Protocol, world: &World| {
            let is_waiting =
                |p: usize| world.pushes[p].phase == Phase::Hook && matches!(model.judge(world, p), (_, Ruling::Wait));
            !model.latches.first(8, || !(0..world.pushes.len()).any(is_waiting))
        }),
        Property::sometimes("stale", |_: &Protocol, world: &World| is_recorded_of_any(world, STALE)),
        Property::sometimes("lease lost", |_: &Protocol, world: &World| is_recorded_of_any(world, LEASE_LOST)),
        Property::sometimes("rebooted", |_: &Protocol, world: &World| is_recorded_of_any(world, REBOOTED | SETTLED)),
        Property::sometimes("refs say over", |_: &Protocol, world: &World| is_recorded_of_any(world, REFS_MOVED)),
        Property::sometimes("declined and free", |_: &Protocol, world: &World| {
            let is_declined = |p: usize| world.pushes[p].declined && !world.has_moved(p, |_| true);
            (0..world.pushes.len()).any(|p| is_declined(p) && world.now().recorded[p] & SETTLED != 0)
        }),
        Property::sometimes("all landed", |_: &Protocol, world: &World| {
            world.pushes.iter().all(|push| push.answer == Answer::Landed)
        }),
        Property::sometimes("reported", |_: &Protocol, world: &World| is_recorded_of_any(world, REPORTED)),
        Property::sometimes("landed so far", |_: &Protocol, world: &World| is_recorded_of_any(world, LANDED)),
        Property::sometimes("reset", |_: &Protocol, world: &World| {
            let is_reset = |p: usize| world.reset_pushes & (1 << p) != 0 && world.now().recorded[p] & REPORTED != 0;
            !world.excused && (0..world.pushes.len()).any(is_reset)
        }),
        Property::sometimes("torn", |_: &Protocol, world: &World| world.pushes.iter().any(|push| push.torn)),
        Property::sometimes("moves lost", |_: &Protocol, world: &World| world.has_lost_moves),
        Property::sometimes("lease found", |_: &Protocol, world: &World| world.now().found),
        Property::sometimes("takeover", |model: &Protocol, world: &World| grants(model, world) > 1),
        Property::sometimes("second try", |_: &Protocol, world: &World| {
            world.pushes.iter().any(|push| push.again && push.answer == Answer::Landed)
        }),
        Property::sometimes("other kind refused", |model: &Protocol, world: &World| {
            let is_refused =
                |p: usize| world.now().recorded[p] & REFUSED != 0 && model.scenario.pushes[p].kind == Kind::Acquire;
            (0..world.pushes.len()).any(is_refused) && world.moves[REPO].iter().any(|moved| is_branch(moved.on))
        }),
        Property::sometimes("renewed", |model: &Protocol, world: &World| landed(model, world, Kind::Beat)),
        Property::sometimes("released", |model: &Protocol, world: &World| landed(model, world, Kind::Release)),
        Property::sometimes("landed after all", |_: &Protocol, world: &World| {
            world.pushes.iter().any(|push| push.belief == Some(true))
        }),
        Property::sometimes("never landed", |_: &Protocol, world: &World| {
            world.pushes.iter().any(|push| push.belief == Some(false))
        }),
    ]
}

fn is_recorded_of_any(world: &World, bits: u16) -> bool {
    world.now().recorded.iter().any(|recorded| recorded & bits == bits)
}

fn landed(model: &Protocol, world: &World, kind: Kind) -> bool {
    let is_it = |p: usize| model.scenario.pushes[p].kind == kind && world.pushes[p].answer == Answer::Landed;
    (0..world.pushes.len()).any(is_it)
}

fn grants(model: &Protocol, world: &World) -> usize {
    let is_grant = |by: usize| model.scenario.pushes[by].kind == Kind::Acquire;
    world.moves[REPO].iter().filter(|moved| moved.on == LEASE && is_grant(moved.by)).count()
}

fn is_in_order(world: &World, fence: FenceNo) -> bool {
    if world.excused {
        return true;
    }
    let mut last: Option<(usize, u8)> = None;
    for moved in world.moves[fence].iter().filter(|moved| is_branch(moved.on)) {
        let Some(token) = world.pushes[moved.by].tokens[fence] else { continue };
        if last.is_some_and(|(by, newest)| by != moved.by && token <= newest) {
            return false;
        }
        last = Some((moved.by, token));
    }
    true
}

fn has_one_kind(world: &World) -> bool {
    let of_lease = |moved: &Move| world.pushes[moved.by].rec.is_some();
    let counts = |moved: &&Move| of_lease(moved) || world.pushes[moved.by].tokens[REPO].is_some();
    let mut kinds = world.moves[REPO].iter().filter(counts).map(of_lease);
    let first = kinds.next();
    world.has_lost_moves || kinds.all(|kind| Some(kind) == first)
}

/// The largest token that has moved a ref, or one less than the largest granted or advanced token; at least the initial
/// mark.
fn spent(model: &Protocol, world: &World, fence: FenceNo) -> u8 {
    let by = |moved: &Move| {
        let push = &world.pushes[moved.by];
        match push.rec {
            Some(rec) if moved.on == LEASE && !rec.released => rec.token - 1,
            Some(_) if moved.on == BEAT => 0,
            _ => push.tokens[fence].unwrap_or(0),
        }
    };
    let raised = if fence == REPO { model.scenario.raised } else { 0 };
    world.moves[fence].iter().map(by).max().unwrap_or(0).max(raised)
}

/// Checked when no push is moving refs of the fence, with the pushes settled that the next one would settle.
fn mark_is_what_moved(model: &Protocol, world: &World, fence: FenceNo) -> bool {
    let is_moving = |push: &ModelPush| matches!(push.phase, Phase::Written | Phase::Update(_));
    if world.excused || world.pushes.iter().any(is_moving) || !is_free(model, world, fence) {
        return true;
    }
    let (_, mark) = model.would_decide(world, next_claim(model, world, fence));
    let spent = u64::from(spent(model, world, fence));
    if world.has_lost_moves { mark >= spent } else { mark == spent }
}

/// Whether no push in the slot of a fence is still moving refs.
fn is_free(model: &Protocol, world: &World, fence: FenceNo) -> bool {
    let in_slot = world.now().state.fence(&model.fences[fence].fence).slot;
    in_slot.iter().all(|flight| model.is_over(world, flight).is_some())
}

fn next_claim<'a>(model: &'a Protocol, world: &World, fence: FenceNo) -> Claim<'a> {
    let next = token(spent(model, world, fence) + 1);
    Claim { rules: &model.fences[fence], token: Some(next), exempt: false, guarded: true, lease: None }
}

fn is_on_record(world: &World, p: usize) -> bool {
    let recorded = world.now().recorded[p];
    let is_once = recorded & TWICE == 0 && recorded & (ACCEPTED | REFUSED) != (ACCEPTED | REFUSED);
    let is_settled_after = recorded & SETTLED == 0 || recorded & ACCEPTED != 0;
    let is_updating = matches!(world.pushes[p].phase, Phase::Update(_));
    let is_answered = !is_updating || is_decided(world.now(), p);
    // A heartbeat is not synced: nothing depends on it.
    let is_synced = !world.has_moved(p, |on| on != BEAT) || world.synced().recorded[p] & ACCEPTED != 0;
    is_once && is_settled_after && is_answered && is_synced
}

/// If no live push occupies a fence, the next token above what has moved is admitted; under a lease, at least no push
/// is waited for.
fn no_dead_push_blocks(model: &Protocol, world: &World, fence: FenceNo) -> bool {
    let lives = |flight: &&InFlight| world.pushes[push_of(flight.push.0)].phase.has_receive_pack();
    let state = &world.now().state;
    let in_slot = state.fence(&model.fences[fence].fence).slot;
    let is_waited_for = |flight: &&InFlight| lives(flight) && model.is_over(world, flight).is_none();
    if world.excused || in_slot.is_empty() || in_slot.iter().any(is_waited_for) {
        return true;
    }
    match model.would_decide(world, next_claim(model, world, fence)).0 {
        Decision::Admit { overruled, .. } => overruled.is_none(),
        Decision::Wait(_) => false,
        // Under a lease, a push with only a token is refused, but the next client gets the lease.
        Decision::Refuse(_) if fence == REPO && grants(model, world) > 0 => model.would_grant(world),
        Decision::Refuse(_) => world.has_lost_moves,
    }
}

struct LeaseHistory {
    one_holder: bool,
    counter: bool,
    successor: bool,
    not_taken: bool,
}

fn lease_history(model: &Protocol, world: &World) -> LeaseHistory {
    let mut history = LeaseHistory { one_holder: true, counter: true, successor: true, not_taken: true };
    let is_torn = |grant: usize| world.pushes[grant].torn;
    let (mut holder, mut granted, mut highest) = (None, 0, 0);
    // The time of the holder's last renewal; `None` if nobody holds the lease.
    let mut renewed: Option<u8> = None;
    for moved in &world.moves[REPO] {
        let push = &world.pushes[moved.by];
        let takes = model.scenario.pushes[moved.by].kind == Kind::Acquire;
        match (moved.on, push.rec) {
            (LEASE, Some(rec)) if takes => {
                history.counter &= rec.token > highest;
                history.not_taken &= renewed.is_none_or(|renewed| renewed < push.judged) || world.has_lost_moves;
                renewed = Some(push.judged);
                (holder, granted, highest) = (Some(rec.grant), rec.token, rec.token);
            }
            (LEASE | BEAT, Some(rec)) => {
                // If git was killed between its renames of the lease and of the beat, the beat did not belong to the successor yet.
                let was_not_its = moved.on == BEAT && holder.is_some_and(is_torn);
                history.successor &= holder == Some(rec.grant) || was_not_its || world.has_lost_moves;
                // A heartbeat that was not synced may have been lost in a crash.
                if moved.on == LEASE || (world.boots == 0 && !takes) {
                    renewed = (!rec.released).then_some(push.judged);
                }
                if moved.on == LEASE {
                    highest = highest.max(rec.token);
                }
            }
            (_, rec) => {
                let token = push.tokens[REPO].unwrap_or(0);
                let is_its = holder.is_none() || holder == rec.map(|rec| rec.grant);
                history.one_holder &= (is_its && token >= granted) || world.has_lost_moves;
                highest = highest.max(token);
            }
        }
    }
    history
}

fn belief_is_true(world: &World, p: usize) -> bool {
    let has_moved = world.has_moved(p, is_branch);
    match world.pushes[p].belief {
        None => true,
        Some(belief) => belief == has_moved,
    }
}
