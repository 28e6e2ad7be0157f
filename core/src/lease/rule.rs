//! The rule for leases: which moves of a fence's lease are allowed, and to whom.
//!
//! A lease lives in two refs of the repository. Whoever pushes to them proposes the next record, and
//! [`judge_lease`] says what that would be: a grant, an advance, a release, a renewal, or nothing
//! that is allowed. Where no gate judges, git's own compare-and-swap on these refs still decides who
//! comes first; the rule adds the server's clock, the holder's proof, and that the counter never
//! goes back.
//!
//! A proof is of one use. Each record has the hash of what the next move must show, and that move shows it in its own
//! record: what was refused is not published, and what landed is used up. Lease and beat have a chain each.

use crate::{
    Accept, Beat, FenceName, Format, HeldBy, Holder, Lease, LeaseState, Mark, ObjectId, Reason, RefName, Reject, Rules,
    Secret, Stamp, Token, TokenKind, text,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a ref below `refs/fence/` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasePart {
    /// `refs/fence/<name>/lease`: who owns it.
    Lease,
    /// `refs/fence/<name>/beat`: the heartbeat.
    Beat,
    /// `refs/fence/<name>/lease/ask`: a ref that cannot be where the lease is. To push to it is to
    /// ask whether the lease is free, and changes nothing, with a gate or without.
    Ask,
}

impl LeasePart {
    /// The ref of this part of the lease of `fence`.
    pub fn of(self, fence: &FenceName) -> RefName {
        let part = match self {
            LeasePart::Lease => "lease",
            LeasePart::Beat => "beat",
            LeasePart::Ask => "lease/ask",
        };
        RefName::new(format!("refs/fence/{fence}/{part}"))
    }

    /// Which fence's lease `name` is part of, and which part.
    pub fn in_name(name: &RefName) -> Option<(FenceName, LeasePart)> {
        let rest = name.as_bytes().strip_prefix(b"refs/fence/")?;
        let slash = rest.iter().position(|b| *b == b'/')?;
        let part = match &rest[slash + 1..] {
            b"lease" => LeasePart::Lease,
            b"beat" => LeasePart::Beat,
            b"lease/ask" => LeasePart::Ask,
            _ => return None,
        };
        Some((FenceName::parse(&rest[..slash]).ok()?, part))
    }
}

/// A lease as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The commit that its ref is at; none where somebody has removed the ref on the server. The
    /// counter goes on all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<ObjectId>,
    /// The commit of the ownership before.
    pub parent: Option<ObjectId>,
    /// The record.
    #[serde(flatten)]
    pub lease: Lease,
    /// When this ownership began.
    pub since: Stamp,
    /// When the holder was last heard of.
    pub heard: Stamp,
    /// What it said of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The hash of what its next heartbeat must show, by the last that was heard. Where the beat's ref shows one of
    /// this ownership, that one counts: the last may not have landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<Holder>,
}

impl Standing {
    /// Whether its record says that somebody has it, alive or not.
    pub fn is_held(&self) -> bool {
        self.lease.state == LeaseState::Held
    }

    /// How much longer the lease is its owner's at `now`; nothing where it is released or expired.
    pub fn left_at(&self, now: &Stamp) -> Option<Duration> {
        let left = self.lease.ttl.duration().checked_sub(self.heard.age_at(now))?;
        (self.is_held() && !left.is_zero()).then_some(left)
    }
}

/// The record that a push wants the lease's ref to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its commit.
    pub commit: ObjectId,
    /// That commit's parents.
    pub parents: Vec<ObjectId>,
    /// The record.
    pub lease: Lease,
    /// The proof that it shows.
    pub proof: Option<Secret>,
}

/// What a push asks of one fence's lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseAsk {
    /// What the lease's ref is to show.
    pub lease: Option<Proposal>,
    /// What the beat's ref is to show.
    pub beat: Option<Beat>,
    /// The proof that it shows.
    pub beat_proof: Option<Secret>,
    /// What the beat's ref shows now. Git moves it from there and from nowhere else.
    pub beat_now: Option<Beat>,
    /// Whether it only asks if the lease is free.
    pub only_asks: bool,
    /// The secret in a push option: the proof of a holder in [`Format::OneSecret`].
    pub secret: Option<Secret>,
    /// Whether the pusher may take a lease away from its holder.
    pub may_revoke: bool,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseMove {
    /// It goes to a new owner.
    Grant,
    /// Its owner goes on to the next token.
    Advance,
    /// Its owner gives it back.
    Release,
    /// It is taken away from its owner.
    Revoke,
    /// Its owner is alive.
    Renew,
}

/// A move that was allowed, and how the lease stands after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseChange {
    /// The fence.
    pub fence: FenceName,
    /// The move.
    pub change: LeaseMove,
    /// How the lease stands when it has landed.
    #[serde(flatten)]
    pub standing: Standing,
    /// The fence's mark is at least this when it has landed.
    pub raises_to: Mark,
}

impl Accept {
    /// The mark that leaves `token` to its holder and keeps everybody before it out.
    pub fn mark_before(self, token: Token) -> Mark {
        match self {
            Accept::AtOrAbove => token.into(),
            Accept::Above => Mark::at(token.get() - 1).unwrap_or_default(),
        }
    }
}

/// The token of the next grant: above every one that was granted and every one that has written.
pub fn next_token(last: Option<Token>, mark: Mark) -> Option<Token> {
    Token::try_from(last.map_or(0, Token::get).max(mark.get()).checked_add(1)?).ok()
}

/// Judges what a push asks of the lease of the fence with these `rules`, where it stands as `current`
/// at `now`. Pure: the same lease, the same question and the same moment always have the same answer.
pub fn judge_lease(
    rules: &Rules,
    current: Option<&Standing>,
    mark: Mark,
    asked: &LeaseAsk,
    now: &Stamp,
) -> Result<LeaseChange, Reject> {
    let judge = Judge { rules, current, mark, asked, now };
    match (&asked.lease, current) {
        _ if asked.only_asks => Err(judge.answer()),
        (None, _) => judge.renewal(),
        (Some(proposal), Some(current)) if proposal.lease.id == current.lease.id => judge.next_step(proposal, current),
        (Some(proposal), _) => judge.new_ownership(proposal),
    }
}

struct Judge<'a> {
    rules: &'a Rules,
    current: Option<&'a Standing>,
    mark: Mark,
    asked: &'a LeaseAsk,
    now: &'a Stamp,
}

impl Judge<'_> {
    /// Whoever only asks gets nothing, and hears why.
    fn answer(&self) -> Reject {
        self.held_by_another().unwrap_or_else(|| self.invalid("the lease is free: take it,  git fence acquire"))
    }

    /// A sign of life: from the holder of the lease, as long as nobody else has it. It may come late.
    fn renewal(&self) -> Result<LeaseChange, Reject> {
        let Some(beat) = &self.asked.beat else { return Err(self.invalid("the push moves nothing of the lease")) };
        let current = self.current.filter(|current| current.lease.id == beat.lease).ok_or_else(|| self.lost())?;
        if current.lease.state == LeaseState::Released {
            return Err(self.lost());
        }
        self.is_of_its_format(beat, current)?;
        match &beat.holder {
            None => self.has_the_secret(current)?,
            Some(next) => {
                let before = self.asked.beat_now.as_ref().filter(|before| before.lease == current.lease.id);
                let expected = before.and_then(|before| before.holder.as_ref()).or(current.beat.as_ref());
                self.shows(self.asked.beat_proof.as_ref(), expected, next)?;
            }
        }
        let standing = Standing {
            heard: self.now.clone(),
            progress: beat.progress.clone(),
            beat: beat.holder.clone(),
            ..current.clone()
        };
        Ok(self.change(LeaseMove::Renew, standing))
    }

    /// The holder goes on to the next token, or gives the lease back.
    fn next_step(&self, proposal: &Proposal, current: &Standing) -> Result<LeaseChange, Reject> {
        if current.lease.state == LeaseState::Released {
            return Err(self.lost());
        }
        match current.lease.format {
            Format::OneSecret => self.has_the_secret(current)?,
            Format::OneUse => {
                self.shows(proposal.proof.as_ref(), Some(&current.lease.holder), &proposal.lease.holder)?;
            }
        }
        let change = match proposal.lease.state {
            LeaseState::Held => LeaseMove::Advance,
            LeaseState::Released => LeaseMove::Release,
        };
        let token = match change {
            LeaseMove::Advance => next_token(Some(current.lease.token), Mark::default()),
            _ => Some(current.lease.token),
        };
        let Lease { nonce, state, holder, .. } = proposal.lease.clone();
        let holder = if current.lease.format == Format::OneUse { holder } else { current.lease.holder.clone() };
        let expected = token.map(|token| Lease { token, nonce, state, holder, ..current.lease.clone() });
        if expected.as_ref() != Some(&proposal.lease) || !proposal.continues(current.parent.as_ref()) {
            return Err(self.invalid("an advance changes the token by one and a release the state, and nothing else"));
        }
        let beat = self.asked.beat.as_ref();
        if beat.is_some_and(|beat| beat.lease != current.lease.id) {
            return Err(self.invalid("lease and beat are of different ownerships"));
        }
        // The proof of the lease is good for a beat that moves with it.
        beat.map_or(Ok(()), |beat| self.is_of_its_format(beat, current))?;
        let standing = Standing {
            commit: Some(proposal.commit.clone()),
            lease: proposal.lease.clone(),
            heard: self.now.clone(),
            beat: beat.and_then(|beat| beat.holder.clone()).or_else(|| current.beat.clone()),
            ..current.clone()
        };
        Ok(self.change(change, standing))
    }

    /// Somebody else's turn: where the lease is free, or where it is taken away.
    fn new_ownership(&self, proposal: &Proposal) -> Result<LeaseChange, Reject> {
        if self.asked.secret.is_some() || proposal.proof.is_some() {
            // Who proves to be a holder speaks of a lease that it had.
            return Err(self.lost());
        }
        let revokes = proposal.lease.is_revocation();
        if revokes && !self.asked.may_revoke {
            return Err(self.invalid(
                "only the server's operator (git-fence-hook revoke) and the pushers in fence.allowRevoke take leases away",
            ));
        }
        if let Some(held) = self.held_by_another().filter(|_| !revokes) {
            return Err(held);
        }
        let commit = self.current.and_then(|current| current.commit.as_ref());
        if !proposal.continues(commit) {
            return Err(self.invalid("it does not continue the lease as it stands: read it again"));
        }
        let reason = match self.current {
            None => Reason::First,
            Some(_) if revokes => Reason::Revoked,
            // Whoever finds no ref cannot know that there was one.
            Some(Standing { commit: None, .. }) => Reason::First,
            Some(current) if current.lease.state == LeaseState::Released => Reason::Released,
            Some(_) => Reason::Expired,
        };
        let lease = &proposal.lease;
        if lease.reason != reason || (lease.state == LeaseState::Released) != revokes {
            return Err(
                self.invalid(format!("the lease is free because of '{}', and held from then on", reason.as_str()))
            );
        }
        let beat = self.asked.beat.as_ref().filter(|beat| beat.lease == lease.id);
        let beat = beat.ok_or_else(|| self.invalid("lease and beat must move together, for the same ownership"))?;
        if lease.format == Format::OneSecret || beat.holder.is_none() {
            return Err(self.invalid("its record is of format 1, whose secret others can read: update git-fence"));
        }
        if lease.ttl > self.rules.lease_max_ttl {
            return Err(self.invalid(format!(
                "a TTL of {} is longer than fence.leaseMaxTtl allows, {}",
                lease.ttl, self.rules.lease_max_ttl
            )));
        }
        let last = self.current.map(|current| current.lease.token);
        match next_token(last, self.mark) {
            Some(next) if lease.token == next => {}
            Some(next) if lease.token < next => {
                let mark = Accept::Above.mark_before(next);
                return Err(Reject::Stale {
                    fence: self.rules.fence.clone(),
                    token: lease.token,
                    mark,
                    kind: Some(TokenKind::Lease),
                });
            }
            Some(_) => return Err(self.invalid(format!("token {} is not the next one", lease.token))),
            None => return Err(self.invalid(format!("there is no token after {}, the last one", Token::MAX))),
        }
        let standing = Standing {
            commit: Some(proposal.commit.clone()),
            parent: commit.cloned(),
            lease: lease.clone(),
            since: self.now.clone(),
            heard: self.now.clone(),
            progress: beat.progress.clone(),
            beat: beat.holder.clone(),
        };
        Ok(self.change(if revokes { LeaseMove::Revoke } else { LeaseMove::Grant }, standing))
    }

    fn change(&self, change: LeaseMove, standing: Standing) -> LeaseChange {
        let fence = self.rules.fence.clone();
        let raises_to = match change {
            LeaseMove::Grant | LeaseMove::Advance | LeaseMove::Revoke => {
                self.rules.accept.mark_before(standing.lease.token)
            }
            LeaseMove::Release | LeaseMove::Renew => Mark::default(),
        };
        LeaseChange { fence, change, standing, raises_to }
    }

    fn held_by_another(&self) -> Option<Reject> {
        let current = self.current?;
        let left = current.left_at(self.now)?;
        let Lease { id: lease, owner, token, .. } = current.lease.clone();
        let by = HeldBy { owner, lease, token, left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX) };
        Some(Reject::LeaseHeld { fence: self.rules.fence.clone(), by: Box::new(by) })
    }

    /// The lease that the push speaks of is not its pusher's.
    fn lost(&self) -> Reject {
        let now = self.current.map(|current| match current.lease.state {
            LeaseState::Held => {
                format!("{} has it, with token {}", text::in_quotes(&current.lease.owner), current.lease.token)
            }
            LeaseState::Released => format!("{} had it last and gave it back", text::in_quotes(&current.lease.owner)),
        });
        let now = now.unwrap_or_else(|| "nobody has it".to_owned());
        Reject::LeaseLost { fence: self.rules.fence.clone(), now }
    }

    /// A holder of before proves itself by the push option.
    fn has_the_secret(&self, current: &Standing) -> Result<(), Reject> {
        match &self.asked.secret {
            Some(secret) if secret.holder() == current.lease.holder => Ok(()),
            Some(_) => Err(self.invalid("the push does not carry its holder's secret, but another")),
            None => Err(self.unproven("the push carries no holder's secret (fence-holder)")),
        }
    }

    /// The move shows what the record before it asked for, and asks for something else from the next.
    fn shows(&self, proof: Option<&Secret>, expected: Option<&Holder>, next: &Holder) -> Result<(), Reject> {
        let shown = proof.ok_or_else(|| self.unproven("its record shows no proof (Fence-Proof)"))?.holder();
        if expected != Some(&shown) {
            return Err(self.invalid("its record does not show the holder's proof, but another"));
        }
        if *next == shown {
            return Err(self.invalid("a proof is of one use: its record asks the next move for the one that it shows"));
        }
        Ok(())
    }

    fn is_of_its_format(&self, beat: &Beat, current: &Standing) -> Result<(), Reject> {
        match (current.lease.format, &beat.holder) {
            (Format::OneUse, Some(_)) | (Format::OneSecret, None) => Ok(()),
            _ => Err(self.invalid("lease and beat are of different formats")),
        }
    }

    fn unproven(&self, why: &str) -> Reject {
        Reject::LeaseRequired { fence: self.rules.fence.clone(), why: why.to_owned() }
    }

    fn invalid(&self, why: impl Into<String>) -> Reject {
        Reject::LeaseInvalid { fence: self.rules.fence.clone(), why: why.into() }
    }
}

impl Proposal {
    fn continues(&self, parent: Option<&ObjectId>) -> bool {
        self.parents.iter().eq(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Code,
        lease::record::tests::{beat, lease, of_before, proof, secret},
        log::flight::tests::oid,
        nonce_of,
    };

    fn at(seconds: u64) -> Stamp {
        Stamp { boot: "b".to_owned(), uptime_ms: seconds * 1000, unix_ms: seconds * 1000 }
    }

    fn standing(id: u8, token: u64, state: LeaseState) -> Standing {
        Standing {
            commit: oid("a"),
            parent: oid("9"),
            lease: lease(id, token, state),
            since: at(0),
            heard: at(0),
            progress: None,
            beat: None,
        }
    }

    fn proposal(lease: Lease, parent: &str) -> LeaseAsk {
        let beat = Some(Beat { lease: lease.id.clone(), ..beat(0) });
        let parents = oid(parent).into_iter().collect();
        let commit = oid("b").unwrap();
        LeaseAsk { lease: Some(Proposal { commit, parents, lease, proof: None }), beat, ..LeaseAsk::default() }
    }

    fn ruled(current: Option<&Standing>, mark: u64, asked: &LeaseAsk, now: u64) -> &'static str {
        let rules = Rules::for_repo();
        match judge_lease(&rules, current, Mark::at(mark).unwrap(), asked, &at(now)) {
            Ok(LeaseChange { change: LeaseMove::Grant, .. }) => "grant",
            Ok(LeaseChange { change: LeaseMove::Advance, .. }) => "advance",
            Ok(LeaseChange { change: LeaseMove::Release, .. }) => "release",
            Ok(LeaseChange { change: LeaseMove::Revoke, .. }) => "revoke",
            Ok(LeaseChange { change: LeaseMove::Renew, .. }) => "renew",
            Err(reject) => reject.code().as_str(),
        }
    }

    fn taking(token: u64, reason: Reason, parent: &str) -> LeaseAsk {
        proposal(Lease { reason, ..lease(2, token, LeaseState::Held) }, parent)
    }

    #[test]
    fn a_lease_is_granted_when_it_is_free_and_only_then() {
        let held = standing(1, 5, LeaseState::Held);
        let released = standing(1, 5, LeaseState::Released);
        for (current, mark, asked, now, expected) in [
            (None, 0, taking(1, Reason::First, "0"), 0, "grant"),
            (None, 41, taking(42, Reason::First, "0"), 0, "grant"),
            (None, 41, taking(41, Reason::First, "0"), 0, "FENCE-STALE"),
            (None, 0, taking(9, Reason::First, "0"), 0, "FENCE-LEASE-INVALID"),
            (None, 0, taking(1, Reason::Expired, "0"), 0, "FENCE-LEASE-INVALID"),
            (Some(&released), 4, taking(6, Reason::Released, "a"), 1, "grant"),
            (Some(&released), 4, taking(5, Reason::Released, "a"), 1, "FENCE-STALE"),
            (Some(&released), 4, taking(6, Reason::Expired, "a"), 1, "FENCE-LEASE-INVALID"),
            (Some(&released), 4, taking(6, Reason::Released, "9"), 1, "FENCE-LEASE-INVALID"),
            (Some(&held), 4, taking(6, Reason::Expired, "a"), 89, "FENCE-LEASE-HELD"),
            (Some(&held), 4, taking(6, Reason::Expired, "a"), 90, "grant"),
            (Some(&held), 4, taking(6, Reason::Released, "a"), 90, "FENCE-LEASE-INVALID"),
        ] {
            assert_eq!(ruled(current, mark, &asked, now), expected, "{asked:?} at {now}");
        }
        let mut alone = taking(6, Reason::Released, "a");
        alone.beat = None;
        assert_eq!(ruled(Some(&released), 4, &alone, 1), "FENCE-LEASE-INVALID");
        let mut long = taking(6, Reason::Released, "a");
        long.lease.as_mut().unwrap().lease.ttl = crate::Ttl::MAX;
        assert_eq!(ruled(Some(&released), 4, &long, 1), "FENCE-LEASE-INVALID");
    }

    /// Somebody has removed the ref on the server: whoever comes sees none, and begins at 1.
    #[test]
    fn where_the_ref_is_gone_the_counter_goes_on() {
        let gone = |state| Standing { commit: None, ..standing(1, 5, state) };
        let (held, released) = (gone(LeaseState::Held), gone(LeaseState::Released));
        for (current, mark, asked, now, expected) in [
            (&released, 4, taking(1, Reason::First, "0"), 1, "FENCE-STALE"),
            (&released, 4, taking(5, Reason::First, "0"), 1, "FENCE-STALE"),
            (&released, 4, taking(6, Reason::First, "0"), 1, "grant"),
            (&released, 9, taking(6, Reason::First, "0"), 1, "FENCE-STALE"),
            (&released, 9, taking(10, Reason::First, "0"), 1, "grant"),
            (&released, 4, taking(6, Reason::Released, "a"), 1, "FENCE-LEASE-INVALID"),
            (&held, 4, taking(6, Reason::First, "0"), 89, "FENCE-LEASE-HELD"),
            (&held, 4, taking(6, Reason::First, "0"), 90, "grant"),
        ] {
            assert_eq!(ruled(Some(current), mark, &asked, now), expected, "{asked:?} at {now}");
        }
        // With the ref there, the same would cut its history off.
        let there = standing(1, 5, LeaseState::Released);
        assert_eq!(ruled(Some(&there), 4, &taking(6, Reason::First, "0"), 1), "FENCE-LEASE-INVALID");
        let told = judge_lease(
            &Rules::for_repo(),
            Some(&released),
            Mark::at(4).unwrap(),
            &taking(1, Reason::First, "0"),
            &at(1),
        );
        assert!(matches!(told, Err(Reject::Stale { mark, .. }) if mark.get() == 5), "{told:?}");
    }

    #[test]
    fn only_the_holder_advances_and_releases_and_changes_nothing_else() {
        let held = standing(1, 5, LeaseState::Held);
        let with = |lease: Lease, proof| {
            let mut asked = proposal(lease, "9");
            asked.lease.as_mut().unwrap().proof = proof;
            asked
        };
        let next = |token, state| with(lease(1, token, state), Some(proof(1, 5)));
        for (asked, expected) in [
            (next(6, LeaseState::Held), "advance"),
            (next(5, LeaseState::Held), "FENCE-LEASE-INVALID"),
            (next(7, LeaseState::Held), "FENCE-LEASE-INVALID"),
            (next(5, LeaseState::Released), "release"),
            (next(6, LeaseState::Released), "FENCE-LEASE-INVALID"),
            (with(lease(1, 6, LeaseState::Held), None), "FENCE-LEASE-REQUIRED"),
            (with(lease(1, 6, LeaseState::Held), Some(proof(2, 5))), "FENCE-LEASE-INVALID"),
            // The one before, which everybody can read by now, and the master itself.
            (with(lease(1, 6, LeaseState::Held), Some(proof(1, 4))), "FENCE-LEASE-INVALID"),
            (with(lease(1, 6, LeaseState::Held), Some(secret(1))), "FENCE-LEASE-INVALID"),
            // As a push option, it is none.
            (
                LeaseAsk { secret: Some(proof(1, 5)), ..with(lease(1, 6, LeaseState::Held), None) },
                "FENCE-LEASE-REQUIRED",
            ),
            // Good once, and not again: it may not be what the next move must show.
            (
                with(Lease { holder: proof(1, 5).holder(), ..lease(1, 6, LeaseState::Held) }, Some(proof(1, 5))),
                "FENCE-LEASE-INVALID",
            ),
            (with(of_before(lease(1, 6, LeaseState::Held)), Some(proof(1, 5))), "FENCE-LEASE-INVALID"),
            (
                with(Lease { owner: "x".to_owned(), ..lease(1, 6, LeaseState::Held) }, Some(proof(1, 5))),
                "FENCE-LEASE-INVALID",
            ),
            // Late, and nobody took it.
            (next(6, LeaseState::Held), "advance"),
        ] {
            assert_eq!(ruled(Some(&held), 4, &asked, 9_000), expected, "{asked:?}");
        }
        assert_eq!(
            ruled(Some(&standing(1, 5, LeaseState::Released)), 4, &next(6, LeaseState::Held), 1),
            "FENCE-LEASE-LOST"
        );
        // It went to somebody else meanwhile.
        assert_eq!(
            ruled(Some(&standing(2, 6, LeaseState::Held)), 5, &next(6, LeaseState::Held), 1),
            "FENCE-LEASE-LOST"
        );
    }

    /// The beat that the ref shows is `beat(1)`, and its successor shows what that asks for.
    fn alive(id: u8, shows: Option<Secret>) -> LeaseAsk {
        let nonce = nonce_of([id + 1; 16]);
        let holder = Some(secret(id).of_record(LeasePart::Beat, &nonce).holder());
        let next = Beat { nonce, holder, ..beat(id) };
        LeaseAsk { beat: Some(next), beat_proof: shows, beat_now: Some(beat(1)), ..LeaseAsk::default() }
    }

    #[test]
    fn a_beat_counts_from_its_holder_as_long_as_nobody_else_has_the_lease() {
        let shows = |id: u8, nonce: u8| Some(secret(id).of_record(LeasePart::Beat, &nonce_of([nonce; 16])));
        let held = standing(1, 5, LeaseState::Held);
        let of_lease = Some(secret(1).of_record(LeasePart::Lease, &nonce_of([1; 16])));
        let again = |mut asked: LeaseAsk| {
            asked.beat.as_mut().unwrap().holder = shows(1, 1).map(|proof| proof.holder());
            asked
        };
        for (current, asked, expected) in [
            (&held, alive(1, shows(1, 1)), "renew"),
            (&held, alive(1, None), "FENCE-LEASE-REQUIRED"),
            (&held, LeaseAsk { secret: shows(1, 1), ..alive(1, None) }, "FENCE-LEASE-REQUIRED"),
            (&held, alive(1, shows(1, 0)), "FENCE-LEASE-INVALID"),
            (&held, alive(1, shows(2, 1)), "FENCE-LEASE-INVALID"),
            // What the lease asks for is not what the beat asks for.
            (&held, alive(1, of_lease), "FENCE-LEASE-INVALID"),
            (&held, again(alive(1, shows(1, 1))), "FENCE-LEASE-INVALID"),
            (&held, alive(2, shows(2, 1)), "FENCE-LEASE-LOST"),
            (&standing(1, 5, LeaseState::Released), alive(1, shows(1, 1)), "FENCE-LEASE-LOST"),
        ] {
            assert_eq!(ruled(Some(current), 4, &asked, 9_000), expected, "{asked:?}");
        }
        let renewed =
            judge_lease(&Rules::for_repo(), Some(&held), Mark::default(), &alive(1, shows(1, 1)), &at(60)).unwrap();
        assert_eq!(renewed.standing.left_at(&at(149)), Some(Duration::from_secs(1)));
        assert_eq!(renewed.standing.left_at(&at(150)), None);
        // Where the ref shows nothing of this ownership, the last that was heard counts, and only there.
        let heard = Standing { beat: shows(1, 7).map(|proof| proof.holder()), ..held.clone() };
        for (now, shown, expected) in [
            (Some(beat(1)), 1, "renew"),
            (Some(beat(1)), 7, "FENCE-LEASE-INVALID"),
            (Some(beat(2)), 7, "renew"),
            (None, 7, "renew"),
            (None, 1, "FENCE-LEASE-INVALID"),
        ] {
            let asked = LeaseAsk { beat_now: now, ..alive(1, shows(1, shown)) };
            assert_eq!(ruled(Some(&heard), 4, &asked, 1), expected, "{asked:?}");
        }
        let unheard = LeaseAsk { beat_now: None, ..alive(1, shows(1, 1)) };
        assert_eq!(ruled(Some(&held), 4, &unheard, 1), "FENCE-LEASE-INVALID");
    }

    /// It keeps its one secret, and its push options, until it ends. Nobody takes another like it.
    #[test]
    fn a_lease_of_the_format_before_keeps_its_holder() {
        let before = |token, state| of_before(lease(1, token, state));
        let held = Standing { lease: before(5, LeaseState::Held), ..standing(1, 5, LeaseState::Held) };
        let old_beat = Beat { holder: None, ..beat(1) };
        let next = |lease: Lease, secret| LeaseAsk { secret, beat: None, ..proposal(lease, "9") };
        let alive_with = |secret| LeaseAsk { beat: Some(old_beat.clone()), secret, ..LeaseAsk::default() };
        let mut upgraded = next(lease(1, 6, LeaseState::Held), Some(secret(1)));
        upgraded.lease.as_mut().unwrap().proof = Some(secret(1));
        for (asked, expected) in [
            (next(before(6, LeaseState::Held), Some(secret(1))), "advance"),
            (next(before(5, LeaseState::Released), Some(secret(1))), "release"),
            (alive_with(Some(secret(1))), "renew"),
            (next(before(6, LeaseState::Held), None), "FENCE-LEASE-REQUIRED"),
            (next(before(6, LeaseState::Held), Some(secret(2))), "FENCE-LEASE-INVALID"),
            (alive_with(None), "FENCE-LEASE-REQUIRED"),
            (alive_with(Some(secret(2))), "FENCE-LEASE-INVALID"),
            (alive(1, Some(secret(1))), "FENCE-LEASE-INVALID"),
            (upgraded, "FENCE-LEASE-INVALID"),
        ] {
            assert_eq!(ruled(Some(&held), 4, &asked, 1), expected, "{asked:?}");
        }
        let mut taking = taking(1, Reason::First, "0");
        let new = taking.lease.as_mut().unwrap();
        new.lease = of_before(new.lease.clone());
        assert_eq!(ruled(None, 0, &taking, 1), "FENCE-LEASE-INVALID");
        taking.lease.as_mut().unwrap().lease = lease(2, 1, LeaseState::Held);
        assert_eq!(ruled(None, 0, &taking, 1), "grant");
        taking.beat.as_mut().unwrap().holder = None;
        assert_eq!(ruled(None, 0, &taking, 1), "FENCE-LEASE-INVALID");
    }

    #[test]
    fn a_live_lease_is_taken_away_only_by_those_who_may() {
        let held = standing(1, 5, LeaseState::Held);
        let away = || proposal(Lease { reason: Reason::Revoked, ..lease(2, 6, LeaseState::Released) }, "a");
        assert_eq!(ruled(Some(&held), 4, &away(), 1), "FENCE-LEASE-INVALID");
        assert_eq!(ruled(Some(&held), 4, &LeaseAsk { may_revoke: true, ..away() }, 1), "revoke");
        assert_eq!(ruled(None, 5, &LeaseAsk { may_revoke: true, ..away() }, 1), "FENCE-LEASE-INVALID");
        let gone = Standing { commit: None, ..held };
        let away = proposal(Lease { reason: Reason::Revoked, ..lease(2, 6, LeaseState::Released) }, "0");
        assert_eq!(ruled(Some(&gone), 4, &LeaseAsk { may_revoke: true, ..away }, 1), "revoke");
    }

    #[test]
    fn asking_changes_nothing_and_is_answered() {
        let asks = LeaseAsk { only_asks: true, ..LeaseAsk::default() };
        let held = standing(1, 5, LeaseState::Held);
        assert_eq!(ruled(Some(&held), 4, &asks, 1), Code::LeaseHeld.as_str());
        assert_eq!(ruled(Some(&held), 4, &asks, 91), Code::LeaseInvalid.as_str());
        assert_eq!(ruled(None, 0, &asks, 91), Code::LeaseInvalid.as_str());
    }

    #[test]
    fn a_grant_keeps_everybody_before_it_out_and_its_holder_in() {
        let token = |n: u64| Token::try_from(n).unwrap();
        assert_eq!(Accept::Above.mark_before(token(5)).get(), 4);
        assert_eq!(Accept::Above.mark_before(token(1)).get(), 0);
        assert_eq!(Accept::AtOrAbove.mark_before(token(5)).get(), 5);
        assert_eq!(next_token(None, Mark::default()), Some(token(1)));
        assert_eq!(next_token(Some(token(7)), Mark::from(token(9))), Some(token(10)));
        assert_eq!(next_token(Some(Token::MAX), Mark::default()), None);
    }

    #[test]
    fn the_refs_of_a_lease_are_known_by_name() {
        for part in [LeasePart::Lease, LeasePart::Beat, LeasePart::Ask] {
            let name = part.of(&FenceName::repo());
            assert_eq!(LeasePart::in_name(&name), Some((FenceName::repo(), part)));
        }
        for name in
            ["refs/fence/repo", "refs/fence/repo/x", "refs/fence/a/b/lease", "refs/fence/A/lease", "refs/heads/x"]
        {
            assert_eq!(LeasePart::in_name(&RefName::new(name)), None, "{name}");
        }
    }
}
