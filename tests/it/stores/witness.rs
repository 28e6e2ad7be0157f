//! What must hold in every remote whose leases are in a store: each push moves the mark with its refs, and the tokens with
//! which refs move only grow, in the order of the marks.

use crate::support::World;
use std::{collections::HashMap, fs};

/// Makes the server record each transaction of refs, and then run `more`.
pub(crate) fn watch(world: &World, more: &str) {
    let script = format!("if [ \"$1\" = committed ]; then all=$(cat); printf '%s\\n\\n' \"$all\" >>moves; fi\n{more}");
    world.write_hook("reference-transaction", &script);
}

/// A mark in the remote.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) token: u64,
    pub(crate) owner: String,
    /// Who wrote it: lease and first token, empty if nobody did.
    pub(crate) by: String,
    /// The branches that moved with it.
    pub(crate) branches: Vec<String>,
}

/// All marks, the oldest first: the order in which pushes moved refs.
pub(crate) fn marks(world: &World) -> Vec<Mark> {
    let trailer = |key: &str| format!("%(trailers:key=Fence-{key},valueonly,separator=)");
    let format =
        format!("--format=%H|{}|{}|{}{}", trailer("Mark"), trailer("Owner"), trailer("Lease"), trailer("First"));
    let log = world.ok(world.git("server.git").args(["log", "--reverse", &format, "refs/fence/repo/mark"]));
    let moved = moved(world);
    let mark = |line: &str| {
        let [commit, token, owner, by] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let branches = moved.get(commit).cloned().unwrap_or_default();
        Mark { token: token.parse().unwrap(), owner: owner.to_owned(), by: by.to_owned(), branches }
    };
    log.lines().map(mark).collect()
}

/// The tokens with which branches have moved, in that order.
pub(crate) fn tokens(world: &World) -> Vec<u64> {
    marks(world).iter().filter(|mark| !mark.branches.is_empty()).map(|mark| mark.token).collect()
}

/// Which branches moved with each mark.
#[track_caller]
fn moved(world: &World) -> HashMap<String, Vec<String>> {
    let all = fs::read_to_string(world.server().join("moves")).unwrap_or_default();
    let mut moved: HashMap<String, Vec<String>> = HashMap::new();
    for transaction in all.split("\n\n").filter(|transaction| !transaction.trim().is_empty()) {
        let updates: Vec<Vec<&str>> = transaction.lines().map(|line| line.split(' ').collect()).collect();
        let of =
            |prefix: &str| updates.iter().filter(|update| update[2].starts_with(prefix)).cloned().collect::<Vec<_>>();
        let branches = of("refs/heads/");
        if branches.is_empty() {
            continue;
        }
        let [mark] = &of("refs/fence/repo/mark")[..] else { panic!("moved without a mark: {transaction}") };
        moved.entry(mark[1].to_owned()).or_default().extend(branches.iter().map(|update| update[2].to_owned()));
    }
    moved
}

/// Every push was fenced, and refs moved in the order of their tokens. `more` says what to expect of the tokens.
#[track_caller]
pub(crate) fn assert_fenced(world: &World) {
    let tokens = tokens(world);
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "refs moved out of order: {tokens:?}");
    let marks = marks(world);
    assert!(marks.windows(2).all(|two| two[0].token <= two[1].token), "the mark went back: {marks:?}");
    let of_marks: usize = marks.iter().map(|mark| mark.branches.len()).sum();
    let of_moves: usize = moved(world).values().map(Vec::len).sum();
    assert_eq!(of_marks, of_moves, "a push moved refs beside the history of marks: {marks:?}");
}
