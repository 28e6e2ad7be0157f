//! What must hold for a history, as a pure function: its input is the order in which refs moved, the log, and what
//! the clients were told; its output is the violations.

use std::collections::{BTreeMap, BTreeSet};

/// What a client was told about one of its refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Landed,
    Refused,
    /// Its answer was lost. It has read the ref, which does not have the pushed value.
    NotThere,
    /// It was killed, or its connection was cut: there is no claim to check.
    Nothing,
}

/// A push, with our own number for it and what its client saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Push {
    pub(crate) id: u64,
    /// What it was told about each ref that it should move.
    pub(crate) told: BTreeMap<String, Told>,
    /// The code in the JSON line, if there was one.
    pub(crate) code: Option<String>,
    /// The client may retry by itself: there may be more than one decision.
    pub(crate) leased: bool,
    /// The log could not grow while this was decided.
    pub(crate) no_room: bool,
    /// Its kind and its faults, for the reader of a violation.
    pub(crate) what: String,
}

/// A guarded ref that moved. Moves are in the order in which git locked the refs for the update.
#[derive(Debug, Clone, Default)]
pub(crate) struct Move {
    pub(crate) push: u64,
    pub(crate) fence: String,
    pub(crate) token: u64,
    pub(crate) name: String,
    /// The old value of the ref; empty if it did not exist.
    pub(crate) old: String,
    /// The new value; empty if it was deleted. No other push has this value.
    pub(crate) new: String,
    /// The number of its transaction.
    pub(crate) at: usize,
    /// The values of all branches at that moment; those that did not exist are missing.
    pub(crate) seen: BTreeMap<String, String>,
    /// Whether the values of this ref are in `seen` of other moves.
    pub(crate) is_watched: bool,
}

/// A planned ref update, with its old value. Empty: the ref did not exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// A ref that was reset or deleted, not by a push: by a hook of the server, or by a local writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reset {
    pub(crate) name: String,
    /// Its value until then, verified by git.
    pub(crate) from: String,
}

/// A line of the log that accepts or refuses a push.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decision {
    pub(crate) seq: u64,
    pub(crate) push: u64,
    /// Why it was refused; none if it was accepted.
    pub(crate) code: Option<String>,
    /// The planned refs, with the values that the gate read under its lock.
    pub(crate) planned: Vec<Planned>,
}

/// A line of the log with the result of the push that was accepted in line `accepted`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled {
    pub(crate) accepted: u64,
    pub(crate) token: u64,
    pub(crate) moved: usize,
    pub(crate) spent: BTreeSet<String>,
    /// `push.settled`. A `push.landed` adds to it.
    pub(crate) is_end: bool,
    /// Settled from git's report; otherwise by comparing refs.
    pub(crate) is_reported: bool,
}

/// Everything that is known about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) pushes: Vec<Push>,
    pub(crate) moves: Vec<Move>,
    /// Pushes that moved the lease of a fence. A receive-pack that is killed between two renames may leave the branch
    /// behind: that spends the token, too.
    pub(crate) lease_moves: BTreeSet<(u64, String)>,
    /// The number of the first transaction that found a ref (its name) with a value.
    pub(crate) first_seen: BTreeMap<(String, String), usize>,
    pub(crate) resets: Vec<Reset>,
    /// None if the hook keeps no log.
    pub(crate) log: Option<(Vec<Decision>, Vec<Settled>)>,
    /// The final marks, of fences where only pushes raise them.
    pub(crate) marks: BTreeMap<String, u64>,
    /// The tokens of a lease, in the order in which its ref moved.
    pub(crate) lease: Vec<u64>,
}

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A ref moved with a token at or below that of another push that had moved one.
    TokenOrder { fence: String, token: u64, after: u64, push: u64 },
    /// When a newer push was about to move its refs, an older one had yet to move its own.
    StaleAfterNewer { fence: String, token: u64, newer: u64, push: u64 },
    /// The log says that the token was spent, and nothing moved; or the other way round.
    SpentUnlessMoved { push: u64, moved: usize, spent: usize },
    /// The log has a wrong number of moved refs.
    OtherCount { push: u64, moved: usize, said: usize },
    /// The mark is not the highest token that has moved a ref.
    Mark { fence: String, mark: u64, highest: u64 },
    /// A push is recorded more than once, or not at all.
    NotLoggedOnce { push: u64, accepted: usize, refused: usize },
    /// What the pusher was told differs from the log.
    OtherCode { push: u64, told: String, logged: String },
    /// A push was accepted and never settled, or settled twice.
    NotSettledOnce { push: u64, settled: usize },
    /// The client was told that it landed, and it did not.
    LandedIsNotThere { push: u64, name: String },
    /// The client was told that it was refused or absent, but it landed and was present.
    RefusedIsThere { push: u64, name: String },
    /// A push has moved refs although there was no space to record it.
    MovedWithoutRoom { push: u64 },
    /// The counter of a lease decreased.
    LeaseWentBack { token: u64, after: u64 },
}

impl Violation {
    /// The push that broke the rule, or was affected.
    pub(crate) fn push(&self) -> Option<u64> {
        match self {
            Violation::TokenOrder { push, .. }
            | Violation::StaleAfterNewer { push, .. }
            | Violation::SpentUnlessMoved { push, .. }
            | Violation::OtherCount { push, .. }
            | Violation::NotLoggedOnce { push, .. }
            | Violation::OtherCode { push, .. }
            | Violation::NotSettledOnce { push, .. }
            | Violation::LandedIsNotThere { push, .. }
            | Violation::RefusedIsThere { push, .. }
            | Violation::MovedWithoutRoom { push } => Some(*push),
            Violation::Mark { .. } | Violation::LeaseWentBack { .. } => None,
        }
    }

    /// The name of the rule.
    pub(crate) fn rule(&self) -> &'static str {
        match self {
            Violation::TokenOrder { .. } => "refs move in token order",
            Violation::StaleAfterNewer { .. } => "nothing stale after newer",
            Violation::SpentUnlessMoved { .. } | Violation::Mark { .. } => "spent if and only if moved",
            Violation::OtherCount { .. } => "the log has the number of moved refs",
            Violation::NotLoggedOnce { .. } | Violation::OtherCode { .. } => "every decision is logged once",
            Violation::NotSettledOnce { .. } => "every push is settled once",
            Violation::LandedIsNotThere { .. } => "a ref reported as landed has moved",
            Violation::RefusedIsThere { .. } => "a ref reported as refused has not moved",
            Violation::MovedWithoutRoom { .. } => "nothing moves that cannot be recorded",
            Violation::LeaseWentBack { .. } => "a lease's counter never decreases",
        }
    }
}

/// Refusals that need not be recorded: they mean that nothing can be written, or that the lock of the
/// log was not available.
const MAY_BE_UNLOGGED: [&str; 2] = ["FENCE-BROKEN", "FENCE-BUSY"];

impl History {
    /// How many of the refusals that need not be recorded are not.
    pub(crate) fn unlogged(&self) -> usize {
        let decisions = self.log.iter().flat_map(|(decisions, _)| decisions);
        let logged: BTreeSet<u64> = decisions.map(|decision| decision.push).collect();
        self.pushes.iter().filter(|push| push.code.is_some() && !logged.contains(&push.id)).count()
    }
}

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = token_order(&history.moves);
    found.extend(stale_after_newer(history));
    found.extend(history.pushes.iter().flat_map(|push| claims(push, history)));
    let has_moved = |push: &&Push| history.moves.iter().any(|m| m.push == push.id);
    let without_room = history.pushes.iter().filter(|push| push.no_room).filter(has_moved);
    found.extend(without_room.map(|push| Violation::MovedWithoutRoom { push: push.id }));
    let mistaken = spent_for_nothing(history);
    if history.log.is_some() {
        found.extend(history.pushes.iter().flat_map(|push| record(push, history, &mistaken)));
    }
    found.extend(history.marks.iter().filter_map(|(fence, mark)| {
        let moved = history.moves.iter().filter(|m| m.fence == *fence).map(|m| m.token);
        let mistaken = mistaken.iter().filter(|end| end.spent.contains(fence)).map(|end| end.token);
        let highest = moved.chain(mistaken).max().unwrap_or(0);
        (*mark != highest).then(|| Violation::Mark { fence: fence.clone(), mark: *mark, highest })
    }));
    let back = history.lease.windows(2).filter(|two| two[1] < two[0]);
    found.extend(back.map(|two| Violation::LeaseWentBack { token: two[1], after: two[0] }));
    found
}

fn token_order(moves: &[Move]) -> Vec<Violation> {
    let mut highest: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for Move { push, fence, token, .. } in moves {
        let (after, by) = highest.get(fence.as_str()).copied().unwrap_or_default();
        if by != *push && *token <= after && after > 0 {
            found.push(Violation::TokenOrder { fence: fence.clone(), token: *token, after, push: *push });
        }
        if *token > after {
            highest.insert(fence, (*token, *push));
        }
    }
    found
}

/// A ref with the old value has yet to be moved, unless it had the new value before: then it was reset.
fn stale_after_newer(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let moves = &history.moves;
    for older in moves.iter().filter(|older| older.is_watched) {
        let moved_by = history.first_seen.get(&(older.name.clone(), older.new.clone()));
        let was_waiting = |newer: &&Move| {
            newer.fence == older.fence
                && newer.push != older.push
                && newer.token > older.token
                && newer.seen.get(&older.name).map_or("", String::as_str) == older.old
                && moved_by.is_none_or(|moved_by| newer.at < *moved_by)
        };
        if let Some(newer) = moves.iter().find(was_waiting) {
            let (fence, token) = (older.fence.clone(), older.token);
            found.push(Violation::StaleAfterNewer { fence, token, newer: newer.token, push: older.push });
        }
    }
    found
}

fn claims<'a>(push: &'a Push, history: &'a History) -> impl Iterator<Item = Violation> + 'a {
    push.told.iter().filter_map(|(name, told)| {
        let moved = history.moves.iter().find(|m| m.push == push.id && m.name == *name);
        let is_there = moved.is_some();
        let is_reset = |m: &Move| history.resets.iter().any(|back| back.name == *name && back.from == m.new);
        match told {
            Told::NotThere if moved.is_some_and(|m| !is_reset(m)) => {
                Some(Violation::RefusedIsThere { push: push.id, name: name.clone() })
            }
            Told::Landed if !is_there => Some(Violation::LandedIsNotThere { push: push.id, name: name.clone() }),
            Told::Refused if is_there => Some(Violation::RefusedIsThere { push: push.id, name: name.clone() }),
            _ => None,
        }
    })
}

/// What the log says about a push, except for settlements that may be `mistaken`.
fn record(push: &Push, history: &History, mistaken: &[&Settled]) -> Vec<Violation> {
    let id = push.id;
    let mut found = Vec::new();
    let Some((decisions, settled)) = &history.log else { return found };
    let ours = || decisions.iter().filter(|decision| decision.push == id);
    let accepted: Vec<&Decision> = ours().filter(|decision| decision.code.is_none()).collect();
    let refused: Vec<&String> = ours().filter_map(|decision| decision.code.as_ref()).collect();
    let moves = || history.moves.iter().filter(|m| m.push == id);
    let of_leases = history.lease_moves.iter().filter(|(push, _)| *push == id).map(|(_, fence)| fence);
    let fences: BTreeSet<&String> = moves().map(|m| &m.fence).chain(of_leases).collect();

    let must_be_accepted = !fences.is_empty();
    let must_be_refused = push.code.as_ref().is_some_and(|code| !MAY_BE_UNLOGGED.contains(&code.as_str()));
    let too_many = !push.leased && accepted.len() + refused.len() > 1;
    if too_many || must_be_accepted && accepted.is_empty() || must_be_refused && refused.is_empty() {
        found.push(Violation::NotLoggedOnce { push: id, accepted: accepted.len(), refused: refused.len() });
    }
    if let (Some(told), Some(logged)) = (&push.code, refused.last())
        && told != *logged
    {
        found.push(Violation::OtherCode { push: id, told: told.clone(), logged: (*logged).clone() });
    }

    let mut spent: Vec<&String> = Vec::new();
    let (mut said, mut is_exact) = (0, !push.leased);
    for decision in accepted {
        let lines = || settled.iter().filter(|settled| settled.accepted == decision.seq);
        let ends: Vec<&Settled> = lines().filter(|line| line.is_end).collect();
        if ends.len() != 1 {
            found.push(Violation::NotSettledOnce { push: id, settled: ends.len() });
        }
        if mistaken.iter().any(|end| end.accepted == decision.seq) {
            continue;
        }
        is_exact &= ends.iter().all(|end| end.is_reported) || !is_disturbed(decision, &history.resets);
        said += lines().map(|line| line.moved).max().unwrap_or(0);
        spent.extend(lines().flat_map(|line| &line.spent).collect::<BTreeSet<_>>());
    }
    let is_true = spent.len() == fences.len() && spent.iter().all(|fence| fences.contains(fence));
    let moved = moves().count();
    if !is_true || (said > 0) == fences.is_empty() {
        found.push(Violation::SpentUnlessMoved { push: id, moved: fences.len(), spent: spent.len() });
    } else if is_exact && said != moved {
        found.push(Violation::OtherCount { push: id, moved, said });
    }
    found
}

/// The settlements that may say that a token was spent although its push moved nothing.
///
/// Git never reported on the push, and one of its refs was changed from the value that the gate had read. The ref has
/// changed, and it cannot be decided who changed it: in doubt, a token is spent. The opposite is always
/// a violation.
pub(crate) fn spent_for_nothing(history: &History) -> Vec<&Settled> {
    let Some((decisions, settled)) = &history.log else { return Vec::new() };
    let has_moved = |push: u64| history.moves.iter().any(|m| m.push == push);
    let is_taken = |planned: &Planned| history.resets.iter().any(|b| b.name == planned.name && b.from == planned.old);
    let in_doubt =
        decisions.iter().filter(|d| d.code.is_none() && !has_moved(d.push) && d.planned.iter().any(is_taken));
    let in_doubt: BTreeSet<u64> = in_doubt.map(|decision| decision.seq).collect();
    let by_refs = settled.iter().filter(|line| line.is_end && line.moved > 0 && !line.is_reported);
    by_refs.filter(|end| in_doubt.contains(&end.accepted)).collect()
}

/// Whether a ref of this push was reset, from the value that the gate read or from the pushed one. Then the refs
/// do not show how many moved, and only git's report is exact.
fn is_disturbed(decision: &Decision, resets: &[Reset]) -> bool {
    let is_touched = |planned: &Planned| {
        resets.iter().any(|b| b.name == planned.name && (b.from == planned.old || b.from == planned.new))
    };
    decision.planned.iter().any(is_touched)
}
