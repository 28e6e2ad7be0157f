//! The order in which the refs of a server moved, as git reports it.

use super::World;
use std::fs;

/// Makes the server record every ref update at its start, in a separate file.
///
/// `prepared` is called with the refs locked, right before they move. A push that the gate
/// admitted only after another one had moved its refs cannot be prepared before that other one.
pub(crate) fn listen(world: &World) {
    world.write_hook(
        "reference-transaction",
        "[ \"$1\" = prepared ] || exit 0\nwhile read -r old new ref; do echo \"$ref\" >>moves; done",
    );
}

/// The tokens of the branches `t<token>` in the order in which they moved.
pub(crate) fn tokens_moved(world: &World) -> Vec<u64> {
    let moves = fs::read_to_string(world.server().join("moves")).unwrap_or_default();
    let mut tokens: Vec<u64> =
        moves.lines().filter_map(|name| name.strip_prefix("refs/heads/t")?.parse().ok()).collect();
    // With reftable and in newer versions of git, one update may be announced more than once.
    tokens.dedup();
    tokens
}

/// Whether a token moved a ref after a token at or above it had.
pub(crate) fn has_gone_back(tokens: &[u64]) -> bool {
    tokens.windows(2).any(|two| two[0] >= two[1])
}
