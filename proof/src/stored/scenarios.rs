//! What the runs do, and what may go wrong meanwhile.

use super::{Op, promises::Sight};
use Op::{Acquire, Halt, Push, Release, Resume, Revoke};

/// Runs, and what may go wrong.
#[derive(Debug, Clone)]
pub struct StoredScenario {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The operations of each run, in order.
    pub programs: Vec<Vec<Op>>,
    /// How many replies are lost.
    pub lost: u8,
    /// How often the store forgets or rolls back.
    pub rollbacks: u8,
    /// How often the liar pushes.
    pub lies: u8,
    /// What must be reachable, if enough goes wrong.
    pub sees: Vec<Sight>,
}

impl StoredScenario {
    /// Whether this must be reachable.
    pub fn must_see(&self, sight: Sight) -> bool {
        let is_possible = match sight {
            Sight::Landed | Sight::NeverLanded => self.lost > 0,
            Sight::WritesAfterRollback => self.rollbacks > 0,
            Sight::LieRefused => self.lies > 0,
            Sight::Takeover | Sight::StaleRefused | Sight::Revoked | Sight::Halted | Sight::WritesAfterHalt => true,
        };
        is_possible && self.sees.contains(&sight)
    }
}

/// All scenarios for a remote without a gate.
pub fn stored_scenarios() -> Vec<StoredScenario> {
    vec![
        scenario(
            "takeover",
            "a holder is overtaken between its pushes, and the store rolls back twice",
            &[&[Acquire, Push, Push, Push], &[Acquire, Push, Push]],
            (1, 2),
        ),
        scenario(
            "revoked",
            "a lease is revoked, and taken by another run",
            &[&[Acquire, Push, Push], &[Revoke], &[Acquire, Push]],
            (1, 1),
        ),
        scenario(
            "halted",
            "the fence is halted, resumed, and taken by another run",
            &[&[Acquire, Push, Push], &[Halt, Resume], &[Acquire, Push]],
            (1, 1),
        ),
        scenario(
            "released",
            "a lease is released and taken again, and the store rolls back twice",
            &[&[Acquire, Release, Acquire, Push], &[Acquire, Push, Push]],
            (1, 2),
        ),
        scenario(
            "three runs",
            "one takes over from the other, and the store rolls back twice",
            &[&[Acquire, Push, Push], &[Acquire, Push], &[Acquire, Push]],
            (0, 2),
        ),
        scenario(
            "memory",
            "the store forgets nothing, and two replies are lost",
            &[&[Acquire, Push, Push, Release], &[Acquire, Push, Push]],
            (2, 0),
        ),
    ]
}

/// All scenarios for a remote with a gate that asks the store.
pub fn asking_scenarios() -> Vec<StoredScenario> {
    vec![
        StoredScenario {
            lies: 1,
            ..scenario(
                "takeover",
                "a holder is overtaken between its pushes, and somebody lies",
                &[&[Acquire, Push, Push], &[Acquire, Push]],
                (1, 1),
            )
        },
        scenario(
            "revoked",
            "a lease is revoked, and taken by another run",
            &[&[Acquire, Push, Push], &[Revoke], &[Acquire, Push]],
            (0, 1),
        ),
        scenario(
            "halted",
            "the fence is halted, resumed, and taken by another run",
            &[&[Acquire, Push, Push], &[Halt, Resume], &[Acquire, Push]],
            (0, 1),
        ),
        scenario(
            "released",
            "a lease is released and taken again, and the store rolls back twice",
            &[&[Acquire, Release, Acquire, Push], &[Acquire, Push]],
            (0, 2),
        ),
        scenario(
            "three runs",
            "one takes over from the other, and the store rolls back twice",
            &[&[Acquire, Push], &[Acquire, Push], &[Acquire, Push]],
            (0, 2),
        ),
        StoredScenario {
            lies: 1,
            ..scenario(
                "memory",
                "the store forgets nothing, a reply is lost, and somebody lies",
                &[&[Acquire, Push, Push, Release], &[Acquire, Push]],
                (1, 0),
            )
        },
    ]
}

/// All scenarios for a remote with a gate that does not know the store.
pub fn unasking_scenarios() -> Vec<StoredScenario> {
    vec![
        scenario(
            "takeover",
            "a holder is overtaken between its pushes, and the store rolls back twice",
            &[&[Acquire, Push, Push], &[Acquire, Push]],
            (1, 2),
        ),
        scenario(
            "revoked",
            "a lease is revoked, and taken by another run",
            &[&[Acquire, Push, Push], &[Revoke], &[Acquire, Push]],
            (0, 1),
        ),
        scenario(
            "halted",
            "the fence is halted, resumed, and taken by another run",
            &[&[Acquire, Push, Push], &[Halt, Resume], &[Acquire, Push]],
            (0, 1),
        ),
        scenario(
            "three runs",
            "one takes over from the other, and the store rolls back",
            &[&[Acquire, Push], &[Acquire, Push], &[Acquire, Push]],
            (0, 1),
        ),
    ]
}

pub(super) fn scenario(
    name: &'static str,
    about: &'static str,
    programs: &[&[Op]],
    (lost, rollbacks): (u8, u8),
) -> StoredScenario {
    let does = |op: Op| programs.iter().any(|program| program.contains(&op));
    let sees = [
        (Sight::Takeover, true),
        (Sight::StaleRefused, true),
        (Sight::Landed, true),
        (Sight::NeverLanded, true),
        (Sight::Revoked, does(Revoke)),
        (Sight::Halted, does(Halt)),
        (Sight::WritesAfterHalt, does(Resume)),
        (Sight::WritesAfterRollback, true),
        (Sight::LieRefused, true),
    ];
    StoredScenario {
        name,
        about,
        programs: programs.iter().map(|program| program.to_vec()).collect(),
        lost,
        rollbacks,
        lies: 0,
        sees: sees.into_iter().filter(|(_, is_due)| *is_due).map(|(sight, _)| sight).collect(),
    }
}
