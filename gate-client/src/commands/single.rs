//! The single commands, one per operation on a lease.

use crate::{
    client::{Client, in_words},
    commands::{
        context::{Context, LeaseArgs, Target, WaitArgs, orphaned},
        own::still_held,
    },
    failure::Failure,
    files::home,
    lease::held::{CurrentLease, LeaseDir, Progress, TakenBy},
    report::{CurrentHolder, Report, outcome::Outcome},
    store::home::LeaseHome,
};
use git_fence_core::{
    Code, LastHolder, Lease, LeaseId, LeaseState, Reason, StoredLease, Token, Ttl, Version, few_words, text,
};
use serde::Serialize;
use std::io::{self, Write as _};

/// The output of a command: a line or two for people, JSON for programs.
pub(crate) struct Output {
    prose: String,
    data: Data,
}

enum Data {
    Report(Box<Report>),
    /// The entries of `git fence log`.
    Entries(Vec<LogEntry>),
}

impl Output {
    pub(crate) fn new(prose: impl Into<String>, report: Report) -> Output {
        Output { prose: prose.into(), data: Data::Report(Box::new(report)) }
    }

    /// The message of the report, for people.
    pub(crate) fn of(report: Report) -> Output {
        Output::new(report.message.clone(), report)
    }

    pub(super) fn is_of(&self, outcome: Outcome) -> bool {
        matches!(&self.data, Data::Report(report) if report.outcome == outcome)
    }

    /// Prints to standard output, which is for data. `me` is who ran the command.
    pub(crate) fn print(self, json: bool, me: &str) {
        let _ = io::stdout().write_all(self.text(json, me).as_bytes());
    }

    /// What is printed: whole lines.
    pub(crate) fn text(mut self, json: bool, me: &str) -> String {
        let mut text = match &mut self.data {
            _ if !json => self.prose,
            Data::Report(report) => {
                report.exit_code = Some(0);
                report.by(me);
                report.json()
            }
            Data::Entries(entries) => serde_json::to_string(entries).unwrap_or_default(),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

/// The report of a command that used the lease held here.
fn ours(outcome: Outcome, client: &Client, dir: &LeaseDir, message: impl Into<String>) -> Result<Report, Failure> {
    Ok(Report::new(outcome, message).under(&dir.held()?, dir.left(&client.clock)))
}

/// `git fence acquire`: prints the token.
pub(crate) fn acquire(
    context: &Context,
    place: &Target,
    wanted: &LeaseArgs,
    wait: &WaitArgs,
) -> Result<Output, Failure> {
    let request = context.lease_request(wanted, TakenBy::Acquire)?;
    let wait = wait.length()?;
    let client = context.client(place)?;
    if context.is_orphan(&client) {
        return Err(orphaned(&client));
    }
    let client = context.gives_back(&client);
    let taken = context.take_within(&client, &request, wait);
    let dir = taken.as_ref().ok().cloned();
    let dir = context.unless_interrupted(&client, dir.as_ref(), taken)?;
    CurrentLease::of(&context.local, &client.fence, &client.remote.url).set(&dir)?;
    let lease = dir.held()?.lease;
    let what = format!("took the lease of fence '{}', with token {}, for {}", client.fence, lease.token, lease.ttl);
    Ok(Output::new(lease.token.to_string(), ours(Outcome::Acquired, &client, &dir, what)?))
}

/// `git fence renew`.
pub(crate) fn renew(context: &Context, place: &Target) -> Result<Output, Failure> {
    let (client, dir) = context.held(place)?;
    context.interrupt.leaves(still_held(&client.fence));
    client.renew(&dir)?;
    let ttl = dir.held()?.lease.ttl;
    Ok(Output::of(ours(Outcome::Renewed, &client, &dir, format!("renewed for {ttl}"))?))
}

/// `git fence advance`: prints the new token.
pub(crate) fn advance(context: &Context, place: &Target) -> Result<Output, Failure> {
    let (client, dir) = context.held(place)?;
    context.interrupt.leaves(still_held(&client.fence));
    let token = client.advance(&dir)?;
    let report = ours(Outcome::Advanced, &client, &dir, format!("advanced to token {token}"))?;
    Ok(Output::new(token.to_string(), report))
}

/// `git fence release`. Harmless if the lease was released already or has been taken over.
pub(crate) fn release(context: &Context, place: &Target) -> Result<Output, Failure> {
    let found = context.held(place);
    let (client, dir) = match found {
        Ok(found) => found,
        Err(Failure::Usage { .. }) => return release_left_behind(context, &context.client(place)?),
        Err(other) => return Err(other),
    };
    release_one(context, &client, &dir)
}

/// Releases what interrupted commands of this clone have left.
fn release_left_behind(context: &Context, client: &Client) -> Result<Output, Failure> {
    let (left, is_in_use) = context.left_behind(client);
    let mut lost = None;
    for dir in left {
        let output = release_one(context, client, &dir)?;
        if output.is_of(Outcome::Released) {
            return Ok(output);
        }
        lost = Some(output);
    }
    let what = if is_in_use {
        "no lease to release: another command in this clone uses it, and gives it back itself"
    } else {
        "no lease is held here"
    };
    Ok(lost.unwrap_or_else(|| Output::of(Report::new(Outcome::NothingHeld, what).about(client))))
}

fn release_one(context: &Context, client: &Client, dir: &LeaseDir) -> Result<Output, Failure> {
    let held = dir.held()?;
    context.interrupt.leaves(still_held(&client.fence));
    let current = CurrentLease::of(&context.local, &client.fence, &client.remote.url);
    match client.release(dir) {
        Ok(()) => {
            current.clear(dir);
            let what = format!("released after token {}", held.lease.token);
            Ok(Output::of(Report::new(Outcome::Released, what).under(&held, None)))
        }
        Err(Failure::Lost { now, by, halt, .. }) => {
            current.clear(dir);
            let code = if halt.is_some() { Code::Halted } else { Code::LeaseLost };
            let report = Report::new(Outcome::NotOurs, format!("nothing to release: {now}")).under(&held, None);
            let holder = by.map(|by| CurrentHolder::of(*by, false));
            Ok(Output::of(Report { code: Some(code), holder, halt: halt.map(|halt| *halt), ..report }))
        }
        Err(other) => Err(other),
    }
}

/// `git fence revoke`.
pub(crate) fn revoke(context: &Context, place: &Target, wanted: &LeaseArgs) -> Result<Output, Failure> {
    let request = context.lease_request(wanted, TakenBy::Revoke)?;
    if request.words.is_none() {
        return Err(Failure::usage(
            "revoking a lease requires a reason",
            "give one, for example  --reason 'host-3 is gone'",
        ));
    }
    let client = context.client(place)?;
    match client.revoke(&request)? {
        Some(lease) => {
            let what =
                format!("revoked the lease of {}, which had token {}", text::in_quotes(&lease.owner), lease.token);
            let time = client.clock.now().written();
            let (by, words) = (Some(request.owner.clone()), request.words.clone());
            let Lease { owner, token, .. } = lease;
            let last = LastHolder { owner, token, time, reason: Reason::Revoked, by, words };
            let report = Report::new(Outcome::Revoked, what).about(&client);
            Ok(Output::of(Report { last: Some(last), owner: request.owner, words: request.words, ..report }))
        }
        None => {
            let what = format!("nobody holds the lease of fence '{}'", client.fence);
            Ok(Output::of(Report::new(Outcome::Free, what).about(&client)))
        }
    }
}

/// One ownership in the history of a lease.
#[derive(Serialize)]
struct LogEntry {
    lease: LeaseId,
    token: Token,
    owner: String,
    state: LeaseState,
    ttl_s: Ttl,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    time: String,
    commit: Version,
}

impl LogEntry {
    fn of(seen: &StoredLease) -> LogEntry {
        let Lease { id, token, owner, state, ttl, reason, words, .. } = seen.lease.clone();
        let (time, commit) = (seen.time.clone(), seen.at.clone());
        LogEntry { lease: id, token, owner, state, ttl_s: ttl, reason, words, time, commit }
    }
}

/// `git fence log`: who held the lease, newest first.
pub(crate) fn log(context: &Context, place: &Target, most: usize) -> Result<Output, Failure> {
    let client = context.client(place)?;
    let (_, history) = LeaseHome::open(&client, home(&client.local), false)?.read_for_people(most)?;
    let entries = history.iter().map(LogEntry::of).collect();
    let after = [None].into_iter().chain(history.iter().map(Some));
    let before = history.iter().skip(1).map(Some).chain([None]);
    let prose: Vec<String> = history
        .iter()
        .zip(after.zip(before))
        .map(|(seen, (after, before))| {
            let (lease, owner) = (&seen.lease, text::in_quotes(&seen.lease.owner));
            let what = what_happened(lease, before.map(|before| &before.lease), after.map(|after| &after.lease));
            format!("{:>8}  {}  {owner} {what}", lease.token, seen.time)
        })
        .collect();
    let prose = if prose.is_empty() { "never held".to_owned() } else { prose.join("\n") };
    Ok(Output { prose, data: Data::Entries(entries) })
}

/// What an owner did with the lease, and how it got it unless the lease had been released.
fn what_happened(lease: &Lease, before: Option<&Lease>, after: Option<&Lease>) -> String {
    if lease.is_revocation() {
        let verb = if before.is_some_and(|before| before.halt().is_some()) { "resumed" } else { "revoked" };
        return format!("{verb} it{}", in_words(lease));
    }
    if lease.halt().is_some() {
        return format!("halted it{}", in_words(lease));
    }
    let did = match (lease.state, after.map(|after| after.reason)) {
        (LeaseState::Released | LeaseState::Halted, _) => "held it and released it",
        (LeaseState::Moved, _) => "moved the leases of this fence elsewhere",
        (LeaseState::Held, None) => "holds it",
        (LeaseState::Held, Some(Reason::Expired)) => "held it until it expired",
        (LeaseState::Held, Some(Reason::Revoked)) => "held it until it was revoked",
        (LeaseState::Held, Some(Reason::First | Reason::Released)) => "held it",
    };
    let how = match lease.reason {
        Reason::First => "; it was the first holder",
        Reason::Expired => "; the previous lease had expired",
        Reason::Released | Reason::Revoked => "",
    };
    format!("{did}{how}{}", in_words(lease))
}

/// `git fence progress`: records progress locally; the next heartbeat sends it to the remote.
pub(crate) fn progress(context: &Context, place: &Target, words: &str) -> Result<Output, Failure> {
    let (client, dir): (Client, LeaseDir) = context.held(place)?;
    let text = few_words(words).ok_or_else(|| {
        Failure::usage(
            "the progress text has no printable characters",
            "use for example  git fence progress 'page 3 of 9'",
        )
    })?;
    dir.set_progress(&Progress { text: text.clone(), at: client.clock.now() })?;
    let report = ours(Outcome::Noted, &client, &dir, "noted: the next heartbeat tells the remote")?;
    Ok(Output::new("", Report { progress: Some(text), ..report }))
}
