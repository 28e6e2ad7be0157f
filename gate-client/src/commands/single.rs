//! The single commands, one per operation on a lease.

use crate::{
    client::{Client, how_it_came, in_words, why},
    commands::context::{Context, LeaseArgs, Target, orphaned},
    failure::Failure,
    git::How,
    lease::{
        held::{CurrentLease, LeaseDir, Progress},
        taking::Taken,
    },
};
use git_fence_core::{Lease, LeaseId, LeaseState, Life, Reason, Token, few_words, text};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    time::Duration,
};

/// The output of a command: a line or two for people, JSON for programs.
pub(crate) struct Output {
    pub(crate) prose: String,
    pub(crate) json: String,
}

impl Output {
    pub(crate) fn new(prose: impl Into<String>, json: &impl Serialize) -> Output {
        Output { prose: prose.into(), json: serde_json::to_string(json).unwrap_or_default() }
    }

    /// Prints to standard output, which is for data.
    pub(crate) fn print(&self, json: bool) {
        let mut text = if json { self.json.clone() } else { self.prose.clone() };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let _ = io::stdout().write_all(text.as_bytes());
    }
}

#[derive(Serialize)]
struct Ours<'a> {
    outcome: &'static str,
    fence: &'a str,
    remote: &'a str,
    token: Token,
    owner: &'a str,
    lease: &'a LeaseId,
    reason: String,
}

fn ours(outcome: &'static str, client: &Client, lease: &Lease, prose: String) -> Output {
    let json = Ours {
        outcome,
        fence: client.fence.as_str(),
        remote: &client.remote.name,
        token: lease.token,
        owner: &lease.owner,
        lease: &lease.id,
        reason: why(lease),
    };
    Output::new(prose, &json)
}

/// `git fence acquire`: prints the token.
pub(crate) fn acquire(context: &Context, place: &Target, wanted: &LeaseArgs) -> Result<Output, Failure> {
    let request = context.lease_request(wanted)?;
    let client = context.client(place)?;
    if context.is_orphan(&client) {
        return Err(orphaned(&client));
    }
    match client.acquire(&request)? {
        Taken::Ours(dir) => {
            CurrentLease::of(&context.local, &client.fence, &client.remote.url).set(&dir)?;
            let lease = dir.held()?.lease;
            Ok(ours("acquired", &client, &lease, lease.token.to_string()))
        }
        Taken::Theirs(by, _) => Err(if context.holds(place, &by.lease) {
            Failure::HeldHere { fence: client.fence, token: by.token }
        } else {
            Failure::Held { fence: client.fence, by: Box::new(by) }
        }),
    }
}

/// `git fence renew`.
pub(crate) fn renew(context: &Context, place: &Target) -> Result<Output, Failure> {
    let (client, dir) = context.held(place)?;
    client.renew(&dir)?;
    let lease = dir.held()?.lease;
    Ok(ours("renewed", &client, &lease, format!("renewed for {}", lease.ttl)))
}

/// `git fence advance`: prints the new token.
pub(crate) fn advance(context: &Context, place: &Target) -> Result<Output, Failure> {
    let (client, dir) = context.held(place)?;
    let token = client.advance(&dir)?;
    let lease = dir.held()?.lease;
    Ok(ours("advanced", &client, &lease, token.to_string()))
}

/// `git fence release`. Harmless if the lease was released already or has been taken over.
pub(crate) fn release(context: &Context, place: &Target) -> Result<Output, Failure> {
    let found = context.held(place);
    let (client, dir) = match found {
        Ok(found) => found,
        Err(Failure::Usage { .. }) if context.client(place).is_ok() => {
            let json = serde_json::json!({ "outcome": "nothing-held" });
            return Ok(Output::new("no lease is held here", &json));
        }
        Err(other) => return Err(other),
    };
    let lease = dir.held()?.lease;
    let current = CurrentLease::of(&context.local, &client.fence, &client.remote.url);
    match client.release(&dir) {
        Ok(()) => {
            current.clear(&dir);
            Ok(ours("released", &client, &lease, format!("released after token {}", lease.token)))
        }
        Err(Failure::Lost { now, .. }) => {
            current.clear(&dir);
            let json = serde_json::json!({ "outcome": "not-ours", "fence": client.fence, "reason": now });
            Ok(Output::new(format!("nothing to release: {now}"), &json))
        }
        Err(other) => Err(other),
    }
}

/// `git fence revoke`.
pub(crate) fn revoke(context: &Context, place: &Target, wanted: &LeaseArgs) -> Result<Output, Failure> {
    let request = context.lease_request(wanted)?;
    if request.words.is_none() {
        return Err(Failure::usage(
            "revoking a lease requires a reason",
            "give one, for example  --reason 'host-3 is gone'",
        ));
    }
    let client = context.client(place)?;
    match client.revoke(&request)? {
        Some(lease) => {
            let prose =
                format!("revoked the lease of {}, which had token {}", text::in_quotes(&lease.owner), lease.token);
            Ok(ours("revoked", &client, &lease, prose))
        }
        None => {
            let json = serde_json::json!({ "outcome": "free", "fence": client.fence });
            Ok(Output::new(format!("nobody holds the lease of fence '{}'", client.fence), &json))
        }
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    fence: &'a str,
    remote: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<&'a LeaseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a str>,
    /// Whether it is held here.
    mine: bool,
    /// Whether its holder has seen a gate on the remote; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<bool>,
}

/// `git fence status`: who holds the lease, by this machine's clock. A gate uses its own clock.
pub(crate) fn status(context: &Context, place: &Target) -> Result<Output, Failure> {
    let client = context.client(place)?;
    let seen = client.read()?;
    let life = seen.life(&client.clock.now(), Duration::ZERO, Duration::ZERO);
    let lease = seen.lease.as_ref().map(|seen| &seen.lease);
    let beat = seen.beat.as_ref().filter(|beat| lease.is_some_and(|lease| lease.id == beat.lease));
    let state = match (lease, life) {
        (None, _) => "never-held",
        (_, Life::Free) => "released",
        (_, Life::Alive) => "held",
        (_, Life::AliveOrLate | Life::Expired) => "expired",
    };
    let json = StatusJson {
        fence: client.fence.as_str(),
        remote: &client.remote.name,
        state,
        owner: lease.map(|lease| lease.owner.as_str()),
        token: lease.map(|lease| lease.token),
        lease: lease.map(|lease| &lease.id),
        reason: lease.map(why),
        deadline: beat.map(|beat| beat.deadline.as_str()),
        progress: beat.and_then(|beat| beat.progress.as_deref()),
        mine: lease.is_some_and(|lease| context.holds(place, &lease.id)),
        gate: seen.gate().then_some(true),
    };
    let mut prose = match lease {
        None => format!("fence '{}'  never held", client.fence),
        Some(lease) => {
            let owner = text::in_quotes(&lease.owner);
            let mine = if json.mine { " (this clone)" } else { "" };
            let word = match state {
                "held" => "held by",
                "released" => "released by",
                _ => "expired, last held by",
            };
            format!("fence '{}'  {word} {owner}{mine}, token {}; {}", client.fence, lease.token, how_it_came(lease))
        }
    };
    if let (Some(deadline), "held" | "expired") = (json.deadline, state) {
        prose.push_str(&format!("\nuntil     {deadline}"));
    }
    if let (Some(progress), "held" | "expired") = (json.progress, state) {
        prose.push_str(&format!("\nprogress  {}", text::in_quotes(progress)));
    }
    Ok(Output::new(prose, &json))
}

/// `git fence log`: who held the lease, newest first.
pub(crate) fn log(context: &Context, place: &Target, most: usize) -> Result<Output, Failure> {
    let client = context.client(place)?;
    let mirror = client.mirror()?;
    let seen = mirror.read(&How::default(), most)?;
    let history = mirror.history(seen.lease.as_ref(), most, &How::default(), |_| false)?;
    let rows: Vec<serde_json::Value> = history
        .iter()
        .map(|seen| {
            let Lease { id, token, owner, state, ttl, reason, words, .. } = &seen.lease;
            serde_json::json!({ "lease": id, "token": token, "owner": owner, "state": state, "ttl_s": ttl.duration().as_secs(),
                "reason": reason, "words": words, "time": seen.time, "commit": seen.at })
        })
        .collect();
    let after = [None].into_iter().chain(history.iter().map(Some));
    let prose: Vec<String> = history
        .iter()
        .zip(after)
        .map(|(seen, after)| {
            let (lease, owner) = (&seen.lease, text::in_quotes(&seen.lease.owner));
            let what = what_happened(lease, after.map(|after| &after.lease));
            format!("{:>8}  {}  {owner} {what}", lease.token, seen.time)
        })
        .collect();
    Ok(Output::new(if prose.is_empty() { "never held".to_owned() } else { prose.join("\n") }, &rows))
}

/// What an owner did with the lease, and how it got it unless the lease had been released.
fn what_happened(lease: &Lease, after: Option<&Lease>) -> String {
    if lease.is_revocation() {
        return format!("revoked it{}", in_words(lease));
    }
    let did = match (lease.state, after.map(|after| after.reason)) {
        (LeaseState::Released, _) => "held it and released it",
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
    let _ = dir.held()?;
    dir.set_progress(&Progress { text: text.clone(), at: client.clock.now() })?;
    Ok(Output::new("", &serde_json::json!({ "outcome": "noted", "progress": text })))
}
