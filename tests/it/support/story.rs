//! What happened to the refs of a server, told by git itself: the order in which they moved.

use super::World;
use std::fs;

/// Makes the server write down every ref update as git begins it, in a file of its own.
///
/// `prepared` is called with the refs locked, right before they move. A push that the gate let
/// through only after another one had moved its refs cannot be prepared before that other one.
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
    // With reftables and in newer gits one update may be announced more than once.
    tokens.dedup();
    tokens
}

/// Whether a token moved a ref after one at or above it had.
pub(crate) fn has_gone_back(tokens: &[u64]) -> bool {
    tokens.windows(2).any(|two| two[0] >= two[1])
}
