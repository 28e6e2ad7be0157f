//! What became of a push that is over.

use crate::{FenceName, InFlight, ObjectId, PlannedRef};
use serde::{Deserialize, Serialize};

/// How a push is known to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Every planned ref shows its new value: nothing is left to move.
    RefsMoved,
    /// Its receive-pack is gone.
    ReceivePackGone,
    /// The machine it ran on has been booted since.
    Rebooted,
    /// It cannot be seen from here, and `fence.wait` has passed (the bounded form).
    TimePassed,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The fences of which a ref moved, in the order of the push's stakes.
    pub spent: Vec<FenceName>,
    /// How many refs moved.
    pub moved: usize,
}

/// Compares what the refs were when the push was let through with what they are now (`seen`, in the
/// order of `plan`). A token is spent where one of its fence's refs differs, and only there.
///
/// Only for pushes that are over, and with the lock held: while the push is in its slot nobody else
/// moves these refs, so a difference is its doing.
pub fn settle(flight: &InFlight, plan: &[PlannedRef], seen: &[Option<ObjectId>]) -> Settlement {
    let moved: Vec<&PlannedRef> =
        plan.iter().zip(seen).filter(|(planned, now)| planned.old != **now).map(|(planned, _)| planned).collect();
    let spent = |fence: &&FenceName| moved.iter().any(|planned| planned.fence == **fence);
    Settlement {
        spent: flight.stakes.iter().map(|stake| &stake.fence).filter(spent).cloned().collect(),
        moved: moved.len(),
    }
}

/// Whether the refs alone say that the push is over: each shows its new value.
///
/// A ref that was at its new value from the start says nothing. It may have been named with a lie
/// about its old value, and the push that looks finished could still delete or create it later.
/// With such a ref in the plan only the end of the receive-pack counts.
///
/// `seen` may be lazy: the first ref that has not moved ends the question.
pub fn refs_say_over<E>(
    plan: &[PlannedRef],
    mut seen: impl FnMut(&PlannedRef) -> Result<Option<ObjectId>, E>,
) -> Result<bool, E> {
    if plan.iter().any(|planned| planned.old == planned.new) {
        return Ok(false);
    }
    for planned in plan {
        if seen(planned)? != planned.new {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RefName, flight::tests::*};
    use std::convert::Infallible;

    fn values(fills: &str) -> Vec<Option<ObjectId>> {
        fills.chars().map(|fill| oid(&fill.to_string())).collect()
    }

    fn over(flight: &InFlight, fills: &str) -> bool {
        let mut seen = values(fills).into_iter();
        refs_say_over(&flight.plan.refs, |_| Ok::<_, Infallible>(seen.next().unwrap())).unwrap()
    }

    #[test]
    fn a_token_is_spent_when_a_ref_moved_and_only_then() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "c")]);
        for (seen, moved) in [("a0", 0), ("b0", 1), ("ac", 1), ("bc", 2)] {
            let settlement = settle(&flight, &flight.plan.refs, &values(seen));
            assert_eq!(settlement.moved, moved, "{seen}");
            assert_eq!(settlement.spent.is_empty(), moved == 0, "{seen}");
        }
    }

    #[test]
    fn each_fence_is_spent_by_its_own_refs() {
        let deploy = FenceName::parse(b"deploy").unwrap();
        let mut flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/d", "a", "b")]);
        flight.plan.refs[1].fence = deploy.clone();
        flight.stakes.push(crate::Stake { fence: deploy.clone(), ..flight.stakes[0].clone() });
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ab")).spent, [deploy]);
        assert_eq!(settle(&flight, &flight.plan.refs, &values("ba")).spent, [FenceName::repo()]);
    }

    #[test]
    fn over_means_that_every_ref_shows_its_new_value() {
        let flight = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "c", "0")]);
        assert!(over(&flight, "b0"));
        assert!(!over(&flight, "bc"));
        assert!(!over(&flight, "a0"));
        assert!(!over(&flight, "d0"));
    }

    /// `0 -> current tip`: were it called over, its slot would be free, the next push could delete
    /// the ref, and the liar, still alive, could then create it with the older token.
    #[test]
    fn a_ref_that_had_its_new_value_from_the_start_says_nothing() {
        let liar = in_flight(1, Some(5), &[("refs/heads/a", "a", "a")]);
        assert!(!over(&liar, "a"));
        let half = in_flight(1, Some(5), &[("refs/heads/a", "a", "b"), ("refs/heads/b", "0", "0")]);
        assert!(!over(&half, "b0"));
        assert_eq!(settle(&liar, &liar.plan.refs, &values("a")).moved, 0);
    }

    #[test]
    fn the_question_ends_at_the_first_ref_that_has_not_moved() {
        let flight = in_flight(1, None, &[("refs/heads/a", "a", "b"), ("refs/heads/b", "a", "b")]);
        let mut asked = Vec::new();
        let over = refs_say_over(&flight.plan.refs, |planned| {
            asked.push(planned.name.clone());
            Ok::<_, Infallible>(planned.old.clone())
        });
        assert_eq!((over.unwrap(), asked), (false, vec![RefName::new("refs/heads/a")]));
    }
}
