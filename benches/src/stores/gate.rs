//! A push to a gate that asks its store, over the same push to a gate without one: a process, a connection and a read.

use super::{
    engine::Engine,
    helper::Helper,
    random,
    repository::{Repository, Work},
};
use crate::{
    Outcome,
    options::{EngineKind, SampleOptions},
    row::Row,
    sampling::{Subject, interleaved},
    stores::lease::Records as _,
};
use git_fence_core::{
    Beat, FenceEntry, Format, Lease, LeaseId, LeasePart, LeaseState, MarkRecord, Ownership, PreparedPart, Reason,
    Secret, StorePlace, StoreRecord, StoredLease, Token, Ttl, Version,
};

const LIMIT: Option<f64> = Some(1.6);
const RESOURCE: &str = "git.example.com/app";

pub(super) fn measure(kind: EngineKind, options: &SampleOptions) -> Outcome<Row> {
    let engine = Engine::start(kind, 100)?;
    let work = Work::new()?;
    let (asking, alone) = (work.server("asking.git")?, work.server("alone.git")?);
    work.configure(&asking, "fence.store", &engine.url)?;
    work.configure(&asking, "fence.resource", RESOURCE)?;
    let mut subjects = [with_store(&work, &asking, &engine)?, with_own_tokens(&work, &alone)?];
    let samples = interleaved(options.count(60, 300), 3, &mut subjects)?;
    Ok(Row::ratio(kind.name(), "push to a gate that asks its store", "to a gate without", samples.ratio(0, 1)?, LIMIT))
}

/// Each push is made under the next token, which the store has been told before.
fn with_store<'a>(work: &'a Work, server: &'a Repository, engine: &Engine) -> Outcome<Subject<'a>> {
    let mut holder = Holder::begin(Helper::at(&engine.url)?)?;
    let place = StorePlace::new(&holder.helper.place, RESOURCE).ok_or("the store has no name")?;
    let first = MarkRecord::begins(git_fence_core::Mark::default(), Some(place), OWNER, random::nonce());
    let (mut mark, mut at) = (first.clone(), work.push_mark(server, &first)?);
    let unheard = first.written(holder.token, Some(holder.ownership.clone()), OWNER, random::nonce());
    if work.push(server, &unheard, Some(&at), Some(&holder.proof()), holder.token).is_ok() {
        return Err("the gate has let a push through that its store knows nothing of: it does not ask".into());
    }
    Ok(Box::new(move || {
        holder.advance()?;
        mark = mark.written(holder.token, Some(holder.ownership.clone()), OWNER, random::nonce());
        let (next, took) = work.push(server, &mark, Some(&at), Some(&holder.proof()), holder.token)?;
        at = next;
        Ok(took)
    }))
}

fn with_own_tokens<'a>(work: &'a Work, server: &'a Repository) -> Outcome<Subject<'a>> {
    let mut mark = MarkRecord::begins(git_fence_core::Mark::default(), None, OWNER, random::nonce());
    let (mut at, mut token): (Option<String>, u64) = (None, 0);
    Ok(Box::new(move || {
        token += 1;
        let number = Token::try_from(token)?;
        mark = mark.written(number, None, OWNER, random::nonce());
        let (next, took) = work.push(server, &mark, at.as_deref(), None, number)?;
        at = Some(next);
        Ok(took)
    }))
}

const OWNER: &str = "build-agent-07";

/// Who holds the lease of the asking gate, as the store knows it.
struct Holder {
    helper: Helper,
    entry: FenceEntry,
    seen: Option<StoreRecord>,
    master: Secret,
    ownership: Ownership,
    token: Token,
}

impl Holder {
    fn begin(helper: Helper) -> Outcome<Holder> {
        let first = Token::try_from(1)?;
        Ok(Holder {
            helper,
            entry: FenceEntry::new(format!("{RESOURCE}/repo"), random::nonce()),
            seen: None,
            master: random::secret(),
            ownership: Ownership { lease: random::lease_id(), first },
            token: first,
        })
    }

    /// Puts the next token into the store.
    fn advance(&mut self) -> Outcome<()> {
        if self.seen.is_some() {
            self.token = Token::try_from(self.token.get() + 1)?;
        }
        let (lease, beat) = (self.lease()?, self.beat());
        let lease = StoredLease { at: Version::new(&*lease.nonce), parent: None, lease, time: now() };
        let before = (self.entry.lease.as_ref().map(|lease| lease.at.clone()), self.entry.snapshot().beat_at);
        let parts = [(before.0, PreparedPart::Lease(lease)), (before.1, PreparedPart::Beat(beat))];
        self.entry = self.entry.with(&parts, random::nonce()).ok_or("the record has changed")?;
        let body = self.entry.body();
        let version = self.helper.swap(&self.entry.name, self.seen.as_ref(), &body, true)?;
        self.seen = Some(StoreRecord { version, body });
        Ok(())
    }

    fn id(&self) -> LeaseId {
        self.ownership.lease.clone()
    }

    fn lease(&self) -> Outcome<Lease> {
        let nonce = random::nonce();
        Ok(Lease {
            format: Format::OneUse,
            id: self.id(),
            token: self.token,
            owner: OWNER.to_owned(),
            state: LeaseState::Held,
            ttl: Ttl::of_seconds(90).ok_or("the TTL is wrong")?,
            reason: Reason::First,
            words: None,
            since: Some(now()),
            jobs: git_fence_core::Jobs::default(),
            holder: self.master.of_record(LeasePart::Lease, &nonce).holder(),
            nonce,
        })
    }

    fn beat(&self) -> Beat {
        let nonce = random::nonce();
        let holder = Some(self.master.of_record(LeasePart::Beat, &nonce).holder());
        Beat {
            lease: self.id(),
            deadline: Beat::deadline_at(now_ms() + 90_000),
            progress: None,
            gate: true,
            holder,
            nonce,
        }
    }

    /// What the record in the store asks for.
    fn proof(&self) -> Secret {
        let nonce = self.entry.lease.as_ref().map_or("", |lease| &lease.lease.nonce);
        self.master.of_record(LeasePart::Lease, nonce)
    }
}

fn now_ms() -> u64 {
    u64::try_from(git_fence_system::clock::wall().as_millisecond()).unwrap_or(0)
}

fn now() -> String {
    Beat::deadline_at(now_ms())
}
