//! Observe mode: which refusals of a push are enforced.
//!
//! The gate always decides as if every fence enforced. Whether the result refuses the push or is only recorded is
//! decided here and nowhere else.

use crate::{Claim, Decision, FenceName, Mode, Reject, Rules};

/// What a push is refused for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground<'a> {
    /// The push as a whole: it cannot be read, or the gate cannot work.
    Push,
    /// What it does to the refs that this fence guards.
    Refs(&'a FenceName),
    /// The slot of this fence: the push waited for it too long.
    Slot(&'a FenceName),
    /// What it does to a lease.
    Lease,
}

/// Which of the fences and leases that a push touches are enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforcement {
    /// The enforcing fences.
    fences: Vec<FenceName>,
    /// Whether the push touches leases, which are judged in every mode.
    leases: bool,
}

impl Enforcement {
    /// For a push that touches `fences`; `leases` says whether it also touches leases.
    pub fn of<'a>(fences: impl IntoIterator<Item = &'a Rules>, leases: bool) -> Enforcement {
        let enforcing = fences.into_iter().filter(|rules| rules.mode == Mode::Enforce);
        Enforcement { fences: enforcing.map(|rules| rules.fence.clone()).collect(), leases }
    }

    /// For a push with these claims.
    pub(crate) fn of_claims(claims: &[Claim<'_>]) -> Enforcement {
        Enforcement::of(claims.iter().map(|claim| claim.rules), claims.iter().any(|claim| claim.lease.is_some()))
    }

    /// Whether a refusal on this ground is enforced. If not, the push is admitted and the refusal recorded.
    pub fn upholds(&self, ground: Ground<'_>) -> bool {
        match ground {
            // A lease that two can hold protects nothing, so it is judged in observe mode too.
            Ground::Lease => true,
            Ground::Refs(fence) => self.fences.contains(fence),
            // A change of a lease can only be judged while no other push may be moving it.
            Ground::Slot(fence) => self.fences.contains(fence) || self.leases,
            Ground::Push => !self.fences.is_empty() || self.leases,
        }
    }

    /// What to do with a push that stops waiting for the slot of `fence`; `reject` says why it stops.
    pub fn after_waiting(&self, fence: &FenceName, reject: Reject) -> Decision {
        if self.upholds(Ground::Slot(fence)) {
            Decision::Refuse(reject)
        } else {
            Decision::Admit { overruled: Some(reject), leases: Vec::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforced_refusals_in_each_mode_as_a_table() {
        let fence = |name: &str| FenceName::parse(name.as_bytes()).unwrap();
        let rules = |name: &str, mode| Rules { fence: fence(name), mode, ..Rules::for_repo() };
        let (strict, watch) = (fence("strict"), fence("watch"));
        let both = [rules("strict", Mode::Enforce), rules("watch", Mode::Observe)];
        for (fences, leases, [push, of_strict, of_watch, slot_of_watch]) in [
            (&both[..], false, [true, true, false, false]),
            (&both[..], true, [true, true, false, true]),
            (&both[1..], false, [false, false, false, false]),
            (&both[1..], true, [true, false, false, true]),
        ] {
            let enforcement = Enforcement::of(fences, leases);
            for (ground, stands) in [
                (Ground::Push, push),
                (Ground::Refs(&strict), of_strict),
                (Ground::Slot(&strict), of_strict || leases),
                (Ground::Refs(&watch), of_watch),
                (Ground::Slot(&watch), slot_of_watch),
                (Ground::Lease, true),
            ] {
                assert_eq!(enforcement.upholds(ground), stands, "{ground:?} of {enforcement:?}");
            }
        }
    }
}
