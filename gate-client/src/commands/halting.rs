//! `git fence halt` and `git fence resume`, for a list of fences.

use crate::{
    client::Client,
    commands::{
        context::{Context, LeaseArgs, fence_called},
        single::Output,
    },
    failure::Failure,
    files::home,
    git::local::Remote,
    lease::{ending::Halted, held::TakenBy, taking::LeaseRequest},
    report::{Report, outcome::Outcome},
    store::{home::LeaseHome, sending::fences_in},
};
use clap::Args;
use git_fence_core::{Code, FenceName, LastHolder, Lease, Reason, Ttl, text};
use std::collections::BTreeSet;

/// The options of `halt` and `resume`.
#[derive(Debug, Args)]
pub(crate) struct HaltArgs {
    /// The fence; repeat it for several [default: repo]
    #[arg(long, value_name = "NAME")]
    fence: Vec<String>,
    /// Every fence that has a lease or a mark in the remote, and repo
    #[arg(long, conflicts_with = "fence")]
    all: bool,
    /// The remote, by name or URL [default: origin]
    #[arg(long, value_name = "REMOTE")]
    remote: Option<String>,
    /// Where the lease is kept: the URL of a store, or 'remote' [default: GIT_FENCE_STORE, or fence.store, or the remote]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Your name in the history, for people; it proves nothing [default: fence.owner, or user@host]
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Why, for the history and for those who are stopped
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON: a line for each fence
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    Halt,
    Resume,
}

/// A fence, and what came of it.
pub(crate) type Turned = (FenceName, Result<Output, Failure>);

/// What came of each fence, in their order. One that fails does not stop the others.
pub(crate) fn turn(context: &Context, switch: Switch, args: &HaltArgs) -> Result<Vec<Turned>, Failure> {
    let wanted =
        LeaseArgs { owner: args.owner.clone(), ttl: None, reason: args.reason.clone(), skew: "10s".to_owned() };
    // Nobody beats for it, so it needs no time: no gate finds that too long.
    let request = LeaseRequest { ttl: Ttl::SHORTEST, ..context.lease_request(&wanted, TakenBy::Revoke)? };
    if request.words.is_none() {
        let (what, example) = match switch {
            Switch::Halt => ("halting", "the key of the agents has leaked"),
            Switch::Resume => ("resuming", "they have new keys"),
        };
        return Err(Failure::usage(
            format!("{what} a fence requires a reason"),
            format!("give one, for example  --reason '{example}'"),
        ));
    }
    let remote = context.local.remote(args.remote.as_deref())?;
    let client_of = |fence: &str| context.client_of(Some(fence_called(fence)?), remote.clone(), args.store.as_deref());
    let names: Vec<String> = match (&args.fence[..], args.all) {
        (_, true) => all_fences(&client_of(FenceName::REPO)?, &remote)?,
        ([], false) => vec![FenceName::REPO.to_owned()],
        (named, false) => named.to_vec(),
    };
    let clients: Vec<Client> = names.iter().map(|name| client_of(name)).collect::<Result<_, _>>()?;
    let one = |client: Client| {
        let done = match switch {
            Switch::Halt => halt(&client, &request),
            Switch::Resume => resume(&client, &request),
        };
        let done = done
            .map(|report| Output::of(Report { owner: request.owner.clone(), words: request.words.clone(), ..report }));
        (client.fence, done)
    };
    Ok(clients.into_iter().map(one).collect())
}

fn halt(client: &Client, request: &LeaseRequest) -> Result<Report, Failure> {
    let fence = &client.fence;
    let report = |what: String| Report { code: Some(Code::Halted), ..Report::new(Outcome::Halted, what).about(client) };
    Ok(match client.halt(request)? {
        Halted::Before(halt) => Report {
            halt: Some(halt.clone()),
            ..report(format!("fence '{fence}' was {halt} already: nothing was changed"))
        },
        Halted::Now { halt, held_by, open } => {
            let who = held_by.as_ref().map_or(String::new(), |(held, has_written)| in_words(held, *has_written, &open));
            let open = open.map_or(String::new(), |why| {
                format!("; halted in the store only: a push in flight may still land, until this command succeeds again ({why})")
            });
            let last = held_by.map(|(held, _)| {
                let Lease { owner, token, .. } = *held;
                let (by, words) = (Some(request.owner.clone()), request.words.clone());
                LastHolder { owner, token, time: client.clock.now().written(), reason: Reason::Revoked, by, words }
            });
            Report { halt: Some(halt), last, ..report(format!("halted fence '{fence}'{who}{open}")) }
        }
    })
}

/// Who was stopped, and what became of its last push.
fn in_words(held: &Lease, has_written: bool, open: &Option<String>) -> String {
    let Lease { owner, token, .. } = held;
    let its_last = match (has_written, open) {
        (true, _) => ": its push with it has landed",
        (false, None) => ": no push with it has landed, or will",
        (false, Some(_)) => "",
    };
    format!("; {} held it, with token {token}{its_last}", text::in_quotes(owner))
}

fn resume(client: &Client, request: &LeaseRequest) -> Result<Report, Failure> {
    let fence = &client.fence;
    Ok(match client.resume(request)? {
        Some(halt) => {
            let report = Report::new(Outcome::Resumed, format!("resumed fence '{fence}'; it was {halt}")).about(client);
            Report { halt: Some(halt), ..report }
        }
        None => {
            Report::new(Outcome::NotHalted, format!("fence '{fence}' is not halted: nothing was changed")).about(client)
        }
    })
}

/// Every fence that the remote shows, and `repo`.
fn all_fences(client: &Client, remote: &Remote) -> Result<Vec<String>, Failure> {
    // Opened for nothing but its errors: a store that cannot be used is told once, not for each fence.
    LeaseHome::open(client, home(&client.local), false)?;
    let shown = fences_in(&client.local.git, remote, &client.how())?;
    let all: BTreeSet<FenceName> = shown.into_iter().chain([FenceName::repo()]).collect();
    Ok(all.into_iter().map(|fence| fence.to_string()).collect())
}
