//! The steps of a trace, for people.

use super::{
    Lie, Op, Stored, StoredStep,
    store::token_in,
    world::{Carries, LIAR, MarkVersion, Stage, StoredWorld},
};
use git_fence_core::{LeaseState, Token};

/// A step in words, with the store's record and the mark after it.
pub fn line(model: &Stored, before: &StoredWorld, step: StoredStep, after: &StoredWorld) -> String {
    let (who, what) = match step {
        StoredStep::Act(r) => (run(r), act(model, before, r, after)),
        StoredStep::Lose(r) => (run(r), "the reply is lost".to_owned()),
        StoredStep::Unreachable(r) => (run(r), "cannot reach the remote".to_owned()),
        StoredStep::Ask(f) => ("gate".to_owned(), format!("asks the store about the {}", push(before, f))),
        StoredStep::Admit(f) => {
            let is_admitted = before.flights.len() == after.flights.len();
            let verb = if is_admitted { "admits" } else { "refuses" };
            ("gate".to_owned(), format!("{verb} the {}", push(before, f)))
        }
        StoredStep::Land(f) => {
            let verb = if after.marks.len() > before.marks.len() { "lands" } else { "is refused by git" };
            ("remote".to_owned(), format!("the {} {verb}", push(before, f)))
        }
        StoredStep::Kill(f) => ("remote".to_owned(), format!("the receive-pack of the {} is killed", push(before, f))),
        StoredStep::RollBack(None) => ("store".to_owned(), "forgets its record".to_owned()),
        StoredStep::RollBack(Some(_)) => ("store".to_owned(), "shows another of its records".to_owned()),
        StoredStep::Lie(lie) => ("liar".to_owned(), lied(lie).to_owned()),
    };
    format!("{who:<7} {what:<72} {:<22} {}", store(after), mark(after.mark()))
}

fn run(r: usize) -> String {
    format!("run {r}")
}

fn push(world: &StoredWorld, f: usize) -> String {
    let makes = &world.flights[f].makes;
    let whose = if makes.run == LIAR { "liar".to_owned() } else { run(makes.run) };
    let token = makes.record.get().token;
    match makes.carries {
        Carries::Refs => format!("push of {whose} with token {token}"),
        Carries::Barrier => format!("barrier of {whose}"),
        Carries::Touch => format!("touch of {whose}"),
    }
}

fn act(model: &Stored, before: &StoredWorld, r: usize, after: &StoredWorld) -> String {
    let (run, now) = (&before.runs[r], &after.runs[r]);
    let token = |world: &StoredWorld| {
        let held = world.runs[r].held.and_then(|held| token_in(world.entry(held.record)));
        held.map_or(0, Token::get)
    };
    let is_lost = run.held.is_some() && now.held.is_none();
    let swapped = after.records.len() > before.records.len();
    let verb = match model.op(before, r) {
        Some(Op::Revoke) => "revokes the lease",
        Some(Op::Halt) => "halts the fence",
        Some(Op::Resume) => "resumes the fence",
        _ => "takes the lease",
    };
    match (run.stage, now.stage) {
        (Stage::ReadStore(_), _) => "reads the mark".to_owned(),
        (Stage::ReadBoth(..), _) if swapped => format!("{verb}: token {}", after.owners.last().map_or(0, |o| o.first)),
        (Stage::ReadBoth(Some(record), _), _) if is_halted(before, record) => "finds the fence halted".to_owned(),
        (Stage::ReadBoth(..), _) => "swaps: others were faster".to_owned(),
        (Stage::RaiseFrom(_), _) => "sends its barrier".to_owned(),
        (Stage::Clear, _) => "clears the barrier in the store, if the lease there is its own".to_owned(),
        (Stage::GiveUp, _) => "gives the lease back".to_owned(),
        (Stage::LeaveBarrier, _) => "leaves a barrier for the next holder".to_owned(),
        (Stage::PushFrom(_), _) => format!("pushes with token {}", token(before)),
        (_, Stage::Touching) => "touches the mark".to_owned(),
        (_, Stage::ReadStore(_)) => "reads the store".to_owned(),
        (Stage::Ready | Stage::ReadMark, Stage::PushFrom(_)) => "reads the mark: its push counts".to_owned(),
        (Stage::LookAfterRaising { .. } | Stage::Look { .. } | Stage::JustLook, _) if is_lost => {
            "reads the mark: the lease is lost".to_owned()
        }
        (Stage::LookAfterRaising { .. }, Stage::GiveUp) => "reads the mark: another has begun".to_owned(),
        (_, Stage::Pushing) => format!("pushes with token {}", token(before)),
        (_, Stage::Touch) => "has to settle its push first".to_owned(),
        (Stage::LookAfterRaising { .. } | Stage::Look { .. } | Stage::JustLook, _) => "reads the mark".to_owned(),
        _ if model.op(before, r) == Some(Op::Release) && swapped => "releases the lease".to_owned(),
        _ if is_lost && now.stage == Stage::Ready => "the lease is lost".to_owned(),
        _ if swapped => format!("swaps the next token in: {}", token(after)),
        _ => "does nothing".to_owned(),
    }
}

fn is_halted(world: &StoredWorld, record: usize) -> bool {
    world.entry(record).lease.as_ref().is_some_and(|stored| stored.lease.halt().is_some())
}

fn lied(lie: Lie) -> &'static str {
    match lie {
        Lie::NoProof => "pushes the next mark in the holder's name, without a proof",
        Lie::OldProof(_) => "pushes the next mark in the holder's name, with a published proof",
        Lie::Stranger => "pushes the next mark in a name of its own",
        Lie::Barrier => "pushes a barrier for the holder, without a proof",
        Lie::OldBeat(_) => "pushes a barrier for the holder, with a published proof",
        Lie::Touch => "touches the mark",
    }
}

fn store(world: &StoredWorld) -> String {
    let Some(now) = world.now else { return "store: -".to_owned() };
    let Some(stored) = &world.entry(now).lease else { return "store: -".to_owned() };
    let state = match stored.lease.state {
        LeaseState::Held => "held",
        LeaseState::Halted => "halted",
        LeaseState::Released | LeaseState::Moved => "free",
    };
    format!("store: {} {state} by L{}", stored.lease.token, world.records[now].owner)
}

fn mark(mark: &MarkVersion) -> String {
    let by = mark.record.get().by.as_ref().map_or("-".to_owned(), |by| {
        let owner = u8::from_str_radix(&by.lease.as_str()[..2], 16).unwrap_or(0);
        format!("L{owner}")
    });
    format!("mark: {} by {by}", mark.record.get().token)
}
