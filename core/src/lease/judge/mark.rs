//! The rule for marks: who may move the ref in which a fence's last write stands, and whose push counts.
//!
//! A push that moves guarded refs takes the mark along: its token is above the gate's mark, and its ownership wrote last or
//! began after the last write ([`Fence::counts`]). Where the gate knows the store, the record there must show exactly this
//! lease and this token, and the push the proof that the record asks for.
//!
//! Alone, a mark may be touched, which spends nothing. To raise it takes the right to revoke, or the proof of the store's
//! record: otherwise somebody who may write nothing but `refs/fence/*` could lock all others out.
//!
//! Leases move to a store, and back, only together with the mark: there is one place for each fence.

use super::{halted, held_by_another};
use crate::{
    Fence, FenceEntry, LeaseAsk, LeaseChange, LeaseMove, LeaseState, Mark, MarkAsk, MarkAt, MarkChange, MarkRecord,
    MarkState, Ownership, Proposal, Reject, Rules, Stamp, Standing, StoreBehind, StoredLease, Token, TokenKind,
    log::marks::token_of, text,
};

/// An allowed move of a mark, and of the lease that moves with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkJudged {
    /// The move of the mark.
    pub mark: MarkChange,
    /// The move of the lease: to a store, or back.
    pub lease: Option<LeaseChange>,
}

/// Which token a push needs in the store's record.
#[derive(Debug, Clone, Copy)]
enum Needs {
    /// This one, of a lease that is held: the push writes with it.
    Exactly(Token),
    /// At least this one: the push raises the mark.
    AtLeast(Mark),
}

impl Fence<'_> {
    /// Judges a move of the fence's mark, regardless of whether the push may write. `writes` is the token of a push that also
    /// moves guarded refs.
    pub fn judge_mark(
        &self,
        rules: &Rules,
        asked: &LeaseAsk,
        mark: &MarkAsk,
        writes: Option<Option<Token>>,
        now: &Stamp,
    ) -> Result<MarkJudged, Reject> {
        let judge = MarkJudge { fence: self, rules, mark };
        judge.follows()?;
        if asked.beat.is_some() || asked.only_asks {
            return Err(judge.invalid("a push moves either the mark or the beat"));
        }
        let (raises_to, lease) = match (&asked.lease, writes) {
            (Some(_), Some(_)) => {
                return Err(judge.invalid("a push that moves the lease to another place moves no other ref"));
            }
            (Some(proposal), None) => judge.moving(asked, proposal, now)?,
            (None, Some(token)) => (judge.writing(token)?, None),
            (None, None) => (judge.alone(asked)?, None),
        };
        let at = MarkAt { commit: mark.commit.clone(), record: mark.record.clone() };
        Ok(MarkJudged { mark: MarkChange { fence: rules.fence.clone(), at, raises_to }, lease })
    }

    /// Whether a push that carries `mark` counts as a write with `token`, which is above the fence's mark.
    pub fn counts(&self, rules: &Rules, mark: &MarkAsk, token: Token) -> Result<(), Reject> {
        let judge = MarkJudge { fence: self, rules, mark };
        if mark.record.token != token.into() {
            let of_record = mark.record.token;
            return Err(judge.invalid(format!("the push has token {token}, and its mark has {of_record}")));
        }
        judge.is_current_place(true)?;
        if rules.store.is_some() {
            judge.is_proven(Needs::Exactly(token))?;
        } else if self.kind(rules) == Some(TokenKind::Lease) {
            let why = format!(
                "its leases are kept in {}, and this gate cannot ask there. Ask the server's operator to set fence.store",
                self.store_in_words(rules)
            );
            return Err(judge.required(&why));
        }
        mark.record.by.as_ref().map_or(Ok(()), |by| judge.is_current(by))
    }

    /// Where the leases are kept, for people.
    pub(crate) fn store_in_words(&self, rules: &Rules) -> String {
        let place = rules.store_place().or_else(|| self.written?.at.as_ref()?.record.place.clone());
        place.map_or_else(|| "another place".to_owned(), |place| text::in_quotes(&place.store))
    }

    /// Why no lease is granted in the repository: leases of the fence are kept elsewhere.
    pub(crate) fn is_elsewhere(&self, rules: &Rules, asked: &LeaseAsk) -> Option<Reject> {
        let has_moved = self.lease.is_some_and(|standing| standing.lease.state == LeaseState::Moved);
        let is_held = |standing: &Standing| standing.is_held();
        let wants = match &asked.lease {
            // Whoever holds a lease may release it, and it may be revoked or resumed.
            Some(proposal) => matches!(proposal.lease.state, LeaseState::Held | LeaseState::Halted),
            None => asked.only_asks && !self.lease.is_some_and(is_held),
        };
        let asks = asked.lease.is_some() || asked.only_asks;
        ((has_moved && asks) || (rules.store.is_some() && wants)).then(|| Reject::LeaseInvalid {
            fence: rules.fence.clone(),
            why: format!("the leases of this fence are kept in {}", self.store_in_words(rules)),
        })
    }
}

struct MarkJudge<'a> {
    fence: &'a Fence<'a>,
    rules: &'a Rules,
    mark: &'a MarkAsk,
}

impl MarkJudge<'_> {
    fn at(&self) -> Option<&MarkAt> {
        self.fence.written?.at.as_ref()
    }

    /// The record follows the one that is there.
    fn follows(&self) -> Result<(), Reject> {
        if !self.mark.parents.iter().eq(self.at().map(|at| &at.commit)) {
            return Err(self.invalid("the mark does not follow the current one: read it again"));
        }
        match token_of(self.mark.record.token) {
            Some(token) if token.is_at_the_end() => Err(self.invalid(format!("no tokens would remain after {token}"))),
            _ => Ok(()),
        }
    }

    /// The mark of a push that also moves guarded refs. Whether its token counts is judged apart.
    fn writing(&self, token: Option<Token>) -> Result<Mark, Reject> {
        self.is_current_place(true)?;
        let Some(token) = token else { return Ok(Mark::default()) };
        let is_proven = self.rules.store.is_some() && self.fence.counts(self.rules, self.mark, token).is_ok();
        Ok(if is_proven { token.into() } else { Mark::default() })
    }

    /// The mark alone.
    fn alone(&self, asked: &LeaseAsk) -> Result<Mark, Reject> {
        self.is_current_place(false)?;
        let record = &self.mark.record;
        let (token, by) = (record.token, record.by.as_ref());
        let is_same =
            |at: &MarkAt| at.record.by.as_ref() == by && (at.record.token == token || token <= self.fence.mark);
        let changes_nothing = match self.at() {
            Some(at) => is_same(at),
            None => by.is_none() && token <= self.fence.mark,
        };
        if changes_nothing {
            return Ok(Mark::default());
        }
        if asked.may_revoke {
            return Ok(token);
        }
        if self.rules.store.is_none() {
            return Err(self.invalid(
                "a push that moves no other ref cannot raise the mark: only the server's operator (git-fence-hook raise) and \
                 the pushers in fence.allowRevoke may",
            ));
        }
        // The holder may also spend its own token: it pushed, and every ref was there already.
        let as_a_write = || self.is_proven(Needs::Exactly(token_of(token)?)).ok();
        let entry = self.is_proven(Needs::AtLeast(token)).or_else(|reject| as_a_write().ok_or(reject))?;
        if let Some(by) = ownership_in(entry) {
            self.is_current(&by)?;
        }
        Ok(token)
    }

    /// The lease moves to a store, or back, and the mark says where.
    fn moving(
        &self,
        asked: &LeaseAsk,
        proposal: &Proposal,
        now: &Stamp,
    ) -> Result<(Mark, Option<LeaseChange>), Reject> {
        let has_moved = |standing: &&Standing| standing.lease.state == LeaseState::Moved;
        let current = self.fence.lease;
        self.keeps_the_counter(proposal)?;
        let raises_to = match (proposal.lease.state, current.filter(has_moved)) {
            (LeaseState::Moved, None) => self.moving_away(asked, proposal, now)?,
            (LeaseState::Released, Some(_)) => self.moving_back()?,
            (LeaseState::Moved, Some(_)) => self.moving_on(asked)?,
            _ => return Err(self.invalid("a push moves either the lease or the mark")),
        };
        let of_lease = match proposal.lease.state {
            LeaseState::Moved => current.map_or(Mark::default(), |standing| standing.lease.token.into()),
            _ => Mark::default(),
        };
        let standing = Standing {
            commit: Some(proposal.commit.clone()),
            parent: proposal.parents.first().cloned(),
            lease: proposal.lease.clone(),
            since: now.clone(),
            heard: now.clone(),
            progress: None,
            beat: None,
        };
        let fence = self.rules.fence.clone();
        Ok((raises_to, Some(LeaseChange { fence, change: LeaseMove::Release, standing, raises_to: of_lease })))
    }

    fn keeps_the_counter(&self, proposal: &Proposal) -> Result<(), Reject> {
        let token = proposal.lease.token;
        let last = self.fence.lease.map(|standing| standing.lease.token);
        if last.is_some_and(|last| token < last) || token.is_at_the_end() {
            return Err(self.invalid(format!("the counter of its tokens cannot go to {token}")));
        }
        let behind = self.fence.lease.and_then(|known| known.lease.jobs.behind(&proposal.lease.jobs));
        if let Some(job) = behind {
            return Err(self.invalid(format!("the last tick of the job '{job}' cannot go back")));
        }
        let is_history = |parent| {
            self.fence
                .lease
                .is_none_or(|known| known.commit.as_ref() == Some(parent) || known.parent.as_ref() == Some(parent))
        };
        if proposal.parents.len() > 1 || !proposal.parents.iter().all(is_history) {
            return Err(self.invalid("the record does not follow the current one: read the lease again"));
        }
        Ok(())
    }

    fn moving_away(&self, asked: &LeaseAsk, proposal: &Proposal, now: &Stamp) -> Result<Mark, Reject> {
        let record = &self.mark.record;
        if record.place.is_none() || record.by.is_some() || record.state != MarkState::Current {
            return Err(self.invalid("the mark of leases that move to a store names the store, and no lease"));
        }
        self.is_the_gates_place()?;
        if self.rules.store.is_none() && self.fence.kind(self.rules) == Some(TokenKind::Lease) {
            return Err(self.invalid(
                "this gate grants the leases of this fence. To keep them in a store, ask the server's operator to set \
                 fence.store and fence.resource",
            ));
        }
        let is_holder = |standing: &Standing| {
            let shown = proposal.proof.as_ref().map(crate::Secret::holder);
            shown.as_ref() == Some(&standing.lease.holder)
        };
        if let Some(held) = self.fence.lease.filter(|standing| !is_holder(standing)) {
            // A halt would be forgotten on the way.
            halted(self.rules, held).or_else(|| held_by_another(self.rules, held, now)).map_or(Ok(()), Err)?;
        }
        let granted = self.fence.lease.map_or(Mark::default(), |standing| standing.lease.token.into());
        let is_unchanged = self.at().is_some_and(|at| at.record.token == record.token);
        match record.token {
            token if token <= self.fence.mark.max(granted) || asked.may_revoke => Ok(token),
            _ if is_unchanged => Ok(Mark::default()),
            token => {
                Err(self.invalid(format!("token {token} of the mark is above every token that the fence has seen")))
            }
        }
    }

    /// From store to store. The mark changes in nothing but its place, so no token comes or goes. Where the gate asks the old
    /// store, whoever moves the leases holds the lease there.
    fn moving_on(&self, asked: &LeaseAsk) -> Result<Mark, Reject> {
        let Some(before) = self.at().map(|at| &at.record).filter(|before| before.state == MarkState::Current) else {
            return Err(self.invalid("the mark of its leases is gone"));
        };
        let record = &self.mark.record;
        let place = before.place.as_ref().and(record.place.clone());
        if place.is_none() || *record != (MarkRecord { place, nonce: record.nonce.clone(), ..before.clone() }) {
            return Err(self.invalid("leases move to another store only with a mark that changes in nothing else"));
        }
        self.is_the_gates_place()?;
        if self.rules.store.is_some() && !asked.may_revoke {
            let entry = self.entry()?;
            let is_held = entry.lease.as_ref().is_some_and(|stored| stored.lease.state == LeaseState::Held);
            if !is_held || entry.moved_to.is_some() || !self.shows_proof_of_beat(entry) {
                let store = self.fence.store_in_words(self.rules);
                return Err(
                    self.required(&format!("whoever moves the leases away from {store} must hold the lease there"))
                );
            }
        }
        Ok(Mark::default())
    }

    fn moving_back(&self) -> Result<Mark, Reject> {
        let record = &self.mark.record;
        if self.rules.store.is_some() {
            return Err(self.invalid(format!(
                "the server's setting fence.store keeps its leases in {}: ask its operator to remove it first",
                self.fence.store_in_words(self.rules)
            )));
        }
        let keeps = |at: &MarkAt| {
            let before = &at.record;
            (before.token, &before.by, &before.place) == (record.token, &record.by, &record.place)
        };
        if record.state != MarkState::Moved || !self.at().is_some_and(keeps) {
            return Err(self.invalid("a lease moves back only together with the mark, of which only the state changes"));
        }
        Ok(Mark::default())
    }

    /// The place that the mark names is the one that it named before. Tokens of one's own may follow leases that have moved
    /// back into the remote.
    fn is_current_place(&self, writes: bool) -> Result<(), Reject> {
        let record = &self.mark.record;
        let before = self.at().map(|at| &at.record);
        let is_back = before.is_some_and(|before| before.state == MarkState::Moved);
        let touches_moved = is_back && !writes && record.state == MarkState::Moved;
        if record.state == MarkState::Moved && !touches_moved {
            return Err(self.invalid("a mark becomes 'moved' only together with the lease"));
        }
        if is_back && !touches_moved && (record.place.is_some() || !writes) {
            return Err(self.invalid("the leases of this fence are kept in the remote again"));
        }
        if let Some(before) = before.filter(|before| before.place != record.place && (!is_back || touches_moved)) {
            let why = match &before.place {
                Some(place) => format!(
                    "the leases of this fence are kept in {} under {}",
                    text::in_quotes(&place.store),
                    text::in_quotes(&place.resource)
                ),
                None => "the mark names no store yet: the lease and the mark move there together, alone".to_owned(),
            };
            return Err(self.invalid(why));
        }
        self.is_the_gates_place()
    }

    /// The resource is that of the gate. The gate may reach the store under another address.
    fn is_the_gates_place(&self) -> Result<(), Reject> {
        let Some(gates) = self.rules.store_place() else { return Ok(()) };
        match &self.mark.record.place {
            Some(place) if place.resource == gates.resource => Ok(()),
            named => {
                let named = named.as_ref().map_or("no store".to_owned(), |place| text::in_quotes(&place.resource));
                Err(self.invalid(format!(
                    "the mark names {named}, and the server keeps its leases in {} under {}",
                    text::in_quotes(&gates.store),
                    text::in_quotes(&gates.resource)
                )))
            }
        }
    }

    /// `by` wrote last, or began after the last write.
    fn is_current(&self, by: &Ownership) -> Result<(), Reject> {
        let mark = self.fence.mark;
        let standing = self.fence.written.cloned().unwrap_or_default();
        if standing.is_current(by, mark) {
            return Ok(());
        }
        Err(self.lost(format!("it began with token {}, before another wrote with {mark}", by.first)))
    }

    /// The store's record shows the lease of the mark, with the token that it needs, and the mark shows the proof that the
    /// record asks for.
    fn is_proven(&self, needs: Needs) -> Result<&FenceEntry, Reject> {
        let entry = self.entry()?;
        if let Some(to) = &entry.moved_to {
            return Err(self.invalid(format!("the leases of this fence are kept in {}", to.in_words())));
        }
        if entry.counter() < self.fence.mark {
            let store = self.fence.store_in_words(self.rules);
            let (fence, counter, mark) = (self.rules.fence.clone(), entry.counter(), self.fence.mark);
            return Err(Reject::StoreBehind { fence, behind: Box::new(StoreBehind { store, counter, mark }) });
        }
        let Some(stored) = &entry.lease else { return Err(self.lost("nobody holds it")) };
        let lease = &stored.lease;
        // The halt itself raises the mark, and so does whoever completes it.
        let halts = matches!(needs, Needs::AtLeast(_)) && self.mark.record.by == ownership_in(entry);
        if let Some(halt) = lease.halt().filter(|_| !halts) {
            return Err(Reject::Halted { fence: self.rules.fence.clone(), halt: Box::new(halt) });
        }
        let holds = holder_in_words(stored);
        match (needs, &self.mark.record.by) {
            (Needs::Exactly(_), None) => return Err(self.required("the mark names no lease")),
            (_, Some(by)) if ownership_in(entry).as_ref() != Some(by) => return Err(self.lost(holds)),
            (Needs::AtLeast(_), None) if lease.state == LeaseState::Held => {
                return Err(self.required("the mark names no lease"));
            }
            _ => {}
        }
        let has_token = match needs {
            Needs::Exactly(token) => lease.token == token && lease.state == LeaseState::Held,
            // Nobody works under a revocation, so it may stand at its own token.
            Needs::AtLeast(mark) if lease.state == LeaseState::Held => mark < lease.token.into(),
            Needs::AtLeast(mark) => mark <= lease.token.into(),
        };
        if !has_token {
            return Err(self.lost(holds));
        }
        let is_proven = match needs {
            Needs::Exactly(_) => self.mark.proof.as_ref().is_some_and(|proof| proof.holder() == lease.holder),
            Needs::AtLeast(_) => self.shows_proof_of_beat(entry),
        };
        match &self.mark.proof {
            Some(_) if is_proven => Ok(entry),
            Some(_) => Err(self.required("the mark carries a wrong proof")),
            None => Err(self.required("the mark carries no proof (Fence-Proof)")),
        }
    }

    /// A mark can be read by everybody, and the lease's proof is for the push that comes next. So a mark that moves no other
    /// ref shows that of the beat.
    fn shows_proof_of_beat(&self, entry: &FenceEntry) -> bool {
        let asked_for = entry.beat.as_ref().and_then(|beat| beat.holder.clone());
        asked_for.is_some() && self.mark.proof.as_ref().map(crate::Secret::holder) == asked_for
    }

    /// What the store has of the fence.
    fn entry(&self) -> Result<&FenceEntry, Reject> {
        let fence = self.rules.fence.clone();
        match &self.mark.answer {
            Some(Ok(Some(entry))) => Ok(entry),
            Some(Ok(None)) => {
                let name = self.rules.store_place().map_or(String::new(), |place| place.name_of(&fence));
                Err(self.invalid(format!(
                    "{} has no record {}: is the resource of the client the same? See  git fence status",
                    self.fence.store_in_words(self.rules),
                    text::in_quotes(&name)
                )))
            }
            Some(Err(fault)) => Err(Reject::Store { fence, fault: Box::new(fault.clone()) }),
            // Nothing was to be proven, so nobody was asked.
            None => Err(self.required("the mark carries no proof (Fence-Proof)")),
        }
    }

    fn lost(&self, now: impl Into<String>) -> Reject {
        Reject::LeaseLost { fence: self.rules.fence.clone(), now: now.into() }
    }

    fn required(&self, why: &str) -> Reject {
        Reject::LeaseRequired { fence: self.rules.fence.clone(), why: why.to_owned() }
    }

    fn invalid(&self, why: impl Into<String>) -> Reject {
        Reject::LeaseInvalid { fence: self.rules.fence.clone(), why: why.into() }
    }
}

/// The ownership that the store's record shows.
fn ownership_in(entry: &FenceEntry) -> Option<Ownership> {
    Some(Ownership { lease: entry.lease.as_ref()?.lease.id.clone(), first: entry.first? })
}

fn holder_in_words(stored: &StoredLease) -> String {
    let lease = &stored.lease;
    let owner = text::in_quotes(&lease.owner);
    match lease.state {
        LeaseState::Held => format!("in the store {owner} holds it, with token {}", lease.token),
        LeaseState::Released => {
            format!("in the store {owner} held it last, with token {}, and released it", lease.token)
        }
        LeaseState::Halted => format!("in the store {owner} halted it, with token {}", lease.token),
        LeaseState::Moved => "the store's record has moved".to_owned(),
    }
}
