//! The history of a run, read from the traces that git, the gate and the clients have left.

use super::{
    checker::{Decision, History, Move, Planned, Reset, Settled},
    pushers::Field,
};
use crate::support::World;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
};

const LEASE: &str = "refs/fence/leased/lease";

/// The planned updates of one transaction, and the values of all refs.
#[derive(Debug, Default)]
struct Transaction {
    /// Not a push: a local writer, or a hook that undoes one.
    is_reset: bool,
    /// The updates that git had locked, with the old values verified.
    planned: Vec<Planned>,
    seen: BTreeMap<String, String>,
}

/// None if git writes zeros.
fn id(word: &str) -> String {
    if word.bytes().all(|b| b == b'0') { String::new() } else { word.to_owned() }
}

fn transactions(world: &World) -> Vec<Transaction> {
    let text = fs::read_to_string(world.server().join("moves")).unwrap_or_default();
    let mut found = Vec::new();
    let mut open = Transaction::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["transaction" | "reset"] => {
                assert!(open.planned.is_empty(), "blocks of different pushes are mixed");
                open.is_reset = words[0] == "reset";
            }
            ["end"] => found.push(std::mem::take(&mut open)),
            ["at", value, name] => {
                open.seen.insert(name.to_owned(), value.to_owned());
            }
            [old, new, name] if name.starts_with("refs/") => {
                open.planned.push(Planned { old: id(old), new: id(new), name: name.to_owned() });
            }
            [""] => {}
            _ => assert!(line.ends_with(" HEAD"), "what is '{line}'?"),
        }
    }
    found
}

/// The refs that did move. Every value belongs to one push, so a ref had a value if it has it at the end, or
/// if git found it when it locked the ref for the next update, by a push or by a reset. A reset
/// creates no new values.
fn moved(transactions: &[Transaction], last: &BTreeMap<String, String>) -> HashSet<(String, String)> {
    let all = || transactions.iter().flat_map(|transaction| &transaction.planned);
    // Git announces a deletion for packed-refs too, from nothing to nothing: that says nothing about the ref.
    let found = all().filter(|planned| !planned.old.is_empty());
    let mut were: HashSet<(String, String)> =
        found.map(|planned| (planned.name.clone(), planned.old.clone())).collect();
    were.extend(last.iter().map(|(name, value)| (name.clone(), value.clone())));
    // A deleted ref stays deleted, because each of these names belongs to one push; or a hook undid it, which creates
    // the ref only if git finds none.
    let of_kind = |is_reset: bool| {
        transactions.iter().filter(move |transaction| transaction.is_reset == is_reset).flat_map(|t| &t.planned)
    };
    let gone = of_kind(false).filter(|planned| planned.new.is_empty() && !last.contains_key(&planned.name));
    let undone = of_kind(true).filter(|planned| planned.old.is_empty() && !planned.new.is_empty());
    were.extend(gone.chain(undone).map(|planned| (planned.name.clone(), String::new())));
    were
}

/// The first transaction that found a ref with a value: the move was complete by then.
fn first_seen(transactions: &[Transaction]) -> BTreeMap<(String, String), usize> {
    let mut first = BTreeMap::new();
    for (at, Transaction { planned, seen, .. }) in transactions.iter().enumerate() {
        let locked = planned.iter().map(|planned| (&planned.name, &planned.old));
        for (name, value) in locked.chain(seen).filter(|(_, value)| !value.is_empty()) {
            first.entry((name.clone(), value.clone())).or_insert(at);
        }
    }
    first
}

/// The token in a lease's record.
fn tokens_of(world: &World, leases: &HashSet<String>) -> HashMap<String, u64> {
    let token_in = |lease: &String| {
        let shown = world.ok(world.git("server.git").args(["cat-file", "-p", lease]));
        shown.lines().find_map(|line| line.strip_prefix("Fence-Token: ")?.parse().ok())
    };
    leases.iter().filter_map(|lease| Some((lease.clone(), token_in(lease)?))).collect()
}

fn refs(world: &World) -> BTreeMap<String, String> {
    let listed = world.ok(world.git("server.git").args(["for-each-ref", "--format=%(refname) %(objectname)"]));
    listed.lines().filter_map(|line| line.split_once(' ')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

/// The number of the push that a ref update belongs to: by its commit, or by the name of the deleted ref.
fn push_of(commits: &BTreeMap<String, u64>, name: &str, new: &str) -> Option<u64> {
    match name.strip_prefix("refs/heads/gone/") {
        Some(id) => id.parse().ok(),
        None => commits.get(new).copied(),
    }
}

/// Reads everything.
pub(crate) fn read(field: &Field<'_>, has_log: bool) -> History {
    let world = field.world;
    let commits = field.commits.lock().unwrap();
    let transactions = transactions(world);
    let were = moved(&transactions, &refs(world));
    let is_moved = |planned: &&Planned| were.contains(&(planned.name.clone(), planned.new.clone()));

    let leases = transactions.iter().flat_map(|t| &t.planned).filter(|planned| planned.name == LEASE);
    let leases: HashSet<String> =
        leases.flat_map(|p| [p.old.clone(), p.new.clone()]).filter(|v| !v.is_empty()).collect();
    let lease_tokens = tokens_of(world, &leases);

    let raw_tokens = field.tokens.lock().unwrap();
    let mut moves: Vec<Move> = Vec::new();
    let (mut lease, mut lease_moves) = (Vec::new(), BTreeSet::new());
    for (at, transaction) in transactions.iter().enumerate().filter(|(_, transaction)| !transaction.is_reset) {
        for planned in transaction.planned.iter().filter(is_moved) {
            if planned.name == LEASE {
                lease.extend(lease_tokens.get(&planned.new));
                let with = transaction.planned.iter().find_map(|with| push_of(&commits, &with.name, &with.new));
                lease_moves.extend(with.map(|push| (push, "leased".to_owned())));
                continue;
            }
            let Some(push) = push_of(&commits, &planned.name, &planned.new) else { continue };
            let is_leased = planned.name.starts_with("refs/heads/leased/");
            // Under a lease the token is the one that this transaction found in the lease.
            let held = transaction.planned.iter().find(|with| with.name == LEASE);
            let token = match is_leased {
                true => held.and_then(|held| lease_tokens.get(&held.old)).copied().unwrap_or(0),
                false => raw_tokens[&push],
            };
            // One update may be announced more than once, and be retried: the last one was made.
            moves.retain(|m| m.push != push || m.name != planned.name);
            moves.push(Move {
                push,
                fence: if is_leased { "leased" } else { "repo" }.to_owned(),
                token,
                name: planned.name.clone(),
                old: planned.old.clone(),
                new: planned.new.clone(),
                at,
                seen: transaction.seen.clone(),
                is_watched: !planned.name.starts_with("refs/heads/gone/"),
            });
        }
    }
    let mut pushes = field.pushes.lock().unwrap().clone();
    pushes.sort_by_key(|push| push.id);
    let log = has_log.then(|| read_log(world, &commits));
    let resets = transactions.iter().filter(|transaction| transaction.is_reset).flat_map(|t| &t.planned);
    let resets = resets.filter(|planned| planned.old != planned.new);
    let resets = resets.map(|Planned { name, old, .. }| Reset { name: name.clone(), from: old.clone() }).collect();
    let (first_seen, marks) = (first_seen(&transactions), [("repo".to_owned(), mark(world, has_log))].into());
    History { pushes, moves, lease_moves, first_seen, resets, log, marks, lease }
}

/// The values that pushes have set according to the log so far. A line that is being written is left out.
pub(crate) fn landed_on_record(world: &World) -> HashSet<String> {
    let log = fs::read_to_string(world.fence_file("audit.jsonl")).unwrap_or_default();
    let lines: Vec<serde_json::Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |event: &'static str| lines.iter().filter(move |line| line["event"] == event);
    let landed = of("push.settled").chain(of("push.landed")).filter(|line| line["moved"].as_u64() > Some(0));
    let landed: HashSet<u64> = landed.filter_map(|line| line["push"].as_u64()).collect();
    let pushes = of("push.accepted").filter(|line| line["push"].as_u64().is_some_and(|push| landed.contains(&push)));
    pushes.flat_map(planned_in).map(|planned| planned.new).filter(|new| !new.is_empty()).collect()
}

/// The refs of a line, with the values that the gate read.
fn planned_in(line: &serde_json::Value) -> Vec<Planned> {
    let refs = line["refs"].as_array().into_iter().flatten();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let planned = |one: &serde_json::Value| Planned {
        name: text(&one["name"]),
        old: id(&text(&one["old"])),
        new: id(&text(&one["new"])),
    };
    refs.map(planned).collect()
}

fn mark(world: &World, has_log: bool) -> u64 {
    if has_log {
        return world.mark();
    }
    let kept = fs::read_to_string(world.server().join("naive.mark")).unwrap_or_default();
    kept.trim().parse().unwrap_or(0)
}

fn read_log(world: &World, commits: &BTreeMap<String, u64>) -> (Vec<Decision>, Vec<Settled>) {
    let (mut decisions, mut settled) = (Vec::new(), Vec::new());
    for line in world.audit() {
        let number = |field: &str| line[field].as_u64().unwrap_or(0);
        let planned = planned_in(&line);
        let asked = planned.iter().find_map(|one| push_of(commits, &one.name, &one.new));
        match (line["event"].as_str(), asked) {
            (Some("push.accepted"), Some(push)) => {
                decisions.push(Decision { seq: number("seq"), push, code: None, planned });
            }
            (Some("push.rejected"), Some(push)) => {
                let code = line["code"].as_str().map(str::to_owned);
                decisions.push(Decision { seq: number("seq"), push, code, planned });
            }
            (Some(event @ ("push.settled" | "push.landed")), _) => {
                let spent = line["spent"].as_array().into_iter().flatten().filter_map(|fence| fence.as_str());
                let spent = spent.map(str::to_owned).collect();
                settled.push(Settled {
                    accepted: number("push"),
                    token: number("token"),
                    moved: number("moved") as usize,
                    spent,
                    is_end: event == "push.settled",
                    is_reported: line["evidence"] == "reported",
                });
            }
            _ => {}
        }
    }
    (decisions, settled)
}
