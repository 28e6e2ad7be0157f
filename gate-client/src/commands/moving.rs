//! Moving the leases of a fence from one place to another, and putting back a mark that somebody has removed.
//!
//! Whoever moves them holds the lease at the old place, so nobody else does. Then one push changes mark and lease in the
//! remote, both or none, and from that moment everybody sees where the leases are. A counter never goes back.

use crate::{
    client::Client,
    commands::{
        context::{Context, LeaseArgs, Target},
        own::Whose,
        own::held as held_by_another,
        single::Output,
        store::in_words,
    },
    failure::{Failure, of_file},
    files::home,
    lease::{
        held::{HeldLease, LeaseDir, TakenBy},
        taking::{LeaseRequest, Taken},
    },
    random,
    report::{Report, outcome::Outcome},
    store::{
        engine::EngineLeases,
        home::moved_lease,
        reading::{RemoteSight, StoredMark},
        remote::RemoteRefs,
    },
};
use git_fence_core::{
    Claimed, Code, Elsewhere, Jobs, Lease, LeasePart, LeaseState, LeaseStore as _, Mark, MarkRecord, MarkState,
    MovedTo, Record, Secret, StorePlace, Swap, Swapped, Token, Version, may_be_in_remote, may_be_own,
};
use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _};
use tempfile::TempDir;

/// From where to where.
pub(super) struct Move {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) fence: Option<String>,
    pub(super) remote: Option<String>,
    pub(super) wanted: LeaseArgs,
}

/// What is said for a fence with tokens of its pushers' own.
const OWN: &str = "own";

/// `git fence store move`.
pub(super) fn run(context: &Context, wanted: &Move) -> Result<Output, Failure> {
    let target = |store: &str| Target {
        fence: wanted.fence.clone(),
        remote: wanted.remote.clone(),
        store: Some(store.to_owned()),
        ..Target::default()
    };
    let is_own = wanted.from == OWN;
    let from = context.client(&target(if is_own { "remote" } else { &wanted.from }))?;
    let to = context.client(&target(&wanted.to))?;
    let request = context.lease_request(&wanted.wanted, TakenBy::Acquire)?;
    let old = from.store.as_deref().map(|store| store.place()).transpose()?;
    let new = to.store.as_deref().map(|store| store.place()).transpose()?;
    if old == new && !is_own {
        return Err(Failure::usage("both places are the same", "name where the leases are, and where they are to be"));
    }
    let moving = Moving { from: &from, to: &to, new: new.clone(), owner: request.owner.clone() };
    let counter = if is_own { moving.of_own_tokens()? } else { moving.of_leases(&request)? };
    let place = if is_own { "their pushers".to_owned() } else { in_words(old.as_ref()) };
    let what = format!(
        "the leases of fence '{}' have moved from {place} to {}; the next token is above {counter}",
        to.fence,
        in_words(new.as_ref())
    );
    Ok(Output::of(Report::new(Outcome::Moved, what).about(&to).kept_in(new)))
}

/// What became of the old place.
enum Old {
    /// It keeps no leases any more.
    Left,
    /// It is the new place, by another name.
    Renamed,
}

struct Moving<'a> {
    from: &'a Client,
    to: &'a Client,
    /// The new place; none for the remote.
    new: Option<StorePlace>,
    owner: String,
}

impl Moving<'_> {
    /// Holds the lease at the old place while the new one is prepared. Returns the counter.
    fn of_leases(&self, request: &LeaseRequest) -> Result<Mark, Failure> {
        let dir = match self.from.acquire(request) {
            Ok(Taken::Ours(dir)) => dir,
            Ok(Taken::Theirs(by, _)) => return Err(held_by_another(self.from, by, &Whose::Theirs)),
            Ok(Taken::NothingDue(_)) => return Err(self.from.busy("no tick is due")),
            Err(Failure::Refused { code: Some(Code::LeaseInvalid), .. }) if self.from.store.is_none() => {
                return self.of_granted_leases();
            }
            Err(failure) => return Err(failure),
        };
        let held = dir.held()?;
        let counter = Mark::from(held.lease.token);
        match self.with_lease(&dir, &held, counter) {
            Ok(Old::Left) => dir.remove(),
            Ok(Old::Renamed) => self.from.release(&dir)?,
            Err(failure) => {
                let _ = self.from.release(&dir);
                return Err(failure);
            }
        }
        Ok(counter)
    }

    fn with_lease(&self, dir: &LeaseDir, held: &HeldLease, counter: Mark) -> Result<Old, Failure> {
        let is_renamed = self.is_renamed(held)?;
        if !is_renamed {
            self.prepare_store(counter, &held.lease.jobs.carried())?;
        }
        let refs = RemoteRefs::open(self.to, dir.objects(), held.gate)?;
        let sight = refs.look()?;
        match &held.store {
            // The lease in the remote is ours: its proof is due.
            None => {
                let next = moved_lease(&self.owner, &self.words(), Some(&held.lease), self.to.clock.now().unix_ms);
                let from = (Some(held.at.clone()), held.parent.clone());
                self.change(&refs, &sight, counter, &next, from, held.proof().as_ref())?;
            }
            Some(_) => {
                let (next, from) = self.lease_after(&sight, counter);
                let next = Lease { jobs: held.lease.jobs.carried(), ..next };
                // Not the proof of the lease: that one is for a push, and a mark can be read by everybody.
                let proof = held.key.proof(LeasePart::Beat, &dir.pulse()?.nonce);
                self.change(&refs, &sight, counter, &next, from, proof.as_ref())?;
                if is_renamed {
                    return Ok(Old::Renamed);
                }
                self.leave_store()?;
            }
        }
        Ok(Old::Left)
    }

    /// Whether the new place is the old store by another name: it shows the lease that we hold. Then the record stays, and
    /// only the remote has to learn the name.
    fn is_renamed(&self, held: &HeldLease) -> Result<bool, Failure> {
        let (Some(program), Some(_)) = (self.to.store.as_deref(), &held.store) else { return Ok(false) };
        let entry = EngineLeases::open(self.to, program)?.taking_back().entry()?;
        Ok(entry.and_then(|entry| entry.lease).is_some_and(|there| there.lease.id == held.lease.id))
    }

    /// Leases that were granted by a gate that has been told of the store: it grants no more. It knows whether somebody still
    /// holds the last one, and the lease moves from where it was seen.
    fn of_granted_leases(&self) -> Result<Mark, Failure> {
        let objects = objects_of(self.to)?;
        let refs = RemoteRefs::open(self.to, objects.path().to_owned(), true)?;
        let sight = refs.look()?;
        may_be_in_remote(sight.lease_state(), sight.mark.as_ref().map(|mark| &mark.record))
            .map_err(|at| self.to.elsewhere(at))?;
        let last = sight.snapshot.lease.as_ref().map(|stored| Mark::from(stored.lease.token));
        let counter = last.unwrap_or_default();
        self.prepare_store(counter, &sight.snapshot.jobs().carried())?;
        let (next, from) = self.lease_after(&sight, counter);
        self.change(&refs, &sight, counter, &next, from, None)?;
        Ok(counter)
    }

    /// Tokens of the pushers' own: the mark says how far they have come.
    fn of_own_tokens(&self) -> Result<Mark, Failure> {
        let objects = objects_of(self.to)?;
        let refs = RemoteRefs::open(self.to, objects.path().to_owned(), false)?;
        let sight = refs.look()?;
        let mark = sight.mark.as_ref().map(|mark| &mark.record);
        match may_be_own(sight.lease_state(), mark) {
            Ok(Claimed::Already) => {}
            Ok(Claimed::NotYet) => {
                return Err(Failure::usage(
                    format!("fence '{}' has no mark, so nobody has pushed with tokens of their own", self.to.fence),
                    "there is nothing to move: take a lease where you want it",
                ));
            }
            Err(at) => return Err(self.to.elsewhere(at)),
        }
        let counter = mark.map(|mark| mark.token).unwrap_or_default();
        self.prepare_store(counter, &Jobs::default())?;
        let (next, from) = self.lease_after(&sight, counter);
        self.change(&refs, &sight, counter, &next, from, None)?;
        Ok(counter)
    }

    /// The counter and the jobs go to the new store before anybody can see that the leases are there.
    fn prepare_store(&self, counter: Mark, jobs: &Jobs) -> Result<(), Failure> {
        let Some(program) = self.to.store.as_deref() else { return Ok(()) };
        let engine = EngineLeases::open(self.to, program)?.taking_back();
        let held = engine.entry()?.and_then(|entry| entry.lease).filter(|lease| lease.lease.state == LeaseState::Held);
        if let Some(lease) = held {
            return Err(Failure::usage(
                format!(
                    "the store {} has a lease of this fence already, held by {}",
                    engine.place().store,
                    lease.lease.owner
                ),
                "nothing was moved. End that run first, or name another resource (fence.resource)",
            ));
        }
        let swapped = engine.amend(|entry| Some(entry.moved_in(counter, jobs.clone(), random::nonce())))?;
        self.to.is_done(swapped)
    }

    /// The old store says where the leases are: for those who do not look at the remote first.
    fn leave_store(&self) -> Result<(), Failure> {
        let Some(program) = self.from.store.as_deref() else { return Ok(()) };
        let engine = EngineLeases::open(self.from, program)?.taking_back();
        engine.entry()?;
        let to = self.new.clone().map_or(MovedTo::Remote, MovedTo::Store);
        let swapped = engine.amend(|entry| Some(entry.moved_away(to.clone(), random::nonce())))?;
        self.to.is_done(swapped)
    }

    /// The lease in the remote after the move, which nobody holds, and what it replaces: that is its parent, too. The ownership
    /// before need not be here.
    fn lease_after(&self, sight: &RemoteSight, counter: Mark) -> (Lease, (Option<Version>, Option<Version>)) {
        let before = sight.snapshot.lease.as_ref();
        let now = self.to.clock.now().unix_ms;
        let moved = moved_lease(&self.owner, &self.words(), before.map(|before| &before.lease), now);
        let token = Token::try_from(counter.get().max(moved.token.get())).unwrap_or(moved.token);
        let state = if self.new.is_some() { LeaseState::Moved } else { LeaseState::Released };
        let at = before.map(|before| before.at.clone());
        (Lease { token, state, ..moved }, (at.clone(), at))
    }

    fn words(&self) -> String {
        format!("kept in {}", in_words(self.new.as_ref()))
    }

    /// Changes mark and lease in the remote, both or none.
    fn change(
        &self,
        refs: &RemoteRefs<'_>,
        sight: &RemoteSight,
        counter: Mark,
        lease: &Lease,
        (at, parent): (Option<Version>, Option<Version>),
        proof: Option<&Secret>,
    ) -> Result<(), Failure> {
        let before = sight.mark.as_ref();
        let is_in_store = |mark: &&StoredMark| mark.record.state == MarkState::Current && mark.record.place.is_some();
        let record = match (&self.new, before) {
            // From store to store nothing but the place changes.
            (Some(place), Some(before)) if is_in_store(&before) => {
                MarkRecord { place: Some(place.clone()), ..before.record.touched(random::nonce()) }
            }
            (Some(_), _) => {
                let token = before.map_or(counter, |before| before.record.token.max(counter));
                MarkRecord::begins(token, self.new.clone(), &self.owner, random::nonce())
            }
            // The lease in the remote carries the counter from here on.
            (None, Some(before)) => MarkRecord { state: MarkState::Moved, ..before.record.touched(random::nonce()) },
            (None, None) => return Err(self.to.elsewhere(Elsewhere::MarkGone)),
        };
        // The proof is for what moves away from: the lease in the remote, or the mark of leases in a store.
        let (of_mark, of_lease) = if before.as_ref().is_some_and(is_in_store) { (proof, None) } else { (None, proof) };
        let mark = refs.prepare_mark(record, before.map(|before| &before.at), of_mark)?;
        let lease = refs.prepare(&Record::Lease { lease, parent: parent.as_ref(), proof: of_lease })?;
        let of_mark = Swap { part: LeasePart::Mark, from: before.map(|before| before.at.clone()), to: mark.at.clone() };
        let of_lease = Swap { part: LeasePart::Lease, from: at, to: lease };
        match refs.swap(&[of_mark, of_lease])? {
            // The answer was lost: the remote says what became of it.
            Swapped::Unknown { why } => match refs.look()?.mark {
                Some(now) if now.at == mark.at => Ok(()),
                _ => Err(Failure::Unknown { why }),
            },
            Swapped::Refused(refused) => Err(match refused.gate.as_ref().and_then(|gate| gate.holder.clone()) {
                Some(by) => held_by_another(self.from, by, &Whose::Theirs),
                None => self.to.refused(&refused),
            }),
            swapped => self.to.is_done(swapped),
        }
    }
}

/// `git fence store init --mark`: puts back a mark that was removed. Nothing that the store has granted counts any more, so
/// nothing old comes through; whoever holds the lease now is refused, too.
pub(super) fn restore_mark(client: &Client, owner: &str) -> Result<Output, Failure> {
    let program = client.store.as_deref().ok_or_else(|| Failure::usage("no store is named", "name its URL"))?;
    let engine = EngineLeases::open(client, program)?;
    let objects = objects_of(client)?;
    let refs = RemoteRefs::open(client, objects.path().to_owned(), false)?;
    let counter = engine.entry()?.map(|entry| entry.counter()).unwrap_or_default();
    let sight = refs.look()?;
    if let Some(mark) = &sight.mark {
        let what = format!("nothing was missing: the mark of fence '{}' is at {}", client.fence, mark.record.token);
        return Ok(Output::of(Report::new(Outcome::Made, what).about(client).kept_in(Some(engine.place().clone()))));
    }
    if sight.lease_state() == Some(LeaseState::Moved) {
        return alone(client, &refs, &engine, owner, counter);
    }
    let moving = Moving { from: client, to: client, new: Some(engine.place().clone()), owner: owner.to_owned() };
    if sight.lease_state().is_some() {
        return Err(client.elsewhere(Elsewhere::InRemote));
    }
    let (next, from) = moving.lease_after(&sight, counter);
    moving.change(&refs, &sight, counter, &next, from, None)?;
    Ok(is_back(client, engine.place().clone(), counter))
}

/// Puts back the mark beside the lease that says where leases are.
fn alone(
    client: &Client,
    refs: &RemoteRefs<'_>,
    engine: &EngineLeases<'_>,
    owner: &str,
    counter: Mark,
) -> Result<Output, Failure> {
    let place = engine.place().clone();
    let put = |token: Mark| -> Result<Swapped<Failure>, Failure> {
        let record = MarkRecord::begins(token, Some(place.clone()), owner, random::nonce());
        let mark = refs.prepare_mark(record, None, None)?;
        refs.swap(&[Swap { part: LeasePart::Mark, from: None, to: mark.at }])
    };
    let put_back = match put(counter)? {
        // A gate has a mark of its own, above which nobody may put this one without a push.
        Swapped::Refused(refused) if refused.gate.is_some() => put(Mark::default())?,
        put_back => put_back,
    };
    client.is_done(put_back)?;
    Ok(is_back(client, place, counter))
}

/// What is said of a mark that was put back.
fn is_back(client: &Client, place: StorePlace, counter: Mark) -> Output {
    let what = format!("the mark of fence '{}' is back: the next token is above {counter}", client.fence);
    Output::of(Report::new(Outcome::Made, what).about(client).kept_in(Some(place)))
}

/// A directory for the objects of one push.
fn objects_of(client: &Client) -> Result<TempDir, Failure> {
    let home = home(&client.local);
    DirBuilder::new().recursive(true).mode(0o700).create(&home).map_err(|e| of_file(&home, e))?;
    tempfile::tempdir_in(&home).map_err(|e| of_file(&home, e))
}
