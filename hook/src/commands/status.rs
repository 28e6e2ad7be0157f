//! Shows the state of all fences, without changing anything.

use crate::{
    commands::{doctor::gate, operator::tokens},
    failure::{self, CommandError},
    host::{clock, surroundings::Environment},
    log::{files::FenceDir, history, store::read_plan},
    push::{
        catch_up,
        slot::{self, FlightState, Viewpoint},
    },
    repository::{
        Repository,
        settings::{self, ConfiguredSetting},
    },
};
use git_fence_core::{
    Event, FenceName, InFlight, Lease, LeaseId, Mark, Mode, Place, PlannedRef, PushId, Reason, ReceivePack, Rules,
    Settings, Stamp, Standing, State, Token, TokenKind, Ttl, Who, settle, text,
};
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
};

#[derive(Serialize)]
struct Status {
    repository: String,
    fences: Vec<FenceStatus>,
    /// The configured settings, and where they are set.
    settings: Vec<ConfiguredSetting>,
    /// Settings without effect: their file does not belong to the repository's owner.
    ignored: Vec<ConfiguredSetting>,
    /// Files of the repository's owner that may contain more settings, but cannot be read.
    unread: Vec<String>,
    /// Why pushes might not be checked at all.
    flaws: Vec<String>,
}

#[derive(Serialize)]
struct FenceStatus {
    mark: Mark,
    /// The kind of tokens that it accepts, once decided.
    kind: Option<TokenKind>,
    /// The rules in force.
    #[serde(flatten)]
    rules: Rules,
    /// Its lease, if it has ever granted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseStatus>,
    in_flight: Vec<FlightStatus>,
}

#[derive(Serialize)]
struct LeaseStatus {
    state: LeaseCondition,
    owner: String,
    lease: LeaseId,
    /// The token of its owner's next write; of a released lease, its last token.
    token: Token,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    ttl_s: Ttl,
    /// The remaining time, by this machine's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
    since: String,
    heard: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LeaseCondition {
    Held,
    Expired,
    Released,
}

#[derive(Serialize)]
struct FlightStatus {
    push: PushId,
    token: Option<Token>,
    since: String,
    #[serde(flatten)]
    who: Who,
    receive_pack: Option<ReceivePack>,
    form: &'static str,
    refs: Vec<PlannedRef>,
    count: usize,
}

/// `git-fence-hook status`.
pub(crate) fn run(dir: &Path, json: bool, environment: &Environment) -> Result<(), CommandError> {
    let repository = Repository::find(dir, environment)?;
    let settings = settings::read(&repository.config)?;
    let here = failure::here()?;
    let state = history::state(&FenceDir::at(repository.fence_dir()), &here.boot)?;
    let status = read_status(&repository, &settings, &here, state)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&status).unwrap_or_default())?;
    } else {
        show(&status, &mut out)?;
    }
    Ok(())
}

fn read_status(
    repository: &Repository,
    settings: &Settings,
    here: &Place,
    state: State,
) -> Result<Status, CommandError> {
    let state = as_next_push_sees(repository, settings, here, state)?;
    let now = clock::stamp(here);
    let fences = settings.fences.iter().map(|rules| {
        let fence = state.fence(&rules.fence);
        FenceStatus {
            mark: fence.mark,
            kind: fence.kind(rules),
            rules: rules.clone(),
            lease: fence.lease.map(|standing| LeaseStatus::of(standing, &now)),
            in_flight: fence.slot.iter().map(|flight| FlightStatus::of(flight, &rules.fence, here)).collect(),
        }
    });
    Ok(Status {
        repository: repository.common_dir.display().to_string(),
        fences: fences.collect(),
        settings: settings::configured(&repository.config),
        ignored: repository.ignored.clone(),
        unread: repository.unread.iter().map(|path| path.display().to_string()).collect(),
        flaws: gate::flaws(repository)?,
    })
}

/// The next push settles pushes that are over and records lease refs that differ from the log. This applies the same
/// changes, without recording them.
fn as_next_push_sees(
    repository: &Repository,
    settings: &Settings,
    here: &Place,
    mut state: State,
) -> Result<State, CommandError> {
    let dir = FenceDir::at(repository.fence_dir());
    let viewpoint = Viewpoint { here, watched: None };
    for flight in state.in_flight.clone() {
        let plan = read_plan(&dir, &flight)?;
        let bound = slot::bound_of(&flight, settings);
        if let FlightState::Over(evidence) =
            slot::state_of(&flight, &plan, viewpoint, bound, repository).map_err(unreadable)?
        {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name)).map_err(unreadable)?;
            state.settle(&flight, settle(&flight, &plan, &seen), plan.len(), evidence);
        }
    }
    let now = clock::stamp(here);
    for rules in &settings.fences {
        // Unreadable leases are reported by doctor.
        if let Ok(Some(line)) = catch_up::compare_with_log(repository, &state, rules, &now, "") {
            let applied = state.apply(0, "", &Event::LeaseFound(line));
            debug_assert!(applied.is_ok(), "a lease can be found at any time");
        }
    }
    Ok(state)
}

impl LeaseStatus {
    fn of(standing: &Standing, now: &Stamp) -> LeaseStatus {
        let Lease { id, token, owner, ttl, reason, words, .. } = standing.lease.clone();
        let left = standing.left_at(now);
        LeaseStatus {
            state: match left {
                Some(_) => LeaseCondition::Held,
                None if standing.is_held() => LeaseCondition::Expired,
                None => LeaseCondition::Released,
            },
            owner,
            lease: id,
            token,
            reason,
            words,
            ttl_s: ttl,
            left_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            since: clock::written(&standing.since),
            heard: clock::written(&standing.heard),
            progress: standing.progress.clone(),
        }
    }

    fn show(&self, out: &mut impl Write) -> io::Result<()> {
        let LeaseStatus { owner, token, reason, .. } = self;
        let owner = text::in_quotes(owner);
        let words = self.words.as_deref().map_or(String::new(), |words| format!(", {}", text::in_quotes(words)));
        match self.state {
            LeaseCondition::Held => {
                let left = self.left_ms.unwrap_or(0).div_ceil(1000);
                writeln!(out, "  lease      held by {owner}, token {token}, for another {left} s unless renewed")?;
            }
            LeaseCondition::Expired => {
                writeln!(out, "  lease      expired: {owner} had it, token {token}, and has not renewed it")?;
            }
            LeaseCondition::Released if *reason == Reason::Revoked => {
                writeln!(out, "  lease      free: revoked by {owner}{words}")?;
            }
            LeaseCondition::Released => writeln!(out, "  lease      free: released by {owner} after token {token}")?,
        }
        writeln!(out, "             since {}, last renewed {}", self.since, self.heard)?;
        match &self.progress {
            Some(progress) if self.state != LeaseCondition::Released => {
                writeln!(out, "             progress {}", text::in_quotes(progress))
            }
            _ => Ok(()),
        }
    }
}

impl FlightStatus {
    fn of(flight: &InFlight, fence: &FenceName, here: &Place) -> FlightStatus {
        FlightStatus {
            push: flight.push,
            token: flight.token_for(fence),
            since: flight.time.clone(),
            who: flight.who.clone(),
            receive_pack: flight.receive_pack,
            form: if slot::is_bounded(flight, here) { "bounded" } else { "full" },
            refs: flight.plan.refs.clone(),
            count: flight.plan.count,
        }
    }
}

fn show(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", status.repository)?;
    for flaw in &status.flaws {
        writeln!(out, "warning: {flaw}")?;
    }
    for FenceStatus { mark, kind, rules, lease, in_flight } in &status.fences {
        let mode = match rules.mode {
            Mode::Enforce => "",
            Mode::Observe => "  (observe mode: refuses nothing)",
            Mode::Off => "  (off)",
        };
        writeln!(out, "fence '{}'  mark {mark}{mode}", rules.fence)?;
        writeln!(out, "  guards     {}", rules.refs.join(" "))?;
        writeln!(out, "  accepts    {}", tokens::describe_kind(*kind))?;
        if let Some(lease) = lease {
            lease.show(out)?;
        }
        for flight in in_flight {
            let token = flight.token.map_or("no token".to_owned(), |token| format!("token {token}"));
            writeln!(out, "  in flight  {token} of '{}' since {}", flight.who.pusher, flight.since)?;
            for planned in flight.refs.iter().take(3) {
                writeln!(out, "             {}", planned.name)?;
            }
            if flight.count > 3 {
                writeln!(out, "             and {} more refs", flight.count - 3)?;
            }
            match flight.receive_pack {
                Some(receive_pack) if flight.form == "full" => {
                    writeln!(out, "             receive-pack is process {}, alive", receive_pack.pid)?;
                }
                _ => writeln!(out, "             receive-pack is not visible from here: bounded form")?,
            }
        }
    }
    for ConfiguredSetting { key, value, origin } in &status.settings {
        writeln!(out, "setting {key} = {value}  from {origin}")?;
    }
    for ConfiguredSetting { key, value, origin } in &status.ignored {
        writeln!(out, "ignored {key} = {value}  from {origin}: not set by the repository's owner")?;
    }
    for path in &status.unread {
        writeln!(out, "unread  {path}: cannot be read, so the settings of the repository's owner in it are not shown")?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreadable(error: crate::repository::refs::RefError) -> CommandError {
    CommandError::Other { what: error.to_string(), hint: "check the repository:  git fsck".to_owned() }
}
