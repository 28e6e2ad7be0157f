//! Showing where all fences stand, without changing anything.

use crate::{
    failure::{self, Failure},
    files::FenceDir,
    gate_checks, history,
    repository::Repository,
    settings::{self, Made},
    slot::{self, Fate, Lookout},
    store::read_plan,
    surroundings::Environment,
};
use git_fence_core::{
    FenceName, InFlight, Mark, Mode, Place, PlannedRef, PushId, ReceivePack, Rules, Settings, State, Token, Who, settle,
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
    /// The settings that somebody has made, and where.
    settings: Vec<Made>,
    /// What would keep pushes from being checked at all.
    flaws: Vec<String>,
}

#[derive(Serialize)]
struct FenceStatus {
    mark: Mark,
    /// The rules in force.
    #[serde(flatten)]
    rules: Rules,
    in_flight: Vec<FlightStatus>,
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
pub(crate) fn run(dir: &Path, json: bool, environment: &Environment) -> Result<(), Failure> {
    let repository = Repository::find(dir, environment)?;
    let settings = settings::read(&repository.config)?;
    let here = failure::here()?;
    let state = history::state(&FenceDir::at(repository.fence_dir()), &here.boot)?;
    let status = look(&repository, &settings, &here, state)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&status).unwrap_or_default())?;
    } else {
        show(&status, &mut out)?;
    }
    Ok(())
}

/// The next push settles those that are over. Until then they are shown as they will be settled.
fn look(repository: &Repository, settings: &Settings, here: &Place, mut state: State) -> Result<Status, Failure> {
    let dir = FenceDir::at(repository.fence_dir());
    let lookout = Lookout { here, watched: None };
    for flight in state.in_flight.clone() {
        let plan = read_plan(&dir, &flight)?;
        let bound = slot::bound_of(&flight, settings);
        if let Fate::Over(evidence) = slot::fate_of(&flight, &plan, lookout, bound, repository).map_err(unreadable)? {
            let seen = repository.ref_values(plan.iter().map(|planned| &planned.name)).map_err(unreadable)?;
            let settled = settle(&flight, &plan, &seen).on_record(&flight, &state, plan.len(), evidence);
            let applied = state.apply(0, &flight.time, &settled);
            debug_assert!(applied.is_ok(), "a push in flight can be settled");
        }
    }
    let fences = settings.fences.iter().map(|rules| {
        let fence = state.fence(&rules.fence);
        FenceStatus {
            mark: fence.mark,
            rules: rules.clone(),
            in_flight: fence.slot.iter().map(|flight| FlightStatus::of(flight, &rules.fence, here)).collect(),
        }
    });
    Ok(Status {
        repository: repository.common_dir.display().to_string(),
        fences: fences.collect(),
        settings: settings::made(&repository.config),
        flaws: gate_checks::flaws(repository)?,
    })
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
    for FenceStatus { mark, rules, in_flight } in &status.fences {
        let mode = match rules.mode {
            Mode::Enforce => "",
            Mode::Observe => "  (observes, refuses nothing)",
            Mode::Off => "  (off)",
        };
        writeln!(out, "fence '{}'  mark {mark}{mode}", rules.fence)?;
        writeln!(out, "  guards     {}", rules.refs.join(" "))?;
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
                    writeln!(out, "             moved by process {}, which is alive", receive_pack.pid)?;
                }
                _ => writeln!(out, "             by whom cannot be seen from here: the bounded form")?,
            }
        }
    }
    for Made { key, value, origin } in &status.settings {
        writeln!(out, "setting {key} = {value}  from {origin}")?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn unreadable(error: crate::refs::RefError) -> Failure {
    Failure::Other { what: error.to_string(), hint: "look with  git fsck".to_owned() }
}
