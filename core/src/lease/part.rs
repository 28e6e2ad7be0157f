//! The refs of a lease.

use crate::{FenceName, RefName};

/// What a ref below `refs/fence/` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasePart {
    /// `refs/fence/<name>/lease`: the owner and the token.
    Lease,
    /// `refs/fence/<name>/beat`: the heartbeat.
    Beat,
    /// `refs/fence/<name>/lease/ask`: a ref that cannot exist beside the lease. A push to it asks whether the
    /// lease is free and changes nothing, with or without a gate.
    Ask,
    /// `refs/fence/<name>/mark`: the last write, where the lease is kept elsewhere or the tokens are the pusher's own.
    Mark,
}

impl LeasePart {
    /// The ref of this part of the lease of `fence`.
    pub fn of(self, fence: &FenceName) -> RefName {
        let part = match self {
            LeasePart::Lease => "lease",
            LeasePart::Beat => "beat",
            LeasePart::Ask => "lease/ask",
            LeasePart::Mark => "mark",
        };
        RefName::new(format!("refs/fence/{}/{part}", fence.component()))
    }

    /// The fence whose lease `name` belongs to, and which part of it `name` is.
    pub fn in_name(name: &RefName) -> Option<(FenceName, LeasePart)> {
        let rest = name.as_bytes().strip_prefix(b"refs/fence/")?;
        let slash = rest.iter().position(|b| *b == b'/')?;
        let part = match &rest[slash + 1..] {
            b"lease" => LeasePart::Lease,
            b"beat" => LeasePart::Beat,
            b"lease/ask" => LeasePart::Ask,
            b"mark" => LeasePart::Mark,
            _ => return None,
        };
        Some((FenceName::in_component(&rest[..slash])?, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_of_a_lease_are_recognized_by_name() {
        for part in [LeasePart::Lease, LeasePart::Beat, LeasePart::Ask, LeasePart::Mark] {
            let name = part.of(&FenceName::repo());
            assert_eq!(LeasePart::in_name(&name), Some((FenceName::repo(), part)));
            let member = FenceName::read(b"branch/feature/X").unwrap();
            assert_eq!(LeasePart::in_name(&part.of(&member)), Some((member, part)));
        }
        for name in
            ["refs/fence/repo", "refs/fence/repo/x", "refs/fence/a/b/lease", "refs/fence/A/lease", "refs/heads/x"]
        {
            assert_eq!(LeasePart::in_name(&RefName::new(name)), None, "{name}");
        }
    }
}
