//! `git fence status`: who holds the lease, or who held it last, and whether a gate judges it.

use crate::{
    client::Client,
    commands::{
        context::{Context, Target},
        own::{Whose, held_by},
        single::Output,
    },
    failure::{Failure, of_file},
    files::home,
    report::{CurrentHolder, Report, outcome::Outcome},
    store::{
        home::LeaseHome,
        remote::{RemoteRefs, remembered_gate},
    },
};
use git_fence_core::{
    Code, FenceName, Halt, HeldBy, LastHolder, Lease, LeaseSnapshot, LeaseState, LeaseStore as _, Life, Reason, Stamp,
    StorePlace, StoredLease, free_in_words, held_in_words, text,
};
use std::time::Duration;

/// How far back to look for who held a lease last.
const MOST_LOOKED_AT: usize = 4;

/// What the remote shows of a lease.
struct Sighting {
    seen: LeaseSnapshot,
    /// The records before, newest first.
    before: Vec<Lease>,
    /// Whether the remote has a gate, if it is known.
    gate: Option<bool>,
    /// The store in which it is kept.
    place: Option<StorePlace>,
    now: Stamp,
}

/// By this machine's clock. A gate uses its own.
pub(crate) fn status(context: &Context, place: &Target) -> Result<Output, Failure> {
    let client = context.client(place)?;
    let sighting = Sighting::of(context, &client)?;
    let (report, head, mut lines) = match (sighting.seen.halt(), sighting.holder()) {
        (Some(halt), _) => halted(&client, halt),
        (None, Some(by)) => held(context, &client, &sighting, by),
        (None, None) => free(&client, &sighting),
    };
    if let Some(StorePlace { store, resource }) = &sighting.place {
        lines.push(format!("store      {store}"));
        lines.push(format!("resource   {resource}"));
    }
    lines.push(format!("gate       {}", gate_in_words(&sighting, &client)));
    let prose = format!("fence '{}'  {head}\n  {}", client.fence, lines.join("\n  "));
    Ok(Output::new(prose, Report { gate: sighting.gate, ..report.kept_in(sighting.place) }))
}

impl Sighting {
    fn of(context: &Context, client: &Client) -> Result<Sighting, Failure> {
        let store = LeaseHome::open(client, home(&client.local), false)?;
        let (seen, history) = store.read_for_people(MOST_LOOKED_AT)?;
        let gate = match store.place() {
            None => gate_of(context, client, &seen)?,
            Some(_) => remembered_gate(client),
        };
        let before = history.into_iter().skip(1).map(|before| before.lease).collect();
        let (place, now) = (store.place().cloned(), store.by_its_clock(client.clock.now()));
        Ok(Sighting { seen, before, gate, place, now })
    }

    /// Who holds the lease, unless it has expired.
    fn holder(&self) -> Option<HeldBy> {
        let is_alive = self.seen.life(&self.now, Duration::ZERO, Duration::ZERO) == Life::Alive;
        self.seen.held_by(&self.now).filter(|_| is_alive)
    }

    /// Who held it last. Whoever revoked, halted or resumed it has never held it.
    fn last(&self) -> Option<LastHolder> {
        let StoredLease { lease, time, .. } = self.seen.lease.as_ref()?;
        let Lease { owner, token, .. } = lease.clone();
        let released = LastHolder { owner, token, time: time.clone(), reason: Reason::Released, by: None, words: None };
        if lease.state == LeaseState::Held {
            let beat = self.seen.beat.as_ref().filter(|beat| beat.lease == lease.id);
            let time = beat.map_or_else(|| time.clone(), |beat| beat.deadline.clone());
            return Some(LastHolder { reason: Reason::Expired, time, ..released });
        }
        if !lease.is_revocation() {
            return Some(released);
        }
        let is_ownership = |lease: &&Lease| !lease.is_revocation() && lease.state != LeaseState::Halted;
        let Lease { owner, token, state, .. } = self.before.iter().find(is_ownership)?.clone();
        // One that was released before, and the fence halted and resumed since then.
        if state != LeaseState::Held {
            return Some(LastHolder { owner, token, ..released });
        }
        let (by, words) = (Some(released.owner), lease.words.clone());
        Some(LastHolder { owner, token, reason: Reason::Revoked, by, words, time: released.time })
    }
}

fn held(context: &Context, client: &Client, sighting: &Sighting, by: HeldBy) -> (Report, String, Vec<String>) {
    let whose = context.whose(client, &by.lease);
    let is_mine = whose != Whose::Theirs;
    let in_words = |since| held_in_words(&held_by(&by.owner, &whose), by.token, since, by.expires_in_ms);
    // For people the time has a line of its own: all in one would not fit on 80 columns.
    let (words, head) = (in_words(by.since.as_deref()), in_words(None));
    let mut report = Report::new(Outcome::Held, format!("fence '{}'  {words}", client.fence)).about(client);
    let mut lines: Vec<String> = by.since.iter().map(|since| format!("since      {since}")).collect();
    if let Some(progress) = &by.progress {
        lines.push(format!("progress   {}", text::in_quotes(progress)));
    }
    if let Some(StoredLease { lease, .. }) = &sighting.seen.lease {
        (report.reason, report.words) = (Some(lease.reason), lease.words.clone());
        lines.push(format!("before     {}", before_in_words(lease.reason)));
        lines.extend(lease.words.as_deref().map(|words| format!("reason     {}", text::in_quotes(words))));
    }
    if is_mine {
        (report.token, report.lease) = (Some(by.token), Some(by.lease.clone()));
        report.expires_in_ms = Some(by.expires_in_ms);
    }
    report.holder = Some(CurrentHolder::of(by, is_mine));
    (report, head, lines)
}

fn halted(client: &Client, halt: Halt) -> (Report, String, Vec<String>) {
    let since = halt.since.iter().map(|since| format!("since      {since}"));
    let why = halt.reason.iter().map(|reason| format!("reason     {}", text::in_quotes(reason)));
    let lines = since.chain(why).chain(["lease      nobody gets it until  git fence resume".to_owned()]).collect();
    let report = Report::new(Outcome::Halted, format!("fence '{}'  {halt}", client.fence)).about(client);
    let head = Halt { since: None, reason: None, ..halt.clone() }.to_string();
    (Report { halt: Some(halt), code: Some(Code::Halted), ..report }, head, lines)
}

fn free(client: &Client, sighting: &Sighting) -> (Report, String, Vec<String>) {
    let last = sighting.last();
    let words = free_in_words(last.as_ref());
    let report = Report::new(Outcome::Free, format!("fence '{}'  {words}", client.fence)).about(client);
    (Report { last, ..report }, words, Vec::new())
}

/// Whether there is a gate, if it can be found out. A fence that the gate does not know is a failure.
fn gate_of(context: &Context, client: &Client, seen: &LeaseSnapshot) -> Result<Option<bool>, Failure> {
    let gate = seen.gate().then_some(true).or_else(|| remembered_gate(client));
    if seen.lease.is_some() {
        return Ok(gate.or_else(|| ask(context, client).ok()));
    }
    if is_repo(client) {
        return Ok(gate);
    }
    // A remote without a gate would keep a question about a fence without a lease as a ref. So the gate must be known
    // from the fence that every repository has.
    let repo = Client { fence: FenceName::repo(), ..client.clone() };
    let gate = gate.or_else(|| repo.read().ok().and_then(|seen| gate_of(context, &repo, &seen).ok()?));
    match gate.filter(|gate| *gate).map(|_| ask(context, client)) {
        Some(Err(unknown @ Failure::NoSuchFence { .. })) => Err(unknown),
        _ => Ok(gate),
    }
}

/// Asks by a push that cannot move anything, and learns from the answer whether there is a gate.
fn ask(context: &Context, client: &Client) -> Result<bool, Failure> {
    // The question is an object of its own, in a directory that goes when it has been asked.
    let objects = tempfile::tempdir_in(home(&client.local)).map_err(|e| of_file(&home(&client.local), e))?;
    let store = RemoteRefs::open(client, objects.path().to_owned(), false)?;
    store.ask_gate(&context.me(None, &Target::default()))?;
    Ok(store.gate())
}

fn is_repo(client: &Client) -> bool {
    client.fence == FenceName::repo()
}

/// What became of the lease before this one.
fn before_in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::First => "never held",
        Reason::Released => "released",
        Reason::Expired => "expired",
        Reason::Revoked => "revoked",
    }
}

fn gate_in_words(sighting: &Sighting, client: &Client) -> &'static str {
    let is_known = sighting.seen.lease.is_some() || is_repo(client);
    match (sighting.gate, is_known) {
        (Some(true), _) if sighting.place.is_some() => "yes",
        (None, _) if sighting.place.is_some() => "not known",
        (Some(true), _) => "yes: it decides what has expired",
        (Some(false), _) => "none",
        (None, true) => "not known: nobody has taken a lease here",
        (None, false) => "not known: nobody has taken a lease here, and whether this fence exists is not known either",
    }
}
